"""GET /v1/responses/{id}/trace: the tokens of a response, where the operator allows debugging."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from gpt_oss_server.errors import DebuggingOff, TraceNotFound
from gpt_oss_server.ops.keys.access import owner
from gpt_oss_server.responses.service import ResponsesService
from gpt_oss_server.traces.document import trace_of
from gpt_oss_server.traces.records import TraceRecord

_MOST_RESPONSES = 200  # of one conversation


def traces_router(service: ResponsesService) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/responses/{response_id}/trace")
    async def trace(response_id: str, request: Request) -> Response:
        served = service.served
        if not served.traces.enabled:
            raise DebuggingOff(
                "Traces are off. Start the server with --debug-api; by default they are on only where the "
                "server listens on this machine alone."
            )
        whole = request.query_params.get("conversation", "false").lower() in ("true", "1")
        records = _records(service, response_id, whole=whole)
        document = await asyncio.to_thread(trace_of, records, served.encoding, served.engine.info)
        return JSONResponse(document)

    return router


def _records(service: ResponsesService, response_id: str, *, whole: bool) -> list[TraceRecord]:
    """The response's record; with `whole`, after the kept ones of the responses that it continues."""
    found: list[TraceRecord] = []
    named: str | None = response_id
    while named is not None and len(found) < _MOST_RESPONSES:
        record = service.served.traces.get(named, owner())
        if record is None:
            break
        found.insert(0, record)
        named = record.response.get("previous_response_id") if whole else None
    if not found:
        raise TraceNotFound(
            f"No trace of the response {response_id!r} is kept: it was not stored, is too old, or is of "
            "another process. The server keeps traces in memory.",
            param="response_id",
        )
    return found
