"""The outcome of a completion, parsed strictly as Harmony, without repairs."""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from openai_harmony import (  # type: ignore[import-untyped, unused-ignore]
    HarmonyError,
    Role,
    StreamableParser,
)

from recipe.text.vocabulary import encoding
from recipe.text.words import is_natural

_STOPS = {200002: "final", 200012: "call"}
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_LARGEST_POWER = 1000


@dataclass(frozen=True, slots=True)
class Outcome:
    """A well-formed generation: a call, or an answer."""

    recipient: str | None = None
    arguments: Any = None  # parsed, of a function call or of a JSON answer
    answer: str = ""
    preamble: str = ""


def outcome(tokens: Sequence[int], prompt: str) -> Outcome | None:
    """None unless the tokens are strict Harmony with a proper end that calls only declared tools."""
    if not tokens or tokens[-1] not in _STOPS:
        return None
    parser = StreamableParser(encoding(), role=Role.ASSISTANT)
    try:
        for token in tokens:
            parser.process(token)
    except HarmonyError:
        return None
    messages = parser.messages
    if not messages or any(
        message.channel not in ("analysis", "commentary", "final") for message in messages
    ):
        return None
    last = messages[-1]
    text = "".join(getattr(part, "text", "") for part in last.content)
    before = "".join(getattr(m.content[0], "text", "") for m in messages[:-1] if m.channel == "commentary")
    if _STOPS[tokens[-1]] == "final":
        if last.channel != "final" or last.recipient is not None:
            return None
        return Outcome(answer=text, arguments=_parsed(text), preamble=before)
    if last.recipient is None or not _declared(last.recipient, prompt):
        return None
    if not last.recipient.startswith("functions."):
        return Outcome(last.recipient, text if last.recipient == "python" else _parsed(text), preamble=before)
    arguments = _parsed(text)
    return Outcome(last.recipient, arguments, preamble=before) if isinstance(arguments, dict) else None


def copied_values(prompt: str, wanted: Outcome, got: Outcome | None) -> list[tuple[bool, bool]]:
    """For every unseen string of the user's: whether it was quoted, and whether it was copied exactly."""
    user = prompt.rpartition("<|start|>user<|message|>")[2]
    found = []
    for name, value in wanted.arguments.items():
        if not isinstance(value, str) or f'"{value}"' in prompt.rpartition("<|start|>user<|message|>")[0]:
            continue  # the options of an enum are declared
        if is_natural(value):
            continue  # of words that training may have seen
        quoted = f'"{value}"' in user or f"'{value}'" in user
        if quoted or f" {value}" in user:
            given = got.arguments if got is not None and isinstance(got.arguments, dict) else {}
            found.append((quoted, given.get(name) == value))
    return found


def same_call(got: Outcome, wanted: Outcome) -> bool:
    """The same tool with the same arguments; for python, code that prints the same."""
    if got.recipient != wanted.recipient:
        return False
    if got.arguments == wanted.arguments:
        return True
    if got.recipient != "python":
        return False
    printed = _printed(got.arguments)
    return printed is not None and printed == _printed(wanted.arguments)


def _printed(code: str) -> float | str | None:
    """The output of code that prints one expression, or the name of its error; None for other code."""
    try:
        match ast.parse(code).body:
            case [ast.Expr(ast.Call(ast.Name("print"), [expression], []))]:
                return _computed(expression)
    except ArithmeticError as error:
        return type(error).__name__
    except (SyntaxError, ValueError, RecursionError):
        pass
    return None


def _computed(expression: ast.expr) -> float:
    match expression:
        case ast.Constant(int() | float() as number):
            return number
        case ast.BinOp(left, operation, right) if type(operation) in _OPERATORS:
            first, second = _computed(left), _computed(right)
            if isinstance(operation, ast.Pow) and abs(second) > _LARGEST_POWER:
                raise ValueError("too large a power")
            value: float = _OPERATORS[type(operation)](first, second)
            return value
    raise ValueError("no arithmetic")


def _declared(recipient: str, prompt: str) -> bool:
    if recipient == "python":
        return "## python" in prompt
    namespace, _, name = recipient.partition(".")
    body = prompt.partition(f"namespace {namespace} {{")[2].partition(f"}} // namespace {namespace}")[0]
    return re.search(rf"^type {re.escape(name)} = ", body, re.MULTILINE) is not None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
