"""One request for plain completions: prompts continued, as batches of chunks.

In: prompts as ids, and how to sample. Out: batches of chunks, or all of them as one object. Choice j of
prompt i has the index i * n + j. Closing the iterator cancels every choice.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from gpt_oss_server.chat.stops import StopFilter
from gpt_oss_server.completions.request import DEFAULT_MAX_TOKENS, CreateCompletion
from gpt_oss_server.completions.text import LegacyLogprobs, PlainText
from gpt_oss_server.errors import ApiError, ContextLengthExceeded, GenerationFailed, from_inference
from gpt_oss_server.logprobs import Speller
from gpt_oss_server.merging import merged
from gpt_oss_server.prompting import sampling_of
from gpt_oss_server.served import Served
from inference.engine import ContextOverflow, Finish, InferenceError, Sampling

Chunk = dict[str, Any]
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Choice:
    index: int
    prompt: Sequence[int]
    sampling: Sampling
    sampled: int = 0
    cached: int = 0
    finish: Finish = Finish.STOP


class CompletionRun:
    """Iterate once over `chunks()`; `error` then tells whether it broke."""

    def __init__(
        self, request: CreateCompletion, prompts: Sequence[Sequence[int]], served: Served, completion_id: str
    ) -> None:
        self.request = request
        self.error: ApiError | None = None
        self._prompts = prompts
        self._served = served
        self._head = {
            "id": completion_id,
            "object": "text_completion",
            "created": int(served.clock()),
            "model": request.model or served.model_names[0],
        }
        each = request.n or 1
        self._choices = [
            self._choice(place * each + number, prompt)
            for place, prompt in enumerate(prompts)
            for number in range(each)
        ]

    async def chunks(self) -> AsyncGenerator[list[Chunk], None]:
        sources = [self._generate(choice) for choice in self._choices]
        try:
            async with aclosing(merged(sources)) as batches:
                async for batch in batches:
                    yield batch
        except InferenceError as error:
            self.error = from_inference(error)
        except Exception:
            _log.exception("The completion %s failed.", self._head["id"])
            self.error = GenerationFailed("The server failed while it generated. Its log says why.")
        self._count()
        if self.error is not None:
            yield [dict(self.error.body())]
        elif self.request.includes_usage:
            yield [{**self._head, "choices": [], "usage": self._usage()}]

    async def wait(self) -> dict[str, Any]:
        parts: dict[int, list[dict[str, Any]]] = {}
        async with aclosing(self.chunks()) as batches:
            async for batch in batches:
                for chunk in batch:
                    for choice in chunk.get("choices", ()):
                        parts.setdefault(choice["index"], []).append(choice)
        if self.error is not None:
            raise self.error
        choices = [_whole(parts[index]) for index in sorted(parts)]
        return {**self._head, "choices": choices, "usage": self._usage()}

    def _choice(self, index: int, prompt: Sequence[int]) -> _Choice:
        info, request = self._served.engine.info, self.request
        if len(prompt) >= info.context_length:
            raise ContextLengthExceeded(
                str(ContextOverflow(len(prompt), info.context_length)), param="prompt"
            )
        sampling = sampling_of(
            request,
            info,
            self._served.settings,
            prompt=len(prompt),
            limit=request.max_tokens or DEFAULT_MAX_TOKENS,
            logprobs=request.logprobs,
        )
        if sampling.seed is not None:
            sampling = replace(sampling, seed=sampling.seed + index)
        return _Choice(index, prompt, sampling)

    async def _generate(self, choice: _Choice) -> AsyncGenerator[list[Chunk], None]:
        text = self._text()
        if self.request.echo:
            yield [self._chunk(choice, self._served.encoding.decode(choice.prompt))]
        async with aclosing(self._served.engine.generate(choice.prompt, choice.sampling)) as steps:
            async for step in steps:
                choice.sampled += len(step.tokens)
                choice.cached += step.cached_tokens
                choice.finish = step.finish or choice.finish
                shown, scores = text.feed(step)
                if shown:
                    yield [self._chunk(choice, shown, scores)]
                if text.stopped is not None:
                    choice.finish = Finish.STOP
                    break
        shown, scores = text.close()
        last = self._chunk(choice, shown, scores)
        last["choices"][0]["finish_reason"] = str(choice.finish)
        if text.stopped is not None:
            last["choices"][0]["stop_reason"] = text.stopped
        yield [last]

    def _text(self) -> PlainText:
        request, encoding = self.request, self._served.encoding
        as_ids = bool(request.return_tokens_as_token_ids)
        return PlainText(
            encoding,
            StopFilter(request.stops, shows_stop=bool(request.include_stop_str_in_output)),
            shows_special=request.skip_special_tokens is False,
            speller=None if request.logprobs is None else Speller(encoding, as_ids=as_ids),
        )

    def _chunk(self, choice: _Choice, text: str, scores: LegacyLogprobs | None = None) -> Chunk:
        part = {
            "index": choice.index,
            "text": text,
            "logprobs": scores.as_json() if scores is not None else None,
            "finish_reason": None,
        }
        chunk: Chunk = {**self._head, "choices": [part]}
        options = self.request.stream_options
        if options and options.include_usage:
            chunk["usage"] = self._usage() if options.continuous_usage_stats else None
        return chunk

    def _usage(self) -> dict[str, Any]:
        given = sum(len(prompt) for prompt in self._prompts)
        made = sum(choice.sampled for choice in self._choices)
        cached = max(choice.cached for choice in self._choices)
        return {
            "prompt_tokens": given,
            "completion_tokens": made,
            "total_tokens": given + made,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def _count(self) -> None:
        for choice in self._choices:
            cut = "incomplete" if choice.finish is Finish.LENGTH else "completed"
            self._served.counters.count("failed" if self.error is not None else cut, ())


def _whole(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One choice of all its chunks: texts and lists put together, the rest as the last has it."""
    told = [part["logprobs"] for part in parts if part["logprobs"] is not None]
    joined = {key: [entry for each in told for entry in each[key]] for key in told[0]} if told else None
    return {**parts[-1], "text": "".join(part["text"] for part in parts), "logprobs": joined}
