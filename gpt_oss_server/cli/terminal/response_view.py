"""A response as a terminal shows it, from the API's events alone: what is no answer is dim, or quoted."""

from collections.abc import Callable, Mapping
from typing import Any

from gpt_oss_server.cli.terminal.console import BOLD, DIM, harmless, styled, visible

Event = Mapping[str, Any]
_MOST_LINES = 20  # of code, or of its output
_MOST_WIDTH = 500


class Terminal:
    """Writes one answer after another. `write` gets text exactly as it should appear."""

    def __init__(
        self, write: Callable[[str], None], *, colour: bool, reasoning: bool = True, guarded: bool = False
    ) -> None:
        """`guarded`: escape control characters in the model's text, which may come from a web page."""
        self._safe = harmless if guarded else str
        self._write = write
        self.colour = colour
        self._reasoning = reasoning
        self._at_line_start = True

    def show(self, event: Event) -> None:
        match event["type"]:
            case "response.reasoning_text.delta" | "response.reasoning.delta" if self._reasoning:
                self._reason(self._safe(event["delta"]))
            case "response.output_text.delta":
                self._put(self._safe(event["delta"]))
            case "response.code_interpreter_call_code.done":
                self._quote("runs", event["code"])
            case "response.output_item.done":
                self._end_item(event["item"])
            case "response.incomplete":
                details = event["response"].get("incomplete_details") or {}
                self.note(f"cut short: {details.get('message') or details.get('reason', 'unknown')}")
            case "response.failed":
                error = event["response"].get("error") or {}
                self.note(f"failed: {error.get('message', 'no reason given')}")
            case _:
                pass  # the other events repeat what the deltas have shown

    def note(self, text: str) -> None:
        """Writes a line of the chat's own between the model's lines."""
        self._fresh_line()
        self._dimmed_line(f"[{text}]")

    def _dimmed_line(self, text: str) -> None:
        self._put(styled(text, DIM, on=self.colour) + "\n")

    def _end_item(self, item: Event) -> None:
        match item["type"]:
            case "function_call":
                self._fresh_line()
                called = self._safe(f"calls {item['name']}({item['arguments']})")
                self._put(styled(called, BOLD, on=self.colour))
            case "web_search_call":
                failed = " (failed)" if item["status"] == "failed" else ""
                self.note(visible(_searched(item["action"]) + failed))
            case "code_interpreter_call":
                outputs = item.get("outputs") or ()
                texts = (str(o["logs"]) if o["type"] == "logs" else f"({o['type']})\n" for o in outputs)
                self._quote("gives", "".join(texts))
        if item["type"] != "reasoning" or self._reasoning:
            self._fresh_line()

    def _quote(self, what: str, text: str) -> None:
        """Shows a tool's code or output: dimmed, under its heading, and short enough to read in passing."""
        lines = visible(text).strip("\n").splitlines()
        if not any(lines):
            return
        self.note(what)
        for line in lines[:_MOST_LINES]:
            self._dimmed_line(f"    {line if len(line) <= _MOST_WIDTH else line[:_MOST_WIDTH] + '…'}")
        if (more := len(lines) - _MOST_LINES) > 0:
            self._dimmed_line(f"    … and {more} more line{'s' if more > 1 else ''}")

    def _reason(self, delta: str) -> None:
        if self.colour:
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


def _searched(action: Event) -> str:
    match action["type"]:
        case "open_page":
            return f"opens {action.get('url') or 'a page'}"
        case "find_in_page":
            return f"looks for {action.get('pattern')!r} in {action.get('url') or 'the page'}"
        case _:
            return f"searches {action.get('query')!r}"
