"""GET /v1/models and /v1/models/{id}."""

import time
from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from gpt_oss_server.constraints.binding import enforced
from gpt_oss_server.runs.served import Served


def models_router(served: Served) -> APIRouter:
    router = APIRouter()
    started = int(time.time())

    def model(name: str) -> dict[str, Any]:
        info = served.model.info
        return {
            "id": name,
            "object": "model",
            "created": started,
            "owned_by": "gpt-oss-server",
            "context_length": info.context_length,
            "description": info.description,
            "is_demo": info.is_demo,
            "enforces": enforced(info),
        }

    @router.api_route("/v1/models", methods=["GET", "HEAD"])
    async def models() -> Response:
        return JSONResponse({"object": "list", "data": [model(name) for name in served.model.names]})

    @router.api_route("/v1/models/{name:path}", methods=["GET", "HEAD"])
    async def one_model(name: str) -> Response:
        served.model.check_name(name)
        return JSONResponse(model(name))

    return router
