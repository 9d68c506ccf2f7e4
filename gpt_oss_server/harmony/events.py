"""What the decoder tells: the tagged union of Harmony events.

Tokens come in, these come out; nothing here knows of HTTP, items or ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Channel = Literal["analysis", "commentary", "final"]


class ClosedBy(StrEnum):
    """How a message ended."""

    END = "end"  # <|end|>
    RETURN = "return"  # <|return|>
    CALL = "call"  # <|call|>
    START = "start"  # the next message began, or the text was cut by another stray special token
    TRUNCATED = "truncated"  # the tokens ended in the middle of it


@dataclass(frozen=True, slots=True)
class Header:
    """A message's header after the lenient policy: always a legal channel, a recipient in its usual form."""

    channel: Channel
    recipient: str | None = None  # "functions.get_weather", "browser.search", "python"; None: to the user
    content_type: str | None = None  # "json", "code", …


@dataclass(frozen=True, slots=True)
class MessageStarted:
    header: Header


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text of the open message; never empty, never half a character."""

    text: str


@dataclass(frozen=True, slots=True)
class MessageFinished:
    """The open message is done. `text` is the sum of its deltas.

    `start:end` are its places in the tokens fed so far. The spans of a decoder's messages follow each other
    without gaps, so that, once it is closed, every fed token belongs to exactly one message (if there is
    one).
    """

    header: Header
    text: str
    closed_by: ClosedBy
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Slip:
    """A departure from Harmony that the decoder mended: what kind, and a sentence for a developer."""

    kind: str
    detail: str


HarmonyEvent = MessageStarted | TextDelta | MessageFinished | Slip
