"""Messages in-process, with predictable ids and clock, and the invariants of every stream of events."""

from typing import Any

from anthropic.types import Message
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from pydantic import TypeAdapter
from pydantic_core import from_json

from gpt_oss_server.apis.messages.service import MessagesService
from gpt_oss_server.apis.messages.write import encode_event
from gpt_oss_server.caller.caller import LOCAL, Caller
from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.ids import CountingIds
from gpt_oss_server.settings import Settings
from inference.engine import Engine
from tests.doubles.apis.api_client import events_in
from tests.doubles.apis.asking import CLOCK, responses_service

Block = dict[str, Any]
TOOL: Block = {
    "name": "f",
    "description": "A function.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
HI: Block = {"max_tokens": 1_000, "messages": [{"role": "user", "content": "hi"}]}
THINKING: Block = {"thinking": {"type": "adaptive"}}
_event: TypeAdapter[Any] = TypeAdapter(BetaRawMessageStreamEvent)
_DELTAS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
}


def messages_service(engine: Engine, settings: Settings | None = None, **options: Any) -> MessagesService:
    known: dict[str, Any] = {"encoding": load_encoding(), "ids": CountingIds(), "clock": lambda: CLOCK}
    return MessagesService(responses_service(engine, settings, **{**known, **options}))


async def events_of(service: MessagesService, caller: Caller = LOCAL, **body: Any) -> list[Block]:
    run = await service.start(caller, {**HI, "stream": True, **body}, None)
    sent = b"".join([encode_event(event) async for batch in run.events() for event in batch]).decode()
    events = events_in(sent)
    names = [line[7:] for line in sent.split("\n") if line.startswith("event: ")]
    assert names == [event["type"] for event in events]
    return events


async def message_of(service: MessagesService, caller: Caller = LOCAL, **body: Any) -> Block:
    """The message of a stream, which a whole answer must equal but for its ids."""
    return check_events(await events_of(service, caller, **body))


def blocks(message: Block) -> list[str]:
    return [block["type"] for block in message["content"]]


def check_events(events: list[Block]) -> Block:
    """The message that a client puts together from the events."""
    first, *rest = events
    assert first["type"] == "message_start"
    message: Block = {**first["message"], "content": []}
    inputs, opened, is_over = dict[int, str](), False, False
    for event in events:
        if event["type"] != "error":
            _event.validate_python(event)
    for event in rest:
        assert not is_over, f"{event['type']} after the end"
        content: list[Block] = message["content"]
        match event["type"]:
            case "content_block_start":
                assert not opened, "a block begins within another"
                assert event["index"] == len(content)
                content.append(dict(event["content_block"]))
                opened = True
            case "content_block_delta":
                assert opened
                assert event["index"] == len(content) - 1
                _take(event["delta"], content[-1], inputs, event["index"])
            case "content_block_stop":
                assert opened
                assert event["index"] == len(content) - 1
                opened = False
            case "message_delta":
                assert not opened
                message |= {**event["delta"], "usage": event["usage"]}
                message |= {key: event[key] for key in ("context_management",) if key in event}
            case "message_stop":
                assert message["stop_reason"]
                is_over = True
            case "error":
                message["error"] = event["error"]
                is_over = True
            case kind:
                raise AssertionError(kind)
    assert is_over
    if "error" not in message:
        BetaMessage.model_validate(message)
        if not any(block["type"].startswith(("mcp_", "compaction")) for block in message["content"]):
            Message.model_validate(message)
    return message


def _take(delta: Block, block: Block, inputs: dict[int, str], index: int) -> None:
    match delta["type"]:
        case "input_json_delta":
            inputs[index] = inputs.get(index, "") + delta["partial_json"]
            block["input"] = from_json(inputs[index], allow_partial=True)
        case "citations_delta":
            block["citations"] = [*(block["citations"] or ()), delta["citation"]]
        case "compaction_delta":
            block |= {key: delta[key] for key in ("content", "encrypted_content")}
        case kind:
            key, of = _DELTAS[kind]
            assert delta[of], f"an empty {kind}"
            block[key] += delta[of]
