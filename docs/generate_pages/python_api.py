"""The page of the Python API: signatures and docstrings from the source, and the examples that tests run."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import inference
from generate_pages.markdown import NOTE
from gpt_oss_server.app import create_app
from gpt_oss_server.items.builder import ItemBuilder
from gpt_oss_server.items.hosted import HostedTool
from gpt_oss_server.stores.base import Conversations, Responses, Store, StoredResponse
from gpt_oss_server.stores.chain import Addition
from gpt_oss_server.stores.memory import MemoryStore
from inference.engine import Checked, Shared
from tools import tool

ROOT = Path(__file__).resolve().parents[2]
_SIGNATURE = "<!-- not run: a signature -->"
_Part = tuple[str, str, str | None, tuple[Any, ...]]
HEAD = f"""{NOTE}
# Python API

What a program imports to serve a model of its own, or to add to the server. The signatures are those of the
source, and the examples run in a test. [Extending the server](../extending.md) has a hosted tool, a store, an
engine and an event in complete code; [Architecture](../architecture.md) explains how they work together.

"""
_PARTS: tuple[_Part, ...] = (
    (
        "The application",
        "`create_app` makes an ASGI application of an engine. `Settings` has a field for each "
        "[setting](../settings.md), the flag's name with underscores: `Settings(max_body_bytes=1_000_000)`.",
        "serve_in_process.py",
        (create_app,),
    ),
    (
        "Engines",
        "An engine continues token ids. A function that returns the next token also serves: `create_app` "
        "takes it in an engine's place ([examples/own_model.py](../../examples/own_model.py)).",
        "run_an_engine.py",
        (
            inference.load,
            inference.Engine,
            inference.EngineInfo,
            inference.Sampling,
            inference.Step,
            inference.TokenLogprob,
            inference.Finish,
            Shared,
            Checked,
            inference.InferenceError,
            inference.infer_next_token,
            inference.setup_model,
        ),
    ),
    (
        "Stores",
        "A store keeps responses and conversations. A new one passes `tests/contracts/store_contract.py`.",
        "read_a_store.py",
        (Store, Responses, Conversations, StoredResponse, Addition, MemoryStore),
    ),
    (
        "Tools",
        "A tool takes calls of the model and returns text. A hosted tool is the row by which the server "
        "offers one.",
        "run_a_tool.py",
        (
            tool.Tool,
            tool.Session,
            tool.Declaration,
            tool.Function,
            tool.ToolCall,
            tool.ToolOutput,
            tool.ToolUnavailable,
            HostedTool,
        ),
    ),
    (
        "Items",
        "A builder turns what the model wrote into an output item and its [events](responses-events.md).",
        None,
        (ItemBuilder,),
    ),
)


def python_api_page() -> str:
    parts = [HEAD]
    for title, text, example, shown in _PARTS:
        parts.append(f"## {title}\n\n{text}\n\n")
        if example is not None:
            code = (ROOT / "examples" / "library" / example).read_text(encoding="utf-8")
            parts.append(f"```python\n{code}```\n\n")
        parts += [_entry(each) for each in shown]
    return "".join(parts).rstrip() + "\n"


def _entry(shown: Any) -> str:
    module = shown.__module__
    public = "inference" if getattr(inference, shown.__name__, None) is shown else module
    source = "\n".join(_shortened(textwrap.dedent(inspect.getsource(shown)), _is_contract(shown)))
    return f"### `{public}.{shown.__name__}`\n\n{_SIGNATURE}\n```python\n{source}\n```\n\n"


def _is_contract(shown: Any) -> bool:
    """Whether the whole source is the interface: it holds fields, and methods without bodies."""
    if not inspect.isclass(shown):
        return False
    is_protocol = bool(getattr(shown, "_is_protocol", False))
    return is_protocol or issubclass(shown, Enum) or dataclasses.is_dataclass(shown)


def _shortened(source: str, whole: bool) -> Iterator[str]:
    """The source, without the bodies of functions and without private ones."""
    lines = source.rstrip().splitlines()
    node = ast.parse(source).body[0]
    if whole:
        yield from lines
    elif isinstance(node, ast.ClassDef):
        yield from _class(node, lines)
    else:
        yield from _function(node, lines)


def _class(node: ast.ClassDef, lines: list[str]) -> Iterator[str]:
    """A class without a docstring implements a contract of the page: only its constructor is news."""
    documented = ast.get_docstring(node) is not None
    yield from lines[: node.body[0].end_lineno if documented else _first(node.body[0]) - 1]
    for part in node.body[1:] if documented else node.body:
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            if part.name == "__init__" or (documented and not part.name.startswith("_")):
                yield from ("",) if documented else ()
                yield from _function(part, lines)
        elif documented:
            is_text = isinstance(part, ast.Expr)
            yield from () if is_text else ("",)
            yield from lines[_first(part) - 1 : part.end_lineno]


def _function(node: ast.stmt, lines: list[str]) -> Iterator[str]:
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    documented = ast.get_docstring(node) is not None
    end = node.body[0].end_lineno if documented else _first(node.body[0]) - 1
    *others, last = lines[_first(node) - 1 : end]
    yield from others
    yield last if documented else f"{last} ..."


def _first(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])
