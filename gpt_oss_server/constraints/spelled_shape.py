"""The shape of a turn as a grammar that can be written down: the same messages as `constraints.grammar` has.

Banned strings are left free, and so are texts that must follow a grammar of their own, unless that is one
regular expression or a list of texts: the finished turn is checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import assert_never

from gpt_oss_server.constraints.grammar import Body, Callee, JsonBody, TextBody, TurnShape
from gpt_oss_server.constraints.spelled_json import SPELT, JsonValues
from gpt_oss_server.constraints.spelling.nodes import (
    TEXT,
    Node,
    Repeat,
    Rule,
    Token,
    Tree,
    choice,
    choice_after,
    maybe,
    sequence,
)
from gpt_oss_server.constraints.spelling.regex import node_of_pattern
from gpt_oss_server.harmony.encoding import CALL, CHANNEL, CONSTRAIN, END, MESSAGE, RETURN, START

# As `text_grammar` writes a client's regular expression and its list of texts.
_PATTERN = re.compile(r"start: /(.+)/\n", re.DOTALL)
_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
_TEXTS = re.compile(rf"start: {_STRING.pattern}(?: \| {_STRING.pattern})*\n")

_NEXT = sequence(Token(END), Token(START), "assistant")


def turn_tree(shape: TurnShape) -> Tree:
    rules: dict[str, Node] = {}
    ends = [_calls(shape, rules)] if shape.callees else []
    if shape.may_answer:
        typed = _types(("json",)) if isinstance(shape.answer, JsonBody) else sequence()
        body = _body(shape.answer, rules)
        ends.append(sequence(Token(CHANNEL), "final", typed, Token(MESSAGE), body, Token(RETURN)))
    asides = [Repeat(choice([_aside(channel) for channel in shape.asides]))] if shape.asides else []
    return Tree(sequence(*asides, choice(ends)), rules)


def _aside(channel: str) -> Node:
    return sequence(Token(CHANNEL), channel, Token(MESSAGE), TEXT, _NEXT)


def _calls(shape: TurnShape, rules: dict[str, Node]) -> Node:
    call = _call(shape.callees, rules)
    if not shape.parallel:
        return call
    authors = sorted({callee.recipient.partition(".")[0] for callee in shape.callees})
    imagined = sequence(Token(START), choice(authors))
    more = Repeat(sequence(Token(START), "assistant", call))
    return sequence(call, more, maybe(choice([Token(RETURN), imagined])))


def _call(callees: Sequence[Callee], rules: dict[str, Node]) -> Node:
    """The recipient after the channel, or before it."""
    after, before = [], []
    for at, callee in enumerate(callees):
        rest = Rule(f"call{at}")
        rules[rest.name] = sequence(_types(callee.types), Token(MESSAGE), _body(callee.body, rules))
        for channel in callee.channels:
            after.append((f"{channel} to={callee.recipient}", rest))
            before.append((f" to={callee.recipient}", sequence(Token(CHANNEL), channel, rest)))
    heads = choice([sequence(Token(CHANNEL), choice_after(after)), choice_after(before)])
    return sequence(heads, Token(CALL))


def _types(types: Sequence[str]) -> Node:
    forms: list[Node] = []
    for name in types:
        forms.append(sequence(maybe(sequence(" ")), Token(CONSTRAIN), name))
        forms.append(sequence(f" {name}"))
    return maybe(choice(forms))


def _body(body: Body, rules: dict[str, Node]) -> Node:
    match body:
        case None:
            return TEXT
        case TextBody(lark):
            return _text(lark)
        case JsonBody(schema):
            return JsonValues(schema, rules, f"body{len(rules)}").value()
        case _:
            assert_never(body)


def _text(lark: str) -> Node:
    """A grammar that is one regular expression or a list of texts; any other is left to the check."""
    found: Node | None = None
    if pattern := _PATTERN.fullmatch(lark):
        found = node_of_pattern(pattern[1].replace(r"\/", "/"))
    elif _TEXTS.fullmatch(lark):
        texts = [json.loads(each) for each in _STRING.findall(lark)]
        found = choice(texts) if all(each and SPELT not in each for each in texts) else None
    return TEXT if found is None else found
