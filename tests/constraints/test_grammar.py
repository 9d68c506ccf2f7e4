"""The grammar of a turn: it accepts every legal shape and no other, and what it accepts never slips."""

from __future__ import annotations

import json

import pytest

from gpt_oss_server.constraints.grammar import JsonBody, TurnShape, turn_grammar
from gpt_oss_server.constraints.matcher import CompiledGrammar, GrammarError, Grammars, grammars_of
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.harmony.events import MessageFinished, Slip
from inference.engine import EngineFailed
from tests.doubles.harmony.grammars import (
    CITY,
    KNOWN,
    LEGAL,
    PREAMBLE,
    REASONING,
    TOOLS,
    passes,
)
from tests.doubles.harmony.sampling import RandomModel, allowed, closing_tokens, decoded
from tests.doubles.random_tests.seeds import seeds

ILLEGAL = [
    ("<|channel|>comment", "<|message|>", "an unknown channel"),
    ("", "<|message|>", "no header"),
    ("", "Sorry", "text without a header"),
    ("<|channel|>", "<|channel|>", "a doubled channel"),
    ("<|channel|>analysis", "<|end|>", "a stop in a header"),
    ("<|channel|>analysis<|message|>x", "<|return|>", "reasoning that ends the turn"),
    ("<|channel|>analysis<|message|>x", "<|start|>", "a message without an end"),
    ("<|channel|>final<|message|>x", "<|end|>", "an answer after which more may come"),
    ("<|channel|>final<|message|>x", "<|call|>", "an answer that ends as a call"),
    ("<|channel|>final", " to", "a call on final"),
    ("<|channel|>commentary to=functions", ".nobody", "nothing of that name"),
    ("<|channel|>analysis to=", "functions", "a function on analysis"),
    ("<|channel|>commentary to=functions.get_city<|message|>{", "}", "arguments without what is required"),
    ("<|channel|>commentary to=functions.get<|message|>", "[", "arguments that are not an object"),
    ("<|channel|>commentary to=functions.get<|message|>{}", "<|end|>", "a call that ends as a message"),
    ("<|channel|>final<|message|>x<|return|>", "<|start|>", "anything after the end"),
    ("<|channel|>analysis<|message|>x<|end|><|start|>", "user", "a foreign role"),
    ("<|channel|>analysis<|message|>x<|end|>", "<|end|>", "a stray end"),
]


@pytest.fixture(scope="module")
def grammars(encoding: Encoding) -> Grammars:
    return grammars_of(encoding)


@pytest.fixture(scope="module")
def grammar(grammars: Grammars) -> CompiledGrammar:
    return grammars.compile(turn_grammar(TurnShape(TOOLS)))


@pytest.mark.parametrize("before", ["", REASONING, PREAMBLE, REASONING + PREAMBLE + REASONING])
@pytest.mark.parametrize("turn", LEGAL)
def test_every_legal_turn_passes(
    encoding: Encoding, grammar: CompiledGrammar, turn: str, before: str
) -> None:
    assert passes(encoding, grammar, before + turn)
    slips = [
        e for e in decoded(encoding, KNOWN, encoding.encode_special(before + turn)) if isinstance(e, Slip)
    ]
    assert not slips


@pytest.mark.parametrize(("head", "then", "what"), ILLEGAL, ids=lambda value: str(value)[-40:])
def test_no_slip_can_be_sampled(
    encoding: Encoding, grammar: CompiledGrammar, head: str, then: str, what: str
) -> None:
    state = grammar.start()
    for token in encoding.encode_special(head):
        assert allowed(state.mask())[token], f"{what}: the head itself"
        state.accept(token)
    assert not allowed(state.mask())[encoding.encode_special(then)[0]], what


def test_the_masks_are_right_within_characters_of_several_tokens(
    encoding: Encoding, grammars: Grammars
) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 3}}, "required": ["a"]}
    shape = TurnShape(answer=JsonBody({**schema, "additionalProperties": False}))
    grammar = grammars.compile(turn_grammar(shape))
    one_by_one = [t for byte in "東🧠" for t in encoding.encode(byte)]
    assert any(len(encoding.encode(character)) > 1 for character in "東京🧠")
    head = encoding.encode_special('<|channel|>final<|message|>{"a":"')
    state = grammar.start()
    for token in [*head, *one_by_one]:
        assert allowed(state.mask())[token]
        state.accept(token)
    brain = encoding.encode("🧠")
    assert len(brain) > 1
    state.accept(brain[0])
    after_half = allowed(state.mask())
    assert not after_half[encoding.encode('"')[0]], "a text cannot end within a character"
    assert after_half[brain[1]]
    state = grammar.start()
    for token in [*head, *encoding.encode("東京🧠")]:
        state.accept(token)
    assert not allowed(state.mask())[encoding.encode("x")[0]], (
        "three characters are enough, however many bytes"
    )


def test_a_call_is_forced_by_leaving_no_answer(encoding: Encoding, grammars: Grammars) -> None:
    grammar = grammars.compile(turn_grammar(TurnShape(TOOLS, may_answer=False)))
    assert not passes(encoding, grammar, LEGAL[0])
    assert all(passes(encoding, grammar, REASONING + turn) for turn in LEGAL[2:])


def test_without_reasoning_the_turn_starts_with_its_end(encoding: Encoding, grammars: Grammars) -> None:
    grammar = grammars.compile(turn_grammar(TurnShape(asides=())))
    assert passes(encoding, grammar, LEGAL[0])
    assert not passes(encoding, grammar, REASONING + LEGAL[0])


def test_a_turn_needs_an_end() -> None:
    with pytest.raises(ValueError, match="no end"):
        turn_grammar(TurnShape(may_answer=False))


def test_a_token_that_is_not_allowed_is_reported(grammar: CompiledGrammar) -> None:
    with pytest.raises(EngineFailed, match="does not allow the token 5 "):
        grammar.start().accept(5)


def test_an_invalid_grammar_is_reported(grammars: Grammars) -> None:
    with pytest.raises(GrammarError):
        grammars.compile("start: nothing")


def test_one_grammar_serves_independent_generations(grammar: CompiledGrammar) -> None:
    one, other = grammar.start(), grammar.start()
    one.accept(200005)
    assert one.mask() != other.mask()
    assert other.mask() == grammar.start().mask()


def random_turns(encoding: Encoding, grammar: CompiledGrammar, count: int, seed: int) -> None:
    model = RandomModel(seed, closing_tokens(encoding))
    for _ in range(count):
        tokens, stopped = model.answer(grammar, 1_000)
        assert stopped
        events = decoded(encoding, KNOWN, tokens)
        assert not [event for event in events if isinstance(event, Slip)], encoding.decode(tokens)
        last = [event for event in events if isinstance(event, MessageFinished)][-1]
        assert last.header.channel == "final" or last.header.recipient is not None
        if last.header.content_type == "json":
            json.loads(last.text)


@pytest.mark.parametrize("seed", seeds(1, proofs=8))
def test_an_untrained_model_writes_only_well_formed_turns(
    encoding: Encoding, grammars: Grammars, seed: int
) -> None:
    shapes = [
        TurnShape(TOOLS),
        TurnShape(TOOLS, may_answer=False),
        TurnShape(answer=JsonBody(CITY)),
        TurnShape(TOOLS[:2], answer=JsonBody(CITY)),
        TurnShape(),
    ]
    for at, shape in enumerate(shapes):
        random_turns(encoding, grammars.compile(turn_grammar(shape)), 50, seed * 100 + at)
