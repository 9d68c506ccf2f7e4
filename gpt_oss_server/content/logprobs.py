"""Log-probabilities as clients read them: the token's text, its bytes, the likeliest alternatives.

Takes an engine's `TokenLogprob`. Returns an entry in the form that every API uses, and the entries that
belong to the text shown so far: text can be held back, and text that is never shown has no entry.
"""

from collections import deque
from typing import Any

from gpt_oss_server.harmony.encoding import Encoding
from inference.engine import TokenLogprob

LEAST = -9999.0  # in place of minus infinity, which JSON lacks; as OpenAI does


class Speller:
    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding

    def entry(self, scored: TokenLogprob) -> dict[str, Any]:
        top = [self._one(token, logprob) for token, logprob in scored.top]
        return {**self._one(scored.token, scored.logprob), "top_logprobs": top}

    def spelt(self, token: int) -> str:
        return self._encoding.token_bytes([token]).decode("utf-8", "replace")

    def spelt_distinctly(self, token: int) -> str:
        """Like `spelt`, but spells parts of characters as bytes, as OpenAI does in forms without `bytes`.

        Otherwise they would all be U+FFFD, and no client could find a token among its alternatives.
        """
        if isinstance(spelt := self._encoding.spelt(token), str):
            return spelt
        return "bytes:" + "".join(chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in spelt)

    def _one(self, token: int, logprob: float) -> dict[str, Any]:
        raw = self._encoding.token_bytes([token])
        return {"token": self.spelt(token), "logprob": max(logprob, LEAST), "bytes": list(raw)}


class TextScores:
    """The scores of a text that is shown as it is sampled: `score` takes each token before its text."""

    def __init__(self, speller: Speller) -> None:
        self.sent: list[dict[str, Any]] = []  # all entries so far
        self._scores = Scores(speller)
        self._shown = 0

    def score(self, scored: TokenLogprob) -> None:
        self._scores.feed(scored, self._shown)

    def show(self, text: str) -> list[dict[str, Any]]:
        """The entries of the tokens of this text."""
        self._shown += len(text)
        due = self._scores.due(self._shown)
        self.sent += due
        return due


class Scores:
    """The scores of one text: `feed` takes each token before its text, `due` the length that is shown."""

    def __init__(self, speller: Speller) -> None:
        self._speller = speller
        self._waiting: deque[tuple[int, TokenLogprob]] = deque()  # (start of its text, score)

    def feed(self, scored: TokenLogprob, start: int) -> None:
        self._waiting.append((start, scored))

    def due(self, shown: int) -> list[dict[str, Any]]:
        """Return the entries of tokens whose text is at least partly shown, each entry once."""
        entries = []
        while self._waiting and self._waiting[0][0] < shown:
            entries.append(self._speller.entry(self._waiting.popleft()[1]))
        return entries
