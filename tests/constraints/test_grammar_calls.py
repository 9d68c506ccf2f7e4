"""The grammar of several calls in a turn, and of bodies that follow grammars of their own."""

from __future__ import annotations

import pytest

from gpt_oss_server.constraints.grammar import Callee, TextBody, TurnShape, turn_grammar
from gpt_oss_server.constraints.matcher import CompiledGrammar, Grammars, grammars_of
from gpt_oss_server.constraints.text_grammar import GrammarRefused, text_grammar
from gpt_oss_server.harmony.encoding import CALL, ENDOFTEXT, Encoding
from gpt_oss_server.harmony.events import MessageFinished, Slip
from tests.doubles.harmony.grammars import KNOWN, LEGAL, PREAMBLE, REASONING, TOOLS, passes
from tests.doubles.harmony.sampling import RandomModel, allowed, closing_tokens, decoded

NEXT = "<|start|>assistant"
CALLS = [turn for turn in LEGAL if turn.endswith("<|call|>")]


@pytest.fixture(scope="module")
def grammars(encoding: Encoding) -> Grammars:
    return grammars_of(encoding)


@pytest.fixture(scope="module")
def parallel(grammars: Grammars) -> CompiledGrammar:
    return grammars.compile(turn_grammar(TurnShape(TOOLS, parallel=True)))


@pytest.mark.parametrize("turn", LEGAL)
def test_one_call_or_an_answer_is_a_turn_as_before(
    encoding: Encoding, parallel: CompiledGrammar, turn: str
) -> None:
    assert passes(encoding, parallel, REASONING + PREAMBLE + turn)


@pytest.mark.parametrize(
    "end", ["", "<|return|>", "<|start|>functions", "<|start|>browser", "<|start|>python"]
)
def test_calls_follow_each_other_until_one_of_the_ends(
    encoding: Encoding, parallel: CompiledGrammar, end: str
) -> None:
    assert passes(encoding, parallel, REASONING + NEXT.join(CALLS) + end)


@pytest.mark.parametrize(
    "then",
    [
        "<|start|>user",
        f"{NEXT}<|channel|>final",
        f"{NEXT}<|channel|>analysis<|message|>",
        "<|call|>",
        "<|end|>",
    ],
)
def test_only_a_call_follows_a_call(encoding: Encoding, parallel: CompiledGrammar, then: str) -> None:
    assert not passes(encoding, parallel, CALLS[0] + then)


def test_once_a_tools_answer_has_started_only_the_end_of_the_text_is_legal(
    encoding: Encoding, parallel: CompiledGrammar
) -> None:
    state = parallel.start()
    for token in encoding.encode_special(f"{CALLS[0]}<|start|>functions"):
        state.accept(token)
    assert allowed(state.mask()).nonzero()[0].tolist() == [ENDOFTEXT]


def test_without_parallel_calls_a_second_call_cannot_start(encoding: Encoding, grammars: Grammars) -> None:
    single = grammars.compile(turn_grammar(TurnShape(TOOLS)))
    assert passes(encoding, single, CALLS[0])
    assert not passes(encoding, single, CALLS[0] + "<|start|>")


def test_an_untrained_model_makes_calls_without_a_slip(encoding: Encoding, parallel: CompiledGrammar) -> None:
    model = RandomModel(5, [*closing_tokens(encoding), *encoding.encode_special(NEXT)])
    several = 0
    for _ in range(40):
        tokens, _ = model.answer(parallel, 600, stops={ENDOFTEXT, 200002})
        last = max((at for at, token in enumerate(tokens) if token == CALL), default=None)
        events = decoded(encoding, KNOWN, tokens if last is None else tokens[: last + 1])
        whole = [event for event in events if isinstance(event, MessageFinished)]
        if last is not None:
            assert not [event for event in events if isinstance(event, Slip)], encoding.decode(tokens)
        several += sum(event.header.recipient is not None for event in whole) > 1
    assert several


TEXTS: list[tuple[str, str, list[str], list[str]]] = [
    ("regex", r"\d{2,3}(/[a-z]+)?", ["12", "123/ab"], ["1", "12/", "x12", "12 "]),
    ("regex", "^a\nb$", ["a\nb"], ["ab", "a\nbc"]),
    ("regex", "(?i)yes|no", ["YES", "no"], ["maybe"]),
    ("lark", 'start: "a" ("," "a")*\n', ["a", "a,a,a"], ["", "a,", "a a"]),
    ("lark", 'start: WORD\nWORD: /[^\\s{}]+/\n%ignore " "', ["東京🧠"], ["{"]),
]


@pytest.mark.parametrize(("syntax", "definition", "fits", "misfits"), TEXTS)
def test_a_body_follows_its_own_grammar(
    encoding: Encoding, grammars: Grammars, syntax: str, definition: str, fits: list[str], misfits: list[str]
) -> None:
    lark = text_grammar(grammars, syntax, definition)  # type: ignore[arg-type]
    shape = TurnShape([*TOOLS, Callee("functions.say", TextBody(lark), types=("code",))], parallel=True)
    grammar = grammars.compile(turn_grammar(shape))
    for kind in (" code", "<|constrain|>code", ""):
        for text, ok in [*((text, True) for text in fits), *((text, False) for text in misfits)]:
            turn = f"<|channel|>commentary to=functions.say{kind}<|message|>{text}<|call|>"
            assert passes(encoding, grammar, turn) is ok, text
            assert passes(encoding, grammar, CALLS[0] + NEXT + turn) is ok, text


@pytest.mark.parametrize(
    "definition",
    [
        'start: "a" <|end|>',
        "start: <[200007]>",
        "start: @turn",
        'start: "\\"" <|call|> "\\""',
        "start: a // <\n\na: @x",
        'start: /a\n"/ <|end|> /"/',
        'start: "a" # "\n | <|end|> # "',
    ],
)
def test_no_text_can_end_its_message(grammars: Grammars, definition: str) -> None:
    with pytest.raises(GrammarRefused):
        text_grammar(grammars, "lark", definition)
