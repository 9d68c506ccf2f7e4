"""Shell commands for an agent's requests ("create hello.txt with hi"), and reports of their results.

The prompts are those of agents (`agent_prompts.py`).
"""

from __future__ import annotations

import re
from functools import cache
from random import Random
from typing import Any

from gpt_oss_server.harmony.render import FunctionTool
from recipe.functions.tool_sets import in_turn, some_tools
from recipe.functions.tool_stock import KEPT_BACK, Offer, found
from recipe.skills.agent_prompts import Runner, a_runner, another_tool, rules, surroundings
from recipe.skills.calls import ask, call_turn, decline, result_turn
from recipe.skills.chat import a_date, an_effort, answer_everyday, instructions, typed
from recipe.text import stock
from recipe.text.talk import Talk, Value, answer, function_call, message, renderer, tokens_of, write
from recipe.text.vocabulary import encode
from recipe.text.words import Words, choose

_COMMANDS = (
    "git status", "git log --oneline", "git diff", "npm test", "npm install", "make", "make test",
    "pytest -q", "cargo build", "ls -la", "df -h", "whoami", "date", "uname -a", "python app.py",
    "node index.js", "docker ps", "pip list", "go test ./...", "cat /etc/hosts", "head -5 data.csv",
    "ps aux", "env", "git pull",
)  # fmt: skip
_SIMPLE = re.compile(r"[\w .,-]+")  # needs no quoting in a shell, nor in any client's JSON
_ROOM = 500  # tokens after the rules, beyond which no further request follows
_THOUGHTS = {
    "low": "The user wants a command. {f} runs it.",
    "medium": "The user wants a command to be run. {f} runs it.",
    "high": "The user wants a command to be run. {f} runs it. I write it down and call it.",
}
_ERRORS = ("No such file or directory", "Permission denied", "command not found", "Is a directory")


@cache
def _requests() -> tuple[tuple[str, tuple[str, ...]], ...]:
    lines = [line.split(" => ") for line in stock.lines("shell.txt")]
    known = tuple((command, tuple(asks.split(" | "))) for command, asks in lines)
    return (*known, *known[:1] * 5)  # writing a file is the most frequent request


def shell_talk(rng: Random, words: Words, held_out: bool, rounds: int = 1) -> Talk:
    """One request, or many in a row: for a command, or sometimes for something else."""
    talk = Talk("shell", an_effort(rng))
    runner = a_runner(rng, words)
    offers = some_tools(rng, words, held_out, 3) if rng.random() < 0.3 else []
    others = [another_tool(rng, words) for _ in range(0 if offers else rng.choice((0, 0, 1, 3, 6, 10)))]
    others += [offer.tool for offer in offers]
    missing = bool(offers) and rng.random() < 0.15
    size = rng.choice((300, 1000, 3000, 9000)) if rng.random() < 0.7 and not offers else 0
    guidance = rules(rng, words, size) if size else instructions(rng, words)
    tools = [tool for tool in others if tool.name != runner.tool.name]
    if not missing:
        tools.insert(0 if rng.random() < 0.5 else rng.randrange(len(tools) + 1), runner.tool)
    talk.open(a_date(rng), instructions=guidance, tools=tools)
    if rng.random() < 0.5:
        talk.user(surroundings(rng, words))
    talk.rules_end = begun = len(talk.tokens)
    turns = in_turn(rng, offers) if offers else iter(())
    for _ in range(rounds):
        roll = rng.random()
        if missing and (rounds == 1 or roll < 0.5):
            talk.user(_request(rng, words, held_out)[0])
            decline(talk, offers)
        elif offers and rounds > 1 and (missing or roll < 0.6):
            _use(rng, words, held_out, talk, turns, tools, offers)
        elif rounds > 1 and roll > 0.93:
            answer_everyday(rng, talk, held_out)
        elif not missing:
            _run(rng, words, held_out, talk, runner)
        if len(talk.tokens) - begun > _ROOM:
            break
    return talk


def _use(
    rng: Random,
    words: Words,
    held_out: bool,
    talk: Talk,
    turns: Any,
    tools: list[FunctionTool],
    offers: list[Offer],
) -> None:
    """Calls another function, although the command runner is declared too."""
    known = {offer.tool.name: offer for offer in offers}
    declared = [known.get(tool.name) or Offer(tool, next(turns).request) for tool in tools]
    request = ask(rng, talk, next(turns).request(), held_out, False)
    call_turn(talk, request, declared, False)
    if rng.random() < 0.2:
        result_turn(rng, words, talk, request)


def _request(rng: Random, words: Words, held_out: bool) -> tuple[str, str, dict[str, Value]]:
    """The user's text, the command's form, and the values that it copies from the text."""
    form, asks = rng.choice(_requests())
    template = choose(rng, asks, held_out, KEPT_BACK)
    texts = {
        "f": words.file() if rng.random() < 0.8 else words.path(),
        "g": words.file(),
        "p": words.lower() + ".py",
        "d": words.lower() if rng.random() < 0.7 else f"{words.lower()}/{words.lower()}",
        "w": words.lower(),
        "c": rng.choice(_COMMANDS) if rng.random() < 0.6 else f"{words.lower()} {words.query()}",
    }
    while not _SIMPLE.fullmatch(texts.setdefault("t", _some_text(rng, words))):
        del texts["t"]
    shown = dict(texts)
    if "{t}" in form and rng.random() < 0.4:
        mark = rng.choice('""\'')
        shown["t"], form = f"{mark}{texts['t']}{mark}", form.replace("{t}", "'{t}'")
    text = typed(rng, template.format(**shown))
    return text, form, {name: found(text, value) for name, value in texts.items()}


def _some_text(rng: Random, words: Words) -> str:
    return words.draw(rng.choice(("message", "note", "query", "word", "word", "sentence", "int", "name")))


def _run(rng: Random, words: Words, held_out: bool, talk: Talk, runner: Runner) -> None:
    text, form, values = _request(rng, words, held_out)
    talk.user(text)
    name = Value(runner.tool.name)
    command = write(form, values)
    arguments = [*encode('{"'), *encode(runner.parameter), *encode('"'), *encode(":"), *encode(' "')]
    arguments += [*command, *encode('"}')]
    talk.turn(
        message("analysis", write(_THOUGHTS[talk.effort], {"f": name})),
        function_call(name, arguments),
        kind="shell",
    )
    if rng.random() < 0.7:
        _report(rng, words, talk, runner, form, command)


def _report(rng: Random, words: Words, talk: Talk, runner: Runner, form: str, command: list[int]) -> None:
    """Adds the command's output, and the model's report of it."""
    code = 0 if rng.random() < 0.85 else rng.choice((1, 1, 2, 127))
    form_roll = rng.random()
    if code:
        out = f"{form.split()[0].replace('{c}', 'sh')}: {words.file()}: {rng.choice(_ERRORS)}"
    elif ">" in form or form.split()[0] in ("touch", "rm", "mkdir", "cp", "mv"):
        out = ""
    else:
        out = "\n".join(rng.choice((words.file, words.query))() for _ in range(rng.choice((1, 1, 2, 3))))
    seconds, end = f"{rng.random() / 3:.4f}", "\n" if out and rng.random() < 0.5 else ""
    if form_roll < 0.6:
        chunk = "".join(rng.choice("0123456789abcdef") for _ in range(6))
        lines = [f"Chunk ID: {chunk}", f"Wall time: {seconds} seconds", f"Process exited with code {code}"]
        result = "\n".join([*lines, f"Original token count: {len(out) // 4}", f"Output:\n{out}{end}"])
    elif form_roll < 0.85 or code:
        result = f"Exit code: {code}\nWall time: {seconds[:3]} seconds\nOutput:\n{out}{end}"
    else:
        result = out + end
    talk.add(renderer().tool_result(f"functions.{runner.tool.name}", result))
    before = (
        [message("analysis", write("I have the result. Now I answer.", {}))] if talk.effort == "high" else []
    )
    if code:
        must, body = f"{code}:\n{out}", write("It failed with code {n}:\n{o}", _verbatim(n=str(code), o=out))
    elif out:
        must, body = f":\n{out}", write("It says:\n{o}", _verbatim(o=out))
    else:
        must, body = "`", [*tokens_of("Done: `"), *command, *tokens_of("`")]
    talk.turn(*before, answer(body), must=[must], kind="report")


def _verbatim(**texts: str) -> dict[str, Value]:
    return {name: Value(text, bare=False) for name, text in texts.items()}
