"""One turn of the model as a grammar: which messages it may write, to which recipient, and in what form.

Takes what a request allows (recipients, whether the model may answer, the forms of bodies). Returns Lark text
for llguidance. Reasoning, preambles and bodies without a form are free text; headers are always legal, so
that a turn cannot slip. Generation starts after `<|start|>assistant`.

    <|channel|>analysis<|message|>…<|end|><|start|>assistant                  any number
    <|channel|>commentary<|message|>…<|end|><|start|>assistant                of these, then one of
    <|channel|>final<|message|>…<|return|>
    <|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>
    _to=functions.f<|channel|>commentary <|constrain|>json<|message|>{…}<|call|>

With `parallel` calls, more may follow the first, each after `<|start|>assistant`. After its last call the
model has learnt to write the start of the tool's answer, `<|start|>functions…`. The grammar lets this end the
turn, so that the model need not call again merely because nothing else is legal.

It must not know requests, items, the meaning of schemas, or engines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from gpt_oss_server.harmony.encoding import (
    CALL,
    CHANNEL,
    CONSTRAIN,
    END,
    FIRST_SPECIAL,
    MESSAGE,
    RETURN,
    START,
    VOCABULARY_SIZE,
)

# The white space allowed between JSON's tokens. JSON allows any amount: a model that has lost its way would
# fill the rest of its answer with it.
_SPACE = r"[ \n\r\t]{0,24}"


@dataclass(frozen=True, slots=True)
class JsonBody:
    """A JSON body that fits a schema which `schema_support.py` has read."""

    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TextBody:
    """A text body that follows a grammar of its own, which `text_grammar.py` has checked."""

    lark: str


@dataclass(frozen=True, slots=True)
class Banned:
    """Strings that no free text may contain; `folded` ones in any case."""

    exact: tuple[str, ...] = ()
    folded: tuple[str, ...] = ()

    @property
    def pattern(self) -> str:
        """A regular expression for any of them; empty if there are none."""
        exact, folded = ("|".join(_literal(each) for each in of) for of in (self.exact, self.folded))
        return "|".join(filter(None, (exact, f"(?i:{folded})" if folded else "")))


NOTHING = Banned()
Body = JsonBody | TextBody | None  # None: any text

ANY_OBJECT = JsonBody({"type": "object"})


@dataclass(frozen=True, slots=True)
class Callee:
    """A recipient that the model may call, with the channels and content types that such a call may name."""

    recipient: str
    body: Body = None
    channels: tuple[str, ...] = ("commentary",)
    types: tuple[str, ...] = ("json",)


@dataclass(frozen=True, slots=True)
class TurnShape:
    """What a turn may consist of. Without an answer it must end in a call."""

    callees: Sequence[Callee] = ()
    answer: Body = None
    may_answer: bool = True
    asides: Sequence[str] = ("analysis", "commentary")  # reasoning, and preambles for the user
    parallel: bool = False  # whether more calls may follow the first
    banned: Banned = NOTHING  # what no text contains


def turn_grammar(shape: TurnShape) -> str:
    """Lark text; if bodies follow grammars of their own, JSON with all grammars, as llguidance takes it."""
    if not shape.may_answer and not shape.callees:
        raise ValueError("A turn that may neither answer nor call has no end.")
    parts: dict[str, str] = {}
    rules = [f"start: {'aside* ' if shape.asides else ''}last"]
    if shape.asides:
        rules.append(f"aside: {' | '.join(_aside(channel) for channel in shape.asides)}")
    ends = ["calls"] if shape.callees else []
    if shape.may_answer:
        ends.append("answer")
        rules.append(_answer(shape.answer, parts))
    rules.append(f"last: {' | '.join(ends)}")
    if shape.callees:
        rules += _calls(shape, parts)
    rules += ["text: TEXT?", _text(shape.banned)]
    return _with_parts(rules, parts)


def plain_grammar(body: Body, banned: Banned = NOTHING) -> str:
    """The grammar of a continuation without messages. Without a form, special tokens are free."""
    parts: dict[str, str] = {}
    if body is None:
        return _with_parts(
            [f"start: TEXT? (<[{FIRST_SPECIAL}-{VOCABULARY_SIZE - 1}]> TEXT?)*", _text(banned)], {}
        )
    return _with_parts([f"start: {_body(body, parts)}"], parts)


def _with_parts(rules: Sequence[str], parts: Mapping[str, str]) -> str:
    whole = "\n".join(rules) + "\n"
    if not parts:
        return whole
    named = [{"name": name, "lark_grammar": lark} for lark, name in parts.items()]
    return json.dumps({"grammars": [{"name": "turn", "lark_grammar": whole}, *named]})


def _text(banned: Banned) -> str:
    pattern = banned.pattern
    without = f" & ~/(.|\\n)*({pattern})(.|\\n)*/" if pattern else ""
    return f"TEXT: /(.|\\n)+/{without}"


def _literal(text: str) -> str:
    """A text as a regular expression between the slashes of a terminal."""
    return re.escape(text).replace("/", r"\/").replace("\\\n", r"\n").replace("\\\r", r"\r")


def _token(token: int) -> str:
    return f"<[{token}]>"


_NEXT = f'{_token(END)} {_token(START)} "assistant"'


def _aside(channel: str) -> str:
    return f'{_token(CHANNEL)} "{channel}" {_token(MESSAGE)} text {_NEXT}'


def _answer(body: Body, parts: dict[str, str]) -> str:
    typed = _types(("json",)) if isinstance(body, JsonBody) else ""
    return (
        f'answer: {_token(CHANNEL)} "final" {typed} {_token(MESSAGE)} {_body(body, parts)} {_token(RETURN)}'
    )


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
    """` <|constrain|>json`, ` json`, or nothing, because the model writes all three."""
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
