"""What the generations of one engine do beside each other, and how much of a prompt may be taken in at once.

In go the turns that generations took, out comes the size of the next chunk. Counts only: a generation that
ends, fails or waits for its reader simply counts no more. It belongs to the engine's thread.
"""

from __future__ import annotations

from dataclasses import dataclass

# Alone, or beside other prompts only. Larger chunks are no faster.
PREFILL_CHUNK = 256
# Beside generations that sample, all prompts together: a chunk is what they add to the gap between two
# tokens. The embedded model takes in 64 tokens in about a quarter of the time of 256.
SHARED_CHUNK = 64
# Smaller chunks make many prompts at once far slower than they shorten the gap.
LEAST_CHUNK = 32


@dataclass(slots=True)
class Traffic:
    sampled: int = 0  # turns that sampled a token into an answer under way
    prompts: int = 0  # turns that took in a part of a prompt


class View:
    """The traffic as one generation sees it: what the others did since its own last turn."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._remember()

    def chunk(self) -> int:
        if self._traffic.sampled == self._sampled:
            return PREFILL_CHUNK
        prompts = 1 + self._traffic.prompts - self._prompts
        return min(PREFILL_CHUNK, max(LEAST_CHUNK, SHARED_CHUNK // prompts))

    def took_turn(self, *, of_prompt: bool) -> None:
        if of_prompt:
            self._traffic.prompts += 1
        else:
            self._traffic.sampled += 1
        self._remember()

    def _remember(self) -> None:
        self._sampled, self._prompts = self._traffic.sampled, self._traffic.prompts
