"""GET /live, /ready and /health."""

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from gpt_oss_server import __version__
from gpt_oss_server.errors import EngineUnavailable
from gpt_oss_server.models.model import Model
from gpt_oss_server.observe.health.state import Health
from gpt_oss_server.runs.served import Served


def health_router(served: Served, health: Health) -> APIRouter:
    router = APIRouter()

    @router.api_route("/live", methods=["GET", "HEAD"])
    async def live() -> Response:
        return JSONResponse({"status": "alive"})

    @router.api_route("/ready", methods=["GET", "HEAD"])
    async def ready() -> Response:
        if health.refusal is not None:
            raise EngineUnavailable(health.refusal)
        served.models.check_room()
        return JSONResponse({"status": "ready", "model": served.models.first.name})

    @router.api_route("/health", methods=["GET", "HEAD"])
    async def whole(request: Request) -> Response:
        failing, counters, first = health.problem is not None, served.counters.snapshot(), served.models.first
        state: dict[str, object] = {
            "status": "failing" if failing else "draining" if health.draining else "ok",
            "version": __version__,
            "ready": health.refusal is None,
            "model": first.name,
            "models": {model.name: _state(model) for model in served.models.all},
            "counters": {**counters, "tools": served.tool_counters(), "engine": first.counters()},
        }
        if request.query_params.get("steps") == "true":
            state["steps"] = getattr(first.engine, "recent_steps", list)()  # only some engines plan them
        if failing:
            state["problem"] = health.problem
        return JSONResponse(state, status_code=503 if failing else 200)

    return router


def _state(model: Model) -> dict[str, object]:
    problem = model.condition.problem
    own = {"status": "ok"} if problem is None else {"status": "failing", "problem": problem}
    return {**own, "state": model.state, "engine": model.counters()}
