"""GET /v1/models and /v1/models/{id}, in the form that the client's API has."""

import time
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from gpt_oss_server.apis.messages.errors import speaks_anthropic
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

    def in_messages(name: str) -> dict[str, Any]:
        """The model as the Messages API has it."""
        return {
            "id": name,
            "type": "model",
            "display_name": name,
            "created_at": datetime.fromtimestamp(started, UTC).isoformat(),
            "lifecycle": "active",
            "max_input_tokens": served.model.info.context_length,
            "max_tokens": served.model.info.context_length,
        }

    @router.api_route("/v1/models", methods=["GET", "HEAD"])
    async def models(request: Request) -> Response:
        names = served.model.names
        if speaks_anthropic(request.scope):
            page = {"has_more": False, "first_id": names[0], "last_id": names[-1]}
            return JSONResponse({"data": [in_messages(name) for name in names], **page})
        return JSONResponse({"object": "list", "data": [model(name) for name in names]})

    @router.api_route("/v1/models/{name:path}", methods=["GET", "HEAD"])
    async def one_model(name: str, request: Request) -> Response:
        served.model.check_name(name)
        return JSONResponse(in_messages(name) if speaks_anthropic(request.scope) else model(name))

    return router
