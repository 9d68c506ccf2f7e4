"""Functions that a JSON file declares, in the shape of either API.

One with a `command` runs it, with the arguments as JSON on standard input; its standard output is the result.
For the others the user is asked.
"""

import json
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt_oss_server.cli.chat.reader import Reader
from gpt_oss_server.cli.chat.talker import Item
from gpt_oss_server.cli.terminal.console import BOLD, CYAN, GREEN, RED, CommandLineError, visible
from gpt_oss_server.cli.terminal.response_view import Terminal
from tools.apply_patch import DECLARATION, PatchError, apply, parse, plan, read_patch, unified_diff

_SECONDS = 120
_HOW = 'Write [{"name": "get_weather", "parameters": {…}, "command": "./weather.sh"}].'


@dataclass(frozen=True, slots=True)
class Function:
    declaration: Item
    command: tuple[str, ...] = ()

    def call(self, arguments: str, ask: Callable[[str], str | None]) -> str:
        """The result for the model, whatever happens."""
        if self.command:
            return _run(self.command, arguments)
        result = ask(f"Result of {self.declaration['name']}: ")
        return "The user gave no result." if result is None else result.strip()


def read_functions(file: str) -> dict[str, Function]:
    """By name. Raises CommandLineError about the first mistake in the file."""
    try:
        declared = json.loads(Path(file).expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandLineError(f"--functions: cannot read {file}: {error.strerror}.") from error
    except (ValueError, RecursionError, RuntimeError) as error:
        raise CommandLineError(f"--functions: {file} is not JSON: {error}. {_HOW}") from error
    if isinstance(declared, dict):
        declared = declared.get("tools")
    if not isinstance(declared, list) or not declared:
        raise CommandLineError(f"--functions: {file} must hold a list of functions. {_HOW}")
    functions: dict[str, Function] = {}
    for number, entry in enumerate(declared, 1):
        function = _function(entry, f"--functions: {file}, number {number}")
        name = function.declaration["name"]
        if name in functions:
            raise CommandLineError(f"--functions: {file} declares {name} twice.")
        functions[name] = function
    return functions


def _function(entry: Any, where: str) -> Function:
    """The Responses API has the fields in the tool itself, Chat Completions in its `function`."""
    outer: Item = entry if isinstance(entry, dict) else {}
    nested = outer.get("function")
    inner: Item = nested if isinstance(nested, dict) else outer
    command = outer.get("command", inner.get("command"))
    name, parameters = inner.get("name"), inner.get("parameters", {"type": "object", "properties": {}})
    if not isinstance(name, str) or not name or not isinstance(parameters, dict):
        raise CommandLineError(f"{where}: a function has a `name` and, as an object, `parameters`. {_HOW}")
    declaration = {"type": "function", "name": name, "parameters": parameters}
    declaration |= {key: inner[key] for key in ("description", "strict") if inner.get(key) is not None}
    return Function(declaration, _words(command, where))


def _words(command: Any, where: str) -> tuple[str, ...]:
    if command is None:
        return ()
    try:
        words = shlex.split(command) if isinstance(command, str) else list(command)
    except (ValueError, TypeError) as error:
        raise CommandLineError(f"{where}: the `command` is not a command: {error}.") from error
    if not words or not all(isinstance(word, str) for word in words):
        raise CommandLineError(f"{where}: the `command` must be a text or a list of texts.")
    return tuple(words)


def _run(command: tuple[str, ...], arguments: str) -> str:
    try:
        done = subprocess.run(
            command, input=arguments, capture_output=True, text=True, errors="replace", timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"The command of this function did not end within {_SECONDS} s."
    except OSError as error:
        return f"The command of this function cannot be run: {error.strerror or error}."
    if done.returncode != 0:
        return f"The command of this function failed with status {done.returncode}. {done.stderr.strip()}"
    return done.stdout.strip()


__all__ = ["DECLARATION", "PATCH", "apply_if_confirmed"]

PATCH = str(DECLARATION["name"])


def apply_if_confirmed(arguments: str, root: Path, terminal: Terminal, reader: Reader) -> str:
    try:
        changes = plan(parse(read_patch(arguments)), root)
        for line in unified_diff(changes):
            # Escaped, because a diff that moves the cursor could hide what the user agrees to.
            terminal.line(visible(line), _style(line))
        if not reader.confirms("Apply? [y/N] "):
            terminal.note("not applied")
            return "The user did not apply this patch. Nothing was changed."
        done = apply(changes, root)
    except PatchError as error:
        terminal.note(f"no patch: {visible(str(error))}")
        return f"The patch was not applied. {error}"
    terminal.note(visible(done))
    return f"The patch was applied. {done}"


def _style(line: str) -> str:
    if line.startswith(("--- ", "+++ ", "rename ")):
        return BOLD
    return {"+": GREEN, "-": RED, "@": CYAN}.get(line[:1], "")
