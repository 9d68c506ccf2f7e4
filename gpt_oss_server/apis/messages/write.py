"""Writes a run of the Responses API as a message: its events, and the message itself.

Takes the run's events in batches. Returns the message's events; `message` is current after each batch. Every
block ends before the next begins. It must not know how a request was read, apart from what the message shows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json, to_json

from gpt_oss_server.apis.messages.errors import error_body
from gpt_oss_server.apis.messages.hosted import STREAMED, Block, call_block, result_block
from gpt_oss_server.apis.messages.object_text import ObjectText
from gpt_oss_server.apis.messages.request import Thoughts
from gpt_oss_server.apis.responses.run import Run
from gpt_oss_server.errors import ApiError, InvalidOutput
from gpt_oss_server.http.sse import encode, to_line
from gpt_oss_server.items.file_search import url_of
from gpt_oss_server.stores.sealing import Sealer
from gpt_oss_server.turns.stops import StopFilter

Event = dict[str, Any]
Delta = tuple[bytes, int, str]
"""More text of a block: its frame, the block's index, the text. By far the most frequent event."""
Written = Event | Delta


def _frame(kind: bytes, key: bytes) -> bytes:
    inner = b'{"type":"content_block_delta","index":%%d,"delta":{"type":"%b","%b":%%b}}' % (kind, key)
    return b"event: content_block_delta\ndata: %b\n\n" % inner


_TEXT, _THINKING = _frame(b"text_delta", b"text"), _frame(b"thinking_delta", b"thinking")
_INPUT = _frame(b"input_json_delta", b"partial_json")
_MORE_TEXT = "response.output_text.delta"


@dataclass(frozen=True, slots=True)
class Shown:
    """What the request wants of its message."""

    model: str
    most: int  # tokens of output
    thoughts: Thoughts = "shown"
    stops: Sequence[str] = ()
    begun: int = 0  # characters with which the request has begun the answer
    applied: list[dict[str, Any]] | None = None  # edits of its context, where it has any


class MessageWriter:
    """Feed it every batch. Once it has `stopped`, the run need not go on."""

    def __init__(
        self, shown: Shown, run: Run, spellings: Callable[[Sequence[Block]], str | None], sealer: Sealer
    ) -> None:
        """`spellings` seals the messages whose tokens their blocks would not give back."""
        self.message: Block = {}
        self.error: ApiError | None = None
        self._shown, self._run = shown, run
        self._spellings, self._sealer = spellings, sealer
        self._filter = StopFilter(shown.stops) if shown.stops else None
        self._left = shown.begun
        self._open: Block | None = None
        self._index = 0  # of the open block
        self._is_plain = False  # more text goes into the open block as it is
        self._text: list[str] = []
        self._input = ObjectText()  # of the open call
        self._thought: str | None = None  # sealed, and not yet shown
        self._out: list[Written] = []

    @property
    def stopped(self) -> bool:
        return self._filter is not None and self._filter.found is not None

    def feed(self, events: Sequence[Event]) -> list[Written]:
        out = self._out = list[Written]()
        for event in events:
            kind = event["type"]
            if kind == _MORE_TEXT and self._is_plain:  # by far the most frequent
                text = event["delta"]
                self._text.append(text)
                out.append((_TEXT, self._index, text))
            elif self.error is None and (handler := _HANDLERS.get(kind)) is not None:
                handler(self, event)
        return out

    def beat(self) -> list[Written]:
        return [{"type": "ping"}] if self.message else []

    # Blocks

    def _begin(self, block: Block) -> Block:
        self._end()
        self._open, self._text, self._input = block, [], ObjectText()
        self._is_plain = block["type"] == "text" and not (self._shown.stops or self._left)
        self._index = len(self.message["content"])
        self._out.append({"type": "content_block_start", "index": self._index, "content_block": dict(block)})
        return block

    def _write(self, frame: bytes, text: str) -> None:
        self._text.append(text)
        self._out.append((frame, self._index, text))

    def _delta(self, **delta: Any) -> None:
        self._out.append({"type": "content_block_delta", "index": self._index, "delta": delta})

    def _end(self) -> None:
        block, self._open, self._is_plain = self._open, None, False
        if block is None:
            return
        text = "".join(self._text)
        if block["type"] in ("text", "thinking"):
            block[block["type"]] = text
        elif "input" in block and text:
            block["input"] = _partial(text)
        self._out.append({"type": "content_block_stop", "index": self._index})
        self.message["content"].append(block)

    def _whole(self, block: Block) -> None:
        self._begin(block)
        self._end()

    # The events of the run

    def _created(self, event: Event) -> None:
        response = event["response"]
        self.message = {
            "id": response["id"].replace("resp_", "msg_", 1),
            "type": "message",
            "role": "assistant",
            "model": self._shown.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage({"input_tokens": self._run.prompt_length, "output_tokens": 0}),
        }
        self._out.append({"type": "message_start", "message": {**self.message, "content": []}})

    def _added(self, event: Event) -> None:
        item = event["item"]
        kind = item["type"]
        if kind == "function_call":
            self._tell_thought()
            call = {"id": f"toolu_{_key(item['call_id'])}", "name": item["name"], "input": {}}
            self._begin({"type": "tool_use", **call})
        elif kind in STREAMED:
            self._tell_thought()
            self._begin(call_block(item, _key(item["id"])))
            if kind == "code_interpreter_call":
                self._write(_INPUT, '{"code":"')

    def _reasoned(self, event: Event) -> None:
        if self._shown.thoughts == "shown":
            self._begin_thought()
            self._write(_THINKING, event["delta"])

    def _begin_thought(self) -> Block:
        return self._open or self._begin({"type": "thinking", "thinking": "", "signature": ""})

    def _wrote(self, event: Event) -> None:
        text = event["delta"]
        if self._left:
            skipped = min(self._left, len(text))
            self._left -= skipped
            text = text[skipped:]
        if self._filter is not None:
            text = self._filter.feed(text)
        if text:
            self._write_text(text)

    def _write_text(self, text: str) -> None:
        if self._open is None:
            self._thought = None  # thinking that led to an answer is not read again
            self._begin({"type": "text", "text": "", "citations": None})
        self._write(_TEXT, text)

    def _cited(self, event: Event) -> None:
        cited = event["annotation"]
        is_file = cited["type"] == "file_citation"
        citation = {
            "type": "web_search_result_location",
            "url": url_of(cited["file_id"], cited["filename"]) if is_file else cited["url"],
            "title": cited["filename"] if is_file else cited["title"],
            "cited_text": "",
            "encrypted_index": "",
        }
        if self._open is not None:
            self._open["citations"] = [*(self._open["citations"] or ()), citation]
            self._delta(type="citations_delta", citation=citation)

    def _called(self, event: Event) -> None:
        if text := self._input.feed(event["delta"]):
            self._write(_INPUT, text)

    def _coded(self, event: Event) -> None:
        self._write(_INPUT, to_json(event["delta"])[1:-1].decode())

    def _done(self, event: Event) -> None:
        item = event["item"]
        match item["type"]:
            case "reasoning":
                self._end_thought(item)
            case "message":
                if self._filter is not None and (rest := self._filter.close()):
                    self._write_text(rest)
                self._end()
            case "function_call":
                self._end_call(item)
            case "web_search_call":
                self._tell_thought()
                call = call_block(item, _key(item["id"]))
                fields, call["input"] = call["input"], {}
                self._begin(call)
                self._write(_INPUT, to_json(fields).decode())
                self._answer(item)
            case "code_interpreter_call":
                self._write(_INPUT, '"}')
                self._answer(item)
            case "mcp_call":
                self._answer(item)
            case "compaction":
                sealed = item["encrypted_content"]
                block = self._begin({"type": "compaction", "content": None, "encrypted_content": None})
                self._delta(type="compaction_delta", content=None, encrypted_content=sealed)
                block["encrypted_content"] = sealed
                self._end()

    def _end_thought(self, item: Event) -> None:
        sealed = item.get("encrypted_content") or ""
        if self._shown.thoughts == "hidden":
            self._thought = sealed
            return
        self._begin_thought()["signature"] = sealed
        self._delta(type="signature_delta", signature=sealed)
        self._end()

    def _tell_thought(self) -> None:
        """Thinking that the client did not ask for: the model reads it again after the call's result."""
        if self._thought:
            self._whole({"type": "redacted_thinking", "data": self._thought})
        self._thought = None

    def _end_call(self, item: Event) -> None:
        is_input = self._input.is_whole or not item["arguments"].strip()
        if item["status"] == "completed" and not is_input:
            problem = f"The model called {item['name']!r} with an input that is no JSON object"
            advice = "Send the request again, or declare the tool as strict."
            self._fail(InvalidOutput(f"{problem}: {item['arguments']:.200}. {advice}"))
        else:
            self._end()

    def _answer(self, item: Event) -> None:
        call = self._open
        self._end()
        text = self._run.results.get(item["id"])
        if call is not None and text is not None:
            self._whole(result_block(item, call, text, self._sealer))

    # The end

    def _finished(self, event: Event) -> None:
        response = event["response"]
        self._end()
        if self._run.error is not None:
            self._fail(self._run.error)
            return
        if not self.stopped and (sealed := self._spellings(self.message["content"])):
            self._whole({"type": "redacted_thinking", "data": sealed})
        message = self.message
        message["stop_reason"] = self._reason(response)
        message["stop_sequence"] = self._filter.found if self._filter is not None else None
        used = [block["name"] for block in message["content"] if block["type"] == "server_tool_use"]
        message["usage"] = _usage(response["usage"], used)
        delta = {key: message[key] for key in ("stop_reason", "stop_sequence")}
        edits = {} if self._shown.applied is None else {"applied_edits": self._shown.applied}
        edited = {"context_management": edits} if edits else {}
        message |= edited
        self._out.append({"type": "message_delta", "delta": delta, "usage": message["usage"], **edited})
        self._out.append({"type": "message_stop"})

    def _fail(self, error: ApiError) -> None:
        self.error = error
        self._out.append(error_body(error))

    def _reason(self, response: Event) -> str:
        if self.stopped:
            return "stop_sequence"
        last = response["output"][-1]["type"] if response["output"] else ""
        if response["status"] == "incomplete":
            if last.endswith("_call") and last != "function_call":
                return "pause_turn"
            # With a message, the server ended the turn, as the model repeated itself.
            explained = "message" in (response["incomplete_details"] or {})
            whole = response["usage"]["output_tokens"] < self._shown.most and not explained
            return "model_context_window_exceeded" if whole else "max_tokens"
        called = any(block["type"] == "tool_use" for block in self.message["content"])
        return "tool_use" if called else "end_turn"


def encode_event(event: Written) -> bytes:
    """The event as it is sent. Of a delta, only the text is encoded."""
    return event[0] % (event[1], to_line(event[2])) if isinstance(event, tuple) else encode(event)


def _key(own_id: str) -> str:
    return own_id.partition("_")[2]


def _partial(text: str) -> Block:
    """The object as far as it was written; the call of a turn that was cut off has only a part of it."""
    try:
        value = from_json(text, allow_partial=True)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _usage(usage: Mapping[str, Any], used: Sequence[str] = ()) -> Block:
    """The tokens in the words of this API, where the prompt's count leaves out those from the cache."""
    cached = usage.get("input_tokens_details", {}).get("cached_tokens", 0)
    thinking = usage.get("output_tokens_details", {}).get("reasoning_tokens", 0)
    searches = {f"{name}_requests": used.count(name) for name in ("web_search", "web_fetch")}
    return {
        "input_tokens": usage["input_tokens"] - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": usage["output_tokens"],
        "output_tokens_details": {"thinking_tokens": thinking},
        "server_tool_use": searches if used else None,
    }


_HANDLERS: dict[str, Callable[[MessageWriter, Event], None]] = {
    "response.created": MessageWriter._created,
    "response.output_item.added": MessageWriter._added,
    "response.reasoning_text.delta": MessageWriter._reasoned,
    "response.reasoning.delta": MessageWriter._reasoned,
    _MORE_TEXT: MessageWriter._wrote,
    "response.output_text.annotation.added": MessageWriter._cited,
    "response.function_call_arguments.delta": MessageWriter._called,
    "response.mcp_call_arguments.delta": MessageWriter._called,
    "response.code_interpreter_call_code.delta": MessageWriter._coded,
    "response.output_item.done": MessageWriter._done,
    "response.completed": MessageWriter._finished,
    "response.incomplete": MessageWriter._finished,
    "response.failed": MessageWriter._finished,
}
