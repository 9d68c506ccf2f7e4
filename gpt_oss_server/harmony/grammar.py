"""One turn of the model as a grammar: which messages it may write, to whom, and in what form.

In goes what a request allows (whom the model may call, whether it may answer, what binds a body), out comes
Lark text for llguidance. Reasoning and preambles are free text, as are bodies that nothing binds; headers are
always legal, so that a turn cannot slip. Generation begins after `<|start|>assistant`.

    <|channel|>analysis<|message|>…<|end|><|start|>assistant                  any number of these
    <|channel|>commentary<|message|>…<|end|><|start|>assistant                and of these, then one of
    <|channel|>final<|message|>…<|return|>
    <|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>
    _to=functions.f<|channel|>commentary <|constrain|>json<|message|>{…}<|call|>

It must not know of requests, items, schemas' meaning or engines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpt_oss_server.harmony.encoding import CALL, CHANNEL, CONSTRAIN, END, MESSAGE, RETURN, START

# White space between JSON's tokens, where any amount is legal: a model that has lost its way would fill the
# rest of its answer with it.
_SPACE = r"[ \n\r\t]{0,24}"


@dataclass(frozen=True, slots=True)
class JsonBody:
    """A body that is JSON and fits a schema, as `schema_support.py` leaves it."""

    schema: Mapping[str, Any]


Body = JsonBody | None  # None: any text

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


def turn_grammar(shape: TurnShape) -> str:
    if not shape.may_answer and not shape.callees:
        raise ValueError("A turn that may neither answer nor call has no end.")
    rules = [f"start: {'aside* ' if shape.asides else ''}last"]
    if shape.asides:
        rules.append(f"aside: {' | '.join(_aside(channel) for channel in shape.asides)}")
    ends = ["call"] if shape.callees else []
    if shape.may_answer:
        ends.append("answer")
        rules.append(_answer(shape.answer))
    rules.append(f"last: {' | '.join(ends)}")
    if shape.callees:
        rules += _calls(shape)
    rules += ["text: TEXT?", "TEXT: /(.|\\n)+/"]
    return "\n".join(rules) + "\n"


def _token(token: int) -> str:
    return f"<[{token}]>"


_NEXT = f'{_token(END)} {_token(START)} "assistant"'


def _aside(channel: str) -> str:
    return f'{_token(CHANNEL)} "{channel}" {_token(MESSAGE)} text {_NEXT}'


def _answer(body: Body) -> str:
    typed = _types(("json",)) if isinstance(body, JsonBody) else ""
    return f'answer: {_token(CHANNEL)} "final" {typed} {_token(MESSAGE)} {_body(body)} {_token(RETURN)}'


def _calls(shape: TurnShape) -> list[str]:
    names = [f"call{at}" for at in range(len(shape.callees))]
    rules = [_call(name, callee) for name, callee in zip(names, shape.callees, strict=True)]
    return [f"call: {' | '.join(names)}", *rules]


def _call(name: str, callee: Callee) -> str:
    heads = []
    for channel in callee.channels:
        heads.append(f"{_token(CHANNEL)} {_quoted(f'{channel} to={callee.recipient}')}")
        heads.append(f"{_quoted(f' to={callee.recipient}')} {_token(CHANNEL)} {_quoted(channel)}")
    body = f"{_types(callee.types)} {_token(MESSAGE)} {_body(callee.body)} {_token(CALL)}"
    return f"{name}: ({' | '.join(heads)}) {body}"


def _types(types: Sequence[str]) -> str:
    """` <|constrain|>json`, ` json`, or nothing: the model writes all three."""
    forms = []
    for name in types:
        forms.append(f'" "? {_token(CONSTRAIN)} {_quoted(name)}')
        forms.append(_quoted(f" {name}"))
    return f"({' | '.join(forms)})?"


def _body(body: Body) -> str:
    return "text" if body is None else f"%json {schema_json(body.schema)}"


def schema_json(schema: Mapping[str, Any]) -> str:
    return json.dumps({**schema, "x-guidance": {"whitespace_pattern": _SPACE}})


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
