"""One generation of the local engine: its prompt, its cache, its sampler, and how far it has come.

In goes a turn of the engine's thread, out comes one chunk of the prompt taken in or one token sampled into
the outbox. It knows nothing of other generations.
"""

from __future__ import annotations

from collections.abc import Sequence

from inference.engine import EngineFailed, Finish, Sampling
from inference.local.outbox import Outbox
from inference.local.sampler import Sampler
from inference.models.gpt_oss import GptOss
from inference.models.kv_cache import KVCache

# On two cores the embedded model takes 40 ms for such a chunk: that is what a long prompt adds to the gap
# between two tokens of the others.
PREFILL_CHUNK = 256


class Generation:
    def __init__(self, model: GptOss, prompt: Sequence[int], sampling: Sampling, outbox: Outbox) -> None:
        self.outbox = outbox
        self._model, self._sampling = model, sampling
        self._pending = list(prompt)
        self._cache: KVCache = model.new_cache()
        self._sampler = Sampler(sampling, model.config.vocab_size)
        room = model.config.context_length - len(prompt)
        self._left = room if sampling.max_tokens is None else min(room, sampling.max_tokens)

    def advance(self) -> bool:
        """One chunk or one token; false when this was the last."""
        if self._left <= 0:
            self.outbox.end(Finish.LENGTH)
            return False
        if len(self._pending) > PREFILL_CHUNK:
            self._model.extend(self._pending[:PREFILL_CHUNK], self._cache)
            del self._pending[:PREFILL_CHUNK]
            return True
        sampled = self._sampler.sample(self._model.next_logits(self._pending, self._cache))
        self._pending = [sampled.token]
        self._left -= 1
        finish = self._finish(sampled.token)
        self.outbox.put(sampled.token, sampled.logprob, finish)
        return finish is None

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
