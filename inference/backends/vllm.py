"""The wire of vLLM's server: its completions, which take and return token ids.

It ends a generation at the model's own end tokens whatever a request wants, and bounds `max_tokens` by the
context without a word; the engine asks for the rest. It must not be asked for what it refuses outright: an
empty salt, a priority, no token at all.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from inference.engine import EngineFailed, TokenLogprob
from inference.grammar import Notation
from inference.remote.connection import Json
from inference.remote.wire import Ask, Facts, ListedWire, Piece, merged_pieces

_BAN = -100.0  # the lowest bias that it accepts
_ENDS = ("stop", "length")
_NONE = Piece(())
_ID = "token_id:"  # how it names a token by its id among the logprobs


class VllmWire(ListedWire):
    kind = "vllm"
    title = "vLLM"
    notation = Notation.XGRAMMAR
    known_by = "/version", "version"

    async def facts(self) -> Facts:
        name, context = await self._listed()
        return Facts(name, context, None, f"on vLLM, with a context of {context:,} tokens")

    async def read(self, prompt: Sequence[int]) -> None:
        body = {"model": self._model, "prompt": list(prompt), "max_tokens": 1, "temperature": 0.0}
        await self.caller.post("/v1/completions", body)

    async def sample(self, prompt: Sequence[int], ask: Ask) -> AsyncGenerator[Piece, None]:
        reader, body = VllmEventReader(self.caller.url, prompt, ask), self._body(prompt, ask)
        async with aclosing(self.caller.events("/v1/completions", body, ask.sampling.labels)) as batches:
            async for piece in merged_pieces(batches, reader):
                yield piece
        if reader.last is None:
            raise self.cut_off()
        if not reader.is_over:  # a proxy that sends no usage
            yield reader.last

    def _body(self, prompt: Sequence[int], ask: Ask) -> dict[str, Any]:
        """Every sampling field is set: its own defaults come from the checkpoint."""
        sampling = ask.sampling
        body: dict[str, Any] = {
            "model": self._model,
            "prompt": list(prompt),
            "max_tokens": ask.limit,
            "min_tokens": ask.least,
            **ask.fields("temperature", "top_p", "top_k", "min_p"),
            **ask.fields("presence_penalty", "frequency_penalty", "repetition_penalty"),
            "stop_token_ids": ask.stops,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            "skip_special_tokens": False,
        }
        optional = {"seed": ask.seed(), "logit_bias": ask.biases(_BAN), "cache_salt": sampling.cache_salt}
        body |= {name: value for name, value in optional.items() if value not in (None, "", {})}
        if ask.grammar is not None:
            body["structured_outputs"] = {"grammar": ask.grammar}
        if sampling.logprobs is not None:
            body |= {"logprobs": max(sampling.logprobs, 1), "return_tokens_as_token_ids": True}
        if sampling.alternatives:
            body["logprob_token_ids"] = list(sampling.alternatives)
        return body


class VllmEventReader:
    """The last tokens wait for the usage, which follows them and has the number of cached tokens."""

    def __init__(self, url: str, prompt: Sequence[int], ask: Ask) -> None:
        self._url, self._prompt, self._ask = url, prompt, ask
        self.last: Piece | None = None
        self.is_over = False

    def read(self, event: Json) -> Piece:
        if not event["choices"]:
            self.is_over = True
            return _NONE if self.last is None else replace(self.last, cached_tokens=_cached(event))
        choice = event["choices"][0]
        self._check(choice)
        piece = Piece(tuple(choice["token_ids"]), _logprobs(choice, self._ask))
        if choice["finish_reason"] is None:
            return piece
        self.last = piece
        return _NONE

    def _check(self, choice: Json) -> None:
        """The first chunk repeats the prompt; an end that is no end is a chunk like any other."""
        seen = choice.get("prompt_token_ids")
        if seen is not None and seen != list(self._prompt):
            raise EngineFailed(f"The engine at {self._url} read other tokens than it was sent.")
        ended = choice["finish_reason"]
        if ended is not None and ended not in _ENDS:
            raise EngineFailed(f"The engine at {self._url} ended an answer with {ended!r}.")


def _cached(event: Json) -> int:
    """It counts them only with --enable-prompt-tokens-details."""
    details = (event.get("usage") or {}).get("prompt_tokens_details") or {}
    return int(details.get("cached_tokens") or 0)


def _logprobs(choice: Json, ask: Ask) -> tuple[TokenLogprob, ...] | None:
    count = ask.sampling.logprobs
    if count is None:
        return None
    scores, tokens = choice["logprobs"], choice["token_ids"]
    rows = zip(tokens, scores["token_logprobs"], scores["top_logprobs"], strict=True)
    among = ask.sampling.alternatives
    return tuple(TokenLogprob(token, logprob, _top(top or {}, count, among)) for token, logprob, top in rows)


def _top(entries: Mapping[str, float], count: int, among: Sequence[int]) -> tuple[tuple[int, float], ...]:
    """The likeliest, or those `among`; it adds the sampled token where that is none of them."""
    pairs = [(int(name.removeprefix(_ID)), logprob) for name, logprob in entries.items()]
    pairs = [pair for pair in pairs if pair[0] in among] if among else pairs
    return tuple(sorted(pairs, key=lambda entry: -entry[1])[:count])


WIRE = VllmWire
