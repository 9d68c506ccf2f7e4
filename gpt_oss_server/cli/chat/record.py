"""What happened in a chat: each turn's messages, tokens and times, as the texts of /stats and /save."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpt_oss_server.cli.chat.talker import Event, Item

_NOTHING = "there is no answer yet"
_UNFINISHED = "the last answer was stopped or failed; its times are unknown"


@dataclass(slots=True)
class Turn:
    """One request and its response. A message may take several, between which the model calls functions."""

    items: Sequence[Item]
    began: float
    first: float | None = None  # when the first event with text came
    ended: float = 0.0
    response: Item = field(default_factory=dict)


class Record:
    def __init__(self) -> None:
        self._turns: list[Turn] = []
        self._is_unfinished = False  # the last turn; its response never came

    def begin(self, items: Sequence[Item]) -> Turn:
        self._is_unfinished = True
        return Turn(items, time.monotonic())

    def see(self, turn: Turn, event: Event) -> None:
        if turn.first is None and str(event.get("type", "")).endswith(".delta"):
            turn.first = time.monotonic()

    def end(self, turn: Turn, response: Item) -> None:
        turn.ended, turn.response = time.monotonic(), response
        self._turns.append(turn)
        self._is_unfinished = False

    def forget(self) -> None:
        self._turns, self._is_unfinished = [], False

    def stats(self) -> str:
        if self._is_unfinished:
            return _UNFINISHED
        if not self._turns:
            return _NOTHING
        last = self._turns[-1]
        usage = last.response.get("usage") or {}
        inputs, outputs = usage.get("input_tokens", 0), usage.get("output_tokens", 0)
        cached = (usage.get("input_tokens_details") or {}).get("cached_tokens", 0)
        reasoning = (usage.get("output_tokens_details") or {}).get("reasoning_tokens", 0)
        total = sum((turn.response.get("usage") or {}).get("output_tokens", 0) for turn in self._turns)
        lines = [
            f"prompt    {inputs:,} tokens, {cached:,} of them from the cache",
            f"output    {outputs:,} tokens, {reasoning:,} of them reasoning",
        ]
        if last.first is not None:
            seconds = max(last.ended - last.first, 1e-9)
            lines.append(f"first     after {last.first - last.began:.2f} s")
            lines.append(f"speed     {max(outputs - 1, 0) / seconds:,.1f} tokens/s after the first")
        count = len(self._turns)
        responses = f"{count} response{'s' if count > 1 else ''}"
        return "\n".join([*lines, f"so far    {responses}, {total:,} output tokens"])

    def save(self, path: Path) -> None:
        """As JSON if the name ends so, else as Markdown. Raises OSError."""
        if path.suffix == ".json":
            turns = [{"input": list(turn.items), "response": turn.response} for turn in self._turns]
            text = json.dumps(turns, ensure_ascii=False, indent=2)
        else:
            items = [item for turn in self._turns for item in (*turn.items, *turn.response.get("output", ()))]
            text = "\n\n".join(filter(None, map(_as_markdown, items)))
        path.write_text(text + "\n", encoding="utf-8")


def _as_markdown(item: Item) -> str:
    match item.get("type"):
        case "message":
            content = item["content"]
            text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
            return f"**{'You' if item.get('role') == 'user' else 'Model'}:** {text}"
        case "reasoning":
            text = "".join(part.get("text", "") for part in item.get("content") or ())
            return "\n".join(f"> {line}" for line in text.splitlines())
        case "function_call":
            return f"**Call:** `{item['name']}({item['arguments']})`"
        case "function_call_output":
            return f"**Result:**\n\n```\n{item['output']}\n```"
        case "code_interpreter_call":
            return f"**Python:**\n\n```python\n{item.get('code') or ''}\n```"
        case _:
            return ""
