"""Any tokens give the same reasoning, text, calls and usage through both APIs."""

import random
from typing import Any

import pytest

from gpt_oss_server.apis.chat.writers import BETWEEN_MESSAGES
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import Encoding
from inference.engine import EngineFailed
from tests.doubles.apis.asking import responses_service
from tests.doubles.apis.chat_asking import CLOCK, TOOL, check_chunks, chunks_of
from tests.doubles.conversations import encoded, mutated
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.random_tests.seeds import seeds

TOOLS: dict[str, Any] = {"type": "function", **TOOL["function"]}


async def response_to(engine: ReplayEngine, encoding: Encoding, limit: int | None = None) -> dict[str, Any]:
    service = responses_service(engine, encoding=encoding, clock=lambda: CLOCK)
    body = {"input": "hi", "tools": [TOOLS], "store": False, "max_output_tokens": limit}
    return await (await service.start(LOCAL, body)).wait()


async def completion_to(engine: ReplayEngine, limit: int | None = None) -> dict[str, Any]:
    options: dict[str, Any] = {"max_completion_tokens": limit, "stream_options": {"include_usage": True}}
    return check_chunks(await chunks_of(engine, tools=[TOOL], **options), sdk_types=False)


def texts(response: dict[str, Any], kind: str) -> str:
    found = [item for item in response["output"] if item["type"] == kind]
    whole = ["".join(part["text"] for part in item["content"]) for item in found]
    return BETWEEN_MESSAGES.join(text for text in whole if text)


def check_same(response: dict[str, Any], completion: dict[str, Any]) -> None:
    choice = completion["choices"][0]
    message = choice["message"]
    assert (message["content"] or "") == texts(response, "message")
    assert message.get("reasoning", "") == texts(response, "reasoning")
    calls = [item for item in response["output"] if item["type"] == "function_call"]
    functions = [call["function"] for call in message.get("tool_calls", ())]
    made, expected = ([(each["name"], each["arguments"]) for each in side] for side in (functions, calls))
    assert made == expected
    reason = "tool_calls" if calls else "stop"
    assert choice["finish_reason"] == ("length" if response["status"] == "incomplete" else reason)
    wanted, usage = response["usage"], completion["usage"]
    assert usage["prompt_tokens"] == wanted["input_tokens"]
    assert usage["completion_tokens"] == wanted["output_tokens"]
    assert usage["total_tokens"] == wanted["total_tokens"]
    details = usage["completion_tokens_details"]
    assert details["reasoning_tokens"] == wanted["output_tokens_details"]["reasoning_tokens"]


@pytest.mark.parametrize("seed", seeds(4, proofs=20))
async def test_legal_completions_cut_at_every_token(encoding: Encoding, seed: int) -> None:
    rng = random.Random(seed)
    tokens = encoded(encoding, rng)
    for limit in range(1, len(tokens) + 1):
        engine = ReplayEngine(tokens, per_step=rng.choice((1, 3, 16)))
        check_same(await response_to(engine, encoding, limit), await completion_to(engine, limit))
        assert engine.prompts[0] == engine.prompts[1], "both give the model the same prompt"
        assert engine.open_generations == 0


@pytest.mark.parametrize("seed", seeds(3, proofs=20))
async def test_mutated_completions(encoding: Encoding, seed: int) -> None:
    rng = random.Random(3_000 + seed)
    for _ in range(100):
        engine = ReplayEngine(mutated(encoded(encoding, rng), rng), per_step=8)
        check_same(await response_to(engine, encoding), await completion_to(engine))


@pytest.mark.parametrize("seed", seeds(4, proofs=10))
async def test_a_failure_after_any_token_is_one_error_chunk(encoding: Encoding, seed: int) -> None:
    tokens = encoded(encoding, random.Random(4_000 + seed))
    for broken in (EngineFailed("out of memory"), RuntimeError("a defect")):
        for after in range(len(tokens) + 1):
            engine = ReplayEngine(tokens, fails_after=after, error=broken)
            *chunks, last = await chunks_of(engine, tools=[TOOL])
            assert last["error"]["code"] == "server_error"
            assert "a defect" not in last["error"]["message"]
            assert not any("error" in chunk for chunk in chunks)
            assert all(choice["finish_reason"] is None for chunk in chunks for choice in chunk["choices"])
            assert engine.open_generations == 0
