"""GET /v1/models and /v1/models/{id}, in the form of the client's API; POST /models/load and /unload."""

import time
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from gpt_oss_server.apis.messages.errors import speaks_anthropic
from gpt_oss_server.caller.access import Access
from gpt_oss_server.constraints.binding import enforced
from gpt_oss_server.errors import from_inference
from gpt_oss_server.http.edge import caller_of
from gpt_oss_server.http.fields import Body, documented, read_body, required
from gpt_oss_server.http.unknown_fields import read_known
from gpt_oss_server.models.model import Model
from gpt_oss_server.runs.served import Served
from inference.engine import InferenceError, Loadable


class NamedModel(Body):
    model: str = required("The name of the model.")


def models_router(served: Served) -> APIRouter:
    router = APIRouter()
    started = int(time.time())

    def listed(name: str, model: Model, access: Access) -> dict[str, Any]:
        info = model.info
        return {
            "id": name,
            "object": "model",
            "created": started,
            "owned_by": "gpt-oss-server",
            "context_length": info.context_length,
            "description": info.description,
            "is_demo": info.is_demo,
            "state": model.state,
            "loadable": isinstance(model.engine, Loadable),
            "enforces": enforced(info),
            "tools": served.tools_for(access, model),
        }

    def in_messages(name: str, model: Model) -> dict[str, Any]:
        """The model as the Messages API has it."""
        return {
            "id": name,
            "type": "model",
            "display_name": name,
            "created_at": datetime.fromtimestamp(started, UTC).isoformat(),
            "lifecycle": "active",
            "max_input_tokens": model.info.context_length,
            "max_tokens": model.info.context_length,
        }

    @router.api_route("/v1/models", methods=["GET", "HEAD"])
    async def models(request: Request) -> Response:
        names = served.models.names((access := caller_of(request.scope).access).models)
        if speaks_anthropic(request.scope):
            first, last = next(iter(names), None), next(reversed(names), None)
            page = {"has_more": False, "first_id": first, "last_id": last}
            return JSONResponse({"data": [in_messages(*row) for row in names.items()], **page})
        return JSONResponse({"object": "list", "data": [listed(*row, access) for row in names.items()]})

    @router.api_route("/v1/models/{name:path}", methods=["GET", "HEAD"])
    async def one_model(name: str, request: Request) -> Response:
        access = caller_of(request.scope).access
        model = served.models.chosen(name, access.models)
        anthropic = speaks_anthropic(request.scope)
        return JSONResponse(in_messages(name, model) if anthropic else listed(name, model, access))

    _add_changes(router, served)
    return router


def _add_changes(router: APIRouter, served: Served) -> None:
    """Loading and unloading, as llama-server has them."""

    async def named(request: Request) -> tuple[Loadable, dict[str, str]]:
        caller, body, headers = await read_known(request, NamedModel, served.settings)
        wanted = read_body(body, NamedModel, '{"model": "gpt-oss-20b"}')
        return served.models.chosen(wanted.model, caller.access.models).loadable(), headers

    @router.post("/models/load", openapi_extra=documented(NamedModel))
    async def load(request: Request) -> Response:
        engine, headers = await named(request)
        try:
            await engine.load()
        except InferenceError as error:
            raise from_inference(error) from error
        return JSONResponse({"success": True}, headers=headers)

    @router.post("/models/unload", openapi_extra=documented(NamedModel))
    async def unload(request: Request) -> Response:
        engine, headers = await named(request)
        await engine.unload()
        return JSONResponse({"success": True}, headers=headers)
