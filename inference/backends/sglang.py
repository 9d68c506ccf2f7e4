"""The wire of SGLang's server: its own `/generate`, which takes and returns token ids.

By default a chunk repeats all tokens of its request, which the count of sampled tokens shows. An abort and a
number that is none (NaN) are chunks that end a request like any other. A closed connection ends a request
only after seconds, so that a generation which is abandoned is also aborted by name.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any

from inference.engine import SAMPLING_FIELDS, EngineFailed, InferenceError, TokenLogprob
from inference.grammar import Notation
from inference.remote.connection import Caller, Json, Refused, refusal
from inference.remote.wire import Ask, Facts, ListedWire, Piece, merged_pieces

_log = logging.getLogger(__name__)

_BAN = -1e9  # added to a logit
_SHORTER = 6  # tokens by which its longest prompt is shorter than its context
_ENDS = ("stop", "length")
_ABORT_SECONDS = 5.0


class SglangWire(ListedWire):
    kind = "sglang"
    title = "SGLang"
    notation = Notation.XGRAMMAR
    # Its repetition penalty does not count the prompt's tokens, which clients mean.
    honours = SAMPLING_FIELDS - {"repetition_penalty", "alternatives"}
    known_by = "/model_info", "model_path"

    def __init__(self, caller: Caller) -> None:
        super().__init__(caller)
        self._aborting: set[asyncio.Task[None]] = set()

    async def facts(self) -> Facts:
        name, context = await self._listed()
        server = await self._server()
        try:
            longest = int(server.get("max_req_input_len") or context - _SHORTER)
        except (TypeError, ValueError) as error:
            raise self.not_described() from error
        if server and not server.get("incremental_streaming_output"):
            words = "%s repeats all tokens of a stream with each further one. Start it with %s"
            flag = "--incremental-streaming-output, which saves both sides the work."
            _log.warning(words, self.caller.url, flag)
        about = f"on SGLang, with a context of {context:,} tokens"
        has_seeds = server.get("enable_deterministic_inference")
        return Facts(name, longest, None, about, frozenset() if has_seeds else frozenset({"seed"}))

    async def _server(self) -> Mapping[str, Any]:
        """How it was started; empty behind a router, which has no such path."""
        with suppress(Refused):
            server = await self.caller.get("/server_info")
            return server if isinstance(server, dict) else {}
        return {}

    async def read(self, prompt: Sequence[int]) -> None:
        sampling = {"max_new_tokens": 1, "temperature": 0.0}
        await self.caller.post("/generate", {"input_ids": list(prompt), "sampling_params": sampling})

    async def sample(self, prompt: Sequence[int], ask: Ask) -> AsyncGenerator[Piece, None]:
        name = uuid.uuid4().hex
        reader = SglangEventReader(self.caller.url, len(prompt), ask)
        body = _body(prompt, ask) | {"rid": name}
        try:
            async with aclosing(self.caller.events("/generate", body, ask.sampling.labels)) as batches:
                async for piece in merged_pieces(batches, reader):
                    yield piece
        except (GeneratorExit, asyncio.CancelledError):
            if not reader.is_over:
                self._abort_soon(name)
            raise
        if not reader.is_over:
            raise self.cut_off()

    def _abort_soon(self, name: str) -> None:
        task = asyncio.create_task(self._abort(name))
        self._aborting.add(task)
        task.add_done_callback(self._aborting.discard)

    async def _abort(self, name: str) -> None:
        """It refuses this to the usual key where it has an admin's. Then the closed connection must do."""
        try:
            async with asyncio.timeout(_ABORT_SECONDS):
                await self.caller.reach("/abort_request", {"rid": name})
        except (InferenceError, TimeoutError) as error:
            _log.debug("A request was not aborted by name. %s", error)


class SglangEventReader:
    def __init__(self, url: str, length: int, ask: Ask) -> None:
        """`length` is the number of the prompt's tokens."""
        self._url, self._length, self._ask = url, length, ask
        self._count = 0  # tokens so far
        self.is_over = False

    def read(self, event: Json) -> Piece:
        self.is_over = self._ends(event)
        tokens, meta = event["output_ids"], event["meta_info"]
        self._check_prompt(meta)
        further = int(meta["completion_tokens"]) - self._count
        repeats = self._count > 0 and len(tokens) >= self._count + further
        # A chunk that repeats may already have tokens of the next one, which its count does not include.
        begin = self._count if repeats else 0
        if not repeats and len(tokens) != further and self._count > 0:
            raise EngineFailed(f"The engine at {self._url} left tokens out of its stream.")
        piece = Piece(
            tuple(tokens[begin:]),
            _logprobs(meta, tokens, begin, self._ask),
            int(meta.get("cached_tokens") or 0) if self._count == 0 else 0,
        )
        self._count += len(piece.tokens)
        return piece

    def _check_prompt(self, meta: Json) -> None:
        """--allow-auto-truncate cuts a prompt that is too long without a word."""
        if meta["prompt_tokens"] != self._length:
            raise EngineFailed(f"The engine at {self._url} read other tokens than it was sent.")

    def _ends(self, event: Json) -> bool:
        """Whether this chunk is the last. Raises what an end that is none means."""
        reason = event["meta_info"].get("finish_reason")
        if reason is None:
            return False
        kind, status = reason["type"], reason.get("status_code")
        if kind == "abort" and status is not None:
            raise refusal(self._url, int(status), None, str(reason.get("message") or ""), None)
        # No stop text was requested, so that a text which "matched" is how it reports a broken sampler.
        if kind not in _ENDS or isinstance(reason.get("matched"), str):
            end = reason.get("matched") or reason.get("message") or kind
            raise EngineFailed(f"The engine at {self._url} ended an answer with {end!r}.")
        return True


def _body(prompt: Sequence[int], ask: Ask) -> dict[str, Any]:
    """Every sampling field is set: its own defaults come from the checkpoint, and end an answer at 128."""
    sampling = ask.sampling
    wanted: dict[str, Any] = {
        "max_new_tokens": ask.limit,
        "min_new_tokens": ask.least,
        **ask.fields("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty"),
        "top_k": sampling.top_k or -1,
        "repetition_penalty": 1.0,
        "stop_token_ids": ask.stops,
        "no_stop_trim": True,
        "skip_special_tokens": False,
    }
    optional = {"sampling_seed": ask.seed(), "logit_bias": ask.biases(_BAN), "ebnf": ask.grammar}
    wanted |= {name: value for name, value in optional.items() if value not in (None, {})}
    body: dict[str, Any] = {"input_ids": list(prompt), "sampling_params": wanted, "stream": True}
    # Else a server with a parser for reasoning leaves the reasoning out of the grammar.
    body["require_reasoning"] = False
    if sampling.cache_salt:
        body["cache_salt"] = sampling.cache_salt
    if sampling.logprobs is not None:
        body |= {"return_logprob": True, "top_logprobs_num": sampling.logprobs}
    return body


def _logprobs(meta: Json, tokens: Sequence[int], begin: int, ask: Ask) -> tuple[TokenLogprob, ...] | None:
    """A chunk that repeats its tokens repeats their scores too."""
    count = ask.sampling.logprobs
    if count is None or begin == len(tokens):
        return None
    sampled = meta["output_token_logprobs"][begin:]
    top = meta["output_top_logprobs"][begin:] if count else [()] * len(sampled)
    return tuple(
        TokenLogprob(token, logprob, tuple((other, score) for score, other, *_ in likely or ()))
        for token, (logprob, *_), likely in zip(tokens[begin:], sampled, top, strict=True)
    )


WIRE = SglangWire
