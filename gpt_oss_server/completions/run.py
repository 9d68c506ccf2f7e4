"""Runs one request for plain completions.

Takes prompts as ids and the request's sampling parameters. Yields batches of chunks, or returns all of them
as one object. Choice j of prompt i has the index i * n + j. Closing the iterator cancels every choice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from gpt_oss_server.completions.request import DEFAULT_MAX_TOKENS, CreateCompletion
from gpt_oss_server.completions.text import LegacyLogprobs, PlainText
from gpt_oss_server.errors import ApiError, ContextLengthExceeded, from_exception
from gpt_oss_server.serving.counters import outcome
from gpt_oss_server.serving.served import Served
from gpt_oss_server.turns.beams import beam_search
from gpt_oss_server.turns.logprobs import Speller
from gpt_oss_server.turns.merging import merged
from gpt_oss_server.turns.prompt_scores import ScoredPrompt, scored_prompt
from gpt_oss_server.turns.prompting import ignored_fields, sampling_of
from gpt_oss_server.turns.stop_ids import own_stops, without_own_stop
from gpt_oss_server.turns.stops import StopFilter
from inference.engine import ContextOverflow, Engine, Finish, Sampling, Step
from inference.grammar import Grammar

Chunk = dict[str, Any]


@dataclass(slots=True)
class _Choice:
    index: int
    prompt: Sequence[int]
    sampling: Sampling
    engine: Engine
    scored: ScoredPrompt | None  # scores the prompt; it is `engine`, or a beam search samples from it
    sampled: int = 0
    cached: int = 0
    finish: Finish = Finish.STOP
    ids: list[int] = field(default_factory=list)  # sampled since the last chunk
    has_begun: bool = False
    hidden: frozenset[int] = frozenset()  # stop ids whose text the completion leaves out
    stopped_by: int | None = None  # a stop id of the request's own


class CompletionRun:
    """Iterate once over `chunks()`; `error` is then set if it failed."""

    def __init__(
        self,
        request: CreateCompletion,
        prompts: Sequence[Sequence[int]],
        served: Served,
        completion_id: str,
        grammar: Grammar | None = None,
    ) -> None:
        self.request = request
        self.error: ApiError | None = None
        self.ignored: Sequence[str] = ignored_fields(request, served.engine.info, logprobs=request.logprobs)
        self._prompts = prompts
        self._served = served
        self._grammar = grammar
        self._head = {
            "id": completion_id,
            "object": "text_completion",
            "created": int(served.clock()),
            "model": request.model or served.model_names[0],
        }
        self._choices = [choice for prompt in prompts for choice in self._choices_of(prompt)]
        for index, choice in enumerate(self._choices):
            choice.index = index
            choice.hidden = own_stops(choice.sampling, shown=bool(request.include_stop_str_in_output))
            if choice.sampling.seed is not None:
                choice.sampling = replace(choice.sampling, seed=choice.sampling.seed + index)

    async def chunks(self) -> AsyncGenerator[list[Chunk], None]:
        sources = [self._generate(choice) for choice in self._choices]
        with self._served.counters.counting_cancellation():
            try:
                async with aclosing(merged(sources, self._served.parallel_choices)) as batches:
                    async for batch in batches:
                        yield batch
            except Exception as error:
                self.error = from_exception(error, f"The completion {self._head['id']}")
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

    def _choices_of(self, prompt: Sequence[int]) -> list[_Choice]:
        """The choices of one prompt. One beam search yields all of them."""
        engine, request = self._served.engine, self.request
        sampling = self._sampling(prompt)
        if request.use_beam_search:
            scored = self._scored(engine)
            beams = beam_search(request, scored or engine)
            assert beams is not None
            return [
                _Choice(rank, prompt, sampling, beams.engine_of(rank), scored)
                for rank in range(request.n or 1)
            ]
        choices = []
        for number in range(request.n or 1):
            scored = self._scored(engine)
            choices.append(_Choice(number, prompt, sampling, scored or engine, scored))
        return choices

    def _scored(self, engine: Engine) -> ScoredPrompt | None:
        request = self.request
        if request.echo and request.logprobs is not None:
            return scored_prompt(engine, max(request.logprobs, request.prompt_logprobs or 0), "logprobs")
        top = request.prompt_logprobs
        return None if top is None else scored_prompt(engine, top, "prompt_logprobs")

    def _sampling(self, prompt: Sequence[int]) -> Sampling:
        info, request = self._served.engine.info, self.request
        if len(prompt) >= info.context_length:
            raise ContextLengthExceeded(
                str(ContextOverflow(len(prompt), info.context_length)), param="prompt"
            )
        limit = DEFAULT_MAX_TOKENS if request.max_tokens is None else max(request.max_tokens, 1)
        sampling = sampling_of(
            request,
            info,
            self._served.settings,
            prompt=len(prompt),
            limit=limit,
            encoding=self._served.encoding,
            logprobs=request.logprobs,
        )
        return replace(sampling, grammar=self._grammar)

    async def _generate(self, choice: _Choice) -> AsyncGenerator[list[Chunk], None]:
        text = self._text(choice)
        if self.request.echo and self.request.logprobs is None:
            yield [self._chunk(choice, self._served.encoding.decode(choice.prompt))]
        async with aclosing(choice.engine.generate(choice.prompt, choice.sampling)) as steps:
            async for step in steps:
                if self.request.echo and choice.scored is not None and not choice.has_begun:
                    yield [self._chunk(choice, *text.echo(choice.prompt, choice.scored.scores))]
                choice.cached += step.cached_tokens
                if self.request.max_tokens == 0:  # the client wants only the prompt's scores
                    choice.finish = Finish.LENGTH
                    break
                if chunk := self._feed(choice, text, step):
                    yield [chunk]
                if text.stopped is not None:
                    choice.finish = Finish.STOP
                    break
        yield [await self._last(choice, text)]

    def _feed(self, choice: _Choice, text: PlainText, step: Step) -> Chunk | None:
        choice.sampled += len(step.tokens)
        choice.ids += step.tokens
        choice.finish = step.finish or choice.finish
        step, choice.stopped_by = without_own_stop(step, choice.hidden)
        shown, scores = text.feed(step)
        return self._chunk(choice, shown, scores) if shown else None

    async def _last(self, choice: _Choice, text: PlainText) -> Chunk:
        shown, scores = text.close()
        last = self._chunk(choice, shown, scores)
        part, top = last["choices"][0], self.request.prompt_logprobs
        part["finish_reason"] = str(choice.finish)
        part["stop_reason"] = choice.stopped_by if text.stopped is None else text.stopped
        if top is not None and choice.scored is not None:
            # Spelling the scores of a long prompt takes a while.
            part["prompt_logprobs"] = await asyncio.to_thread(choice.scored.as_json, self._speller(), top)
        return last

    def _text(self, choice: _Choice) -> PlainText:
        request = self.request
        return PlainText(
            self._served.encoding,
            StopFilter(request.stops, shows_stop=bool(request.include_stop_str_in_output)),
            shows_special=request.skip_special_tokens is False,
            speller=None if choice.sampling.logprobs is None else self._speller(),
            top=request.logprobs or 0,
        )

    def _speller(self) -> Speller:
        return Speller(self._served.encoding, as_ids=bool(self.request.return_tokens_as_token_ids))

    def _chunk(self, choice: _Choice, text: str, scores: LegacyLogprobs | None = None) -> Chunk:
        part = {
            "index": choice.index,
            "text": text,
            "logprobs": scores.as_json() if scores is not None else None,
            "finish_reason": None,
        }
        if self.request.return_token_ids:
            part["token_ids"], choice.ids = choice.ids, []
            if not choice.has_begun:
                part["prompt_token_ids"] = list(choice.prompt)
        choice.has_begun = True
        chunk: Chunk = {**self._head, "choices": [part]}
        options = self.request.stream_options
        if options and options.include_usage:
            chunk["usage"] = self._usage_so_far(choice) if options.continuous_usage_stats else None
        return chunk

    def _usage(self) -> dict[str, Any]:
        given = sum(len(prompt) for prompt in self._prompts)
        made = sum(choice.sampled for choice in self._choices)
        # The tokens of a prompt count once; they count as cached if none of its choices computed them.
        each = len(self._choices) // len(self._prompts)
        cached = sum(
            min(choice.cached for choice in self._choices[at : at + each])
            for at in range(0, len(self._choices), each)
        )
        return _counted(given, made, cached)

    def _usage_so_far(self, choice: _Choice) -> dict[str, Any]:
        """The usage of this choice alone, as in vLLM; that of all choices follows at the end."""
        return _counted(len(choice.prompt), choice.sampled, choice.cached)

    def _count(self) -> None:
        for choice in self._choices:
            self._served.counters.count(outcome(choice.finish, self.error), ())


def _counted(given: int, made: int, cached: int) -> dict[str, Any]:
    return {
        "prompt_tokens": given,
        "completion_tokens": made,
        "total_tokens": given + made,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _whole(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merges the chunks of a choice: joins texts and lists, and keeps the last value of all other fields."""
    scores = [part["logprobs"] for part in parts if part["logprobs"] is not None]
    joined = {key: [entry for each in scores for entry in each[key]] for key in scores[0]} if scores else None
    whole = {key: value for part in parts for key, value in part.items()}
    if "token_ids" in whole:
        whole["token_ids"] = [token for part in parts for token in part["token_ids"]]
    return {**whole, "text": "".join(part["text"] for part in parts), "logprobs": joined}
