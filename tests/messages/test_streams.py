"""Any tokens give a stream that the SDK's own types accept, and whose message a whole answer equals."""

import json
import random
from typing import Any

import pytest
from pydantic_core import from_json

from gpt_oss_server.apis.messages.object_text import ObjectText
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import ApiError
from gpt_oss_server.harmony.encoding import Encoding
from inference.engine import EngineFailed
from tests.doubles.apis.chat_asking import replaying
from tests.doubles.apis.messages_asking import (
    HI,
    THINKING,
    TOOL,
    blocks,
    check_events,
    events_of,
    message_of,
    messages_service,
)
from tests.doubles.conversations import encoded, mutated
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.harmony.shapes import SHAPES
from tests.doubles.random_tests.seeds import seeds

CALL = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"
THOUGHT = "<|channel|>analysis<|message|>I think.<|end|><|start|>assistant"
ANSWER = "<|channel|>final<|message|>{}<|return|>"


async def check(engine: ReplayEngine, **body: Any) -> dict[str, Any]:
    """Both forms of the answer are the same."""
    service = messages_service(engine)
    streamed = await message_of(service, tools=[TOOL], **body)
    run = await service.start(LOCAL, {**HI, "tools": [TOOL], **body}, None)
    if "error" in streamed:
        with pytest.raises(ApiError):
            await run.wait()
        return streamed
    assert _comparable(await run.wait()) == _comparable(streamed)
    return streamed


def _comparable(message: dict[str, Any]) -> list[Any]:
    """What is the same each time: seals and ids differ."""
    blocks = [
        {key: value for key, value in block.items() if key not in ("id", "signature", "data")}
        for block in message["content"]
    ]
    return [blocks, message["stop_reason"], message["usage"]]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
async def test_every_slip_gives_a_whole_stream_cut_at_every_token(shape: Any) -> None:
    engine = replaying(shape.completion)
    for limit in range(1, len(engine.tokens) + 1):
        cut = replaying(shape.completion, per_step=1 + limit % 3)
        events = await events_of(messages_service(cut), tools=[TOOL], max_tokens=limit, **THINKING)
        check_events(events)
        assert cut.open_generations == 0


@pytest.mark.parametrize("seed", seeds(3, proofs=12))
async def test_random_completions(encoding: Encoding, seed: int) -> None:
    rng = random.Random(9_000 + seed)
    for number in range(40):
        tokens = encoded(encoding, rng)
        await check(ReplayEngine(mutated(tokens, rng) if number % 2 else tokens, per_step=8), **THINKING)


async def test_blocks_are_in_the_order_of_the_turn() -> None:
    preamble = "<|channel|>commentary<|message|>Let me look.<|end|><|start|>assistant"
    message = await check(replaying(THOUGHT + preamble + CALL.replace("{}", '{"city":"Oslo"}')), **THINKING)
    assert blocks(message) == ["thinking", "text", "tool_use"]
    thinking, text, call = message["content"]
    assert (thinking["thinking"], text["text"]) == ("I think.", "Let me look.")
    assert (call["name"], call["input"]) == ("f", {"city": "Oslo"})
    assert call["id"].startswith("toolu_")
    assert thinking["signature"]
    assert message["stop_reason"] == "tool_use"


@pytest.mark.parametrize(
    ("thinking", "before_answer", "before_call"),
    [
        (None, [], ["redacted_thinking"]),
        ({"type": "disabled"}, [], ["redacted_thinking"]),
        ({"type": "enabled", "budget_tokens": 1_024}, ["thinking"], ["thinking"]),
        ({"type": "adaptive", "display": "omitted"}, ["thinking"], ["thinking"]),
    ],
    ids=str,
)
async def test_what_a_message_shows_of_the_thinking(
    thinking: Any, before_answer: Any, before_call: Any
) -> None:
    """Unless it is wanted, thinking is not in the way of an answer, and is kept for a call's result."""
    body = {} if thinking is None else {"thinking": thinking}
    answered = await check(replaying(THOUGHT + ANSWER.replace("{}", "Hi")), **body)
    called = await check(replaying(THOUGHT + CALL), **body)
    assert blocks(answered) == [*before_answer, "text"]
    assert blocks(called) == [*before_call, "tool_use"]
    if thinking and thinking.get("display"):
        assert (called["content"][0]["thinking"], bool(called["content"][0]["signature"])) == ("", True)


@pytest.mark.parametrize(
    ("limit", "engine", "reason"),
    [(5, {}, "max_tokens"), (9_000, {"context_length": 256}, "model_context_window_exceeded")],
)
async def test_why_a_message_ends_early(limit: int, engine: Any, reason: str) -> None:
    message = await check(replaying(ANSWER.replace("{}", "word " * 300), **engine), max_tokens=limit)
    assert message["stop_reason"] == reason


async def test_a_stop_sequence_ends_the_message_before_it() -> None:
    engine = replaying(THOUGHT + ANSWER.replace("{}", "One, two, three."))
    message = await check(engine, stop_sequences=["nothing", "two"], **THINKING)
    assert message["content"][-1]["text"] == "One, "
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "two")
    assert engine.open_generations == 0


async def test_the_beginning_of_the_answer_is_continued_and_not_sent_again(encoding: Encoding) -> None:
    engine = replaying(" three.<|return|>")
    messages = [*HI["messages"], {"role": "assistant", "content": "One, two,"}]
    message = await check(engine, messages=messages)
    assert message["content"] == [{"type": "text", "text": " three.", "citations": None}]
    beginning = "<|start|>assistant<|channel|>final<|message|>One, two,"
    assert encoding.decode(engine.prompts[0]).endswith(beginning)


async def test_a_failure_after_any_token_is_one_error_event(encoding: Encoding) -> None:
    tokens = encoding.encode_special(THOUGHT + ANSWER.replace("{}", "Hi there"))
    for after in range(len(tokens)):
        engine = ReplayEngine(tokens, fails_after=after, error=EngineFailed("out of memory"))
        message = await message_of(messages_service(engine), **THINKING)
        assert message["error"]["type"] == "api_error"


async def test_an_input_that_is_no_object_fails_and_one_that_is_nearly_one_is_repaired() -> None:
    broken = await check(replaying(CALL.replace("{}", "not json {")))
    assert "input that is no JSON object: not json {" in broken["error"]["message"]
    message = await check(replaying(CALL.replace("{}", '{"a": "one\n\ttwo"} and more')))
    assert message["content"][0]["input"] == {"a": "one\n\ttwo"}
    assert (await check(replaying(CALL.replace("{}", ""))))["content"][0]["input"] == {}


@pytest.mark.parametrize("seed", seeds(2, proofs=8))
def test_what_is_sent_of_an_input_can_always_be_parsed(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        value = {f"k{index}": _value(rng) for index in range(rng.randrange(4))}
        text = json.dumps(value, ensure_ascii=rng.random() < 0.5, indent=rng.choice((None, 1)))
        whole, sent = _fed(text + rng.choice(("", "\n", " junk")), rng)
        assert whole.is_whole
        assert json.loads(sent) == value
        at = rng.randrange(len(text))
        changed, sent = _fed(text[:at] + rng.choice('{}[]",:x1\\\n') + text[at + 1 :], rng)
        if changed.is_whole:
            json.loads(sent)


def _fed(text: str, rng: random.Random) -> tuple[ObjectText, str]:
    reader, sent, at = ObjectText(), "", 0
    while at < len(text):
        size = rng.randrange(1, 6)
        sent += reader.feed(text[at : at + size])
        at += size
        if sent:
            from_json(sent, allow_partial=True)
    return reader, sent


def _value(rng: random.Random, depth: int = 0) -> Any:
    match rng.randrange(8 if depth < 3 else 6):
        case 6:
            return [_value(rng, depth + 1) for _ in range(rng.randrange(4))]
        case 7:
            return {str(rng.random()): _value(rng, depth + 1) for _ in range(rng.randrange(4))}
        case _:
            return rng.choice((1, -2.5, 1e10, True, False, None, 'a"b\\c\n\t é', "", "x" * 20))
