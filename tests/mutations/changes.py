"""Small changes of source code: an operator swapped, a number moved, a statement or a condition left out.

Takes the source of a file and returns changes of single lines. Annotations, decorators, log messages and
errors stay as they are.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple, TypeGuard

PAIRS = {
    "compare": [("<", "<="), (">", ">="), ("==", "!="), ("is", "is not")],
    "membership": [("in", "not in")],
    "boolean": [("and", "or")],
    "arithmetic": [("+", "-"), ("+=", "-=")],
}
SWAPS = {a: (kind, b) for kind, pairs in PAIRS.items() for pair in pairs for a, b in (pair, pair[::-1])}
LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical"}
UNCHANGED_FIELDS = {"annotation", "returns", "decorator_list"}


class Change(NamedTuple):
    kind: str
    number: int  # of the line, from 1
    line: str


def changes(source: str) -> Iterator[Change]:
    lines = source.encode().split(b"\n")  # the columns of nodes are bytes
    for node in _nodes(ast.parse(source)):
        for kind, number, start, end, text in [*_swapped(node, lines), *_replaced(node, source)]:
            line = lines[number - 1]
            yield Change(kind, number, (line[:start] + text.encode() + line[end:]).decode().strip())


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Without errors, log messages, and f-strings, whose parts have no columns in Python 3.11."""
    function = getattr(node.value if isinstance(node, ast.Expr) else node, "func", None)
    if (
        isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr)
        or getattr(function, "attr", "") in LOG_METHODS
    ):
        return
    yield node
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if name not in UNCHANGED_FIELDS and isinstance(child, ast.AST):
                yield from _nodes(child)


def _swapped(node: ast.AST, lines: list[bytes]) -> Iterator[tuple[str, int, int, int, str]]:
    """Operators: only spaces and parentheses are between them and the two sides."""
    match node:
        case ast.Compare(left=left, comparators=others):
            sides = [left, *others]
        case ast.BoolOp(values=sides):
            pass
        case ast.BinOp(left=left, right=right) | ast.AugAssign(target=left, value=right):
            sides = [left, right]
        case _:
            return
    for left, right in pairwise(sides):
        start = left.end_col_offset if left.end_lineno == right.lineno else 0
        between = lines[right.lineno - 1][start : right.col_offset]
        operator = between.strip(b" ()")
        if operator.decode() in SWAPS:
            kind, text = SWAPS[operator.decode()]
            start += between.index(operator)
            yield kind, right.lineno, start, start + len(operator), text


def _replaced(node: ast.AST, source: str) -> Iterator[tuple[str, int, int, int, str]]:
    for kind, old, text in _replacements(node, source):
        if old.lineno == old.end_lineno:
            yield kind, old.lineno, old.col_offset, old.end_col_offset, text


def _replacements(node: ast.AST, source: str) -> Iterator[tuple[str, Any, str]]:
    match node:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "negation", node, ast.get_source_segment(source, operand) or ""
        case ast.Constant(value=bool() | int() as value):
            yield "constant", node, str(not value if isinstance(value, bool) else value + 1)
        case ast.Return(value=ast.expr() as value) if getattr(value, "value", 0) is not None:
            yield "returned", node, "return None"
        case ast.AugAssign() | ast.Expr(value=ast.Call() | ast.Await()):
            yield "deleted", node, "pass"
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            counts = Counter(part.id for part in ast.walk(node) if _is_assigned(part))
            for child in ast.walk(node):
                # Without its only assignment a name would be missing, which any test finds.
                match child:
                    case ast.Assign(targets=[ast.Name(id=local)]) if counts[local] > 1:
                        yield "deleted", child, "pass"
                    case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) if name != "__init__":
                        yield "deleted", child, "pass"
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            if isinstance(test, ast.BoolOp | ast.Name | ast.Attribute | ast.Call):
                yield "negation", test, f"(not ({ast.get_source_segment(source, test)}))"
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Return | ast.Continue):
                yield "jump", child, "pass"


def _is_assigned(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
