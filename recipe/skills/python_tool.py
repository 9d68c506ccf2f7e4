"""Arithmetic: through the python tool if it is on; else the model answers that it needs it."""

from __future__ import annotations

from functools import cache
from random import Random

from recipe.skills.chat import a_date, an_effort, instructions
from recipe.text import stock
from recipe.text.talk import Talk, Value, answer, message, renderer, tool_call, write
from recipe.text.words import Words, choose

_NO_PYTHON = "I need the python tool for arithmetic. Please turn it on."


@cache
def _expressions() -> tuple[tuple[str, tuple[str, ...]], ...]:
    lines = [line.split(" => ") for line in stock.lines("arithmetic.txt")]
    found = tuple((expression, tuple(questions.split(" | "))) for expression, questions in lines)
    return (*found, *found[:4], *found[:4])  # the four basic operations are most frequent


def _copied(template: str, values: dict[str, str]) -> list[int]:
    """Numbers have no space in their tokens, so they are copied unchanged."""
    return write(template, {name: Value(text, bare=False) for name, text in values.items()})


def python_talk(rng: Random, words: Words, held_out: bool, rounds: int = 1) -> Talk:
    """With the tool: the expression, its result, the answer. Without it: a request for the tool."""
    talk = Talk("python", an_effort(rng))
    on = rng.random() < 0.85
    talk.open(a_date(rng), instructions=instructions(rng, words), builtin=["python"] if on else [])
    for _ in range(rng.randrange(rounds) + 1):
        _compute(rng, words, talk, held_out, on)
    return talk


def _compute(rng: Random, words: Words, talk: Talk, held_out: bool, on: bool) -> None:
    expression, questions = rng.choice(_expressions())
    values = _values(rng, words, expression)
    question = choose(rng, questions, held_out, kept_back=2).format(**values)
    if rng.random() < 0.2:
        question = question[0].lower() + question[1:]
    talk.user(question.rstrip("?") if rng.random() < 0.2 else question)
    if not on:
        thoughts = message("analysis", write(stock.thought("no python", talk.effort), {}))
        talk.turn(thoughts, answer(write(_NO_PYTHON, {})), must=[_NO_PYTHON], kind="no python")
        return
    code = _copied("print(" + expression + ")", values)
    talk.turn(
        message("analysis", write(stock.thought("python", talk.effort), {})),
        tool_call("python", code),
        kind="python",
    )
    result = _result(expression.format(**values))
    talk.add(renderer().tool_result("python", result + rng.choice(("", "\n")), channel="analysis"))
    failed = result.startswith("Error")
    template = "Sorry, python failed: {r}" if failed else f"{expression} = {{r}}"
    texts = {**values, "r": result}
    talk.turn(
        answer(_copied(template, texts)), must=[f"{'failed:' if failed else '='} {result}"], kind="answer"
    )


def _values(rng: Random, words: Words, expression: str) -> dict[str, str]:
    values = {name: words.integer() for name in "abc"}
    if rng.random() < 0.1:
        values["a"] = words.decimal()
    if "** {b}" in expression:
        values["b"] = words.draw("small")
    if "/ {b}" in expression or "% {b}" in expression:
        values["b"] = str(int(values["b"]) + 1)
    return values


def _result(expression: str) -> str:
    try:
        return str(eval(expression, {"__builtins__": {}}))[:40]
    except ArithmeticError as error:
        return f"Error: {type(error).__name__}"
