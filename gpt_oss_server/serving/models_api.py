"""GET /v1/models, /v1/models/{id}, /health and /ready."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from gpt_oss_server import __version__
from gpt_oss_server.constraints.binding import enforced
from gpt_oss_server.serving.served import Served


def models_router(served: Served) -> APIRouter:
    router = APIRouter()
    started = int(time.time())

    def model(name: str) -> dict[str, Any]:
        info = served.engine.info
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
        return JSONResponse({"object": "list", "data": [model(name) for name in served.model_names]})

    @router.api_route("/v1/models/{name:path}", methods=["GET", "HEAD"])
    async def one_model(name: str) -> Response:
        served.check_model(name)
        return JSONResponse(model(name))

    @router.api_route("/health", methods=["GET", "HEAD"])
    async def health() -> Response:
        return JSONResponse(
            {
                "status": "ok",
                "version": __version__,
                "ready": True,
                "model": served.model_names[0],
                "counters": {
                    **served.counters.snapshot(),
                    "tools": served.tool_counters(),
                    "engine": served.engine_counters(),
                },
            }
        )

    @router.api_route("/ready", methods=["GET", "HEAD"])
    async def ready() -> Response:
        served.check_room()
        return JSONResponse({"status": "ready", "model": served.model_names[0]})

    return router
