"""The stop ids that one generation may not sample yet, or never.

Takes a generation's sampling, then a count for each sampled token. Returns the banned ids. It must not know
logits or grammars: the samplers and the masks apply it.
"""

from __future__ import annotations

from inference.engine import Sampling


class StopBan:
    def __init__(self, sampling: Sampling, vocab_size: int) -> None:
        stops = frozenset(token for token in sampling.stop_token_ids if 0 <= token < vocab_size)
        self._always = stops & sampling.ignored_stop_ids
        self._left = sampling.min_tokens  # tokens until the other stop ids may be sampled
        self.ids = stops if self._left > 0 else self._always

    def count(self) -> frozenset[int]:
        """Counts one sampled token. Returns the ids that may be sampled from now on, if any."""
        self._left -= 1
        if self._left != 0:
            return frozenset()
        freed, self.ids = self.ids - self._always, self._always
        return freed
