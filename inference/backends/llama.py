"""The wire of llama.cpp's server.

It streams a chunk for each token, but none for a token that leaves a character unfinished; the next chunk's
count reveals that ids are missing. An answer that is not streamed has them all, so this wire reads such a
span again without streaming: from its beginning where the choice is greedy and no grammar has to be followed
to it, else the whole request with its seed. A request is short, so that this costs little.
"""

import json
import logging
import math
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from inference.engine import SAMPLING_FIELDS, EngineFailed, TokenLogprob
from inference.grammar import Notation
from inference.remote.connection import Caller, Json, Refused
from inference.remote.wire import Ask, Facts, Piece, Wire

_log = logging.getLogger(__name__)

AT_ONCE = 256  # tokens of one request, unless the choice is greedy and free
RESAMPLED = 16  # tokens that are sampled without streaming where a repetition went another way
_ALTERNATIVES = 200  # among which the logprob of an unseen token is looked for first
_A_CHARACTER = 0  # the id of "!": any token that is a whole character
_FORCED = 1e6
_LIFTED = 100.0  # above all other tokens, with digits left for differences
_FIELDS = ("content", "tokens", "stop", "stop_type", "tokens_predicted", "completion_probabilities")
# The server reads the text so far as a chat message after every token, and fails where it is not UTF-8. This
# parser reads nothing of it.
_NO_PARSER = json.dumps({"parsers": [{"type": "epsilon"}], "rules": {}, "root": 0})
# Every sampler that the server's own flags could have turned on; `repeat_last_n` is the whole context.
_NEUTRAL = {
    "samplers": ["penalties", "temperature", "top_k", "top_p", "min_p"],
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dynatemp_range": 0.0,
    "typical_p": 1.0,
    "top_n_sigma": -1.0,
    "xtc_probability": 0.0,
    "dry_multiplier": 0.0,
    "mirostat": 0,
    "min_keep": 0,
    "ignore_eos": False,
    "grammar": "",
    "stop": [],
    "chat_parser": _NO_PARSER,
}


class LlamaWire(Wire):
    kind = "llama"
    title = "llama-server"
    notation = Notation.GBNF
    # Its penalties for presence and frequency count the prompt's tokens too, which clients do not mean.
    honours = SAMPLING_FIELDS - {"presence_penalty", "frequency_penalty"}
    known_by = "/props", "total_slots"

    def __init__(self, caller: Caller) -> None:
        super().__init__(caller)
        self._neutral: dict[str, Any] = dict(_NEUTRAL)  # of these, what this version takes

    async def facts(self) -> Facts:
        props = await self.caller.get("/props")
        models = await self.caller.get("/v1/models")
        try:
            context = int(props["default_generation_settings"]["n_ctx"])
            meta = models["data"][0]["meta"]
            name = str(props.get("model_alias") or models["data"][0]["id"])
            slots, vocabulary = int(props["total_slots"]), int(meta["n_vocab"])
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise EngineFailed(
                f"{self.caller.url} does not describe its model as llama-server does. Is it another server, "
                "or an old one?"
            ) from error
        self._neutral = await self._taken({**_NEUTRAL, "repeat_last_n": context})
        # The server ends a generation one token before its context is full.
        return Facts(
            name.rpartition("/")[2].removesuffix(".gguf"),
            context - 1,
            vocabulary,
            f"{slots} slots of {context:,} tokens on llama-server (it divides -c by -np)",
        )

    async def _taken(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Without those that this version refuses: they only switch off what its flags may switch on."""
        while True:
            try:
                await self.caller.post("/completion", {**fields, "prompt": [_A_CHARACTER], "n_predict": 0})
            except Refused as error:
                refused = next((name for name in fields if name in str(error)), None)
                if refused is None:
                    raise
                del fields[refused]
                words = "%s does not take `%s`, so it is left out. Start it without a flag for this. %s"
                _log.warning(words, self.caller.url, refused, error)
            else:
                return fields

    async def tokenised(self, text: str) -> list[int]:
        body = {"content": text, "add_special": False, "parse_special": True}
        return list((await self.caller.post("/tokenize", body))["tokens"])

    async def read(self, prompt: Sequence[int]) -> None:
        # It samples a token even if none is wanted.
        body = {**self._neutral, "prompt": list(prompt), "n_predict": 0, "cache_prompt": True}
        await self.caller.post("/completion", body)

    async def sample(self, prompt: Sequence[int], ask: Ask) -> AsyncGenerator[Piece, None]:
        body = {**self._neutral, **_body(prompt, ask)}
        known: list[int] = []
        count = 0  # of the tokens that the server has sampled
        async with aclosing(self._chunks(body, ask.sampling.labels)) as chunks:
            async for chunk, cached in chunks:
                count = chunk["tokens_predicted"]
                tokens = tuple(chunk["tokens"])
                if count != len(known) + len(tokens):
                    break
                if tokens:
                    known += tokens
                    yield Piece(tokens, _logprobs(chunk, ask), cached)
                if chunk["stop"]:
                    return
        async with aclosing(self._again(body, ask, known, count)) as pieces:
            async for piece in pieces:
                yield piece

    async def _chunks(
        self, body: Mapping[str, Any], labels: Mapping[str, str]
    ) -> AsyncGenerator[tuple[Json, int], None]:
        """The chunks that hold tokens or the end, and the number of the prompt's cached tokens."""
        cached = 0
        streamed = {**body, "stream": True, "return_progress": True}
        async with aclosing(self.caller.events("/completion", streamed, labels)) as batches:
            async for events in batches:
                for event in events:
                    if progress := event.get("prompt_progress"):  # its ids and counts belong to no token
                        cached = progress["cache"]
                        continue
                    yield event, cached
                    cached = 0
                    if event["stop"]:
                        return
        raise self.cut_off()

    async def _again(
        self, body: Mapping[str, Any], ask: Ask, known: Sequence[int], count: int
    ) -> AsyncGenerator[Piece, None]:
        """The tokens after `known` up to `count`, some of which the stream did not show."""
        prompt = [*body["prompt"], *known]
        tokens: Sequence[int]
        if ask.sampling.temperature == 0 and ask.grammar is None:
            tokens = await self._unstreamed(body, prompt, count - len(known))
        else:
            repeated = await self._unstreamed(body, body["prompt"], count)
            tokens = repeated[len(known) :]
            if repeated[: len(known)] != list(known) or not tokens:
                # Sums in another order can tip a choice. What was sent stays, the rest is sampled again. The
                # engine knows what is left of a grammar.
                words = "%s repeated a request with other tokens; %d tokens are sampled again."
                _log.warning(words, self.caller.url, count - len(known))
                if known and ask.grammar is not None:
                    return
                body = {**body, "seed": _seed(ask, len(known))}
                tokens = await self._unstreamed(body, prompt, min(RESAMPLED, ask.limit - len(known)))
        if ask.sampling.logprobs is None:
            yield Piece(tuple(tokens))
            return
        for at, token in enumerate(tokens):
            score = await self._score([*prompt, *tokens[:at]], token, ask.sampling.logprobs)
            yield Piece((token,), (score,))

    async def _unstreamed(self, body: Mapping[str, Any], prompt: Sequence[int], count: int) -> list[int]:
        unstreamed = {**body, "prompt": list(prompt), "n_predict": count, "n_probs": 0, "stream": False}
        return list((await self.caller.post("/completion", unstreamed))["tokens"])

    async def _score(self, prompt: Sequence[int], token: int, count: int) -> TokenLogprob:
        """The logprob of a token that leaves a character unfinished, for which the server shows none. It
        shows the alternatives of any other token in its place, as they were before that was forced."""
        for among in (max(count, _ALTERNATIVES), 2**31 - 1):
            body = {**self._neutral, "prompt": list(prompt), "n_predict": 1, "n_probs": among}
            body |= {"logit_bias": [[_A_CHARACTER, _FORCED]], "temperature": 0.0}
            body |= {"cache_prompt": True, "stream": False}
            answer = await self.caller.post("/completion", body)
            likeliest = answer["completion_probabilities"][0]["top_logprobs"]
            for entry in likeliest:
                if entry["id"] == token:
                    return TokenLogprob(token, entry["logprob"], _top(likeliest, count))
        raise EngineFailed(f"The engine at {self.caller.url} has no probability for the token {token}.")


def _body(prompt: Sequence[int], ask: Ask) -> dict[str, Any]:
    sampling = ask.sampling
    is_free = sampling.temperature == 0 and ask.grammar is None
    limit = ask.limit if is_free else min(ask.limit, AT_ONCE)
    banned = set(sampling.ignored_stop_ids)
    if ask.sampled < sampling.min_tokens:
        limit = min(limit, sampling.min_tokens - ask.sampled)
        banned |= sampling.stop_token_ids
    biases: list[list[Any]] = [[token, bias] for token, bias in sampling.logit_bias.items()]
    biases += [[token, False] for token in sorted(banned)]
    body = {
        "prompt": list(prompt),
        "n_predict": limit,
        **ask.fields("temperature", "top_p", "top_k", "min_p"),
        "repeat_penalty": sampling.repetition_penalty,
        "seed": _seed(ask, 0),
        "logit_bias": biases,
        "cache_prompt": True,
        "return_tokens": True,
        "response_fields": list(_FIELDS),  # the last chunk would repeat the prompt
    }
    if ask.grammar is not None:
        body["grammar"] = ask.grammar
    if sampling.logprobs is not None:
        body["n_probs"] = max(sampling.logprobs, 1)
    if sampling.alternatives:
        # It reports the likeliest tokens alone. An equal bias makes these so, and keeps their ratios.
        body["logit_bias"] = [[token, _LIFTED] for token in sampling.alternatives]
        body |= {"samplers": ["temperature"], "temperature": 1.0, "post_sampling_probs": True}
    return body


def _seed(ask: Ask, further: int) -> int:
    """Any seed where the request has none: a request may have to be repeated."""
    seed = ask.seed(further)
    return random.getrandbits(31) if seed is None else seed


def _logprobs(chunk: Json, ask: Ask) -> tuple[TokenLogprob, ...] | None:
    count = ask.sampling.logprobs
    if count is None:
        return None
    entries = chunk["completion_probabilities"]
    if among := ask.sampling.alternatives:
        return tuple(TokenLogprob(own["id"], 0.0, _shared_among(own["top_probs"], among)) for own in entries)
    return tuple(TokenLogprob(own["id"], own["logprob"], _top(own["top_logprobs"], count)) for own in entries)


def _shared_among(entries: Sequence[Json], among: Sequence[int]) -> tuple[tuple[int, float], ...]:
    """It leaves out those that are 0."""
    shares = {entry["id"]: math.log(entry["prob"]) for entry in entries}
    return tuple((token, shares.get(token, -math.inf)) for token in among)


def _top(entries: Sequence[Json], count: int) -> tuple[tuple[int, float], ...]:
    return tuple((entry["id"], entry["logprob"]) for entry in entries[:count])


WIRE = LlamaWire
