"""How likely a model finds each token of a prompt that it takes in.

In go the prompt and, chunk by chunk, the logits after its tokens; out comes a score for each token but the
first, which nothing comes before. It knows neither the model nor who asks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from inference.engine import TokenLogprob
from inference.local.sampler import score_of

# The head runs for every token here, and the logits of one are 0.8 MB.
SCORED_CHUNK = 32


class PromptScorer:
    def __init__(self, prompt: Sequence[int], top: int) -> None:
        self._prompt = prompt
        self._top = top
        self.scores: list[TokenLogprob | None] = [None]

    @torch.inference_mode()
    def feed(self, logits: Tensor) -> None:
        """T × V, after the tokens that were fed last."""
        for row in logits:
            self.scores.append(score_of(row, self._prompt[len(self.scores)], self._top))
