"""Reads a script: the JSON file with the scripted engine's answers; a mistake names its turn.

    {"turns": ["<harmony completion text>" | {"when": "<regex>", "text": "…"} | {"tokens": [ids]}],
     "loop": true, "tokens_per_second": 0}

A server's trace is a script too: its turns are the completions that the trace holds, token by token.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import regex  # type: ignore[import-untyped, unused-ignore]

from inference.engine import CheckpointError, EngineFailed, ModelNotFound

# Each key with its text in the documentation.
SCRIPT_KEYS = {
    "turns": "The answers, at least one: a text, or an object with the keys below.",
    "loop": "Whether the first answer follows the last one; else the last one is repeated. Default: true.",
    "tokens_per_second": "The speed of each answer; 0, the default, is as fast as possible.",
}
TURN_KEYS = {
    "when": "A regular expression. The turn answers every prompt in which it is found.",
    "text": "The answer as Harmony text that follows `<|start|>assistant`, with special tokens spelt out.",
    "tokens": "The answer as token ids, in place of `text`.",
}
TRACE_FORMAT = "gpt-oss-server/trace"
# How long one `when` may search a prompt. Python's own `re` has no limit and lets no other thread run.
SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class When:
    """A condition on the prompt, and the turn that has it."""

    pattern: Any  # regex.Pattern: the package has no types
    turn: str

    def fits(self, prompt: str) -> bool:
        try:
            return self.pattern.search(prompt, timeout=SECONDS, concurrent=True) is not None
        except TimeoutError:
            raise EngineFailed(
                f'The script\'s {self.turn}: "when" searched a prompt of {len(prompt)} characters for '
                f"{SECONDS:g} s without a result. Write {self.pattern.pattern!r:.200} without repetitions "
                "inside of repetitions."
            ) from None


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    """One answer, as text or as ids (exactly one of them), for prompts that match `when`, or for all."""

    text: str | None = None
    tokens: tuple[int, ...] | None = None
    when: When | None = None


@dataclass(frozen=True, slots=True)
class Script:
    turns: tuple[ScriptedTurn, ...]
    loop: bool = True
    tokens_per_second: float = 0.0


def read_script(path: Path, vocab_size: int) -> Script:
    try:
        raw = path.read_text(encoding="utf-8-sig")  # editors on Windows write a byte order mark
    except FileNotFoundError as error:
        raise ModelNotFound(
            f"There is no script at {path}. Give the path of a JSON file after 'scripted:'."
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"The script {path} cannot be read as UTF-8 text: {error}") from error
    try:
        parsed = json.loads(raw)
    except json.JSONDecodeError as error:
        raise CheckpointError(
            f"The script {path} is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        ) from error
    try:
        return parse_script(parsed, vocab_size)
    except CheckpointError as error:
        raise CheckpointError(f"The script {path} does not fit: {error}") from error


def parse_script(parsed: Any, vocab_size: int) -> Script:
    """The script in a parsed JSON value; `read_script` adds the file's name to the errors."""
    if not isinstance(parsed, Mapping):
        raise CheckpointError('the top level must be an object with "turns".')
    if parsed.get("format") == TRACE_FORMAT:
        parsed = _script_of_trace(parsed)
    _no_others(parsed, SCRIPT_KEYS, "the script")
    turns = parsed.get("turns")
    if not isinstance(turns, list) or not turns:
        raise CheckpointError('"turns" must be a list with at least one turn.')
    loop = parsed.get("loop", True)
    if not isinstance(loop, bool):
        raise CheckpointError(f'"loop" must be true or false, not {loop!r}.')
    rate = parsed.get("tokens_per_second", 0)
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 0 <= rate < float("inf"):
        raise CheckpointError(f'"tokens_per_second" must be a number, 0 or more (0: no limit), not {rate!r}.')
    read = (_turn(turn, f"turn {at} (counted from 0)", vocab_size) for at, turn in enumerate(turns))
    return Script(tuple(read), loop, float(rate))


def _script_of_trace(trace: Mapping[str, Any]) -> dict[str, Any]:
    """One turn for each completion, in the order in which they were sampled."""
    if trace.get("version") != 1:
        raise CheckpointError(
            f"it is a trace of version {trace.get('version')!r}; version 1 can be replayed."
        )
    try:
        generations = [own for response in trace["responses"] for own in response["generations"]]
        turns = [{"tokens": generation["tokens"]} for generation in generations]
    except (KeyError, TypeError) as error:
        raise CheckpointError(
            'it is a trace without "responses" that have "generations" with "tokens". Save it again.'
        ) from error
    if not turns:
        raise CheckpointError("it is a trace of a response for which nothing was generated.")
    return {"turns": turns}


def _turn(turn: Any, where: str, vocab_size: int) -> ScriptedTurn:
    if isinstance(turn, str):
        return ScriptedTurn(text=turn)
    if not isinstance(turn, Mapping):
        raise CheckpointError(
            f'{where} must be a string or an object with "text" or "tokens", not {_kind(turn)}.'
        )
    _no_others(turn, TURN_KEYS, where)
    if ("text" in turn) == ("tokens" in turn):
        raise CheckpointError(f'{where} must have either "text" or "tokens", and not both.')
    when = _pattern(turn["when"], where) if "when" in turn else None
    if "tokens" in turn:
        return ScriptedTurn(tokens=_token_ids(turn["tokens"], where, vocab_size), when=when)
    if not isinstance(turn["text"], str):
        raise CheckpointError(f'{where}: "text" must be a string, not {_kind(turn["text"])}.')
    return ScriptedTurn(text=turn["text"], when=when)


def _pattern(when: Any, where: str) -> When:
    if not isinstance(when, str):
        raise CheckpointError(f'{where}: "when" must be a regular expression in a string, not {_kind(when)}.')
    try:
        # A prompt has many lines, and "." should match across them.
        return When(regex.compile(when, regex.DOTALL), where)
    except regex.error as error:
        raise CheckpointError(
            f'{where}: "when" is not a valid regular expression: {error} (in {when!r}).'
        ) from error


def _token_ids(tokens: Any, where: str, vocab_size: int) -> tuple[int, ...]:
    if not isinstance(tokens, list):
        raise CheckpointError(f'{where}: "tokens" must be a list of token ids, not {_kind(tokens)}.')
    for at, token in enumerate(tokens):
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocab_size:
            raise CheckpointError(
                f'{where}: "tokens" must be whole numbers from 0 to {vocab_size - 1}; '
                f"number {at} of them is {token!r}."
            )
    return tuple(tokens)


def _no_others(value: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    others = [key for key in value if key not in known]
    if others:
        raise CheckpointError(
            f"{where} has the unknown key {others[0]!r}; known are {', '.join(repr(key) for key in known)}."
        )


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
