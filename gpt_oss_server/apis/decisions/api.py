"""POST /v1/decisions: reads the request, and sends the answers to its questions."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from gpt_oss_server.apis.decisions.request import CreateDecision, parse_request
from gpt_oss_server.apis.decisions.run import DecisionRun, lay_out
from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.content.parts import treat_images
from gpt_oss_server.http.fields import documented
from gpt_oss_server.http.large_work import in_thread_if_large
from gpt_oss_server.http.sse import json_unless_gone
from gpt_oss_server.http.unknown_fields import read_known
from gpt_oss_server.runs.served import Served


def decisions_router(served: Served) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/decisions", openapi_extra=documented(CreateDecision))
    async def create(request: Request) -> Response:
        caller, body, headers = await read_known(request, CreateDecision, served.settings)
        run = await start(caller, body, served)
        return await json_unless_gone(request.receive, run.wait(), headers)

    return router


async def start(caller: Caller, body: object, served: Served) -> DecisionRun:
    """Does all work before the first token: after it returns, only the engine can fail."""
    request = await in_thread_if_large(caller.body_size, lambda: parse_request(body), body)
    treat_images(request.input, "input", served.settings.images)
    for number, question in enumerate(request.questions):
        treat_images(question.instructions, f"questions[{number}].instructions", served.settings.images)
    return await decided(caller, request, served)


async def decided(caller: Caller, request: CreateDecision, served: Served) -> DecisionRun:
    work = served.work(caller, request.model)
    work.model.check_room()
    asked = await in_thread_if_large(caller.body_size, lambda: lay_out(request, work), request.input)
    count = len(asked.ends)
    spending = await caller.reserve(asked.tokens, count, count)
    return DecisionRun(request, asked, served, work, work.new_id("dec", None), spending)
