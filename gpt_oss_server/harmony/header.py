"""The lenient reading of a message's header: the case table of the decoder's policy.

Takes the header's parts between the start of a message and `<|message|>` (or the token in its place): text,
and the marks `<|channel|>` and `<|constrain|>`. Returns a legal `Header`, the text that was not header, and
slips. Nothing sampled is dropped silently: each word ends up in the header, in the text or in a slip's
detail. It must not know tokens, spans or state.

    `_` is a space             read as                                 slip
    <|channel|>final           final
    _to=f<|channel|>analysis   analysis, to f; either order
    nothing                    final; commentary for a call            no_channel
    <|channel|>                the same                                no_channel
    <|channel|>comment?        the known channel with the same start        unknown_channel
    <|channel|>thoughts        final; commentary for a call            unknown_channel
    two channels               the last known one                      doubled_channel
    two recipients             the last one                            doubled_recipient
    word that is declared      recipient; also its full name as a type   bare_recipient
    json, code, …              content type
    other words                                                        leftover_words
    user, functions.f, …       the author's role: text to the user     foreign_role
    <|channel|> as letters     the mark                                spelt_token
    call on final              commentary                              call_channel
    _to_=_f, channelto=f       to f                                    odd_spacing

Without `<|message|>`, the header is the longest prefix that a strict reading accepts; the rest is text.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import cast

from gpt_oss_server.harmony.events import Channel, Header, Slip, SlipKind
from gpt_oss_server.harmony.recipients import Recipients


class Mark(Enum):
    CHANNEL = "<|channel|>"
    CONSTRAIN = "<|constrain|>"


HeaderPart = str | Mark

_CHANNELS = ("analysis", "commentary", "final")
_BEGINNINGS = {
    **dict.fromkeys(("anal", "think", "thought", "reason"), "analysis"),
    "comment": "commentary",
    **dict.fromkeys(("final", "answer"), "final"),
}
_TYPES = frozenset({"json", "code", "text", "markdown", "python", "xml", "yaml"})
_SPELT = re.compile("(" + "|".join(re.escape(mark.value) for mark in Mark) + ")")
_SPACED_TO = re.compile(r"(?<!\S)to\s*=\s*")

# The undoubted parts of a header, for headers without <|message|>.
_STRICT = {
    Mark.CHANNEL: re.compile(r"\s*(analysis|commentary|final)"),
    Mark.CONSTRAIN: re.compile(r"\s*(\w+)"),
}
_STRICT_ROLE = re.compile(r"\s*(assistant|(?:user|system|developer|tool)(?=[\s:]|$))")
_REPEATED_ROLE = re.compile(r"\s*(assistant)(?=\s*$|\s+to=)")
_STRICT_TO = re.compile(r"\s*(to\s*=\s*(?:to=)*[\w.\-]+)")
_STRICT_TYPE = re.compile(r"\s*(json|code)(?=[\s{\[(\"'<]|$)")


@dataclass(frozen=True, slots=True)
class Reading:
    """What a header declares. `is_message`: it names a channel or a recipient, so it needs no text."""

    header: Header
    is_message: bool
    text: str = ""
    slips: tuple[Slip, ...] = ()


def read_header(parts: Sequence[HeaderPart], recipients: Recipients, *, begun: bool) -> Reading:
    """Reads a header that ended with `<|message|>`. `begun`: with `<|start|>`, so a role comes first."""
    words = _Words(recipients, expects_role=begun)
    return words.reading(_with_marks(parts, words.slips))


def read_cut_header(parts: Sequence[HeaderPart], recipients: Recipients, *, begun: bool) -> Reading:
    """Reads a header that ended without `<|message|>`: what is undoubtedly header, and the rest as text."""
    head, text = _split(parts, begun=begun)
    words = _Words(recipients, expects_role=begun and bool(head) and not isinstance(head[0], Mark))
    reading = words.reading(head)
    named = reading.is_message
    slips = tuple(slip for slip in reading.slips if named or slip.kind is not SlipKind.NO_CHANNEL)
    return Reading(reading.header, named, text, slips)


def may_be_header(reading: Reading, parts: Sequence[HeaderPart], *, begun: bool) -> bool:
    """Whether the text of a header that was cut may be an incomplete word of the header."""
    words = reading.text.split()
    if len(words) != 1:
        return False
    names_mark = len(parts) > 1 and isinstance(parts[-2], Mark) and str(parts[-1]).strip() == words[0]
    if reading.is_message and not names_mark:  # few words may follow a channel or a recipient
        return any(known.startswith(words[0]) for known in ("to=", "functions.", *_TYPES))
    return begun or any(isinstance(part, Mark) for part in parts) or "to=".startswith(words[0])


@dataclass(slots=True)
class _Words:
    """Sorts the words of a header, then decides."""

    recipients: Recipients
    expects_role: bool
    awaiting: Mark | None = None
    channels: list[str] = field(default_factory=list)
    addressed: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    foreign_role: str | None = None
    slips: list[Slip] = field(default_factory=list)

    def reading(self, parts: Iterable[HeaderPart]) -> Reading:
        for part in parts:
            if isinstance(part, Mark):
                self._mark(part)
            else:
                self._word(part)
        self._end_of_channel()
        self._no_role()
        self._sort_others()
        recipient = self._recipient()
        channel = self._channel(recipient)
        if self.others:
            self._slip(SlipKind.LEFTOVER_WORDS, f"words without meaning in a header: {' '.join(self.others)}")
        header = Header(channel, recipient, self.types[0] if self.types else None)
        return Reading(header, any(self.channels) or bool(self.addressed), "", tuple(self.slips))

    def _mark(self, mark: Mark) -> None:
        self._end_of_channel()
        self._no_role()
        self.awaiting = mark

    def _word(self, word: str) -> None:
        if word.startswith("to="):
            self._no_role()
            *doubled, recipient = word.split("to=")
            self.addressed.append(recipient)
            if len(doubled) > 1:
                self._slip(SlipKind.DOUBLED_RECIPIENT, f"a doubled 'to=': '{word}'")
        elif self.expects_role:
            self._role(word)
        elif self.awaiting is Mark.CHANNEL and word not in _TYPES:
            self._marked(word, self.channels)
        elif self.awaiting is Mark.CONSTRAIN and not self._is_recipient(word):
            self._marked(word, self.types)
        else:
            self.others.append(word)

    def _marked(self, word: str, names: list[str]) -> None:
        """The word that a mark announced."""
        name, to, recipient = word.partition("to=")
        self.awaiting = None
        names.append(name)
        if to:
            self._slip(SlipKind.ODD_SPACING, f"no space in '{word}'")
            self.addressed.append(recipient)

    def _is_recipient(self, word: str) -> bool:
        """Whether a word in the place of a type is the recipient: a full name is never a type."""
        return word.startswith("functions.") or ("." in word and self.recipients.knows(word))

    def _role(self, word: str) -> None:
        self.expects_role = False
        if word in _CHANNELS:
            self.others.append(word)
        elif not word.startswith("assistant"):
            self.foreign_role = word
        elif rest := word.removeprefix("assistant"):
            self._slip(SlipKind.ODD_SPACING, f"no space in '{word}'")
            self._word(rest)

    def _no_role(self) -> None:
        if self.expects_role:
            self.expects_role = False
            self._slip(SlipKind.FOREIGN_ROLE, "a message without a role")

    def _end_of_channel(self) -> None:
        if self.awaiting is Mark.CHANNEL:
            self.channels.append("")
        self.awaiting = None

    def _sort_others(self) -> None:
        """Sorts words that have neither a mark nor `to=` before them."""
        left = []
        for word in self.others:
            if not self.addressed and (word.startswith("functions.") or self.recipients.knows(word)):
                self.addressed.append(word)
                self._slip(SlipKind.BARE_RECIPIENT, f"the recipient '{word}' has no 'to=' before it")
            elif word in _CHANNELS and not any(self.channels):
                self.channels.append(word)
                self._slip(SlipKind.NO_CHANNEL, f"the channel '{word}' has no <|channel|> before it")
            elif word in _TYPES and not self.types:
                self.types.append(word)
            else:
                left.append(word)
        self.others = [*left, *self.types[1:]]

    def _recipient(self) -> str | None:
        if self.foreign_role is not None:
            to = f" to={' to='.join(self.addressed)}" if self.addressed else ""
            self._slip(SlipKind.FOREIGN_ROLE, f"a message of '{self.foreign_role}'{to} was taken as text")
            return None
        if not self.addressed:
            return None
        if len(self.addressed) > 1:
            self._slip(SlipKind.DOUBLED_RECIPIENT, f"more than one recipient: {' '.join(self.addressed)}")
        recipient, slips = self.recipients.resolve(self.addressed[-1])
        self.slips += slips
        return recipient

    def _channel(self, recipient: str | None) -> Channel:
        channel = self._sampled_channel() or ("final" if recipient is None else "commentary")
        on_analysis = channel == "analysis" and recipient is not None and recipient.startswith("functions.")
        if on_analysis or (channel == "final" and recipient is not None):
            self._slip(SlipKind.CALL_CHANNEL, f"'{recipient}' was called on the channel {channel}")
        # A call is never an answer: history drops the reasoning before an answer.
        return "commentary" if channel == "final" and recipient is not None else channel

    def _sampled_channel(self) -> Channel | None:
        if len(self.channels) > 1:
            spelt = " ".join(f"'{name}'" for name in self.channels)
            self._slip(SlipKind.DOUBLED_CHANNEL, f"more than one channel: {spelt}")
        known = [name for name in self.channels if name in _CHANNELS]
        if known:
            return cast(Channel, known[-1])
        spelt = next((name for name in reversed(self.channels) if name), "")
        if not spelt:
            if self.foreign_role is None:
                self._slip(SlipKind.NO_CHANNEL, "a message without a channel")
            return None
        self._slip(SlipKind.UNKNOWN_CHANNEL, f"the channel '{spelt}' is not known")
        alike = (channel for start, channel in _BEGINNINGS.items() if spelt.lower().startswith(start))
        return cast(Channel | None, next(alike, None))

    def _slip(self, kind: SlipKind, detail: str) -> None:
        self.slips.append(Slip(kind, detail))


def _with_marks(parts: Sequence[HeaderPart], slips: list[Slip]) -> Iterator[HeaderPart]:
    """Marks and single words; marks spelt out in letters become marks."""
    for part in parts:
        if isinstance(part, Mark):
            yield part
            continue
        for piece in _SPELT.split(part):
            if _SPELT.fullmatch(piece):
                slips.append(Slip(SlipKind.SPELT_TOKEN, f"{piece} was spelt out"))
                yield Mark(piece)
            else:
                yield from _without_space(piece, slips).split()


def _without_space(text: str, slips: list[Slip]) -> str:
    closed = _SPACED_TO.sub("to=", text)
    if closed != text:
        slips.append(Slip(SlipKind.ODD_SPACING, f"white space in '{text.strip()}'"))
    return closed


def _split(parts: Sequence[HeaderPart], *, begun: bool) -> tuple[list[HeaderPart], str]:
    head: list[HeaderPart] = []
    text = ""
    awaiting: Mark | None = None
    for part in parts:
        if isinstance(part, Mark):
            head.append(part)
            awaiting = part
            continue
        at = 0
        while found := _strict_word(part, at, awaiting, head, begun=begun, in_text=bool(text.strip())):
            head.append(_without_space(found[1], []))
            at, awaiting = found.end(), None
        text += part[at:]
        awaiting = None
    return head, text.lstrip() if head else text


def _strict_word(
    part: str, at: int, awaiting: Mark | None, head: Sequence[HeaderPart], *, begun: bool, in_text: bool
) -> re.Match[str] | None:
    if awaiting is not None and (found := _STRICT[awaiting].match(part, at)):
        return found
    if in_text:
        return None
    if not head:
        role = _STRICT_ROLE if begun else _REPEATED_ROLE
        if found := role.match(part, at):
            return found
    if found := _STRICT_TO.match(part, at):
        return found
    addressed = any(isinstance(word, str) and word.startswith("to=") for word in head)
    return _STRICT_TYPE.match(part, at) if addressed else None
