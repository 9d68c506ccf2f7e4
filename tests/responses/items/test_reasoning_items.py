"""Reasoning items: their summary, their sealed tokens, and the turns for which the prompt shows them."""

import base64
import random
from typing import Any

import pytest

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.items.reasoning import Summary, seal_reasoning, unsealed_reasoning
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.sealing import Sealer
from inference.engine import EngineFailed
from tests.doubles.apis.asking import Asking
from tests.doubles.conversations import encoded, mutated
from tests.doubles.engines.replay import ReplayEngine, TurnsEngine
from tests.doubles.random_tests.seeds import seeds

ANALYSIS = "The user asks for 2 + 2.\nThat is easy.\n\nIt is 3.99… no, 4. I am sure.\n\n\n  So: 4"
PARTS = ["The user asks for 2 + 2.\nThat is easy.", "It is 3.99… no, 4. I am sure.", "So: 4"]
THINKS = f"<|channel|>analysis<|message|>{ANALYSIS}<|end|><|start|>assistant"
ANSWER = "<|channel|>final<|message|>Four.<|return|>"
CALL = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
SEALED = ["reasoning.encrypted_content"]


def thinking(encoding: Encoding, per_step: int = 1, **options: Any) -> Asking:
    return Asking(engine=TurnsEngine(encoding, THINKS + ANSWER, per_step=per_step), **options)


def summary_of(item: dict[str, Any]) -> list[str]:
    return [part["text"] for part in item["summary"]]


@pytest.mark.parametrize("kind", ["auto", "detailed", "concise"])
@pytest.mark.parametrize("per_step", [1, 6, 100])
async def test_a_part_per_paragraph(encoding: Encoding, kind: str, per_step: int) -> None:
    ask = thinking(encoding, per_step)
    response = await ask(reasoning={"summary": kind})
    reasoning = response["output"][0]
    assert summary_of(reasoning) == PARTS
    assert reasoning["content"][0]["text"] == ANALYSIS, "the text itself stays readable"
    assert response["reasoning"]["summary"] == kind
    kinds = [event["type"] for event in ask.events]
    begun, thought = map(
        kinds.index, ("response.reasoning_summary_text.delta", "response.reasoning_text.done")
    )
    assert begun < thought or per_step > 1, "it streams with the reasoning"


@pytest.mark.parametrize(
    ("options", "parts"),
    [({}, []), ({"summary": None}, []), ({"summary": "none"}, []), ({"generate_summary": "auto"}, PARTS)],
)
async def test_a_summary_needs_a_request(encoding: Encoding, options: Any, parts: list[str]) -> None:
    ask = thinking(encoding)
    response = await ask(reasoning=options)
    assert summary_of(response["output"][0]) == parts
    assert (response["reasoning"]["summary"] is None) == (not parts)
    assert any("summary" in event["type"] for event in ask.events) == bool(parts)


def summarised(text: str, step: int) -> list[dict[str, Any]]:
    summary = Summary()
    events = [event for at in range(0, len(text), step) for event in summary.feed(text[at : at + step])]
    events += summary.close()
    streamed = "".join(event["delta"] for event in events if "delta" in event)
    assert streamed == "".join(part["text"] for part in summary.parts)
    return summary.parts


def test_a_summary_does_not_depend_on_how_the_text_was_cut() -> None:
    rng = random.Random(7)
    words = ["a", "to be.", "3.", "14", "\n", "\n\n", " ", "\t", "東京。", "“so”", "!", "\n \n", "…", "*x*"]
    for _ in range(300):
        text = "".join(rng.choice(words) for _ in range(rng.randrange(30)))
        one, few, all_at_once = (summarised(text, step) for step in (1, rng.randrange(2, 6), 10_000))
        assert one == few == all_at_once, text
        assert "".join("".join(part["text"] for part in one).split()) == "".join(text.split())


@pytest.mark.parametrize(("names", "prefix"), [("openai", "reasoning_text"), ("open-responses", "reasoning")])
async def test_reasoning_events_have_the_chosen_name(encoding: Encoding, names: str, prefix: str) -> None:
    service = thinking(encoding, settings=Settings(event_names=names)).service
    run = await service.start(LOCAL, {"input": "2 + 2?"})
    events = [event async for batch in run for event in batch]
    named = [event for event in events if event["type"].startswith("response.reasoning")]
    assert {event["type"] for event in named} == {f"response.{prefix}.delta", f"response.{prefix}.done"}
    assert "".join(event.get("delta", "") for event in named) == ANALYSIS == named[-1]["text"]
    [reasoning, _] = events[-1]["response"]["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": ANALYSIS}]


async def test_tokens_are_sealed_on_request(encoding: Encoding) -> None:
    ask = thinking(encoding)
    sealed = (await ask(include=SEALED))["output"][0]["encrypted_content"]
    added = next(event["item"] for event in ask.events if event["type"] == "response.output_item.added")
    assert "encrypted_content" not in added
    assert b"user asks" not in base64.urlsafe_b64decode(sealed)
    segment = unsealed_reasoning(ask.service.served.stores.sealer, sealed)
    assert encoding.decode(segment.tokens) == "<|start|>assistant" + THINKS.removesuffix("<|start|>assistant")
    assert "encrypted_content" not in (await ask())["output"][0]


@pytest.mark.parametrize("kept", ["all", "without content"])
async def test_an_unstored_conversation_continues_with_the_same_tokens(encoding: Encoding, kept: str) -> None:
    """Codex and LangChain do this: they send every item back and store nothing."""
    head, _, rest = THINKS.partition("The user")
    letters = [token for letter in "The user" for token in encoding.encode(letter)]  # as no encoder would
    tokens = [*encoding.encode_special(head), *letters, *encoding.encode_special(rest + CALL)]
    engine = ReplayEngine(tokens)
    ask = Asking(engine=engine)
    body: dict[str, Any] = {"tools": [TOOL], "store": False, "include": SEALED}
    question = {"role": "user", "content": "2 + 2?"}
    output = (await ask(**body, input=[question]))["output"]
    assert [item["type"] for item in output] == ["reasoning", "function_call"]
    if kept != "all":
        output[0] = {**output[0], "content": [], "status": "in_progress"}
    result = {"type": "function_call_output", "call_id": output[1]["call_id"], "output": "4"}
    await ask(**body, input=[question, *output, result])
    first, second = engine.prompts
    assert second[: len(first) + len(tokens)] == [*first, *tokens], "the prefix cache hits all of it"


ELSEWHERE = seal_reasoning(Sealer(b"another server's key, long enough"), [200_006, 1, 2, 200_007])


@pytest.mark.parametrize(
    "blob",
    ["gAAAAABforeign_and_not_even_ours==", "", None, "\ud800", ELSEWHERE],
    ids=["foreign", "empty", "null", "half a character", "another server's"],
)
async def test_foreign_blobs_are_ignored(blob: str | None) -> None:
    async def prompt(**reasoning: Any) -> str:
        item = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": blob, **reasoning}
        return await Asking(ANSWER).prompt(input=[{"role": "user", "content": "Hi"}, item])

    assert "analysis<|message|>" not in await prompt()
    with_text = await prompt(content=[{"type": "reasoning_text", "text": "Aha"}])
    assert "<|channel|>analysis<|message|>Aha<|end|>" in with_text


def test_a_changed_blob_is_rejected() -> None:
    sealer = Sealer(b"x" * 32)
    raw = bytearray(base64.urlsafe_b64decode(seal_reasoning(sealer, [200_006, 17, 200_007])))
    for at in range(len(raw)):
        raw[at] ^= 1
        assert unsealed_reasoning(sealer, base64.urlsafe_b64encode(raw).decode()) is None
        raw[at] ^= 1
    assert unsealed_reasoning(sealer, sealer.seal("another purpose", bytes(8))) is None


@pytest.mark.parametrize("how", ["cut", "failed"])
async def test_reasoning_that_was_cut_off_is_sealed_too(encoding: Encoding, how: str) -> None:
    tokens = encoding.encode_special(THINKS)
    broken: dict[str, Any] = {"fails_after": 9, "error": EngineFailed("gone")} if how == "failed" else {}
    ask = Asking(engine=ReplayEngine(tokens, **broken))
    item = (await ask(include=SEALED, max_output_tokens=9, store=False))["output"][0]
    segment = unsealed_reasoning(ask.service.served.stores.sealer, item["encrypted_content"])
    assert list(segment.tokens[2:]) == [*tokens[:9], 200_007]


@pytest.mark.parametrize("seed", seeds(3, proofs=10))
async def test_streams_with_all_options_are_valid(encoding: Encoding, seed: int) -> None:
    rng = random.Random(9_000 + seed)
    for _ in range(30):
        tokens = mutated(encoded(encoding, rng), rng) if rng.random() < 0.7 else encoded(encoding, rng)
        ask = Asking(engine=ReplayEngine(tokens, per_step=rng.choice((1, 5, 64))))
        response = await ask(reasoning={"summary": "auto"}, include=SEALED, tools=[TOOL])
        for item in response["output"]:
            if item["type"] == "reasoning":
                segment = unsealed_reasoning(ask.service.served.stores.sealer, item["encrypted_content"])
                assert set(segment.tokens) - set(tokens) <= {200_006, 200_007, *encoding.encode("assistant")}


@pytest.mark.parametrize("requested", [None, "auto", "current_turn", "all_turns"])
@pytest.mark.parametrize("stored", [True, False])
async def test_earlier_reasoning_on_request(encoding: Encoding, requested: str | None, stored: bool) -> None:
    engine = TurnsEngine(encoding, THINKS + ANSWER)
    ask = Asking(engine=engine)
    first = await ask(input="2 + 2?", include=SEALED)
    history = [{"role": "user", "content": "2 + 2?"}, *first["output"], {"role": "user", "content": "Sure?"}]
    body = {"input": "Sure?", "previous_response_id": first["id"]} if stored else {"input": history}
    second = await ask(**body, reasoning={"context": requested})
    shown = requested == "all_turns"
    assert second["reasoning"]["context"] == ("all_turns" if shown else "current_turn")
    before, prompt = engine.prompts
    assert (ANALYSIS in encoding.decode(prompt)) is shown
    if shown:
        whole = [*before, *encoding.encode_special(THINKS + ANSWER)[:-1]]
        assert prompt[: len(whole)] == whole
