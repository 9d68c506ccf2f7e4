"""One generation of the local engine: its prompt, its cache, its sampler, and how far it has come.

In goes a turn of the engine's thread, out comes one chunk of the prompt taken in or one token sampled into
the outbox. Of other generations it knows only what their traffic makes of its chunks.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from inference.engine import EngineFailed, Finish, Sampling
from inference.local.outbox import Outbox
from inference.local.prompt_scores import SCORED_CHUNK, PromptScorer
from inference.local.sampler import Sampler
from inference.local.traffic import Traffic, View
from inference.models.gpt_oss import GptOss
from inference.models.kv_cache import KVCache


class Generation:
    def __init__(
        self, model: GptOss, prompt: Sequence[int], sampling: Sampling, outbox: Outbox, traffic: Traffic
    ) -> None:
        self.outbox = outbox
        self._view = View(traffic)
        self._model, self._sampling = model, sampling
        self._pending = list(prompt)
        self._cache: KVCache = model.new_cache()
        self._sampler = Sampler(sampling, model.config.vocab_size)
        room = model.config.context_length - len(prompt)
        self._left = room if sampling.max_tokens is None else min(room, sampling.max_tokens)
        wanted = sampling.prompt_logprobs
        self._scorer = None if wanted is None else PromptScorer(prompt, wanted)

    def advance(self) -> bool:
        """One chunk or one token; false when this was the last."""
        if self._left <= 0:
            self.outbox.end(Finish.LENGTH)
            return False
        of_prompt = len(self._pending) > 1
        goes_on = self._take_in() if len(self._pending) > self._chunk() else self._sample()
        self._view.took_turn(of_prompt=of_prompt)
        return goes_on

    def _take_in(self) -> bool:
        chunk = self._pending[: self._chunk()]
        if self._scorer is None:
            self._model.extend(chunk, self._cache)
        else:
            self._scorer.feed(self._model.all_logits(chunk, self._cache))
        del self._pending[: len(chunk)]
        return True

    def _chunk(self) -> int:
        chunk = self._view.chunk()
        return chunk if self._scorer is None else min(chunk, SCORED_CHUNK)

    def _sample(self) -> bool:
        sampled = self._sampler.sample(self._next_logits())
        self._pending = [sampled.token]
        self._left -= 1
        finish = self._finish(sampled.token)
        self.outbox.put(sampled.token, sampled.logprob, finish)
        return finish is None

    def _next_logits(self) -> Tensor:
        if self._scorer is None:
            return self._model.next_logits(self._pending, self._cache)
        logits = self._model.all_logits(self._pending, self._cache)
        self._scorer.feed(logits[:-1])
        self.outbox.tell_scores(tuple(self._scorer.scores))
        self._scorer = None
        return logits[-1]

    def _finish(self, token: int) -> Finish | None:
        if token in self._sampling.stop_token_ids:
            return Finish.STOP
        return Finish.LENGTH if self._left == 0 else None


def check_prompt(tokens: Sequence[int], vocab_size: int) -> None:
    if not tokens:
        raise EngineFailed("The prompt is empty: a model needs at least one token to continue.")
    for token in (min(tokens), max(tokens)):
        if not 0 <= token < vocab_size:
            raise EngineFailed(f"The prompt has the token {token}; the model knows 0 to {vocab_size - 1}.")
