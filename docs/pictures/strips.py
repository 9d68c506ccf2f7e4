"""Tokens as strips: one row of boxes for each message, with its author and channel at the left."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from docs.pictures.svg import FIXED, LETTER, Canvas
from gpt_oss_server.harmony.encoding import FIRST_SPECIAL, MESSAGE, START

WIDTH, LEFT, RIGHT = 820, 150, 16
_ROW, _TOKEN = 25, 20
_MOST = 40  # tokens of a text that are drawn
_MOST_OF_SYSTEM = 14
_PAD = 4


@dataclass(frozen=True, slots=True)
class Message:
    """The tokens of one message. The author and the channel are read from its header."""

    tokens: tuple[int, ...]
    faded: bool = False
    note: str = ""
    slips: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """A line across the picture, with a sentence on what follows."""

    text: str


@dataclass(frozen=True, slots=True)
class _Drawn:
    text: str
    css: str
    fill: str


def messages_of(tokens: Iterable[int]) -> list[Message]:
    """The messages of a prompt: each begins with <|start|>."""
    found: list[list[int]] = []
    for token in tokens:
        if token == START or not found:
            found.append([])
        found[-1].append(token)
    return [Message(tuple(each)) for each in found]


class Strips:
    """Draws messages below each other. `spell` returns the text of a token."""

    def __init__(self, spell: Callable[[int], str], title: str, description: str) -> None:
        self._spell = spell
        self._canvas = Canvas(WIDTH, title, description, height=14)

    def add(self, *entries: Message | Rule) -> Strips:
        for entry in entries:
            self._rule(entry) if isinstance(entry, Rule) else self._message(entry)
        return self

    def drawn(self) -> str:
        self._canvas.height += 8
        return self._canvas.drawn()

    def _header(self, message: Message) -> str:
        at = message.tokens.index(MESSAGE) if MESSAGE in message.tokens else len(message.tokens)
        return "".join(map(self._spell, message.tokens[:at]))

    def _rule(self, rule: Rule) -> None:
        canvas = self._canvas
        canvas.text(16, canvas.height + 16, rule.text, "p strong")
        canvas.line(f"M16 {canvas.height + 24}H{WIDTH - RIGHT}", stroke="line")
        canvas.height += 34

    def _message(self, message: Message) -> None:
        canvas, header = self._canvas, self._header(message)
        author, tone = _author(header), _tone(header)
        fade = " faded" if message.faded else ""
        top = canvas.height
        canvas.text(16, top + 14, "tool" if _is_tool(author) else author, f"p strong{fade}")
        x, y = float(LEFT), top
        for each in self._tokens(message, tone):
            width = len(each.text) * LETTER + 2 * _PAD
            if x + width > WIDTH - RIGHT:
                x, y = float(LEFT), y + _ROW
            canvas.box(x, y, width, _TOKEN, each.fill, css=fade.strip())
            canvas.text(x + _PAD, y + 14, each.text, f"{FIXED}{each.css}{fade}", width=width - 2 * _PAD)
            x += width + 2
        if detail := _detail(header):
            canvas.text(16, top + 29, detail, f"p small quiet{fade}")
        lowest = max(y + _ROW, top + 38 if detail else 0)
        notes = [(slip, "p small slip") for slip in message.slips]
        for note, css in [*notes, *([(message.note, "p small quiet")] if message.note else [])]:
            canvas.text(LEFT, lowest + 9, note, css)
            lowest += 16
        canvas.height = lowest + 6

    def _tokens(self, message: Message, tone: str) -> Iterable[_Drawn]:
        in_header, texts = True, 0
        length = sum(token < FIRST_SPECIAL for token in message.tokens)
        most = _MOST_OF_SYSTEM if _author(self._header(message)) == "system" else _MOST
        for token in message.tokens:
            if token >= FIRST_SPECIAL:
                yield _Drawn(self._spell(token), " onspecial", "special")
                in_header = in_header and token != MESSAGE
            elif in_header:
                yield _Drawn(_shown(self._spell(token)), " header", tone)
            else:
                texts += 1
                if texts <= most:
                    yield _Drawn(_shown(self._spell(token)), "", tone)
                elif texts == most + 1:
                    yield _Drawn(f"… {length - most} tokens more", " quiet", "page")


def _shown(text: str) -> str:
    return text.replace(" ", "·").replace("\n", "↵")


def _author(header: str) -> str:
    words = header.removeprefix("<|start|>").partition("<|")[0].split()
    return words[0] if words else "assistant"


def _is_tool(author: str) -> bool:
    return author not in ("system", "developer", "user", "assistant")


def _detail(header: str) -> str:
    """The second line of a label: a message's channel, or the name of the tool that wrote it."""
    return _author(header) if _is_tool(_author(header)) else _channel(header)


def _channel(header: str) -> str:
    words = header.partition("<|channel|>")[2].partition("<|")[0].split()
    return words[0] if words else ""


def _tone(header: str) -> str:
    author = _author(header)
    if author == "assistant":
        return _channel(header) or "system"
    return "tool" if _is_tool(author) else "user" if author == "user" else "system"
