"""Reasoning items: their summary, their sealed tokens, and the turns for which the prompt shows them."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest
from openai import OpenAI

from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.items.reasoning import Summary, SummaryKind, seal_reasoning, unsealed_reasoning
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.sealing import Sealer
from inference.engine import EngineFailed
from tests.doubles.apis.services import responses_service
from tests.doubles.conversations import encoded, mutated
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.lints import check_stream
from tests.doubles.random_tests.seeds import seeds
from tests.doubles.serving import scripted, serving
from tests.doubles.turns import TurnsEngine

ANALYSIS = "The user asks for 2 + 2.\nThat is easy.\n\nIt is 3.99… no, 4. I am sure.\n\n\n  So: 4"
PARTS = ["The user asks for 2 + 2.\nThat is easy.", "It is 3.99… no, 4. I am sure.", "So: 4"]
CONCISE = ["The user asks for 2 + 2.", "It is 3.99…", "So: 4"]
THINKS = f"<|channel|>analysis<|message|>{ANALYSIS}<|end|><|start|>assistant"
ANSWER = "<|channel|>final<|message|>Four.<|return|>"
CALL = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
SEALED = ["reasoning.encrypted_content"]
Events = list[dict[str, Any]]


async def events_of(service: ResponsesService, **body: Any) -> Events:
    run = await service.start(LOCAL, {"input": "2 + 2?", **body})
    return [event async for batch in run.events() for event in batch]


def summary_of(item: dict[str, Any]) -> list[str]:
    return [part["text"] for part in item["summary"]]


# --- summaries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "parts"), [("auto", PARTS), ("detailed", PARTS), ("concise", CONCISE)])
@pytest.mark.parametrize("per_step", [1, 6, 100])
async def test_a_summary_has_a_part_for_each_paragraph(
    encoding: Encoding, kind: str, parts: list[str], per_step: int
) -> None:
    service = responses_service(TurnsEngine(encoding, THINKS + ANSWER, per_step=per_step))
    events = await events_of(service, reasoning={"summary": kind})
    response = check_stream(events)
    assert summary_of(response["output"][0]) == parts
    assert response["output"][0]["content"][0]["text"] == ANALYSIS, "the text itself stays readable"
    assert response["reasoning"]["summary"] == kind
    if per_step == 1:
        kinds = [event["type"] for event in events]
        first = kinds.index("response.reasoning_summary_text.delta")
        assert first < kinds.index("response.reasoning_text.done"), "it streams with the reasoning"


@pytest.mark.parametrize(
    ("options", "parts"),
    [({}, []), ({"summary": None}, []), ({"summary": "none"}, []), ({"generate_summary": "auto"}, PARTS)],
)
async def test_a_summary_needs_a_request_which_may_use_the_fields_old_name(
    encoding: Encoding, options: dict[str, Any], parts: list[str]
) -> None:
    events = await events_of(responses_service(TurnsEngine(encoding, THINKS + ANSWER)), reasoning=options)
    response = check_stream(events)
    assert summary_of(response["output"][0]) == parts
    assert (response["reasoning"]["summary"] is None) == (not parts)
    assert any("summary" in event["type"] for event in events) == bool(parts)


SENTENCES: list[tuple[str, list[str]]] = [
    ("One. Two. Three.", ["One."]),
    ("Is it 3.14 or 2.71? Who knows.", ["Is it 3.14 or 2.71?"]),
    ('He said "no." Then he left.', ['He said "no."']),
    ("**Do it now.** Or later.", ["**Do it now.**"]),
    ("a line\nanother line", ["a line"]),
    ("First.\n\nSecond one! Third.\n\nLast", ["First.", "Second one!", "Last"]),
    ("我们需要回答。然后停止。", ["我们需要回答。"]),
    ("word " * 100, [("word " * 48).rstrip() + "…"]),
    ("x" * 1_000, ["x" * 240 + "…"]),
    ("\n\n  \n", []),
    ("", []),
    ("  led by space", ["led by space"]),
]


@pytest.mark.parametrize(("text", "parts"), SENTENCES, ids=lambda value: str(value)[:20])
@pytest.mark.parametrize("step", [1, 2, 3, 1_000])
def test_concise_is_the_first_sentence_of_each_paragraph_for_any_cut(
    text: str, parts: list[str], step: int
) -> None:
    summary = Summary("concise")
    for at in range(0, len(text), step):
        summary.feed(text[at : at + step])
    summary.close()
    assert [part["text"] for part in summary.parts] == parts


@pytest.mark.parametrize("kind", ["detailed", "concise"])
def test_a_summary_does_not_depend_on_how_the_text_was_cut(kind: SummaryKind) -> None:
    rng = random.Random(7)
    words = ["a", "to be.", "3.", "14", "\n", "\n\n", " ", "\t", "東京。", "“so”", "!", "\n \n", "…", "*x*"]
    for _ in range(300):
        text = "".join(rng.choice(words) for _ in range(rng.randrange(30)))
        results = []
        for step in (1, rng.randrange(2, 6), 10_000):
            summary = Summary(kind)
            events = [
                event for at in range(0, len(text), step) for event in summary.feed(text[at : at + step])
            ]
            events += summary.close()
            assert "".join(e["delta"] for e in events if "delta" in e) == "".join(
                part["text"] for part in summary.parts
            )
            results.append(summary.parts)
        assert results[0] == results[1] == results[2], text
        if kind == "detailed":
            assert "".join("".join(part["text"] for part in results[0]).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("names", "prefix"), [("openai", "response.reasoning_text."), ("open-responses", "response.reasoning.")]
)
async def test_reasoning_events_have_the_chosen_name(encoding: Encoding, names: str, prefix: str) -> None:
    service = responses_service(TurnsEngine(encoding, THINKS + ANSWER), Settings(event_names=names))
    events = await events_of(service)
    named = [event for event in events if event["type"].startswith("response.reasoning")]
    assert {event["type"] for event in named} == {f"{prefix}delta", f"{prefix}done"}
    assert "".join(event.get("delta", "") for event in named) == ANALYSIS == named[-1]["text"]
    [reasoning, _] = events[-1]["response"]["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": ANALYSIS}]


# --- sealed tokens -----------------------------------------------------------------------------------


async def test_tokens_are_sealed_on_request(encoding: Encoding) -> None:
    service = responses_service(TurnsEngine(encoding, THINKS + ANSWER))
    events = await events_of(service, include=SEALED)
    item = check_stream(events)["output"][0]
    added = next(event["item"] for event in events if event["type"] == "response.output_item.added")
    assert "encrypted_content" not in added
    sealed = item["encrypted_content"]
    assert b"user asks" not in base64.urlsafe_b64decode(sealed)
    segment = unsealed_reasoning(service.served.stores.sealer, sealed)
    assert segment is not None
    assert encoding.decode(segment.tokens) == "<|start|>assistant" + THINKS.removesuffix("<|start|>assistant")
    plain = check_stream(await events_of(service))
    assert "encrypted_content" not in plain["output"][0]


def oddly_tokenized(encoding: Encoding) -> list[int]:
    """A call after reasoning, in tokens that no encoder would choose."""
    head, _, rest = THINKS.partition("The user")
    letters = [token for letter in "The user" for token in encoding.encode(letter)]
    return [*encoding.encode_special(head), *letters, *encoding.encode_special(rest + CALL)]


@pytest.mark.parametrize("kept", ["all", "without content"])
async def test_an_unstored_conversation_continues_with_exactly_the_same_tokens(
    encoding: Encoding, kept: str
) -> None:
    """Codex and LangChain do this: they send every item back and store nothing."""
    tokens = oddly_tokenized(encoding)
    engine = ReplayEngine(tokens)
    service = responses_service(engine)
    body: dict[str, Any] = {"tools": [TOOL], "store": False, "include": SEALED}
    question = {"role": "user", "content": "2 + 2?"}
    run = await service.start(LOCAL, {**body, "input": [question]})
    output = (await run.wait())["output"]
    assert [item["type"] for item in output] == ["reasoning", "function_call"]
    if kept != "all":
        output[0] = {**output[0], "content": [], "status": "in_progress"}
    result = {"type": "function_call_output", "call_id": output[1]["call_id"], "output": "4"}
    await (await service.start(LOCAL, {**body, "input": [question, *output, result]})).wait()
    first, second = engine.prompts
    assert second[: len(first) + len(tokens)] == [*first, *tokens], "the prefix cache hits all of it"
    assert output[0]["encrypted_content"]


@pytest.mark.parametrize(
    "blob",
    [
        "gAAAAABforeign_and_not_even_ours==",
        "",
        None,
        "\ud800",
        seal_reasoning(Sealer(b"another server's key, long enough"), [200_006, 1, 2, 200_007]),
    ],
    ids=["foreign", "empty", "null", "half a character", "another server's"],
)
async def test_foreign_blobs_are_ignored(encoding: Encoding, blob: str | None) -> None:
    service = responses_service(scripted(ANSWER))

    async def prompt(**reasoning: Any) -> str:
        item = {"type": "reasoning", "id": "rs_1", "summary": [], **reasoning}
        return (await service.render(LOCAL, {"input": [{"role": "user", "content": "Hi"}, item]})).text

    alone = await prompt(encrypted_content=blob)
    assert "analysis<|message|>" not in alone
    with_text = await prompt(encrypted_content=blob, content=[{"type": "reasoning_text", "text": "Aha"}])
    assert "<|channel|>analysis<|message|>Aha<|end|>" in with_text


def test_a_changed_blob_is_rejected() -> None:
    sealer = Sealer(b"x" * 32)
    raw = bytearray(base64.urlsafe_b64decode(seal_reasoning(sealer, [200_006, 17, 200_007])))
    for at in range(len(raw)):
        raw[at] ^= 1
        assert unsealed_reasoning(sealer, base64.urlsafe_b64encode(raw).decode()) is None
        raw[at] ^= 1
    assert unsealed_reasoning(sealer, sealer.seal("reasoning", b"123")) is None, "no whole tokens"
    assert unsealed_reasoning(sealer, sealer.seal("another purpose", bytes(8))) is None


@pytest.mark.parametrize("how", ["cut", "failed"])
async def test_reasoning_that_was_cut_off_is_sealed_too(encoding: Encoding, how: str) -> None:
    tokens = encoding.encode_special(THINKS)
    broken: dict[str, Any] = {"fails_after": 9, "error": EngineFailed("gone")} if how == "failed" else {}
    service = responses_service(ReplayEngine(tokens, **broken))
    run = await service.start(
        LOCAL, {"input": "hi", "include": SEALED, "max_output_tokens": 9, "store": False}
    )
    item = (await run.wait())["output"][0]
    segment = unsealed_reasoning(service.served.stores.sealer, item["encrypted_content"])
    assert segment is not None
    assert list(segment.tokens[2:-1]) == tokens[:9]
    assert segment.tokens[-1] == 200_007


@pytest.mark.parametrize("seed", seeds(3, proofs=10))
async def test_streams_with_all_options_are_valid(encoding: Encoding, seed: int) -> None:
    rng = random.Random(9_000 + seed)
    for _ in range(30):
        tokens = mutated(encoded(encoding, rng), rng) if rng.random() < 0.7 else encoded(encoding, rng)
        service = responses_service(ReplayEngine(tokens, per_step=rng.choice((1, 5, 64))))
        body: dict[str, Any] = {"reasoning": {"summary": "auto"}, "include": SEALED, "tools": [TOOL]}
        response = check_stream(await events_of(service, **body))
        for item in response["output"]:
            if item["type"] == "reasoning":
                segment = unsealed_reasoning(service.served.stores.sealer, item["encrypted_content"])
                assert segment is not None
                assert set(segment.tokens) - set(tokens) <= {200_006, 200_007, *encoding.encode("assistant")}


# --- earlier turns -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("requested", "effective", "shown"),
    [
        (None, "current_turn", False),
        ("auto", "current_turn", False),
        ("current_turn", "current_turn", False),
        ("all_turns", "all_turns", True),
    ],
)
@pytest.mark.parametrize("stored", [True, False])
async def test_the_reasoning_of_earlier_turns_is_shown_on_request(
    encoding: Encoding, requested: str | None, effective: str, shown: bool, stored: bool
) -> None:
    engine = TurnsEngine(encoding, THINKS + ANSWER)
    service = responses_service(engine)
    first = await (await service.start(LOCAL, {"input": "2 + 2?", "include": SEALED})).wait()
    history = [{"role": "user", "content": "2 + 2?"}, *first["output"], {"role": "user", "content": "Sure?"}]
    body = {"input": "Sure?", "previous_response_id": first["id"]} if stored else {"input": history}
    second = await (await service.start(LOCAL, {**body, "reasoning": {"context": requested}})).wait()
    assert second["reasoning"]["context"] == effective
    prompt = encoding.decode(engine.prompts[1])
    assert (ANALYSIS in prompt) is shown
    if shown:
        sampled = encoding.encode_special(THINKS + ANSWER)[:-1]
        assert engine.prompts[1][: len(engine.prompts[0]) + len(sampled)] == [*engine.prompts[0], *sampled]


def test_the_official_sdk_sends_back_the_items_it_received() -> None:
    with (
        serving(scripted(THINKS + CALL, ANSWER)) as url,
        OpenAI(base_url=url, api_key="none", max_retries=0) as client,
    ):
        body: Any = {
            "model": "scripted",
            "tools": [TOOL],
            "store": False,
            "include": SEALED,
            "reasoning": {"effort": "xhigh", "summary": "auto", "context": "auto"},
        }
        items: list[Any] = [{"role": "user", "content": "2 + 2?"}]
        with client.responses.stream(input=items, **body) as stream:
            summary = "".join(e.delta for e in stream if e.type == "response.reasoning_summary_text.delta")
            response = stream.get_final_response()
        assert summary == "".join(PARTS)
        reasoning, call = response.output
        assert reasoning.type == "reasoning"
        assert [part.text for part in reasoning.summary] == PARTS
        assert reasoning.encrypted_content
        assert call.type == "function_call"
        assert response.reasoning is not None
        assert (response.reasoning.effort, response.reasoning.context) == ("xhigh", "current_turn")
        items += [item.model_dump(exclude_none=True) for item in response.output]
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": "4"})
        assert client.responses.create(input=items, **body).output_text == "Four."
