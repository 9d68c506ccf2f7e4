"""One turn of the model as a grammar: which messages it may write, to which recipient, and in what form.

Takes what a request allows (recipients, whether the model may answer, the forms of bodies). Returns a tree of
nodes, and Lark text for llguidance. Reasoning, preambles and bodies without a form are free text; headers are
always legal, so that a turn cannot slip. Generation starts after `<|start|>assistant`.

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

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpt_oss_server.constraints.spelling.nodes import (
    TEXT,
    All,
    AnyText,
    Choice,
    Literal,
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
from gpt_oss_server.harmony.encoding import CALL, CHANNEL, CONSTRAIN, END, MESSAGE, RETURN, START

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


_NEXT = sequence(Token(END), Token(START), "assistant")


def turn_tree(shape: TurnShape, rules: dict[str, Node], body_node: Callable[[Body], Node]) -> Tree:
    """The turn as nodes. `body_node` makes the node of a body, and adds the rules that it refers to."""
    ends: list[Node] = []
    if shape.callees:
        rules["head"] = _head(shape.callees, rules, body_node)
        ends.append(_calls(shape))
    if shape.may_answer:
        typed = _types(("json",)) if isinstance(shape.answer, JsonBody) else sequence()
        body = body_node(shape.answer)
        ends.append(sequence(Token(CHANNEL), "final", typed, Token(MESSAGE), body, Token(RETURN)))
    asides = [sequence(Token(CHANNEL), name, Token(MESSAGE), TEXT, _NEXT) for name in shape.asides]
    repeated = [Repeat(choice(asides))] if asides else []
    return Tree(sequence(*repeated, choice(ends)), rules)


def _calls(shape: TurnShape) -> Node:
    call = sequence(Rule("head"), Token(CALL))
    if not shape.parallel:
        return call
    authors = sorted({callee.recipient.partition(".")[0] for callee in shape.callees})
    imagined = sequence(Token(START), choice(authors))
    more = Repeat(sequence(Token(START), "assistant", call))
    return sequence(call, more, maybe(choice([Token(RETURN), imagined])))


def _head(callees: Sequence[Callee], rules: dict[str, Node], body_node: Callable[[Body], Node]) -> Node:
    """A call up to its end token. The recipient stands after the channel, or before it."""
    after, before = [], []
    for at, callee in enumerate(callees):
        rest = Rule(f"call{at}")
        rules[rest.name] = sequence(_types(callee.types), Token(MESSAGE), body_node(callee.body))
        for channel in callee.channels:
            after.append((f"{channel} to={callee.recipient}", rest))
            before.append((f" to={callee.recipient}", sequence(Token(CHANNEL), channel, rest)))
    return choice([sequence(Token(CHANNEL), choice_after(after)), choice_after(before)])


def _types(types: Sequence[str]) -> Node:
    """` <|constrain|>json`, ` json`, or nothing, because the model writes all three."""
    forms: list[Node] = []
    for name in types:
        forms.append(sequence(maybe(sequence(" ")), Token(CONSTRAIN), name))
        forms.append(sequence(f" {name}"))
    return maybe(choice(forms))


def turn_grammar(shape: TurnShape) -> str:
    """Lark text; if bodies follow grammars of their own, JSON with all grammars, as llguidance takes it."""
    if not shape.may_answer and not shape.callees:
        raise ValueError("A turn that may neither answer nor call has no end.")
    lark = _Lark()
    tree = turn_tree(shape, {}, lark.body)
    rules = [f"{name}: {lark.written(node)}" for name, node in tree.rules.items()]
    return lark.whole([f"start: {lark.written(tree.start)}", *rules])


def plain_grammar(body: Body) -> str:
    """The grammar of a continuation without messages."""
    lark = _Lark()
    return lark.whole([f"start: {lark.written(lark.body(body))}"])


class _Lark:
    """Writes nodes as Lark text. A body is a rule, which names another grammar for a text with one."""

    def __init__(self) -> None:
        self._bodies: list[str] = []
        self._grammars: dict[str, str] = {}  # names, by their text

    def body(self, body: Body) -> Node:
        if body is None:
            return TEXT
        if isinstance(body, JsonBody):
            definition = f"%json {schema_json(body.schema)}"
        else:
            definition = f"@{self._grammars.setdefault(body.lark, f'text{len(self._grammars)}')}"
        rule = Rule(f"body{len(self._bodies)}")
        self._bodies.append(f"{rule.name}: {definition}")
        return rule

    def written(self, node: Node) -> str:
        match node:
            case Token(token):
                return f"<[{token}]>"
            case Literal(text):
                return json.dumps(text, ensure_ascii=False)
            case All(parts):
                return " ".join(filter(None, map(self.written, parts)))
            case Choice(options):
                return f"({' | '.join(map(self.written, options))})"
            case Repeat(inner, _, most):
                return f"({self.written(inner)}){'*' if most is None else '?'}"
            case Rule(name):
                return name
            case AnyText():
                return "text"
            case _:
                raise TypeError(f"A turn has no {node}.")

    def whole(self, rules: Sequence[str]) -> str:
        turn = "\n".join([*rules, *self._bodies, "text: TEXT?", "TEXT: /(.|\\n)+/", ""])
        if not self._grammars:
            return turn
        named = [{"name": name, "lark_grammar": lark} for lark, name in self._grammars.items()]
        return json.dumps({"grammars": [{"name": "turn", "lark_grammar": turn}, *named]})


def schema_json(schema: Mapping[str, Any]) -> str:
    return json.dumps({**schema, "x-guidance": {"whitespace_pattern": _SPACE}})
