"""The events that the decoder emits, as a tagged union. It must not know HTTP, items or ids."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

Channel = Literal["analysis", "commentary", "final"]


class ClosedBy(StrEnum):
    """How a message ended."""

    END = "end"  # <|end|>
    RETURN = "return"  # <|return|>
    CALL = "call"  # <|call|>
    START = "start"  # the next message started, or a stray special token cut the text
    TRUNCATED = "truncated"  # the tokens ended in mid-message


@dataclass(frozen=True, slots=True)
class Header:
    """A message's header after repair: always a legal channel, and a recipient in its canonical form."""

    channel: Channel
    recipient: str | None = None  # "functions.get_weather", "browser.search", "python"; None: the user
    content_type: str | None = None  # "json", "code", …


@dataclass(frozen=True, slots=True)
class MessageStarted:
    header: Header


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text of the open message: never empty, never half a character."""

    text: str


@dataclass(frozen=True, slots=True)
class MessageFinished:
    """The open message has ended. `text` is the sum of its deltas.

    `start:end` are its positions in the tokens fed so far. The spans of a decoder's messages follow each
    other without gaps, so that after `close` every fed token belongs to exactly one message (if there is
    one). This event therefore comes when the next message starts, or on close: until then stray tokens and a
    header that is cut short may follow, and they belong to the message before them. `own_end` is where the
    message itself ends, including its end token; None means at `end`.
    """

    header: Header
    text: str
    closed_by: ClosedBy
    start: int
    end: int
    own_end: int | None = None


class SlipKind(StrEnum):
    """Every kind of slip that the decoder repairs. The list is closed, so that counters have few labels."""

    NO_HEADER = "no_header"  # text where a header belongs
    NO_MESSAGE_TOKEN = "no_message_token"  # a header, then text, without <|message|> between them
    STOP_IN_HEADER = "stop_in_header"  # the message ended before <|message|>
    CUT_HEADER = "cut_header"  # the tokens ended in a header
    NO_CHANNEL = "no_channel"  # no <|channel|>, or nothing after it
    UNKNOWN_CHANNEL = "unknown_channel"
    DOUBLED_CHANNEL = "doubled_channel"
    DOUBLED_START = "doubled_start"
    MISSING_START = "missing_start"  # a message started without <|start|>
    MISSING_END = "missing_end"  # a message started in the middle of another
    FOREIGN_ROLE = "foreign_role"  # a message by an author other than the assistant, or by none
    DOUBLED_RECIPIENT = "doubled_recipient"
    BARE_RECIPIENT = "bare_recipient"  # `f` for `functions.f`
    GLUED_TYPE = "glued_type"  # `functions.fjson` for `functions.f` with the type json
    MISPLACED_RECIPIENT = "misplaced_recipient"  # `functions.python` for `python`
    UNDECLARED_RECIPIENT = "undeclared_recipient"
    NO_TOOL = "no_tool"  # addressed to the user, or to another recipient that is not a tool
    CALL_CHANNEL = "call_channel"  # a function call on a channel that is not for calls
    CALL_END = "call_end"  # a call that ended without <|call|>, or another message that ended with it
    INVALID_JSON = "invalid_json"  # arguments declared as JSON that are not
    LEFTOVER_WORDS = "leftover_words"  # words in a header without a meaning
    ODD_SPACING = "odd_spacing"  # joined or split words in a header
    SPELT_TOKEN = "spelt_token"  # <|channel|> spelt out in letters in a header
    STRAY_TOKEN = "stray_token"  # a framing token in a place where it has no meaning
    RESERVED_TOKEN = "reserved_token"  # a special token that Harmony does not use, or an id without a token
    AFTER_STOP = "after_stop"  # tokens after the one that ends a turn


@dataclass(frozen=True, slots=True)
class Slip:
    """A departure from Harmony that the decoder repaired: its kind, and a sentence for a developer."""

    kind: SlipKind
    detail: str


HarmonyEvent = MessageStarted | TextDelta | MessageFinished | Slip
