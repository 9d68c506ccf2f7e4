"""The answer of a run of chunks, as in chat and plain completions: a stream, or one JSON object.

Takes a run that is ready to start and the HTTP request. Returns the HTTP response. It must not know the
content of a chunk.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Protocol

from fastapi import Request
from starlette.responses import Response

from gpt_oss_server.http.sse import Event, EventStream, json_unless_gone, to_line
from gpt_oss_server.runs.usage import Usage

_DONE = b"data: [DONE]\n\n"  # also after an error, as from OpenAI: some clients wait for it


class ChunkRun(Protocol):
    @property
    def ignored(self) -> Sequence[str]:
        """The request's fields without effect on this engine."""
        ...

    def chunks(self) -> AsyncGenerator[list[Event], None]: ...

    async def wait(self) -> dict[str, Any]: ...


async def answer(
    run: ChunkRun,
    request: Request,
    *,
    streams: bool,
    keep_alive: float | None,
    headers: dict[str, str] | None = None,
) -> Response:
    headers = {**headers_for(run.ignored), **(headers or {})}
    if streams:
        return EventStream(run.chunks, encode_chunk, headers, keep_alive=keep_alive, end=_DONE)
    return await json_unless_gone(request.receive, run.wait(), headers)


def headers_for(ignored: Sequence[str]) -> dict[str, str]:
    """Names the request's fields that have no effect on this engine."""
    return {"x-ignored-fields": ", ".join(ignored)} if ignored else {}


def encode_chunk(chunk: Event) -> bytes:
    """Chunks have no event names."""
    return b"data: %s\n\n" % to_line(chunk)


def shown_usage(usage: Usage, *, with_reasoning: bool = False) -> dict[str, Any]:
    """The usage in the words of chat and plain completions, of which only chat's reason."""
    details = {"reasoning_tokens": usage.reasoning, **usage.predicted}
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        **({"completion_tokens_details": details} if with_reasoning else {}),
    }
