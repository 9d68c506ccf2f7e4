"""The Harmony vocabulary: text to token ids and back, and the ids that frame messages.

It works with both distributions named `openai_harmony`: oss-harmony, which contains the vocabulary, and
openai-harmony, which downloads it. It must not know the rules of conversations, requests or HTTP.
"""

import itertools
import re
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

import openai_harmony  # type: ignore[import-untyped, unused-ignore]

ENDOFTEXT: Final = 199999
RETURN: Final = 200002
CONSTRAIN: Final = 200003
CHANNEL: Final = 200005
START: Final = 200006
END: Final = 200007
MESSAGE: Final = 200008
CALL: Final = 200012

# The ids that end a generation. A constant, because the library takes 0.1-0.35 ms a call; a test compares.
STOP_IDS: Final = frozenset({RETURN, CALL, ENDOFTEXT})

FIRST_SPECIAL: Final = 199998  # ids below are ordinary text, ids from here on are special tokens
VOCABULARY_SIZE: Final = 201088  # rows of the model's output layer; the library has one id more

UNKNOWN_TEXT: Final = "\N{REPLACEMENT CHARACTER}"

# Runs that the encoder's pattern cannot split: letters and signs without a digit or a space, or only spaces,
# and the slashes and line ends that may follow either, or stand alone.
_LONG_RUN_LENGTH: Final = 2_000
_LONG_RUN: Final = re.compile(
    r"(?:(?<![^\s\d])[^\s\d]{2000,}|(?<!\s)\s{2000,})[\r\n/]*|(?<![\r\n/])[\r\n/]{2000,}"
)

# The library holds the GIL while it encodes, 0.2-0.4 µs a character: a piece blocks other threads for 3 ms.
_PIECE: Final = 8_000

# Where the encoder's pattern ends a match in any context, as it would at the end of the text. Nothing in the
# pattern looks back, so the tokens of the two sides are the tokens of the whole:
# - before a space after a non-space, or any whitespace after a letter or digit: it can only start a match;
# - after a line feed, before neither a space nor a slash: `\s*[\r\n]+` and `[\r\n/]*` both end there;
# - between a letter or a sign and a digit: no alternative holds both, and no contraction (`'s`) has a digit;
# - after a single space, before a digit: `\s+` takes one space with or without what follows.
_LETTER: Final = r"A-Za-z\u4e00-\u9fa5"
_BOUNDARIES: Final = "|".join(
    (
        r"(?<=\S)(?= )",
        rf"(?<=[{_LETTER}0-9])(?=\s)",
        r"(?<=\n)(?=[^\s/])",
        rf"(?<=[{_LETTER}])(?=[0-9])",
        rf"(?<=[0-9])(?=[{_LETTER}])",
        r"(?<=[^\w\s])(?=[0-9])",
        r"(?<=\S )(?=[0-9])",
    )
)
_LAST_BOUNDARY: Final = re.compile(rf"(?s:.{{1,{_PIECE}}})(?:{_BOUNDARIES})")
BOUNDARY: Final = re.compile(_BOUNDARIES)
_DIGITS: Final = re.compile(rf"\d{{{_PIECE // 3 * 3}}}")  # after a boundary, digits are matched in threes
_SEARCHED: Final = 50_000  # characters: a text without a boundary in as many is cut there nevertheless
_LONGEST_SPECIAL: Final = 32  # characters of a special token, which is not cut

# A message of this many characters exceeds every context. Its tokens are an array, 4 bytes each: to create,
# copy and release as many objects holds the GIL for a quarter of a second.
_LONG_TEXT: Final = 1_000_000


def without_lone_surrogates(text: str) -> str:
    """Replaces lone surrogates by U+FFFD, as the library's encoder does."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def pieces(text: str) -> Iterator[str]:
    """Splits the text into pieces of about 8,000 characters, whose tokens in sequence are the text's tokens.

    A piece is longer only where the text has no known boundary. After 50,000 characters without one it is
    cut nevertheless. So is a run that is too long for the library's encoder, whose cost is quadratic in it
    (14 s for 200,000 letters); a million letters cause a panic that no `except Exception` catches. Ordinary
    text has neither.
    """
    start = 0
    while start < len(text):
        end = _end_of_piece(text, start) if len(text) - start > _PIECE else len(text)
        yield from _without_long_runs(text[start:end])
        start = end


def _end_of_piece(text: str, start: int) -> int:
    if end := _DIGITS.match(text, start) or _LAST_BOUNDARY.match(text, start):
        return end.end()
    begin, cut = start + _PIECE, start + _PIECE + _SEARCHED
    if end := BOUNDARY.search(text, begin, cut):
        return end.end()
    if cut >= len(text):
        return len(text)
    special = text.rfind("<", cut - _LONGEST_SPECIAL, cut)
    return special if special >= 0 else cut


def _without_long_runs(text: str) -> Iterator[str]:
    # A check that rules out nearly all texts; the pattern for long runs takes ten times as long.
    lengths = [len(word) for word in text.split()]
    most = max(max(lengths, default=0), len(text) - sum(lengths))
    cuts = [0]
    for run in _LONG_RUN.finditer(text) if most >= _LONG_RUN_LENGTH else ():
        cuts += range(run.start() + _LONG_RUN_LENGTH, run.end() + 1, _LONG_RUN_LENGTH)
    return (text[begin:end] for begin, end in itertools.pairwise([*cuts, len(text)]) if begin < end)


class Encoding:
    """The library's encoding made total: no text and no id makes it raise.

    Threads may share one: only memos change, and every thread would write the same entries.
    """

    def __init__(self, library: Any) -> None:
        self.library = library  # the library's own HarmonyEncoding, for comparisons in tests and for grammars
        self.whole_texts: dict[int, str] = {}
        """Texts of those ordinary tokens met so far that are whole characters (`ordinary_bytes`)."""
        self._bytes_of: dict[int, bytes] = {}

    def encode(self, text: str) -> list[int]:
        """Encodes ordinary text: the spelling of a special token is text like any other."""
        return [token for piece in self._encoded(text, set()) for token in piece]

    def encode_special(self, text: str) -> list[int]:
        """Encodes text in which `<|start|>` and the like are special tokens. Never use it for users' text."""
        return [token for piece in self._encoded(text, "all") for token in piece]

    def _encoded(self, text: str, allowed_special: set[str] | Literal["all"]) -> Iterator[list[int]]:
        """The tokens of one piece after another. No boundary lies within a special token."""
        text = without_lone_surrogates(text)
        if len(text) < _LONG_RUN_LENGTH:
            yield self.library.encode(text, allowed_special=allowed_special, disallowed_special=())
            return
        for piece in pieces(text):
            yield self.library.encode(piece, allowed_special=allowed_special, disallowed_special=())
            if len(piece) < len(text):
                time.sleep(0)  # other threads run

    def decode(self, tokens: Sequence[int]) -> str:
        """The text, with special tokens spelt out; broken UTF-8 and ids without a token become U+FFFD."""
        return self.token_bytes(tokens).decode("utf-8", errors="replace")

    def token_bytes(self, tokens: Sequence[int]) -> bytes:
        """The bytes of some ids, with special tokens spelt out."""
        try:
            # surrogateescape makes the library's public decode reversible, so no private name is needed.
            text: str = self.library.decode(list(tokens), errors="surrogateescape")
        except (openai_harmony.HarmonyError, OverflowError):
            if len(tokens) == 1:
                return UNKNOWN_TEXT.encode()
            return b"".join(self.token_bytes([token]) for token in tokens)
        return text.encode("utf-8", "surrogateescape")

    def spelt(self, token: int) -> str | list[int]:
        """The text of one token, or its bytes if it is only a part of a character."""
        raw = self.token_bytes([token])
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return list(raw)

    def ordinary_bytes(self, token: int) -> bytes:
        """The bytes of one ordinary token; the library takes 2 µs for them, the memo 0.1."""
        raw = self._bytes_of.get(token)
        if raw is None:
            raw = self._bytes_of[token] = self.token_bytes([token])
            text = raw.decode("utf-8", errors="ignore")
            if text.encode() == raw:
                self.whole_texts[token] = text
        return raw

    def framed(self, before: Sequence[int], text: str, end: int) -> Sequence[int]:
        """The tokens of a text between the others of its message."""
        if len(text) <= _LONG_TEXT:
            return (*before, *self.encode(text), end)
        tokens = array("I", before)
        for piece in self._encoded(text, set()):
            tokens.extend(piece)
        tokens.append(end)
        return tokens


_loading = threading.Lock()
_loaded: list[Encoding] = []


def load_encoding() -> Encoding:
    """The one encoding of this process. The first call loads it, which takes about 0.3 s."""
    with _loading:  # a plain cache would load twice if the first two calls came from two threads
        if not _loaded:
            name = openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS
            _loaded.append(Encoding(openai_harmony.load_harmony_encoding(name)))
        return _loaded[0]
