"""Prompts as agents write them: long rules, a command runner among many functions, the environment.

They contain no real agent's text. The model must learn to ignore what the request does not need, and to find
the function by its purpose, whatever its name and parameter.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

from gpt_oss_server.harmony.render import FunctionTool
from recipe.functions.tool_stock import tools_of_the_stock
from recipe.skills.chat import subjects
from recipe.text import stock
from recipe.text.words import Words

_NAMES = ("exec_command", "shell", "bash", "terminal", "execute", "run_in_terminal", "local_shell")
_VERBS = ("run", "exec", "execute", "start", "do", "launch", "send", "call", "perform", "invoke")
_NOUNS = (
    "command",
    "shell",
    "bash",
    "terminal",
    "cmd",
    "cli",
    "script",
    "shell_command",
    "terminal_cmd",
    "process",
)
_PARAMETERS = ("cmd", "cmd", "cmd", "command", "command", "command", "script", "input", "line")
_ABOUT = (
    "Run a command in the shell and return what it prints.",
    "Runs a shell command and returns its output.",
    "Executes a command in a terminal, and gives its output or the id of a session that goes on",
    "Run a bash command",
    "Execute a command on the user's machine.",
    "Runs a command",
)
_ABOUT_PARAMETER = ("The command to run", "Shell command", "Command line to execute.", "What to run", "")


@dataclass(frozen=True, slots=True)
class Runner:
    """The function that runs commands, and the parameter that takes them."""

    tool: FunctionTool
    parameter: str


@cache
def _sentences() -> tuple[str, ...]:
    """The sentences of rules and descriptions: any of the stock."""
    texts = [one.answer for one in (*subjects("definition"), *subjects("talk"), *subjects("fact"))]
    texts += [about for entry in tools_of_the_stock() for about in entry["about"]]
    return tuple(text.rstrip(".") + "." for text in (*texts, *stock.lines("instructions.txt")))


def _sentence(rng: Random, words: Words) -> str:
    if rng.random() < 0.3:
        return words.sentence().capitalize() + "."
    return rng.choice(_sentences())


def rules(rng: Random, words: Words, size: int) -> str:
    """Text of about `size` characters, in paragraphs and lists under headings."""
    out, length = [], 0
    while length < size:
        roll = rng.random()
        if roll < 0.2:
            part = f"{'#' * rng.randrange(1, 4)} {words.title()}"
        elif roll < 0.55:
            part = "\n".join(f"- {_sentence(rng, words)}" for _ in range(rng.randrange(2, 6)))
        elif roll < 0.62:
            part = f"```\n{words.common()} {words.path()}\n```"
        else:
            part = " ".join(_sentence(rng, words) for _ in range(rng.randrange(1, 5)))
        out.append(part)
        length += len(part)
    return "\n\n".join(out)


def _described(rng: Random, words: Words, schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "description": _sentence(rng, words)} if rng.random() < 0.7 else schema


def _some_parameters(rng: Random, words: Words, most: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for _ in range(rng.randrange(most + 1)):
        kind = rng.choice(("string", "string", "number", "boolean", "integer", "array"))
        schema: dict[str, Any] = {"type": kind}
        if kind == "array":
            schema["items"] = {"type": "string"}
        elif kind == "string" and rng.random() < 0.2:
            schema["enum"] = [words.common() for _ in range(rng.randrange(2, 5))]
        name = words.common() if rng.random() < 0.5 else f"{words.common()}_{words.common()}"
        made[name] = _described(rng, words, schema)
    return made


def another_tool(rng: Random, words: Words) -> FunctionTool:
    """A tool that no request needs."""
    parameters = _some_parameters(rng, words, 6)
    about = " ".join(_sentence(rng, words) for _ in range(rng.randrange(1, 4)))
    required = [name for name in parameters if rng.random() < 0.4]
    schema = {"type": "object", "properties": parameters, "required": required}
    return FunctionTool(f"{words.common()}_{words.common()}", about, schema)


def a_runner(rng: Random, words: Words) -> Runner:
    parameter = rng.choice(_PARAMETERS)
    schema: dict[str, Any] = {"type": "string"}
    if what := rng.choice(_ABOUT_PARAMETER):
        schema["description"] = what
    others = _some_parameters(rng, words, 9) if rng.random() < 0.6 else {}
    parameters = {
        "type": "object",
        "properties": {parameter: schema, **{name: others[name] for name in others if name != parameter}},
        "required": [parameter],
    }
    roll = rng.random()
    if roll < 0.4:
        name = rng.choice(_NAMES)
    elif roll < 0.7:
        name = f"{rng.choice(_VERBS)}_{rng.choice(_NOUNS)}"
    else:  # any name: else the model learns the names above by heart and writes them undeclared
        name = f"{words.common()}_{words.common()}"
    about = None if rng.random() < 0.15 and roll < 0.7 else rng.choice(_ABOUT)
    return Runner(FunctionTool(name, about, parameters), parameter)


def surroundings(rng: Random, words: Words) -> str:
    """An agent's description of the machine, as the user's first message."""
    tag = "environment_context" if rng.random() < 0.5 else f"{words.common()}_{words.common()}"
    inner = [("cwd", words.path()), ("shell", rng.choice(("bash", "zsh"))), ("current_date", "2026-11-24")]
    inner += [(words.common(), words.query()) for _ in range(rng.randrange(3))]
    lines = "\n".join(f"  <{name}>{text}</{name}>" for name, text in inner)
    return f"<{tag}>\n{lines}\n</{tag}>"
