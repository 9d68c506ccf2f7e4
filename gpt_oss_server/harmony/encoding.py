"""The Harmony vocabulary: text to token ids and back, and the ids that frame messages.

In go texts and ids, out come ids and texts. The only module that imports `openai_harmony`, whose name two
distributions share (oss-harmony with the vocabulary inside, openai-harmony that downloads it); what is used
here works with both. It must not know of conversations' rules, requests or HTTP.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Sequence
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

# What ends a generation. Asking the library costs 0.1-0.35 ms a call, hence a constant; a test compares.
STOP_IDS: Final = frozenset({RETURN, CALL, ENDOFTEXT})

FIRST_SPECIAL: Final = 199998  # ids below are ordinary text, ids from here on are special tokens
VOCABULARY_SIZE: Final = 201088  # rows of the model's output layer; the library knows one id more

UNKNOWN_TEXT: Final = "\N{REPLACEMENT CHARACTER}"

# What the encoder's pattern cannot split: letters and signs without a digit or a space among them, or spaces.
_LONG_RUN: Final = re.compile(r"[^\s\d]{2000}|\s{2000}")

AuthorRole = Literal["system", "developer", "user", "assistant", "tool"]


def without_lone_surrogates(text: str) -> str:
    """Each lone surrogate becomes U+FFFD, as the library does when it encodes (when it renders, it fails)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def without_long_runs(text: str) -> list[str]:
    """The text in pieces none of which holds a run that the library's encoder cannot bear.

    Its cost is quadratic in a run without a boundary (14 s for 200,000 letters), and a million end in a
    panic that no `except Exception` catches. Ordinary text has no such run and stays whole.
    """
    if _LONG_RUN.search(text) is None:
        return [text]
    cuts = [0, *(match.end() for match in _LONG_RUN.finditer(text)), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(cuts) if start < end]


class Encoding:
    """The library's encoding with total functions: no text and no id makes it raise.

    Threads may share one: all that changes are memos, whose entries are the same whoever writes them.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self.whole_texts: dict[int, str] = {}
        """Texts of ordinary tokens that are whole characters, as far as they were met (`ordinary_bytes`)."""
        self._bytes_of: dict[int, bytes] = {}

    def encode(self, text: str) -> list[int]:
        """Ordinary text: the spelling of a special token is text like any other."""
        tokens: list[int] = []
        for piece in without_long_runs(without_lone_surrogates(text)):
            tokens += self._library.encode(piece, allowed_special=set(), disallowed_special=())
        return tokens

    def encode_special(self, text: str) -> list[int]:
        """Text in which `<|start|>` and its like are the special tokens. Never for text of users."""
        tokens: list[int] = self._library.encode(without_lone_surrogates(text), allowed_special="all")
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """The text, special tokens as they are spelt; broken UTF-8 and ids without a token become U+FFFD."""
        return self.token_bytes(tokens).decode("utf-8", errors="replace")

    def token_bytes(self, tokens: Sequence[int]) -> bytes:
        """The bytes behind some ids, special tokens as they are spelt."""
        try:
            return self._bytes(list(tokens))
        except (openai_harmony.HarmonyError, OverflowError):
            return b"".join(self._bytes_of_any(token) for token in tokens)

    def ordinary_bytes(self, token: int) -> bytes:
        """The bytes of one ordinary token; the library takes 2 µs for them, the memo 0.1."""
        found = self._bytes_of.get(token)
        if found is None:
            found = self._bytes_of[token] = self.token_bytes([token])
            text = found.decode("utf-8", errors="ignore")
            if text.encode() == found:
                self.whole_texts[token] = text
        return found

    def render_message(
        self,
        role: AuthorRole,
        text: str,
        *,
        name: str | None = None,
        channel: str | None = None,
    ) -> tuple[int, ...]:
        """One message as the library renders it, from <|start|> to its end token. `name` is the author's.

        The text is encoded here and put into the rendered frame: the library would encode it in one go.
        """
        message = openai_harmony.Message.from_author_and_content(
            openai_harmony.Author(
                role=openai_harmony.Role(role), name=None if name is None else without_lone_surrogates(name)
            ),
            "",
        )
        message.channel = channel
        frame = self._library.render(message)
        return (*frame[:-1], *self.encode(text), frame[-1])

    def builtin_namespace(self, name: Literal["browser", "python"]) -> dict[str, Any]:
        """The library's own declaration of a built-in tool: name, description, tools."""
        config = getattr(openai_harmony.ToolNamespaceConfig, name)()
        dumped: dict[str, Any] = config.model_dump()
        return dumped

    @property
    def library(self) -> Any:
        """The library's HarmonyEncoding itself, for comparisons in tests and for building grammars."""
        return self._library

    def _bytes(self, tokens: list[int]) -> bytes:
        # surrogateescape makes the library's public decode reversible, so that no private name is needed.
        text: str = self._library.decode(tokens, errors="surrogateescape")
        return text.encode("utf-8", "surrogateescape")

    def _bytes_of_any(self, token: int) -> bytes:
        try:
            return self._bytes([token])
        except (openai_harmony.HarmonyError, OverflowError):
            return UNKNOWN_TEXT.encode()


_loading = threading.Lock()
_loaded: list[Encoding] = []


def load_encoding() -> Encoding:
    """The one encoding of this process; the first call loads it (about 0.3 s)."""
    with _loading:  # a plain cache would load twice when two threads come first together
        if not _loaded:
            name = openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS
            _loaded.append(Encoding(openai_harmony.load_harmony_encoding(name)))
        return _loaded[0]
