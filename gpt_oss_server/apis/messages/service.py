"""The Messages API without HTTP: a body becomes a run and the writer of its message.

Takes a caller and decoded JSON. Returns the run with its writer, or the length of a prompt, or raises an
`ApiError` in the words of this API before anything is generated.
"""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pydantic_core import to_json

from gpt_oss_server.apis.messages.edits import read_edits, tool_uses, without_results, without_thinking
from gpt_oss_server.apis.messages.hosted import Block
from gpt_oss_server.apis.messages.read import Read, read_request, spelling_key
from gpt_oss_server.apis.messages.request import CountTokens, CreateMessage, parse_count, parse_message
from gpt_oss_server.apis.messages.write import MessageWriter, Shown, Written
from gpt_oss_server.apis.responses.run import Run
from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.errors import ApiError
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.http.large_work import in_thread_if_large
from gpt_oss_server.http.unknown_fields import treat_unknown_fields
from gpt_oss_server.items.conversation import seal_message
from gpt_oss_server.stores.sealing import Sealer

R = TypeVar("R", bound=CountTokens)
Applied = list[dict[str, Any]]
_MOST_SEALED = 50_000  # tokens of a message; a longer one is rendered again from its text


@dataclass(slots=True)
class MessageRun:
    """Iterate once over `events()`, or wait for the message."""

    run: Run
    writer: MessageWriter

    async def events(self) -> AsyncGenerator[list[Written], None]:
        writer = self.writer
        async with aclosing(self.run.events()) as batches:
            async for batch in batches:
                if written := writer.feed(batch):
                    yield written
                if writer.error is not None:
                    return
                if writer.stopped:
                    self.run.enough = True

    async def wait(self) -> Block:
        async with aclosing(self.events()) as batches:
            async for _ in batches:
                pass
        if self.writer.error is not None:
            raise self.writer.error
        return self.writer.message


class MessagesService:
    def __init__(self, responses: ResponsesService) -> None:
        self._responses = responses
        self.served = responses.served

    async def start(self, caller: Caller, body: object, session: str | None) -> MessageRun:
        """`session` names the client's conversation, for engines of several replicas."""
        request, read, applied = await self._read(caller, body, parse_message)
        if session:
            read.body["prompt_cache_key"] = session
        try:
            run = await self._responses.start(
                caller, read.body, begun=read.begun, api=("messages", "The message")
            )
            await run.check_servers()
        except ApiError as error:
            raise read.in_own_words(error) from error
        return MessageRun(run, self._writer(request, read, run, applied))

    async def prompt(self, caller: Caller, body: object) -> list[int]:
        """The model's prompt for this request, including the start of the answer if the request gives one."""
        parse = parse_message if isinstance(body, dict) and "max_tokens" in body else parse_count
        _, read, _ = await self._read(caller, body, parse)
        try:
            return (await self._responses.render(caller, read.body, read.begun)).tokens
        except ApiError as error:
            raise read.in_own_words(error) from error

    async def count(self, caller: Caller, body: object) -> dict[str, Any]:
        _, read, applied = await self._read(caller, body, parse_count)
        counted: dict[str, Any] = {"input_tokens": await self._length(caller, read)}
        if applied is not None:
            cleared = sum(edit["cleared_input_tokens"] for edit in applied)
            original = {"original_input_tokens": counted["input_tokens"] + cleared}
            counted["context_management"] = original
        return counted

    async def _read(
        self, caller: Caller, body: object, parse: Callable[[object], R]
    ) -> tuple[R, Read, Applied | None]:
        request = await in_thread_if_large(caller.body_size, lambda: parse(body), body)
        treat_unknown_fields(body, type(request), self.served.settings.unknown_fields)
        if request.context_management is None:
            return request, await self._read_in_thread(caller, request), None
        request, applied = await self._edited(caller, request)
        return request, await self._read_in_thread(caller, request), applied

    async def _read_in_thread(self, caller: Caller, request: CountTokens) -> Read:
        read = partial(read_request, request, self.served.stores.of(caller.owner).sealer)
        return await in_thread_if_large(caller.body_size, read, request.messages)

    async def _length(self, caller: Caller, read: Read) -> int:
        try:
            return await self._responses.count(caller, read.body)
        except ApiError as error:
            raise read.in_own_words(error) from error

    async def _edited(self, caller: Caller, request: R) -> tuple[R, Applied]:
        """The request after its edits, and what each has cleared. Only edits that clear need lengths."""
        edits, applied = read_edits(request), Applied()

        async def length() -> int:
            return await self._length(caller, await self._read_in_thread(caller, request))

        if edits.thinking_turns is not None:
            messages, turns = without_thinking(request.messages, edits.thinking_turns)
            if turns:
                before = await length()
                request = request.model_copy(update={"messages": messages})
                tokens = before - await length()
                cleared = {"cleared_thinking_turns": turns, "cleared_input_tokens": tokens}
                applied.append({"type": "clear_thinking_20251015", **cleared})
        if (clears := edits.tool_uses) is not None:
            counts_tokens = clears.trigger[0] == "input_tokens"
            count = await length() if counts_tokens else len(tool_uses(request.messages))
            messages, calls = without_results(request.messages, clears)
            if calls and count > clears.trigger[1]:
                whole, before = request, count if counts_tokens else await length()
                request = request.model_copy(update={"messages": messages})
                tokens = before - await length()
                if tokens < clears.least:
                    return whole, applied
                cleared = {"cleared_tool_uses": calls, "cleared_input_tokens": tokens}
                applied.append({"type": "clear_tool_uses_20250919", **cleared})
        return request, applied

    def _writer(self, request: CreateMessage, read: Read, run: Run, applied: Applied | None) -> MessageWriter:
        work = run.work
        shown = Shown(
            model=request.model or work.model.name,
            most=request.max_tokens,
            thoughts=read.thoughts,
            stops=request.stops,
            begun=len(read.begun or ""),
            applied=applied,
        )

        def spellings(content: Sequence[Block]) -> str | None:
            if read.begun:
                return None  # the client joins its beginning and the rest into one text
            return sealed_spellings(content, run.transcript.segments, work.model.renderer, work.keep.sealer)

        return MessageWriter(shown, run, spellings, work.keep.sealer)


def sealed_spellings(
    content: Sequence[Block], segments: Sequence[Segment], renderer: Renderer, sealer: Sealer
) -> str | None:
    """Seals the messages of a turn that their blocks, as a client sends them back, would spell otherwise."""
    spoken = [segment for segment in segments if segment.role == "assistant" and not segment.is_reasoning]
    blocks = [block for block in content if block["type"] in ("text", "tool_use")]
    if len(spoken) != len(blocks):
        return None  # calls that ran here, or a text that was cut: their blocks are all that is kept
    sealed = {}
    for index, (block, segment) in enumerate(zip(blocks, spoken, strict=True)):
        if block["type"] == "tool_use":
            key = spelling_key(block["name"], block["input"])
            arguments = to_json(block["input"]).decode()
            rendered = renderer.call(f"functions.{block['name']}", arguments, content_type="json")
        else:
            key = spelling_key(block["text"])
            before_call = any(later["type"] == "tool_use" for later in blocks[index:])
            rendered = (renderer.preamble if before_call else renderer.answer)(block["text"])
        if tuple(rendered.tokens) != tuple(segment.tokens) and len(segment.tokens) <= _MOST_SEALED:
            sealed[key] = seal_message(sealer, segment)
    return json.dumps(sealed) if sealed else None
