"""The smallest interface to a model, of OpenAI's reference server: all tokens so far in, the next one out.

It keeps the keys and values of the last call, so that a call that continues it costs one step. One
conversation at a time; it must not know stop ids.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from inference.engine import ContextOverflow, InferenceError

if TYPE_CHECKING:
    from inference.models.gpt_oss import GptOss
    from inference.models.kv_memory import KVCache

PREFILL_CHUNK = 256

InferNextToken = Callable[[list[int], float, bool], int]


def infer_next_token(tokens: list[int], temperature: float = 0.0, new_request: bool = False) -> int:
    """The next token of the default model: `tiny`, or the one that GPT_OSS_MODEL names."""
    return _default()(tokens, temperature, new_request)


def setup_model(model: str) -> InferNextToken:
    """Loads a local model and returns its `infer_next_token`."""
    from inference.backends.checkpoints import checkpoint_folder
    from inference.models.gpt_oss import load_model

    return _Continuation(load_model(checkpoint_folder(model))).next_token


@cache
def _default() -> InferNextToken:
    return setup_model(os.environ.get("GPT_OSS_MODEL", "tiny"))


class _Continuation:
    def __init__(self, model: GptOss) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._kept: tuple[list[int], KVCache] | None = None

    def next_token(self, tokens: list[int], temperature: float = 0.0, new_request: bool = False) -> int:
        from inference.engine import Sampling
        from inference.local.sampling.sampler import Sampler

        if not tokens:
            raise InferenceError("infer_next_token needs at least one token to continue.")
        vocabulary = self._model.config.vocab_size
        wrong = min(tokens) if min(tokens) < 0 else max(tokens)
        if not 0 <= wrong < vocabulary:
            raise InferenceError(f"{wrong} is not a token: ids range from 0 to {vocabulary - 1}.")
        if len(tokens) >= self._model.config.context_length:
            raise ContextOverflow(len(tokens), self._model.config.context_length)
        with self._lock:
            known, kv = self._take(tokens, new_request)
            for at in range(known, len(tokens) - PREFILL_CHUNK, PREFILL_CHUNK):
                self._model.extend(tokens[at : at + PREFILL_CHUNK], kv)
            logits = self._model.next_logits(tokens[kv.length :], kv)
            self._kept = (list(tokens), kv)
        return Sampler(Sampling(temperature=temperature), len(logits)).sample(logits).token

    def _take(self, tokens: list[int], new_request: bool) -> tuple[int, KVCache]:
        """The kept cache if these tokens continue it, else a new one. A cache in use is not kept: a call that
        fails half-way must not leave one with unknown contents."""
        kept, self._kept = self._kept, None
        if kept is not None and not new_request:
            before, kv = kept
            if len(before) < len(tokens) and tokens[: len(before)] == before:
                return len(before), kv
        return 0, self._model.new_cache()
