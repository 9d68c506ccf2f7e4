"""GET /v1/responses/{id}/trace: the tokens of a response, where the operator allows debugging.

With `?allowed=PLACE`: what the grammar allowed at this place after the prompt.
"""

import asyncio

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from gpt_oss_server.errors import DebuggingOff, TraceNotFound
from gpt_oss_server.http.edge import caller_of
from gpt_oss_server.runs.served import Served
from gpt_oss_server.runs.work import Work
from gpt_oss_server.traces.document import Traced, allowed_at, trace_of
from gpt_oss_server.traces.packed import unpacked
from gpt_oss_server.traces.records import TraceRecord

_MOST_RESPONSES = 200  # of one conversation


def traces_router(served: Served) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/responses/{response_id}/trace")
    async def trace(response_id: str, request: Request) -> Response:
        if not served.traces.enabled:
            raise DebuggingOff(
                "Traces are off. Start the server with --debug-api; by default they are on only where the "
                "server listens on this machine alone."
            )
        asked = request.query_params
        whole = asked.get("conversation", "false").lower() in ("true", "1")
        work = served.stored_work(caller_of(request.scope))
        chain = await _found(served, work, response_id, whole=whole)

        def answer() -> Response:
            model, place = served.models.named(chain[-1].record.response["model"]), asked.get("allowed", "")
            if place.isdecimal():
                found = allowed_at(chain[-1].tokens, int(place), model.encoding)
                return JSONResponse({"allowed": found})
            return JSONResponse(trace_of(chain, model.encoding, model.info))

        return await asyncio.to_thread(answer)

    return router


async def _found(served: Served, work: Work, response_id: str, *, whole: bool) -> list[Traced]:
    """The response's record; with `whole`, after the kept ones of the responses that it continues."""
    chain: list[Traced] = []
    named: str | None = response_id
    while named is not None and len(chain) < _MOST_RESPONSES:
        traced = await _traced(served, work, named)
        if traced is None:
            break
        chain.insert(0, traced)
        named = traced.record.response.get("previous_response_id") if whole else None
    if not chain:
        raise TraceNotFound(
            f"No trace of the response {response_id!r} is kept: it was not stored, or is too old "
            "(--trace-max-bytes). With --store memory, a restart loses all traces.",
            param="response_id",
        )
    return chain


async def _traced(served: Served, work: Work, response_id: str) -> Traced | None:
    """The record with its history, if both are kept."""
    record = await _record(served, work, response_id)
    if record is not None and record.transcript is not None:  # the whole prompt is still in memory
        return Traced(record, transcript=record.transcript)
    if record is None or record.ended is None or not record.ended.prompt.needs_history:
        return None if record is None else Traced(record)
    history = await work.keep.responses.history(response_id)
    return None if history is None else Traced(record, history.segments)


async def _record(served: Served, work: Work, response_id: str) -> TraceRecord | None:
    """The record of this process, or of one that stored it."""
    record = served.traces.get(response_id, work.caller.owner)
    if work.keep.traces is None or (record is not None and record.transcript is not None):
        return record
    stored = await work.keep.responses.get(response_id)
    if stored is None:  # another server may have deleted it
        return None
    if record is not None:
        return record
    body = await work.keep.traces.get(response_id)
    return None if body is None else unpacked(body, stored.response)
