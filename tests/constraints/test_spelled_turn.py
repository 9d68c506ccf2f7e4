"""Turns as grammars that are written down: they follow what the compiled grammar of the same turn allows."""

from collections.abc import Sequence
from typing import Any

import pytest

from gpt_oss_server.constraints.grammar import Callee, JsonBody, TextBody, TurnShape, turn_grammar
from gpt_oss_server.constraints.matcher import CompiledGrammar, GrammarError, grammars_of
from gpt_oss_server.constraints.spelled_turn import SpelledTurn, spelled_turn
from gpt_oss_server.harmony.encoding import CALL, RETURN, Encoding
from inference.engine import EngineFailed
from inference.grammar import Notation, SpelledGrammar
from tests.contracts.spelled_contract import NAMES, SHAPES
from tests.doubles.harmony.schemas import TEXT, closed

WEATHER = "to=functions.weather"
TURNS = (
    "<|channel|>analysis<|message|><| ok<|end|><|start|>assistant<|channel|>final<|message|>世 🧿<|return|>",
    f'<|channel|>commentary {WEATHER} <|constrain|>json<|message|>{{"city": "R", "unit": "celsius"}}<|call|>',
    f' {WEATHER}<|channel|>commentary json<|message|>{{"city":"R","days":7,"unit":"celsius"}}<|call|>',
    '<|channel|>final <|constrain|>json<|message|>{"city": "a", "unit": "fahrenheit", "hours": [1, -2.5e3]}',
    '<|channel|>final<|message|>{"note": "a <b> | \\n", "more": {"x": [null, true]}}<|return|>',
    "<|channel|>analysis to=python<|message|>print(1)<|call|>",
    f'<|channel|>commentary {WEATHER}<|message|>{{"city": "R", "unit": "celsius"}}<|call|><|start|>assistant'
    f'<|channel|>commentary {WEATHER}<|message|>{{"city": "S", "unit": "celsius"}}<|call|><|start|>functions',
    *(f'<|channel|>commentary to={name}<|message|>{{"note": ""}}<|call|>' for name in NAMES),
    *(f' to={name}<|channel|>commentary json<|message|>{{"note": ""}}<|call|>' for name in NAMES),
    "<|channel|>commentary to=functions.fabc<|message|>",
    " to=functions.<|channel|>commentary<|message|>",
    "<|channel|>weird<|message|>",
    "<|channel|>final<|message|>a<|channel|>",
    "<|channel|>commentary to=functions.nope<|message|>",
    f'<|channel|>commentary {WEATHER}<|message|>{{"town": ',
    f'<|channel|>commentary {WEATHER}<|message|>{{"city": "R", "days": 8',
    '<|channel|>final<|message|>{"note": "<|end|>"}',
)


def accepted(grammar: CompiledGrammar | SpelledTurn, tokens: Sequence[int]) -> int:
    """How many tokens the grammar takes."""
    if isinstance(grammar, SpelledTurn):
        for count in range(1, len(tokens) + 1):
            spelling = grammar.spelling()
            spelling.take(tokens[:count])
            if spelling.rest(Notation.XGRAMMAR) is None:
                return count - 1
        return len(tokens)
    state = grammar.start()
    for count, token in enumerate(tokens):
        try:
            state.accept(token)
        except EngineFailed:
            return count
    return len(tokens)


def fitting(grammar: SpelledTurn, tokens: Sequence[int], at_once: int) -> int:
    """How many tokens fit, taken some at a time."""
    spelling = grammar.spelling()
    for begin in range(0, len(tokens), at_once):
        part = tokens[begin : begin + at_once]
        end = spelling.take_fitting(part)
        if end < len(part):
            return begin + end
    return len(tokens)


@pytest.mark.parametrize("name", SHAPES)
def test_the_same_tokens_are_allowed(encoding: Encoding, name: str) -> None:
    compiled = grammars_of(encoding).compile(turn_grammar(SHAPES[name]))
    spelled = spelled_turn(SHAPES[name], encoding)
    for turn in TURNS:
        tokens = encoding.encode_special(turn)
        assert accepted(spelled, tokens) == accepted(compiled, tokens), turn
        for at_once in (1, 3, len(tokens)):
            assert fitting(spelled, tokens, at_once) == accepted(compiled, tokens), turn


def body(schema: dict[str, Any], encoding: Encoding, text: str) -> bool:
    shape = TurnShape(answer=JsonBody(schema), asides=())
    tokens = [*encoding.encode_special(f"<|channel|>final<|message|>{text}"), RETURN]
    return accepted(spelled_turn(shape, encoding), tokens) == len(tokens)


TREE = {"type": "array", "items": {"$ref": "#/$defs/tree"}}
TWO = {"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 2}
FIRST = {"type": "array", "prefixItems": [{"type": "boolean"}], "minItems": 1, "items": False}
CLOSED = {**closed(a={}, b={}), "required": ["b"]}
EVEN = {"type": "integer", "exclusiveMinimum": 1, "maximum": 6, "multipleOf": 2}


@pytest.mark.parametrize(
    ("schema", "fits", "breaks"),
    [
        ({"type": "string", "minLength": 2, "maxLength": 3}, ['"ab"', '"a\\n"'], ['"a"', '"abcd"']),
        ({"type": "integer", "minimum": 0}, ["0", "12"], ["-1", "1.5", "01"]),
        (EVEN, ["2", "6"], ["1", "3", "8"]),
        (TWO, ["[null,null]"], ["[]", "[null]"]),
        (FIRST, ["[true]"], ["[1]"]),
        ({"enum": ["a", 1, {"b": [None]}]}, ['"a"', "1", '{"b":[null]}'], ['"b"', "2", "{}"]),
        ({"type": ["string", "null"]}, ["null", '""'], ["1"]),
        ({"anyOf": [{"type": "boolean"}, {"const": 3}]}, ["true", "3"], ["4"]),
        (CLOSED, ['{"b": 1}', '{"a": [], "b": {}}'], ["{}", '{"a": 1}', '{"b": 1, "c": 2}']),
        ({"type": "object", "additionalProperties": {"type": "null"}}, ["{}", '{"x": null}'], ['{"x": "y"}']),
        ({"$ref": "#/$defs/tree", "$defs": {"tree": TREE}}, ["[[], [[]]]"], ["[1]"]),
        ({"allOf": [{"type": "boolean"}]}, ["true"], ["1"]),
    ],
)
def test_schemas(encoding: Encoding, schema: dict[str, Any], fits: list[str], breaks: list[str]) -> None:
    assert all(body(schema, encoding, text) for text in fits)
    assert not any(body(schema, encoding, text) for text in breaks)


def test_what_needs_too_many_rules_is_left_to_the_check(encoding: Encoding) -> None:
    texts = ({"pattern": "^a+$"}, {"format": "date"}, {"maxLength": 5000})
    others = ({"enum": ["<|end|>"]}, {"anyOf": [TEXT], "minLength": 3})
    for schema in (*({**TEXT, **text} for text in texts), *others):
        assert body(schema, encoding, '"anything"'), schema


def test_a_long_list_of_optional_properties_stays_small(encoding: Encoding) -> None:
    schema = {**closed(**{f"property_{number}": TEXT for number in range(60)}), "required": []}
    shape = TurnShape(answer=JsonBody(schema))
    for notation in Notation:
        assert len(spelled_turn(shape, encoding).spelling().rest(notation) or "") < 60_000
    assert body(schema, encoding, '{"property_7": "x", "property_50": "y"}')
    assert not body(schema, encoding, '{"property_50": "x", "property_7": "y"}')


def test_a_text_with_a_pattern_or_a_list_is_bound_and_other_grammars_are_free(encoding: Encoding) -> None:
    def takes(lark: str, text: str) -> bool:
        shape = TurnShape([Callee("math", TextBody(lark), types=("text",))], may_answer=False, asides=())
        tokens = [*encoding.encode_special(f"<|channel|>commentary to=math<|message|>{text}"), CALL]
        return accepted(spelled_turn(shape, encoding), tokens) == len(tokens)

    number, word = "start: /[0-9]{1,3}/\n", 'start: "yes" | "no"\n'
    assert [takes(number, "12"), takes(number, "1234")] == [True, False]
    assert [takes(word, "no"), takes(word, "maybe")] == [True, False]
    assert takes('start: word " " word\nword: /[a-z]+/\n', "anything 7")
    assert takes("start: /a\\/b/\n", "a/b")


def test_the_rest_begins_with_the_rest_of_a_character(encoding: Encoding) -> None:
    orb = encoding.encode("🧿")
    assert len(orb) > 1
    spelling = spelled_turn(SHAPES["loose"], encoding).spelling()
    spelling.take(encoding.encode_special('<|channel|>final<|message|>{"note": "'))
    spelling.take(orb[:-1])
    assert spelling.is_inside_character
    assert spelling.rest(Notation.GBNF) is None
    rest = spelling.rest(Notation.XGRAMMAR) or ""
    assert f"Token({orb[-1]})" in rest
    assert "final" not in rest
    spelling.take(orb[-1:])
    assert not spelling.is_inside_character


def test_a_token_that_does_not_fit_changes_nothing(encoding: Encoding) -> None:
    orb = encoding.encode("🧿")
    begun = [*encoding.encode_special('<|channel|>final<|message|>{"note": "'), *orb[:-1]]
    spelling, other = (spelled_turn(SHAPES["loose"], encoding).spelling() for _ in range(2))
    other.take(begun)
    assert spelling.take_fitting([*begun, RETURN, CALL]) == len(begun)
    assert spelling.is_inside_character
    assert spelling.rest(Notation.XGRAMMAR) == other.rest(Notation.XGRAMMAR)
    assert spelling.take_fitting(orb[-1:]) == 1


def test_after_tokens_that_did_not_fit_any_token_is_taken(encoding: Encoding) -> None:
    spelling = spelled_turn(SHAPES["answers"], encoding).spelling()
    spelling.take([RETURN])
    assert spelling.take_fitting([CALL, RETURN]) == 2
    assert spelling.rest(Notation.XGRAMMAR) is None


def test_a_begun_turn_continues_in_its_grammar(encoding: Encoding) -> None:
    grammar = spelled_turn(SHAPES["forced"], encoding)
    begun = encoding.encode_special("<|channel|>commentary to=functions.weather<|message|>")
    assert isinstance(grammar.after(begun), SpelledGrammar)
    assert accepted(grammar.after(begun), encoding.encode_special('{"city": "R", "unit": "celsius"}')) > 5
    with pytest.raises(GrammarError):
        grammar.after(encoding.encode_special("<|channel|>final"))


def test_end_tokens_are_not_written(encoding: Encoding) -> None:
    for notation in Notation:
        text = spelled_turn(SHAPES["parallel"], encoding).spelling().rest(notation) or ""
        root = text.partition("\n")[0]
        assert "200012" not in root
        assert "200006" not in root, "what follows an end token is left out"
