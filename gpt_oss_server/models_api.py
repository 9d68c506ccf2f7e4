"""GET /v1/models, /v1/models/{id} and /health."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from gpt_oss_server import __version__
from gpt_oss_server.responses.service import ResponsesService


def models_router(service: ResponsesService) -> APIRouter:
    router = APIRouter()
    started = int(time.time())

    def model(name: str) -> dict[str, Any]:
        info = service.engine.info
        return {
            "id": name,
            "object": "model",
            "created": started,
            "owned_by": "gpt-oss-server",
            "context_length": info.context_length,
            "description": info.description,
        }

    @router.api_route("/v1/models", methods=["GET", "HEAD"])
    async def models() -> Response:
        return JSONResponse({"object": "list", "data": [model(name) for name in service.model_names]})

    @router.api_route("/v1/models/{name:path}", methods=["GET", "HEAD"])
    async def one_model(name: str) -> Response:
        service.check_model(name)
        return JSONResponse(model(name))

    @router.api_route("/health", methods=["GET", "HEAD"])
    async def health() -> Response:
        return JSONResponse(
            {
                "status": "ok",
                "version": __version__,
                "model": service.model_names[0],
                "counters": {
                    **service.counters.snapshot(),
                    "tools": service.tool_counters(),
                    "engine": service.engine_counters(),
                },
            }
        )

    return router
