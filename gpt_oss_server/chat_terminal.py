"""A response as it is read in a terminal: stream events in, text out.

Reasoning is dimmed, or, where there is no colour, quoted with "| ". It knows the events of the Responses API
and nothing of how they come about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpt_oss_server.console import BOLD, DIM, styled

Event = Mapping[str, Any]


class Terminal:
    """Writes one answer after another. `write` gets text exactly as it should appear."""

    def __init__(self, write: Callable[[str], None], *, colour: bool, reasoning: bool = True) -> None:
        self._write = write
        self._colour = colour
        self._reasoning = reasoning
        self._at_line_start = True

    def show(self, event: Event) -> None:
        match event["type"]:
            case "response.reasoning_text.delta" if self._reasoning:
                self._reason(event["delta"])
            case "response.output_text.delta":
                self._put(event["delta"])
            case "response.output_item.done":
                self._end_item(event["item"])
            case "response.incomplete":
                reason = (event["response"].get("incomplete_details") or {}).get("reason", "unknown")
                self.note(f"cut short: {reason}")
            case "response.failed":
                self.note(
                    f"failed: {(event['response'].get('error') or {}).get('message', 'no reason given')}"
                )
            case _:
                pass  # the other events repeat what the deltas have shown

    def note(self, text: str) -> None:
        """A line of ours between the model's."""
        self._fresh_line()
        self._put(styled(f"[{text}]", DIM, on=self._colour) + "\n")

    def _end_item(self, item: Event) -> None:
        if item["type"] == "function_call":
            self._fresh_line()
            self._put(styled(f"calls {item['name']}({item['arguments']})", BOLD, on=self._colour))
        if item["type"] != "reasoning" or self._reasoning:
            self._fresh_line()

    def _reason(self, delta: str) -> None:
        if self._colour:
            self._put(styled(delta, DIM, on=True), ends_line=delta.endswith("\n"))
            return
        for line in delta.splitlines(keepends=True):
            self._put(("| " if self._at_line_start else "") + line)

    def _fresh_line(self) -> None:
        if not self._at_line_start:
            self._put("\n")

    def _put(self, text: str, *, ends_line: bool | None = None) -> None:
        self._write(text)
        self._at_line_start = text.endswith("\n") if ends_line is None else ends_line
