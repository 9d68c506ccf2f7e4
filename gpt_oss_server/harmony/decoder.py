"""Tokens to Harmony events: frames the messages, and is the only place that repairs slips.

Takes, one at a time, the ids sampled after `<|start|>assistant`. Returns events: a message starts, its text
grows, it ends; and slips. It must not know requests, items, engines or HTTP.

It does not use the library's StreamableParser, but tests check that both agree on legal streams. Measurements
show that the parser
- passes on special tokens inside a message as text (`<|channel|>`, `<|reserved_200013|>`);
- withholds text after broken UTF-8: it emits one U+FFFD per token, whatever the token holds, so text after a
  run of broken bytes arrives late, or only at the end, at a cost per token that grows with the run;
- reveals the end of a text cut in mid-character only in `messages`, which serialises everything so far;
- loses text without a header, and raises on most slips, after which it cannot continue.

How each slip is repaired (headers: see header.py; recipients: see recipients.py):

    input                                     result                                         slip
    text where a header belongs               a final message that holds all of the text     no_header
    header, then text, no <|message|>         the header as far as it is one; then text      no_message_token
    stop token in a header                    an empty message; none if the header is empty  stop_in_header
    <|start|> in a header                     the same, and the next message starts          stop_in_header
    <|start|><|start|>                        one <|start|>                                  doubled_start
    <|start|> or <|channel|> in a text        the message ends, the next one starts          missing_end
    a message that starts without <|start|>   the message starts                             missing_start
    a stop token between messages             nothing; it belongs to the previous message    stray_token
    <|message|>, <|constrain|> in a text      nothing                                        stray_token
    ids that Harmony does not use             nothing                                        reserved_token
    tokens after <|return|>, <|endoftext|>    as after <|end|>                               after_stop
    a call that ends with <|end|>, <|return|> a call                                         call_end
    another message that ends with <|call|>   not a call                                     call_end
    JSON arguments that are not JSON          the arguments, unchanged                       invalid_json
    tokens that end in a header               text if it can only be text, else no message   cut_header
    tokens that end in a text                 the message, closed_by truncated
    broken UTF-8                              U+FFFD, once no later byte can complete it

No text is lost: every ordinary token ends up in a message's text, in a header, or in the detail of a slip.
"""

import codecs
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gpt_oss_server.harmony import encoding as harmony
from gpt_oss_server.harmony.events import (
    Channel,
    ClosedBy,
    HarmonyEvent,
    Header,
    MessageFinished,
    MessageStarted,
    Slip,
    SlipKind,
    TextDelta,
)
from gpt_oss_server.harmony.header import (
    HeaderPart,
    Mark,
    Reading,
    may_be_header,
    read_cut_header,
    read_header,
)
from gpt_oss_server.harmony.recipients import Recipients

_ENDS = {
    harmony.END: ClosedBy.END,
    harmony.RETURN: ClosedBy.RETURN,
    harmony.CALL: ClosedBy.CALL,
    harmony.ENDOFTEXT: ClosedBy.RETURN,
}
_MARKS = {harmony.CHANNEL: Mark.CHANNEL, harmony.CONSTRAIN: Mark.CONSTRAIN}

# Names of functions and of their namespaces have up to 64 characters each; anything longer is not a header.
_LONGEST_HEADER = 160
_MOST_ODD_WORDS = 3


@dataclass(slots=True)
class _OpenHeader:
    """A header that is being read. `start` is the position of its first token."""

    start: int
    begun: bool  # with <|start|>
    parts: list[HeaderPart] = field(default_factory=list)
    tokens: int = 0

    def add(self, part: HeaderPart) -> None:
        if isinstance(part, str) and self.parts and isinstance(self.parts[-1], str):
            self.parts[-1] += part
        else:
            self.parts.append(part)

    @property
    def spelt(self) -> str:
        return "".join(part if isinstance(part, str) else part.value for part in self.parts).strip()

    @property
    def words(self) -> int:
        return sum(len(part.split()) for part in self.parts if isinstance(part, str))


@dataclass(slots=True)
class _OpenMessage:
    header: Header
    start: int
    texts: list[str] = field(default_factory=list)


class Decoder:
    """Decodes one generation. It is always in one of three states: in a header, in a message, or between."""

    def __init__(self, encoding: harmony.Encoding, recipients: Recipients | None = None) -> None:
        self._encoding = encoding
        self._whole_texts = encoding.whole_texts
        self._recipients = recipients or Recipients()
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._fed = 0
        self._header: _OpenHeader | None = _OpenHeader(0, begun=False)
        self._message: _OpenMessage | None = None
        self._ended: MessageFinished | None = None  # not reported, as tokens after it may still belong to it
        self._covered = 0  # tokens of messages whose end is already reported
        self._stopped = False  # the last message ended with a token that ends a turn
        self._closed = False
        self._direct: list[str] | None = None  # texts of the open message, unless a character is incomplete
        self._events: list[HarmonyEvent] = []

    @property
    def in_text(self) -> bool:
        """Whether a message is open, so that the ordinary token just fed belongs to its text."""
        return self._message is not None

    @property
    def in_reasoning(self) -> bool:
        return self._is_in("analysis")

    @property
    def in_answer(self) -> bool:
        return self._is_in("final")

    def _is_in(self, channel: Channel) -> bool:
        """Whether the open message is in this channel and not a call."""
        message = self._message
        return message is not None and message.header.channel == channel and not message.header.recipient

    @property
    def in_character(self) -> bool:
        """Whether the last token ended in the middle of a character."""
        return bool(self._utf8.getstate()[0])

    def feed(self, token: int) -> Sequence[HarmonyEvent]:
        """Decodes the next token. The usual case, whole characters within a message, takes under 1 µs."""
        if self._direct is not None and (text := self._whole_texts.get(token)) is not None:
            self._fed += 1
            self._direct.append(text)
            return (TextDelta(text),)
        if self._closed:
            raise ValueError("the decoder is closed")
        self._events = []
        self._fed += 1
        if 0 <= token < harmony.FIRST_SPECIAL:
            self._ordinary(self._encoding.ordinary_bytes(token))
        else:
            self._text(self._utf8.decode(b"", final=True))
            self._special(token)
        self._direct = None if self._message is None or self._utf8.getstate()[0] else self._message.texts
        return self._events

    def close(self) -> Sequence[HarmonyEvent]:
        """Ends the open message or header after the last token. Further calls return no events."""
        self._events = []
        if not self._closed:
            self._text(self._utf8.decode(b"", final=True))
            if self._header is not None:
                self._cut_short(self._header)
            if self._message is not None:
                self._end(self._message, ClosedBy.TRUNCATED)
            self._release(self._fed)
            self._closed, self._direct = True, None
        return self._events

    # Tokens

    def _ordinary(self, raw: bytes) -> None:
        if self._header is None and self._message is None:
            self._begin_without_start("text")
        if self._header is not None:
            self._header.tokens += 1
        self._text(self._utf8.decode(raw))

    def _special(self, token: int) -> None:
        if token in _MARKS:
            self._mark(_MARKS[token])
        elif token in _ENDS:
            self._stop(token)
        elif token == harmony.START:
            self._start()
        elif token == harmony.MESSAGE:
            self._message_token()
        else:
            self._slip(SlipKind.RESERVED_TOKEN, f"{self._encoding.decode([token])} ({token}) was left out")

    def _text(self, text: str) -> None:
        """Adds whole characters to the open message or the open header."""
        if not text:
            return
        if self._message is not None:
            self._message.texts.append(text)
            self._events.append(TextDelta(text))
        elif self._header is not None:
            self._header.add(text)
            self._open_if_text(self._header)

    def _start(self) -> None:
        if self._message is not None:
            self._slip(SlipKind.MISSING_END, "<|start|> in the middle of a message")
            self._end(self._message, ClosedBy.START)
        elif self._header is not None and not self._header.parts:
            self._slip(SlipKind.DOUBLED_START, "<|start|> right after <|start|>")
            self._header.begun = True
            return
        elif self._header is not None:
            self._end_in_header(self._header, ClosedBy.START)
        self._begin(begun=True)

    def _mark(self, mark: Mark) -> None:
        if self._message is not None:
            if mark is Mark.CONSTRAIN:
                self._slip(SlipKind.STRAY_TOKEN, f"{mark.value} in the middle of a message")
                return
            self._slip(SlipKind.MISSING_END, f"{mark.value} in the middle of a message")
            self._end(self._message, ClosedBy.START)
            self._begin(begun=False)
        header = self._header or self._begin_without_start(mark.value)
        header.tokens += 1
        header.add(mark)
        self._open_if_text(header)

    def _message_token(self) -> None:
        if self._message is not None:
            self._slip(SlipKind.STRAY_TOKEN, "<|message|> in the middle of a message")
            return
        header = self._header or self._begin_without_start("<|message|>")
        self._open(header, read_header(header.parts, self._recipients, begun=header.begun))

    def _stop(self, token: int) -> None:
        closed_by = _ENDS[token]
        if self._message is not None:
            self._end(self._message, closed_by)
        elif self._header is not None:
            self._end_in_header(self._header, closed_by)
        else:
            self._slip(SlipKind.STRAY_TOKEN, f"{self._encoding.decode([token])} after the end of a message")
        self._stopped = self._stopped or token in (harmony.RETURN, harmony.ENDOFTEXT)

    # Headers

    def _begin(self, *, begun: bool) -> _OpenHeader:
        if self._stopped:
            self._slip(SlipKind.AFTER_STOP, "tokens after the end of the turn")
            self._stopped = False
        self._header = _OpenHeader(self._fed - 1, begun)
        return self._header

    def _begin_without_start(self, what: str) -> _OpenHeader:
        self._slip(SlipKind.MISSING_START, f"a message began with {what}, without <|start|>")
        return self._begin(begun=False)

    def _open(self, header: _OpenHeader, reading: Reading) -> _OpenMessage:
        """Starts a message; only now is the end of the previous one known."""
        self._release(header.start)
        self._events += reading.slips
        message = self._message = _OpenMessage(reading.header, self._covered)
        self._header = None
        self._events.append(MessageStarted(reading.header))
        self._text(reading.text)
        return message

    def _open_if_text(self, header: _OpenHeader) -> None:
        """Starts the message early, because text without a header must not wait for the message's end."""
        too_long = header.tokens >= _LONGEST_HEADER
        if not too_long and header.words <= _MOST_ODD_WORDS:
            return
        reading = self._read_cut(header)
        if too_long or len(reading.text.split()) > _MOST_ODD_WORDS:
            self._slip_without_message(reading)
            self._open(header, reading)

    def _read_cut(self, header: _OpenHeader) -> Reading:
        return read_cut_header(header.parts, self._recipients, begun=header.begun)

    def _end_in_header(self, header: _OpenHeader, closed_by: ClosedBy) -> None:
        reading = self._read_cut(header)
        if not reading.text.strip():
            self._slip(SlipKind.STOP_IN_HEADER, f"a message ended in its header: '{header.spelt}'")
        else:
            self._slip_without_message(reading)
        if reading.is_message or reading.text.strip():
            self._end(self._open(header, reading), closed_by)
        else:
            self._events += reading.slips
            self._header = None

    def _cut_short(self, header: _OpenHeader) -> None:
        """Handles tokens that end in a header. A single last word may be an incomplete word of the header."""
        reading = self._read_cut(header)
        if reading.text.strip() and not may_be_header(reading, header.parts, begun=header.begun):
            self._slip_without_message(reading)
            self._open(header, reading)
        elif header.parts or header.begun:
            self._slip(SlipKind.CUT_HEADER, f"the tokens ended in a header: '{header.spelt}'")
        self._header = None

    def _slip_without_message(self, reading: Reading) -> None:
        if reading.is_message:
            self._slip(SlipKind.NO_MESSAGE_TOKEN, "a header went over into text without <|message|>")
        else:
            self._slip(SlipKind.NO_HEADER, "text without a header was taken as an answer")

    # Ends

    def _end(self, message: _OpenMessage, closed_by: ClosedBy) -> None:
        text = "".join(message.texts)
        self._slips_at_end(message.header, text, closed_by)
        # The token that starts the next message does not belong to this one.
        own_end = self._fed - 1 if closed_by is ClosedBy.START else self._fed
        self._ended = MessageFinished(message.header, text, closed_by, message.start, own_end, own_end)
        self._message = None

    def _slips_at_end(self, header: Header, text: str, closed_by: ClosedBy) -> None:
        if header.recipient is None:
            if closed_by is ClosedBy.CALL:
                self._slip(SlipKind.CALL_END, "<|call|> after a message that is not a call")
            return
        if closed_by in (ClosedBy.END, ClosedBy.RETURN):
            self._slip(SlipKind.CALL_END, f"a call of '{header.recipient}' ended with <|{closed_by}|>")
        if closed_by is not ClosedBy.TRUNCATED and header.content_type == "json" and not _is_json(text):
            self._slip(SlipKind.INVALID_JSON, f"the arguments for '{header.recipient}' are not JSON")

    def _release(self, end: int) -> None:
        if self._ended is not None:
            self._events.append(replace(self._ended, end=end))
            self._ended = None
            self._covered = end

    def _slip(self, kind: SlipKind, detail: str) -> None:
        self._events.append(Slip(kind, detail))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
