"""Log-probabilities of messages to the user: of exactly the sampled tokens, streamed with their text."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.encoding import Encoding
from inference.engine import TokenLogprob
from tests.doubles.apis.chat_asking import check_chunks, chunks_of, completion_of
from tests.doubles.apis.services import browsing_service, responses_service
from tests.doubles.lints import check_stream
from tests.doubles.serving import scripted, serving
from tests.doubles.turns import TurnsEngine, score_of

TEXT = "Hello 東京 🧠👩‍🚀!"
THINKS = "<|channel|>analysis<|message|>Hm 🧠.<|end|><|start|>assistant"
PREAMBLE = "<|channel|>commentary<|message|>A moment.<|end|><|start|>assistant"
ANSWER = f"<|channel|>final<|message|>{TEXT}<|return|>"
INCLUDE = ["message.output_text.logprobs"]
Events = list[dict[str, Any]]


async def events_of(engine: Any, **body: Any) -> Events:
    run = await responses_service(engine).start(LOCAL, {"input": "hi", **body})
    return [event async for batch in run.events() for event in batch]


def entry(encoding: Encoding, scored: TokenLogprob) -> dict[str, Any]:
    def one(token: int, logprob: float) -> dict[str, Any]:
        raw = encoding.token_bytes([token])
        return {"token": raw.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(raw)}

    top = [one(token, logprob) for token, logprob in scored.top]
    return {**one(scored.token, scored.logprob), "top_logprobs": top}


@pytest.mark.parametrize("per_step", [1, 5, 100])
@pytest.mark.parametrize("top", [None, 0, 3, 20])
async def test_every_token_of_each_message_has_its_score(
    encoding: Encoding, top: int | None, per_step: int
) -> None:
    engine = TurnsEngine(encoding, THINKS + PREAMBLE + ANSWER, per_step=per_step)
    response = check_stream(await events_of(engine, include=INCLUDE, top_logprobs=top))
    reasoning, preamble, answer = response["output"]
    assert "logprobs" not in reasoning["content"][0]
    for item, text in ((preamble, "A moment."), (answer, TEXT)):
        expected = [entry(encoding, score_of(token, top or 0)) for token in encoding.encode(text)]
        assert item["content"][0]["logprobs"] == expected
    assert b"".join(bytes(e["bytes"]) for e in expected).decode() == TEXT
    assert engine.samplings[0].logprobs == (top or 0)
    assert response["top_logprobs"] == (top or 0)


async def test_scores_are_sent_with_the_text_of_their_tokens(encoding: Encoding) -> None:
    events = await events_of(TurnsEngine(encoding, ANSWER), include=INCLUDE)
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    shown, scored = b"", b""
    for event in deltas:
        shown += event["delta"].encode()
        scored += b"".join(bytes(e["bytes"]) for e in event["logprobs"])
        assert scored.startswith(shown), "no score follows its text"
        assert len(scored) < len(shown) + 4, "no score precedes its text, except for the rest of a character"
    assert scored == shown == TEXT.encode()
    done = next(event for event in events if event["type"] == "response.output_text.done")
    assert done["logprobs"] == [entry for event in deltas for entry in event["logprobs"]]


@pytest.mark.parametrize("limit", range(4, 20))
async def test_a_cut_answer_has_the_scores_of_its_text(encoding: Encoding, limit: int) -> None:
    tokens = encoding.encode_special(ANSWER)
    response = check_stream(
        await events_of(TurnsEngine(encoding, ANSWER), include=INCLUDE, max_output_tokens=limit)
    )
    written = [token for token in tokens[3:limit] if token < 199_998]
    scores = [] if not response["output"] else response["output"][0]["content"][0]["logprobs"]
    assert [score["bytes"] for score in scores] == [list(encoding.token_bytes([t])) for t in written]


async def test_scores_are_sent_only_on_request(encoding: Encoding) -> None:
    engine = TurnsEngine(encoding, ANSWER)
    events = await events_of(engine)
    assert engine.samplings[0].logprobs is None
    assert check_stream(events)["output"][0]["content"][0]["logprobs"] == []


async def test_top_logprobs_alone_request_them_too(encoding: Encoding) -> None:
    response = check_stream(await events_of(TurnsEngine(encoding, ANSWER), top_logprobs=2))
    assert len(response["output"][0]["content"][0]["logprobs"][0]["top_logprobs"]) == 2


async def test_both_apis_return_the_same_scores(encoding: Encoding) -> None:
    turn = PREAMBLE + ANSWER
    response = check_stream(await events_of(TurnsEngine(encoding, turn), top_logprobs=2, include=INCLUDE))
    parts = [item["content"][0]["logprobs"] for item in response["output"]]
    completion = await completion_of(TurnsEngine(encoding, turn), logprobs=True, top_logprobs=2)
    assert completion["choices"][0]["logprobs"]["content"] == [entry for part in parts for entry in part]
    streamed = check_chunks(
        await chunks_of(TurnsEngine(encoding, turn, per_step=5), logprobs=True, top_logprobs=2)
    )
    assert streamed["choices"][0]["logprobs"] == completion["choices"][0]["logprobs"]


async def test_a_preamble_cut_off_has_the_scores_of_its_text(encoding: Encoding) -> None:
    """A client that joins the tokens of `logprobs.content` gets `content`."""
    whole = await completion_of(TurnsEngine(encoding, PREAMBLE), logprobs=True, max_tokens=6)
    (choice,) = whole["choices"]
    tokens = [entry["token"] for entry in choice["logprobs"]["content"]]
    assert (choice["finish_reason"], "".join(tokens)) == ("length", choice["message"]["content"])
    assert len(tokens) == 2


@pytest.mark.parametrize("per_step", [1, 4, 100])
async def test_a_citation_has_the_scores_of_its_marker(
    encoding: Encoding, tmp_path: Path, per_step: int
) -> None:
    text = "It is deep【0†L0-L2】, and cold【77†L1】. 東京【0†L1】"
    search = '<|channel|>analysis to=browser.search code<|message|>{"query":"fjord"}<|call|>'
    opened = '<|channel|>analysis to=browser.open code<|message|>{"cursor":0,"id":0}<|call|>'
    answer = f"<|channel|>final<|message|>{text.replace('0†', '1†')}<|return|>"
    engine = TurnsEngine(encoding, search, opened, answer, per_step=per_step)
    service = browsing_service(tmp_path, engine, encoding=encoding)
    run = await service.start(
        LOCAL, {"input": "How deep?", "tools": [{"type": "web_search"}], "include": INCLUDE, "stream": True}
    )
    response = check_stream([event async for batch in run for event in batch])
    part = response["output"][-1]["content"][0]
    assert len(part["annotations"]) == 2
    scored = b"".join(bytes(score["bytes"]) for score in part["logprobs"]).decode()
    assert scored == text.replace("0†", "1†"), "the model's own text, before the rewrite"
    await service.close()


def test_the_official_sdk_reads_them_streamed_and_not() -> None:
    with (
        serving(scripted(THINKS + ANSWER)) as url,
        OpenAI(base_url=url, api_key="none", max_retries=0) as client,
    ):
        body: Any = {"model": "scripted", "input": "hi", "include": INCLUDE, "top_logprobs": 1}
        part = client.responses.create(**body).output[-1].content[0]  # type: ignore[union-attr, index]
        assert part.type == "output_text"
        assert part.logprobs
        assert "".join(score.token for score in part.logprobs if "\ufffd" not in score.token).startswith(
            "Hello"
        )
        assert math.isclose(part.logprobs[0].logprob, 0.0)
        assert part.logprobs[0].top_logprobs[0].token == "Hello"
        with client.responses.stream(**body) as stream:
            scores = [
                score.token
                for event in stream
                if event.type == "response.output_text.delta"
                for score in event.logprobs
            ]
        assert scores == [score.token for score in part.logprobs]


REASONING, CALLS = "reasoning.reasoning_text.logprobs", "function_call.arguments.logprobs"
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"city":"東京"}<|call|>'
CUSTOM = "<|channel|>commentary to=functions.say<|message|>good 🧠 morning<|call|>"
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": False},
    {"type": "custom", "name": "say"},
]


@pytest.mark.parametrize("per_step", [1, 7])
@pytest.mark.parametrize("call", [CALL, CUSTOM], ids=["function", "custom tool"])
@pytest.mark.parametrize("include", [[REASONING], [CALLS], [REASONING, CALLS]], ids=len)
async def test_reasoning_and_calls_have_scores_if_the_request_includes_them(
    encoding: Encoding, include: list[str], call: str, per_step: int
) -> None:
    engine = TurnsEngine(encoding, THINKS + call, per_step=per_step)
    events = await events_of(engine, include=include, tools=TOOLS)
    reasoning, made = check_stream(events)["output"]  # the lint compares deltas, done events and items
    for name, scored, text in (
        (REASONING, reasoning["content"][0], "Hm 🧠."),
        (CALLS, made, made.get("arguments") or made.get("input")),
    ):
        expected = [entry(encoding, score_of(token, 0)) for token in encoding.encode(text)]
        assert scored.get("logprobs") == (expected if name in include else None)


async def test_no_item_has_scores_that_the_request_does_not_include(encoding: Encoding) -> None:
    events = await events_of(TurnsEngine(encoding, THINKS + CALL), include=INCLUDE, tools=TOOLS)
    reasoning, made = check_stream(events)["output"]
    assert "logprobs" not in made
    assert "logprobs" not in reasoning["content"][0]


@pytest.mark.parametrize("include", [["reasoning"], ["tool_calls"], ["reasoning", "tool_calls"]], ids=len)
@pytest.mark.parametrize("call", [CALL, CUSTOM], ids=["function", "custom tool"])
async def test_a_chat_shows_the_scores_of_reasoning_and_calls_apart(
    encoding: Encoding, include: list[str], call: str
) -> None:
    tools = [
        {"type": "function", "function": {key: TOOLS[0][key] for key in ("name", "parameters")}},
        {"type": "custom", "custom": {"name": "say"}},
    ]
    body: dict[str, Any] = {"tools": tools, "logprobs": True, "logprobs_include": include}
    whole = await completion_of(TurnsEngine(encoding, THINKS + call, per_step=5), **body)
    (choice,) = whole["choices"]
    (made,) = choice["message"]["tool_calls"]
    called = made["custom"]["input"] if "custom" in made else made["function"]["arguments"]

    def scores(text: str) -> list[dict[str, Any]]:
        return [entry(encoding, score_of(token, 0)) for token in encoding.encode(text)]

    wanted: dict[str, Any] = {"content": [], "refusal": None}
    if "reasoning" in include:
        wanted["reasoning"] = scores("Hm 🧠.")
    if "tool_calls" in include:
        wanted["tool_calls"] = [{"index": 0, "content": scores(called)}]
    assert choice["logprobs"] == wanted
    chunks = await chunks_of(TurnsEngine(encoding, THINKS + call), **body)
    streamed = check_chunks(chunks, sdk_types="function" in made)
    assert streamed["choices"][0]["logprobs"] == wanted


async def test_a_chat_needs_log_probabilities_to_include_some() -> None:
    with pytest.raises(InvalidRequest, match="needs `logprobs`"):
        await completion_of(scripted(ANSWER), logprobs_include=["reasoning"])
