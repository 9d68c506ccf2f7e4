"""The grammar of a turn: it accepts every legal shape and no other, and what it accepts never slips.
Regular expressions as trees match what Python's do; what a tree cannot express is left to the check.
"""

import contextlib
import json
import re

import pytest

from gpt_oss_server.constraints.grammar import ANY_OBJECT, Callee, JsonBody, TextBody, TurnShape, turn_grammar
from gpt_oss_server.constraints.matcher import CompiledGrammar, GrammarError, Grammars, MatcherState
from gpt_oss_server.constraints.spelling.nodes import Tree
from gpt_oss_server.constraints.spelling.regex import node_of_pattern
from gpt_oss_server.constraints.spelling.rest import Rest
from gpt_oss_server.constraints.text_grammar import GrammarRefused, text_grammar
from gpt_oss_server.errors import from_inference
from gpt_oss_server.harmony.encoding import CALL, END, ENDOFTEXT, RETURN, VOCABULARY_SIZE, Encoding
from gpt_oss_server.harmony.recipients import Recipients
from inference.engine import EngineFailed, GrammarFailed
from inference.grammar import BatchedState, compute_masks
from tests.doubles.harmony.decoding import decode, messages_of, slips_of
from tests.doubles.harmony.sampling import RandomModel, allowed, closing_tokens, fitting
from tests.doubles.harmony.schemas import TEXT, closed
from tests.doubles.random_tests.seeds import seeds
from tests.doubles.stored import known

CITY = closed(city=TEXT)
TOOLS = (
    Callee("functions.get", ANY_OBJECT),
    Callee("functions.get_city", JsonBody(CITY)),
    Callee("browser.search", ANY_OBJECT, ("analysis", "commentary"), ("code", "json")),
    Callee("python", None, ("analysis", "commentary"), ("code",)),
)
KNOWN = Recipients(frozenset({"get", "get_city"}), frozenset({"browser.search", "python"}))
NEXT = "<|start|>assistant"
REASONING = f"<|channel|>analysis<|message|>Thinking of 東京 🧠.\n\nDone<|end|>{NEXT}"
PREAMBLE = f"<|channel|>commentary<|message|>I will look.<|end|>{NEXT}"
ANSWERS = ["<|channel|>final<|message|>Hello 東京 🧠<|return|>", "<|channel|>final<|message|><|return|>"]
CALLS = [
    "<|channel|>commentary to=functions.get <|constrain|>json<|message|>{}<|call|>",
    '<|channel|>commentary to=functions.get<|constrain|>json<|message|>{"a": [1, "东"]}<|call|>',
    '<|channel|>commentary to=functions.get json<|message|>{"a":1}<|call|>',
    '<|channel|>commentary to=functions.get<|message|>{"a":1}<|call|>',
    ' to=functions.get<|channel|>commentary <|constrain|>json<|message|>{\n  "a": 1\n}<|call|>',
    ' to=functions.get_city<|channel|>commentary json<|message|>{"city":"東京"}<|call|>',
    '<|channel|>analysis to=browser.search code<|message|>{"query":"x"}<|call|>',
    '<|channel|>commentary to=browser.search <|constrain|>json<|message|>{"query":"x"}<|call|>',
    "<|channel|>analysis to=python code<|message|>print('hi')\n<|call|>",
    " to=python<|channel|>commentary code<|message|>1+1<|call|>",
]
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
    (CALLS[0], "<|start|>", "a second call"),
]


def compiled(grammars: Grammars, shape: TurnShape) -> CompiledGrammar:
    return grammars.compile(turn_grammar(shape))


@pytest.fixture(scope="module")
def grammar(grammars: Grammars) -> CompiledGrammar:
    return compiled(grammars, TurnShape(TOOLS))


@pytest.fixture(scope="module")
def parallel(grammars: Grammars) -> CompiledGrammar:
    return compiled(grammars, TurnShape(TOOLS, parallel=True))


def passes(encoding: Encoding, grammar: CompiledGrammar, text: str) -> bool:
    tokens = encoding.encode_special(text)
    return fitting(grammar, tokens) == len(tokens) and after(encoding, grammar, text).is_accepting()


def after(encoding: Encoding, grammar: CompiledGrammar, text: str) -> MatcherState:
    state = grammar.start()
    for token in encoding.encode_special(text):
        state.accept(token)
    return state


@pytest.mark.parametrize("before", ["", REASONING, PREAMBLE, REASONING + PREAMBLE + REASONING])
@pytest.mark.parametrize("turn", ANSWERS + CALLS)
def test_every_legal_turn_passes(
    encoding: Encoding, grammar: CompiledGrammar, parallel: CompiledGrammar, turn: str, before: str
) -> None:
    assert passes(encoding, grammar, before + turn)
    assert passes(encoding, parallel, before + turn)
    assert not slips_of(decode(encoding, encoding.encode_special(before + turn), KNOWN))


@pytest.mark.parametrize(("head", "then", "what"), ILLEGAL, ids=lambda value: str(value)[-40:])
def test_no_slip_can_be_sampled(
    encoding: Encoding, grammar: CompiledGrammar, head: str, then: str, what: str
) -> None:
    tokens = encoding.encode_special(head)
    assert fitting(grammar, [*tokens, encoding.encode_special(then)[0]]) == len(tokens), what


def test_the_masks_are_right_within_characters_of_several_tokens(
    encoding: Encoding, grammars: Grammars
) -> None:
    schema = JsonBody(closed(a={"type": "string", "maxLength": 3}))
    grammar = compiled(grammars, TurnShape(answer=schema))
    head = encoding.encode_special('<|channel|>final<|message|>{"a":"')
    brain, quote = encoding.encode("🧠"), encoding.encode('"')[0]
    assert len(brain) > 1
    assert fitting(grammar, [*head, *encoding.encode("東"), *brain]) == len(head) + 1 + len(brain)
    half = [*head, *encoding.encode("東"), brain[0]]
    assert fitting(grammar, [*half, quote]) == len(half), "a text cannot end within a character"
    full = [*head, *encoding.encode("東京🧠")]
    assert fitting(grammar, [*full, encoding.encode("x")[0]]) == len(full), "three characters are enough"
    assert fitting(grammar, [*full, quote]) == len(full) + 1


def test_a_call_is_forced_by_leaving_no_answer(encoding: Encoding, grammars: Grammars) -> None:
    grammar = compiled(grammars, TurnShape(TOOLS, may_answer=False))
    assert not passes(encoding, grammar, ANSWERS[0])
    assert all(passes(encoding, grammar, REASONING + turn) for turn in CALLS)


def test_without_reasoning_the_turn_starts_with_its_end(encoding: Encoding, grammars: Grammars) -> None:
    grammar = compiled(grammars, TurnShape(asides=()))
    assert passes(encoding, grammar, ANSWERS[0])
    assert not passes(encoding, grammar, REASONING + ANSWERS[0])


def test_a_turn_needs_an_end() -> None:
    with pytest.raises(ValueError, match="no end"):
        turn_grammar(TurnShape(may_answer=False))


def test_a_token_that_is_not_allowed_and_an_invalid_grammar_are_reported(
    grammar: CompiledGrammar, grammars: Grammars
) -> None:
    with pytest.raises(EngineFailed, match="does not allow the token 5 "):
        grammar.start().accept(5)
    with pytest.raises(GrammarError):
        grammars.compile("start: nothing")


def test_one_grammar_serves_independent_generations(grammar: CompiledGrammar) -> None:
    one, other = grammar.start(), grammar.start()
    one.accept(200005)
    assert one.mask() != other.mask()
    assert other.mask() == grammar.start().mask()


@pytest.mark.parametrize("seed", seeds(1, proofs=8))
def test_an_untrained_model_writes_only_well_formed_turns(
    encoding: Encoding, grammars: Grammars, seed: int
) -> None:
    city = JsonBody(CITY)
    shapes = [TurnShape(TOOLS), TurnShape(TOOLS, may_answer=False), TurnShape()]
    shapes += [TurnShape(answer=city), TurnShape(TOOLS[:2], answer=city)]
    for at, shape in enumerate(shapes):
        model, grammar = RandomModel(seed * 100 + at, closing_tokens(encoding)), compiled(grammars, shape)
        for _ in range(50):
            tokens, stopped = model.answer(grammar, 1_000)
            assert stopped
            events = decode(encoding, tokens, KNOWN)
            assert not slips_of(events), encoding.decode(tokens)
            last = messages_of(events)[-1]
            assert last.header.channel == "final" or last.header.recipient is not None
            if last.header.content_type == "json":
                json.loads(last.text)


ENDS = ("", "<|return|>", "<|start|>functions", "<|start|>browser", "<|start|>python")


@pytest.mark.parametrize("end", ENDS)
def test_calls_follow_each_other_until_one_of_the_ends(
    encoding: Encoding, parallel: CompiledGrammar, end: str
) -> None:
    assert passes(encoding, parallel, REASONING + NEXT.join(CALLS) + end)


def test_only_a_call_follows_a_call(encoding: Encoding, parallel: CompiledGrammar) -> None:
    others = (f"{NEXT}<|channel|>final", f"{NEXT}<|channel|>analysis<|message|>")
    for then in ("<|start|>user", "<|call|>", "<|end|>", *others):
        assert not passes(encoding, parallel, CALLS[0] + then), then


def test_once_a_tools_answer_has_started_only_the_end_of_the_text_is_legal(
    encoding: Encoding, parallel: CompiledGrammar
) -> None:
    state = after(encoding, parallel, f"{CALLS[0]}<|start|>functions")
    assert allowed(state.mask()).nonzero()[0].tolist() == [ENDOFTEXT]


def test_an_untrained_model_makes_calls_without_a_slip(encoding: Encoding, parallel: CompiledGrammar) -> None:
    model = RandomModel(5, [*closing_tokens(encoding), *encoding.encode_special(NEXT)])
    several = 0
    for _ in range(40):
        tokens, _ = model.answer(parallel, 600, stops={ENDOFTEXT, RETURN})
        last = max((at for at, token in enumerate(tokens) if token == CALL), default=None)
        events = decode(encoding, tokens if last is None else tokens[: last + 1], KNOWN)
        if last is not None:
            assert not slips_of(events), encoding.decode(tokens)
        several += sum(message.header.recipient is not None for message in messages_of(events)) > 1
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
    say = Callee("functions.say", TextBody(lark), types=("code",))
    grammar = compiled(grammars, TurnShape([*TOOLS, say], parallel=True))
    for kind in (" code", "<|constrain|>code", ""):
        for text in (*fits, *misfits):
            turn = f"<|channel|>commentary to=functions.say{kind}<|message|>{text}<|call|>"
            assert passes(encoding, grammar, turn) is (text in fits), text
            assert passes(encoding, grammar, CALLS[0] + NEXT + turn) is (text in fits), text


ESCAPES = ['"a" <|end|>', "<[200007]>", "@turn", '"\\"" <|call|> "\\""', "a // <\n\na: @x"]
ESCAPES += ['/a\n"/ <|end|> /"/', '"a" # "\n | <|end|> # "']


@pytest.mark.parametrize("escape", ESCAPES)
def test_no_text_can_end_its_message(grammars: Grammars, escape: str) -> None:
    with pytest.raises(GrammarRefused):
        text_grammar(grammars, "lark", f"start: {escape}")


def test_masks_of_many_states_are_those_of_the_single_states(
    encoding: Encoding, grammar: CompiledGrammar, grammars: Grammars
) -> None:
    free = compiled(grammars, TurnShape())
    states = [grammar.start(), after(encoding, free, "<|channel|>analysis<|message|>Hm"), free.start()]
    assert isinstance(states[0], BatchedState)
    masks, size = compute_masks(states), -(-VOCABULARY_SIZE // 8)
    assert all(isinstance(mask, bytes) for mask in masks)
    assert [bytes(mask)[:size] for mask in masks] == [state.mask()[:size] for state in states]  # type: ignore[arg-type]
    assert len(set(masks)) == 3


def test_a_grammar_that_cannot_be_followed_is_the_requests_fault(
    encoding: Encoding, grammars: Grammars
) -> None:
    body = JsonBody({"type": "object", "properties": {f"n{at}": {} for at in range(1_000)}})
    state = compiled(grammars, TurnShape(answer=body, asides=())).start()
    begun = encoding.encode_special('<|channel|>final<|message|>{"')
    with pytest.raises(GrammarFailed, match="max is") as failed:
        list(map(state.accept, begun))
    assert from_inference(failed.value).status == 400


def test_a_state_that_failed_fails_alone(grammar: CompiledGrammar) -> None:
    states = [grammar.start() for _ in range(3)]
    with contextlib.suppress(EngineFailed):
        states[0].accept(END)
    failed, *others = compute_masks(states)
    assert isinstance(failed, EngineFailed)
    assert "cannot be followed" in str(failed)
    assert all(isinstance(mask, bytes) for mask in others)


def test_states_of_different_kinds_are_computed_one_by_one(grammar: CompiledGrammar) -> None:
    class Broken:
        def mask(self) -> bytes:
            raise ValueError("no mask")

        def accept(self, token: int) -> None: ...

    mask, broken = compute_masks([grammar.start(), Broken()])
    assert isinstance(mask, bytes)
    assert isinstance(broken, ValueError)
    assert compute_masks([]) == []


WORDS = "a ab abab 7 42 1234 2024-01-31 x_y é [ a-b A zzz"
PATTERNS = r"[0-9]{1,3} a|b|ab (ab)+ (?:ab)* \d{4}-\d{2}-\d{2} \w+ [^a-z\n]+ \s? a.? [a\-b]+ z{2,} [\d]+?"
INEXPRESSIBLE = r"(?=a) (a)\1 \p{L} (a*)* a{999} (a [a a) <| a^ [[:alpha:]] [\w&&[^b]] [a-z--x]"


def matches(pattern: str, text: str) -> bool:
    rest = Rest(Tree(known(node_of_pattern(pattern)), {}), lambda code: chr(code).encode())
    rest.take(map(ord, text))
    return None in rest._reached(rest.positions)


@pytest.mark.parametrize("pattern", [*PATTERNS.split(), r"\x41", r"\[", ""])
def test_a_pattern_matches_the_same_texts(pattern: str) -> None:
    for text in (*WORDS.split(), "", " ", "\n"):
        assert matches(pattern, text) == bool(re.fullmatch(pattern, text)), (pattern, text)


@pytest.mark.parametrize("pattern", INEXPRESSIBLE.split())
def test_what_a_tree_cannot_express_is_none(pattern: str) -> None:
    assert node_of_pattern(pattern) is None


def test_a_wide_class_spells_no_special_token() -> None:
    assert matches(".", "|")
    assert not matches(".", "<")
    assert matches("<", "<")
