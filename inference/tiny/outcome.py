"""What a completion says: parsed strictly, as Harmony, with nothing mended."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openai_harmony import (  # type: ignore[import-untyped, unused-ignore]
    HarmonyError,
    Role,
    StreamableParser,
)

from inference.tiny.vocabulary import encoding
from inference.tiny.words import is_natural

_STOPS = {200002: "final", 200012: "call"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A well-formed generation: a call, or an answer."""

    recipient: str | None = None
    arguments: Any = None  # of a call to a function, or of an answer that is JSON: parsed
    answer: str = ""
    preamble: str = ""


def outcome(tokens: Sequence[int], prompt: str) -> Outcome | None:
    """None when the tokens are not strict Harmony that ends as it must and calls only what is declared."""
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
    """Of every never-seen string that the user said: whether it was quoted, whether it came out exactly."""
    user = prompt.rpartition("<|start|>user<|message|>")[2]
    found = []
    for name, value in wanted.arguments.items():
        if not isinstance(value, str) or f'"{value}"' in prompt.rpartition("<|start|>user<|message|>")[0]:
            continue  # the options of an enum are declared
        if is_natural(value):
            continue  # made of words that may have been seen
        quoted = f'"{value}"' in user or f"'{value}'" in user
        if quoted or f" {value}" in user:
            given = got.arguments if got is not None and isinstance(got.arguments, dict) else {}
            found.append((quoted, given.get(name) == value))
    return found


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
