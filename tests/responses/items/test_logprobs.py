"""Log-probabilities of messages to the user: of exactly the sampled tokens, streamed with their text."""

from pathlib import Path
from typing import Any

import pytest

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import Encoding
from inference.engine import TokenLogprob
from tests.doubles.apis.asking import Asking, browsing_service
from tests.doubles.apis.chat_asking import check_chunks, chunks_of, completion_of
from tests.doubles.engines.replay import TurnsEngine, score_of
from tests.doubles.lints import check_stream

TEXT = "Hello 東京 🧠👩‍🚀!"
THINKS = "<|channel|>analysis<|message|>Hm 🧠.<|end|><|start|>assistant"
PREAMBLE = "<|channel|>commentary<|message|>A moment.<|end|><|start|>assistant"
ANSWER = f"<|channel|>final<|message|>{TEXT}<|return|>"
INCLUDE = ["message.output_text.logprobs"]


def asking(encoding: Encoding, *texts: str, per_step: int = 1) -> Asking:
    return Asking(engine=TurnsEngine(encoding, *texts, per_step=per_step))


def entry(encoding: Encoding, scored: TokenLogprob) -> dict[str, Any]:
    def one(token: int, logprob: float) -> dict[str, Any]:
        raw = encoding.token_bytes([token])
        return {"token": raw.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(raw)}

    top = [one(token, logprob) for token, logprob in scored.top]
    return {**one(scored.token, scored.logprob), "top_logprobs": top}


def scores(encoding: Encoding, text: str, top: int = 0) -> list[dict[str, Any]]:
    return [entry(encoding, score_of(token, top)) for token in encoding.encode(text)]


@pytest.mark.parametrize("per_step", [1, 5, 100])
@pytest.mark.parametrize("top", [None, 0, 3, 20])
async def test_every_token_of_a_message_is_scored(encoding: Encoding, top: int | None, per_step: int) -> None:
    engine = TurnsEngine(encoding, THINKS + PREAMBLE + ANSWER, per_step=per_step)
    response = await Asking(engine=engine)(include=INCLUDE, top_logprobs=top)
    reasoning, preamble, answer = response["output"]
    assert "logprobs" not in reasoning["content"][0]
    for item, text in ((preamble, "A moment."), (answer, TEXT)):
        assert item["content"][0]["logprobs"] == scores(encoding, text, top or 0)
    assert engine.samplings[0].logprobs == response["top_logprobs"] == (top or 0)


async def test_scores_are_sent_with_the_text_of_their_tokens(encoding: Encoding) -> None:
    ask = asking(encoding, ANSWER)
    await ask(include=INCLUDE)  # the lint compares the scores of deltas with those of the done events
    shown, scored = b"", b""
    for event in ask.events:
        if event["type"] == "response.output_text.delta":
            shown += event["delta"].encode()
            scored += b"".join(bytes(score["bytes"]) for score in event["logprobs"])
            assert scored.startswith(shown), "no score follows its text"
            assert len(scored) < len(shown) + 4, "none precedes it, but for the rest of a character"
    assert scored == shown == TEXT.encode()


@pytest.mark.parametrize("limit", range(4, 20))
async def test_a_cut_answer_has_the_scores_of_its_text(encoding: Encoding, limit: int) -> None:
    response = await asking(encoding, ANSWER)(include=INCLUDE, max_output_tokens=limit)
    written = [token for token in encoding.encode_special(ANSWER)[3:limit] if token < 199_998]
    scored = [] if not response["output"] else response["output"][0]["content"][0]["logprobs"]
    assert [score["bytes"] for score in scored] == [list(encoding.token_bytes([t])) for t in written]


async def test_scores_are_sent_only_on_request(encoding: Encoding) -> None:
    engine = TurnsEngine(encoding, ANSWER)
    assert (await Asking(engine=engine)())["output"][0]["content"][0]["logprobs"] == []
    assert engine.samplings[0].logprobs is None
    response = await asking(encoding, ANSWER)(top_logprobs=2)  # which requests them too
    assert response["output"][0]["content"][0]["logprobs"] == scores(encoding, TEXT, 2)


async def test_both_apis_return_the_same_scores(encoding: Encoding) -> None:
    turn, body = PREAMBLE + ANSWER, {"logprobs": True, "top_logprobs": 2}
    response = await asking(encoding, turn)(top_logprobs=2, include=INCLUDE)
    parts = [item["content"][0]["logprobs"] for item in response["output"]]
    completion = await completion_of(TurnsEngine(encoding, turn), **body)
    assert completion["choices"][0]["logprobs"]["content"] == [score for part in parts for score in part]
    streamed = check_chunks(await chunks_of(TurnsEngine(encoding, turn, per_step=5), **body))
    assert streamed["choices"][0]["logprobs"] == completion["choices"][0]["logprobs"]


async def test_a_preamble_cut_off_has_the_scores_of_its_text(encoding: Encoding) -> None:
    """A client that joins the tokens of `logprobs.content` gets `content`."""
    whole = await completion_of(TurnsEngine(encoding, PREAMBLE), logprobs=True, max_tokens=6)
    (choice,) = whole["choices"]
    tokens = [score["token"] for score in choice["logprobs"]["content"]]
    assert (choice["finish_reason"], "".join(tokens)) == ("length", choice["message"]["content"])
    assert len(tokens) == 2


@pytest.mark.parametrize("per_step", [1, 4, 100])
async def test_a_citation_has_its_markers_scores(encoding: Encoding, tmp_path: Path, per_step: int) -> None:
    text = "It is deep【1†L0-L2】, and cold【77†L1】. 東京【1†L1】"
    search = '<|channel|>analysis to=browser.search code<|message|>{"query":"fjord"}<|call|>'
    opened = '<|channel|>analysis to=browser.open code<|message|>{"cursor":0,"id":0}<|call|>'
    answer = f"<|channel|>final<|message|>{text}<|return|>"
    engine = TurnsEngine(encoding, search, opened, answer, per_step=per_step)
    service = browsing_service(tmp_path, engine, encoding=encoding)
    body = {"input": "How deep?", "tools": [{"type": "web_search"}], "include": INCLUDE}
    run = await service.start(LOCAL, body)
    response = check_stream([event async for batch in run for event in batch])
    part = response["output"][-1]["content"][0]
    assert len(part["annotations"]) == 2
    scored = b"".join(bytes(score["bytes"]) for score in part["logprobs"]).decode()
    assert scored == text, "the model's own text, before the rewrite"
    await service.close()


REASONING = "reasoning.reasoning_text.logprobs"
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"city":"東京"}<|call|>'
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": False}


@pytest.mark.parametrize("per_step", [1, 7])
@pytest.mark.parametrize("include", [INCLUDE, [REASONING]], ids=str)
async def test_reasoning_has_scores_if_asked(encoding: Encoding, include: list[str], per_step: int) -> None:
    response = await asking(encoding, THINKS + CALL, per_step=per_step)(include=include, tools=[TOOL])
    reasoning, made = response["output"]  # the lint compares deltas, done events and items
    wanted = scores(encoding, "Hm 🧠.") if REASONING in include else None
    assert reasoning["content"][0].get("logprobs") == wanted
    assert "logprobs" not in made
