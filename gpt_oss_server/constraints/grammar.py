"""One turn of the model as a grammar: which messages it may write, to whom, and in what form.

In goes what a request allows (whom the model may call, whether it may answer, what binds a body), out comes
Lark text for llguidance. Reasoning and preambles are free text, as are bodies that nothing binds; headers are
always legal, so that a turn cannot slip. Generation begins after `<|start|>assistant`.

    <|channel|>analysis<|message|>…<|end|><|start|>assistant                  any number of these
    <|channel|>commentary<|message|>…<|end|><|start|>assistant                and of these, then one of
    <|channel|>final<|message|>…<|return|>
    <|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>
    _to=functions.f<|channel|>commentary <|constrain|>json<|message|>{…}<|call|>

Where calls are `parallel`, more of them may follow the first, each after `<|start|>assistant`. What the
model has learnt to write after its last call is the beginning of the tool's answer, `<|start|>functions…`:
that ends the turn too, so that the model need not call again only because it may write nothing else.

It must not know of requests, items, schemas' meaning or engines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from gpt_oss_server.harmony.encoding import CALL, CHANNEL, CONSTRAIN, END, MESSAGE, RETURN, START

# White space between JSON's tokens, where any amount is legal: a model that has lost its way would fill the
# rest of its answer with it.
_SPACE = r"[ \n\r\t]{0,24}"


@dataclass(frozen=True, slots=True)
class JsonBody:
    """A body that is JSON and fits a schema, as `schema_support.py` leaves it."""

    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TextBody:
    """A body that is text and follows a grammar of its own, as `text_grammar.py` leaves it."""

    lark: str


Body = JsonBody | TextBody | None  # None: any text

ANY_OBJECT = JsonBody({"type": "object"})


@dataclass(frozen=True, slots=True)
class Callee:
    """Someone whom the model may call, and the channels and content types it may name in doing so."""

    recipient: str
    body: Body = None
    channels: tuple[str, ...] = ("commentary",)
    types: tuple[str, ...] = ("json",)


@dataclass(frozen=True, slots=True)
class TurnShape:
    """What a turn may be. Without an answer it must end in a call."""

    callees: Sequence[Callee] = ()
    answer: Body = None
    may_answer: bool = True
    asides: Sequence[str] = ("analysis", "commentary")  # reasoning, and preambles for the user
    parallel: bool = False  # whether more calls may follow the first


def turn_grammar(shape: TurnShape) -> str:
    """Lark text; where bodies follow grammars of their own, JSON of it and those, as llguidance takes it."""
    if not shape.may_answer and not shape.callees:
        raise ValueError("A turn that may neither answer nor call has no end.")
    rules = [f"start: {'aside* ' if shape.asides else ''}last"]
    if shape.asides:
        rules.append(f"aside: {' | '.join(_aside(channel) for channel in shape.asides)}")
    ends = ["calls"] if shape.callees else []
    if shape.may_answer:
        ends.append("answer")
        rules.append(_answer(shape.answer))
    rules.append(f"last: {' | '.join(ends)}")
    parts: dict[str, str] = {}
    if shape.callees:
        rules += _calls(shape, parts)
    rules += ["text: TEXT?", "TEXT: /(.|\\n)+/"]
    whole = "\n".join(rules) + "\n"
    if not parts:
        return whole
    named = [{"name": name, "lark_grammar": lark} for lark, name in parts.items()]
    return json.dumps({"grammars": [{"name": "turn", "lark_grammar": whole}, *named]})


def _token(token: int) -> str:
    return f"<[{token}]>"


_NEXT = f'{_token(END)} {_token(START)} "assistant"'


def _aside(channel: str) -> str:
    return f'{_token(CHANNEL)} "{channel}" {_token(MESSAGE)} text {_NEXT}'


def _answer(body: Body) -> str:
    typed = _types(("json",)) if isinstance(body, JsonBody) else ""
    return f'answer: {_token(CHANNEL)} "final" {typed} {_token(MESSAGE)} {_body(body, {})} {_token(RETURN)}'


def _calls(shape: TurnShape, parts: dict[str, str]) -> list[str]:
    names = [f"call{at}" for at in range(len(shape.callees))]
    rules = [_call(name, callee, parts) for name, callee in zip(names, shape.callees, strict=True)]
    rules.append(f"call: {' | '.join(names)}")
    if not shape.parallel:
        return ["calls: call", *rules]
    authors = sorted({callee.recipient.partition(".")[0] for callee in shape.callees})
    answers = f"{_token(START)} ({' | '.join(map(_quoted, authors))})"
    more = f'({_token(START)} "assistant" call)*'
    return [f"calls: call {more} ({_token(RETURN)} | {answers})?", *rules]


def _call(name: str, callee: Callee, parts: dict[str, str]) -> str:
    heads = []
    for channel in callee.channels:
        heads.append(f"{_token(CHANNEL)} {_quoted(f'{channel} to={callee.recipient}')}")
        heads.append(f"{_quoted(f' to={callee.recipient}')} {_token(CHANNEL)} {_quoted(channel)}")
    body = f"{_types(callee.types)} {_token(MESSAGE)} {_body(callee.body, parts)} {_token(CALL)}"
    return f"{name}: ({' | '.join(heads)}) {body}"


def _types(types: Sequence[str]) -> str:
    """` <|constrain|>json`, ` json`, or nothing: the model writes all three."""
    forms = []
    for name in types:
        forms.append(f'" "? {_token(CONSTRAIN)} {_quoted(name)}')
        forms.append(_quoted(f" {name}"))
    return f"({' | '.join(forms)})?"


def _body(body: Body, parts: dict[str, str]) -> str:
    match body:
        case None:
            return "text"
        case JsonBody(schema):
            return f"%json {schema_json(schema)}"
        case TextBody(lark):
            return f"@{parts.setdefault(lark, f'text{len(parts)}')}"
        case _:
            assert_never(body)


def schema_json(schema: Mapping[str, Any]) -> str:
    return json.dumps({**schema, "x-guidance": {"whitespace_pattern": _SPACE}})


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
