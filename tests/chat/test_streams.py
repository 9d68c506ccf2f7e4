"""Whole streams of chunks, compared with reviewed snapshots.

A test without a snapshot writes one and fails. Review the snapshot, then run the test again.
A client that disconnects stops every choice within one token, in both APIs, streaming or not.
"""

from pathlib import Path
from typing import Any

import pytest

from gpt_oss_server.settings import Settings
from tests.doubles.apis.chat_asking import (
    CALL,
    HELLO,
    NEXT,
    TOOL,
    check_chunks,
    chunks_of,
    completion_of,
    continuing,
    message_of,
    replaying,
)
from tests.doubles.lints import compare
from tests.doubles.serving import scripted

SNAPSHOTS = Path(__file__).parent / "snapshots"
THINKS = "<|channel|>analysis<|message|>A greeting.<|end|>" + NEXT
PREAMBLE = "<|channel|>commentary<|message|>I look.<|end|>" + NEXT
CITY = '<|channel|>final <|constrain|>json<|message|>{"city":"Oslo"}<|return|>'
CITY_SCHEMA = {"name": "city", "strict": True, "schema": TOOL["function"]["parameters"]}
SCHEMA = {"type": "json_schema", "json_schema": CITY_SCHEMA}
WHOLE = THINKS + PREAMBLE + CALL
COUNTS = "<|channel|>final<|message|>One, two, three, four<|return|>"

STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": (HELLO, {}),
    "usage": (HELLO, {"stream_options": {"include_usage": True}}),
    "reasoning": (THINKS + HELLO, {}),
    "one_call": (THINKS + CALL, {"tools": [TOOL]}),
    "two_calls": (CALL + NEXT + CALL.replace("Oslo", "Paris"), {"tools": [TOOL]}),
    "preamble_then_call": (WHOLE, {"tools": [TOOL]}),
    "cut_in_reasoning": (WHOLE, {"tools": [TOOL], "max_tokens": 5}),
    "cut_in_preamble": (WHOLE, {"tools": [TOOL], "max_completion_tokens": 15}),
    "cut_in_header": (WHOLE, {"tools": [TOOL], "max_tokens": 20}),
    "cut_in_arguments": (WHOLE, {"tools": [TOOL], "max_tokens": 33}),
    "cut_in_answer": (THINKS + HELLO, {"max_tokens": 14}),
    "stop_over_tokens": (COUNTS, {"stop": ["wo, thr", "five"]}),
    "schema": (THINKS + CITY, {"response_format": SCHEMA}),
    "token_ids": (WHOLE, {"tools": [TOOL], "return_token_ids": True}),
    "prefill": (" world!<|return|>", continuing("Hello,", reasoning="A greeting.")),
}


@pytest.mark.parametrize("name", STREAMS)
async def test_stream(name: str) -> None:
    text, body = STREAMS[name]
    chunks = await chunks_of(replaying(text, per_step=3), **body)
    check_chunks(chunks)
    compare(SNAPSHOTS / f"{name}.jsonl", chunks)


@pytest.mark.parametrize("name", STREAMS)
async def test_a_completion_without_streaming_equals_the_stream(name: str) -> None:
    text, body = STREAMS[name]
    streamed = check_chunks(await chunks_of(replaying(text), **body))
    of_whole = {key: value for key, value in body.items() if key != "stream_options"}
    whole = await completion_of(replaying(text, per_step=16), **of_whole)
    assert streamed["choices"] == whole["choices"]


async def test_choices_and_log_probabilities() -> None:
    chunks = await chunks_of(scripted(HELLO, THINKS + HELLO, CALL), n=3, tools=[TOOL])
    completion = check_chunks(chunks)
    compare(SNAPSHOTS / "three_choices.jsonl", chunks)
    assert [choice["index"] for choice in completion["choices"]] == [0, 1, 2]
    chunks = await chunks_of(scripted(THINKS + HELLO), logprobs=True, top_logprobs=1)
    scores = check_chunks(chunks)["choices"][0]["logprobs"]["content"]
    compare(SNAPSHOTS / "logprobs.jsonl", chunks)
    assert bytes(byte for entry in scores for byte in entry["bytes"]).decode() == "Hello 東京 🧠!"


async def test_the_operator_chooses_the_field_of_the_reasoning() -> None:
    for field in ("reasoning", "reasoning_content"):
        settings = Settings(chat_reasoning_field=field)
        message = message_of(await completion_of(replaying(THINKS + HELLO), settings))
        assert {key for key in message if key.startswith("reasoning")} == {field}


async def test_the_operator_chooses_the_field_of_preambles() -> None:
    settings = Settings(chat_preamble_field="reasoning")
    message = message_of(await completion_of(replaying(WHOLE), settings, tools=[TOOL]))
    assert (message["content"], message["reasoning"]) == (None, "A greeting.\n\nI look.")


async def test_a_failure_is_one_last_chunk_after_all_generated_text() -> None:
    chunks = await chunks_of(replaying(THINKS + HELLO, fails_after=13))
    assert chunks[-1]["error"]["code"] == "server_error"
    assert set(chunks[-1]["error"]) == {"message", "type", "param", "code"}
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks[:-1]) == "Hello"
