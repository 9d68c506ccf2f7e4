"""What happened in a chat: each turn's messages, tokens and times.

Takes responses and the moments of their events. Returns the texts of /raw, /tokens, /stats and /save.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpt_oss_server.cli.chat.talker import Event, Item
from gpt_oss_server.cli.terminal.console import CYAN, styled, visible
from gpt_oss_server.cli.terminal.token_text import is_special, marked, token_line

_NOTHING = "there is no answer yet"
_UNFINISHED = "the last answer was stopped or failed; its tokens and times are unknown"
_NO_DEBUG = "the server did not send the tokens of the answer"


@dataclass(slots=True)
class Turn:
    """One request and its response. A message may take several, between which the model calls functions."""

    items: Sequence[Item]
    began: float
    first: float | None = None  # when the first event with text came
    ended: float = 0.0
    response: Item = field(default_factory=dict)


class Record:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._turns: list[Turn] = []
        self._is_unfinished = False  # the last turn; its response, with the tokens, never came

    def begin(self, items: Sequence[Item]) -> Turn:
        self._is_unfinished = True
        return Turn(items, self._clock())

    def see(self, turn: Turn, event: Event) -> None:
        if turn.first is None and str(event.get("type", "")).endswith(".delta"):
            turn.first = self._clock()

    def end(self, turn: Turn, response: Item) -> None:
        turn.ended, turn.response = self._clock(), response
        self._turns.append(turn)
        self._is_unfinished = False

    def forget(self) -> None:
        self._turns, self._is_unfinished = [], False

    def raw(self, *, colour: bool) -> str:
        """The exact prompt and output of the last answer, as Harmony text."""
        return marked(visible(self._debug("__debug")), lambda token: styled(token, CYAN, on=colour))

    def tokens(self, *, colour: bool) -> str:
        ids, scores = self._debug("__debug_output_ids"), self._debug("__debug_output_logprobs")
        if not ids.startswith("["):
            return ids
        tokens: list[int] = json.loads(ids)
        logprobs: list[float | None] = json.loads(scores) if scores.startswith("[") else [None] * len(tokens)
        return "\n".join(
            styled(token_line(token, logprob), CYAN, on=colour and is_special(token))
            for token, logprob in zip(tokens, logprobs, strict=True)
        )

    def stats(self) -> str:
        if (missing := self._missing()) is not None:
            return missing
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
        turns = [{"input": list(turn.items), "response": _shown(turn.response)} for turn in self._turns]
        text = json.dumps(turns, ensure_ascii=False, indent=2) if path.suffix == ".json" else self._markdown()
        path.write_text(text + "\n", encoding="utf-8")

    def _markdown(self) -> str:
        parts: list[str] = []
        for turn in self._turns:
            parts += [_as_markdown(item) for item in turn.items]
            parts += [_as_markdown(item) for item in turn.response.get("output", ())]
        return "\n\n".join(filter(None, parts))

    def _missing(self) -> str | None:
        """Why there is nothing to show of the last answer; None if there is."""
        if self._is_unfinished:
            return _UNFINISHED
        return None if self._turns else _NOTHING

    def _debug(self, key: str) -> str:
        if (missing := self._missing()) is not None:
            return missing
        text: str = (self._turns[-1].response.get("metadata") or {}).get(key, _NO_DEBUG)
        return text


def _shown(response: Item) -> Item:
    metadata = {k: v for k, v in (response.get("metadata") or {}).items() if not k.startswith("__debug")}
    return {**response, "metadata": metadata}


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
