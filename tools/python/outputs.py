"""The outputs of a cell, limited while they stream in: `text` for the model (logs, with `[image]` for an
image), and entries for the API's item. It never holds more than `CellOutputLimits` allows.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tools.python.channel import Received

# CSI and OSC sequences, and the two-character ones.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_SIGNATURES = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}
IMAGE_NOTE = "[image]"


@dataclass(frozen=True, slots=True)
class CellOutputLimits:
    """How much of one call's output is kept."""

    characters: int = 20_000  # of text, about 5,000 tokens; the middle is cut out
    images: int = 10
    image_bytes: int = 4 * 1024 * 1024


class Outputs:
    def __init__(self, limits: CellOutputLimits) -> None:
        self._limits = limits
        self._head: list[dict[str, str]] = []  # the API's entries, up to half of the characters
        self._head_room = limits.characters - limits.characters // 2
        self._tail: list[dict[str, str]] = []
        self._tail_size = 0
        self._cut = 0
        self._images = 0

    @property
    def full(self) -> bool:
        """Whether text is already being cut, so that more of it is of little use."""
        return self._cut > 0

    def feed(self, message: Received) -> None:
        cut = message.metadata.get("cut")
        if type(cut) is int and 0 < cut < 2**40:
            self._cut += cut
        match message.kind:
            case "stream":
                self.add_text(_text(message.content.get("text")))
            case "execute_result" | "display_data" | "update_display_data":
                self._show(message.content.get("data"))
            case "error":
                self._fail(message.content)
            case _:
                return  # status, execute_input, clear_output, comm_*: nothing to show

    def add_text(self, text: str) -> None:
        text = clean(self._without_middle(text))
        if self._head_room > 0:
            first, text = text[: self._head_room], text[self._head_room :]
            self._head_room -= len(first)
            _append(self._head, first)
        if text:
            _append(self._tail, text)
            self._tail_size += len(text)
            self._shorten_tail()

    def note(self, text: str) -> None:
        """Adds a line of the server's own, separate from the cell's output."""
        entries = self._tail or self._head
        last = entries[-1] if entries else None
        broken = last is not None and last["type"] == "logs" and not last["logs"].endswith("\n")
        self.add_text(f"\n{text}\n" if broken else f"{text}\n")

    def entries(self) -> list[dict[str, str]]:
        """The data for the API's item: `{"type": "logs", "logs"}` and `{"type": "image", "url"}`."""
        if not self._cut:
            entries = [*self._head, *self._tail]
        else:
            note = f"\n[… {self._cut} characters of output were cut here …]\n"
            entries = [*self._head, {"type": "logs", "logs": note}, *self._tail]
        merged: list[dict[str, str]] = []
        for entry in entries:
            if entry["type"] == "logs":
                _append(merged, entry["logs"])
            else:
                merged.append(entry)
        return merged

    def text(self) -> str:
        """The text for the model; "" if there was no output."""
        parts: list[str] = []
        for entry in self.entries():
            if entry["type"] == "logs":
                parts.append(entry["logs"])
                continue
            if parts and not parts[-1].endswith("\n"):
                parts.append("\n")
            parts.append(IMAGE_NOTE + "\n")
        return "".join(parts)

    def _show(self, data: object) -> None:
        """Adds a rich result: its image if it has one, otherwise its plain text."""
        if not isinstance(data, Mapping):
            return
        kind = next((kind for kind in _SIGNATURES if data.get(kind) is not None), None)
        if kind is not None:
            self._picture(kind, data[kind])
        elif "text/plain" in data:
            self.add_text(_text(data["text/plain"]).rstrip("\n") + "\n")

    def _picture(self, kind: str, encoded: object) -> None:
        if self._images >= self._limits.images:  # first, because decoding costs time
            self.note(f"[an image was left out: only {self._limits.images} are kept for each call]")
            return
        try:
            image = base64.b64decode(_text(encoded).replace("\n", ""), validate=True)
        except (binascii.Error, ValueError):
            image = b""
        if not image.startswith(_SIGNATURES[kind]):
            self.note("[an image that cannot be read, or is too large, was left out]")
        elif len(image) > self._limits.image_bytes:
            self.note(f"[an image of more than {self._limits.image_bytes} bytes was left out]")
        else:
            self._images += 1
            url = f"data:{kind};base64,{base64.b64encode(image).decode()}"
            entries = self._tail if self._head_room <= 0 else self._head
            entries.append({"type": "image", "url": url})

    def _fail(self, content: Mapping[str, Any]) -> None:
        lines = content.get("traceback")
        if isinstance(lines, list) and lines:
            self.note("\n".join(_text(line) for line in lines[:1000]))
        else:
            self.note(f"{_text(content.get('ename'))}: {_text(content.get('evalue'))}")

    def _without_middle(self, text: str) -> str:
        """Cuts a very long text to what can be kept at all, so that the rest costs no work."""
        extra = len(text) - 4 * self._limits.characters
        if extra <= 0:
            return text
        self._cut += extra
        return text[: 2 * self._limits.characters] + text[2 * self._limits.characters + extra :]

    def _shorten_tail(self) -> None:
        """Drops the oldest text of the tail. Images stay, because they have a limit of their own."""
        extra = self._tail_size - self._limits.characters // 2
        for entry in list(self._tail):
            if extra <= 0:
                return
            if entry["type"] != "logs":
                continue
            dropped = min(extra, len(entry["logs"]))
            entry["logs"] = entry["logs"][dropped:]
            extra -= dropped
            self._tail_size -= dropped
            self._cut += dropped
            if not entry["logs"]:
                self._tail.remove(entry)


def clean(text: str) -> str:
    """Removes terminal codes and lone surrogates, which JSON can contain but UTF-8 cannot."""
    return _ANSI.sub("", text).encode("utf-8", "replace").decode()


def _append(entries: list[dict[str, str]], text: str) -> None:
    if not text:
        return
    if entries and entries[-1]["type"] == "logs":
        entries[-1]["logs"] += text
    else:
        entries.append({"type": "logs", "logs": text})


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
