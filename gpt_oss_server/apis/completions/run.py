"""Runs one request for plain completions.

Takes prompts as ids and the request's sampling parameters. Yields batches of chunks, or returns all of them
as one object. Choice j of prompt i has the index i * n + j. Closing the iterator cancels every choice.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gpt_oss_server.apis.completions.request import CreateCompletion
from gpt_oss_server.apis.completions.text import LegacyLogprobs, PlainText, scores_of_prompt
from gpt_oss_server.caller.limiter import Spending
from gpt_oss_server.content.logprobs import Speller
from gpt_oss_server.errors import ContextLengthExceeded, UnsupportedField
from gpt_oss_server.runs.chunks import shown_usage
from gpt_oss_server.runs.life import Life
from gpt_oss_server.runs.observed import outcome
from gpt_oss_server.runs.served import Served
from gpt_oss_server.runs.usage import Usage
from gpt_oss_server.runs.work import Work
from gpt_oss_server.turns.merged import merged
from gpt_oss_server.turns.prompt import sampling_of
from gpt_oss_server.turns.stops import StopFilter, own_stops, without_own_stop
from gpt_oss_server.turns.watch import MeasuredSpan, generating, with_trace
from inference.engine import ContextOverflow, Finish, Sampling, Step, TokenLogprob
from inference.grammar import Grammar

Chunk = dict[str, Any]


@dataclass(slots=True)
class _Seen:
    """What is counted of a choice; it outlives the choice, which holds more."""

    position: int  # of its prompt
    sampled: int = 0
    cached: int = 0
    finish: Finish = Finish.STOP
    generations: list[MeasuredSpan] = field(default_factory=list)  # one, once it has begun


@dataclass(slots=True)
class _Choice:
    index: int
    seen: _Seen
    prompt: Sequence[int]
    sampling: Sampling
    scores: Sequence[TokenLogprob | None] = ()  # of the prompt, where the request wants them
    ids: list[int] = field(default_factory=list)  # sampled since the last chunk
    has_begun: bool = False
    hidden: frozenset[int] = frozenset()  # stop ids whose text the completion leaves out
    stopped_by: int | None = None  # a stop id of the request's own


class CompletionRun:
    """Iterate once over `chunks()`."""

    def __init__(
        self,
        request: CreateCompletion,
        prompts: Sequence[Sequence[int]],
        served: Served,
        work: Work,
        completion_id: str,
        grammar: Grammar | None = None,
        spending: Spending | None = None,
    ) -> None:
        self.request = request
        self._prompts = prompts
        self._served = served
        self._model = work.model
        self._head = {
            "id": completion_id,
            "object": "text_completion",
            "created": int(work.clock()),
            "model": request.model or work.model.name,
        }
        self._begun: list[_Seen] = []
        self._parallel = partial(served.parallel_choices, work.caller.client, len(prompts) * (request.n or 1))
        context = work.model.info.context_length
        for prompt in prompts:
            if len(prompt) >= context:
                raise ContextLengthExceeded(str(ContextOverflow(len(prompt), context)), param="prompt")
        sampling = sampling_of(request, work.model, work.caller, prompt=0, limit=request.limit)
        self._sampling = replace(sampling, grammar=grammar, prompt_logprobs=self._prompt_logprobs())
        self._life = Life(
            served,
            work,
            "completions",
            "The completion",
            completion_id,
            request,
            usage=self._usage,
            finish=lambda: ",".join(sorted({str(seen.finish) for seen in self._begun})),
            spending=spending,
        )

    async def chunks(self) -> AsyncGenerator[list[Chunk], None]:
        # A generator: each choice is made when it begins.
        sources = (
            self._generate(choice)
            for position in range(len(self._prompts))
            for choice in self._choices_of(position)
        )
        with self._life.running():
            with self._life.failing(), self._parallel() as most:
                async with aclosing(merged(sources, most)) as batches:
                    async for batch in batches:
                        yield batch
            if (error := self._life.error) is not None:
                self._life.observed.turn_ended("failed", error=error)
                yield [dict(error.body())]
            elif self.request.includes_usage:
                yield [{**self._head, "choices": [], "usage": shown_usage(self._usage())}]

    async def wait(self) -> dict[str, Any]:
        parts: dict[int, list[dict[str, Any]]] = {}
        async with aclosing(self.chunks()) as batches:
            async for batch in batches:
                for chunk in batch:
                    for choice in chunk.get("choices", ()):
                        parts.setdefault(choice["index"], []).append(choice)
        if self._life.error is not None:
            raise self._life.error
        choices = [_whole(parts[index]) for index in sorted(parts)]
        return {**self._head, "choices": choices, "usage": shown_usage(self._usage())}

    @property
    def ignored(self) -> Sequence[str]:
        return self._life.ignored

    def _choices_of(self, position: int) -> Iterator[_Choice]:
        """The choices of one prompt, each made when it begins."""
        prompt, count = self._prompts[position], self.request.n or 1
        room = self._model.info.context_length - len(prompt)
        most = min(self._sampling.max_tokens or room, room)
        least = min(self._sampling.min_tokens, most)
        sampling = replace(self._sampling, max_tokens=most, min_tokens=least)
        hidden = own_stops(sampling, shown=bool(self.request.include_stop_str_in_output))
        for index in range(position * count, (position + 1) * count):
            own = replace(sampling, seed=None if sampling.seed is None else sampling.seed + index)
            yield _Choice(index, _Seen(position), prompt, own, hidden=hidden)

    def _prompt_logprobs(self) -> int | None:
        """The number of alternatives for each token of the prompt; None: the prompt needs no scores."""
        request, info = self.request, self._model.info
        echoed = request.logprobs if request.echo else None
        tops = [top for top in (echoed, request.prompt_logprobs) if top is not None]
        if tops and not info.scores_prompts:
            param = "prompt_logprobs" if echoed is None else "logprobs"
            raise UnsupportedField.at(
                param, f"requires scores, which the model {info.name!r} does not have. Leave it out."
            )
        return max(tops, default=None)

    async def _generate(self, choice: _Choice) -> AsyncGenerator[list[Chunk], None]:
        request = self.request
        text = PlainText(
            encoding=self._model.encoding,
            stops=StopFilter(request.stops, shows_stop=bool(request.include_stop_str_in_output)),
            shows_special=request.skip_special_tokens is False,
            speller=None if choice.sampling.logprobs is None else self._speller(),
            top=request.logprobs or 0,
        )
        self._begun.append(choice.seen)
        if request.echo and request.logprobs is None:
            yield [self._chunk(choice, self._model.encoding.decode(choice.prompt))]
        watch = self._life.observed.watch
        with generating(watch, 0, time.monotonic, lambda: choice.seen.sampled) as span:
            choice.seen.generations.append(span)
            self._life.observed.turns.append(choice.seen)
            read = span.reads.append
            sampling = with_trace(choice.sampling, span.trace)
            async with aclosing(self._model.engine.generate(choice.prompt, sampling)) as steps:
                async for step in steps:
                    read(time.monotonic())
                    if span.first is None:
                        span.first_step(step, len(choice.prompt), span.reads[-1])
                    choice.scores = step.prompt_logprobs or choice.scores
                    if request.echo and choice.scores and not choice.has_begun:
                        yield [self._chunk(choice, *text.echo(choice.prompt, choice.scores))]
                    choice.seen.cached += step.cached_tokens
                    if request.max_tokens == 0:  # the client wants only the prompt's scores
                        choice.seen.finish = Finish.LENGTH
                        break
                    if chunk := self._feed(choice, text, step):
                        yield [chunk]
                    if text.stopped is not None:
                        choice.seen.finish = Finish.STOP
                        break
        self._life.observed.turn_ended(outcome(choice.seen.finish, None))
        yield [await self._last(choice, text)]

    def _feed(self, choice: _Choice, text: PlainText, step: Step) -> Chunk | None:
        choice.seen.sampled += len(step.tokens)
        choice.ids += step.tokens
        choice.seen.finish = step.finish or choice.seen.finish
        step, choice.stopped_by = without_own_stop(step, choice.hidden)
        shown, scores = text.feed(step)
        return self._chunk(choice, shown, scores) if shown else None

    async def _last(self, choice: _Choice, text: PlainText) -> Chunk:
        shown, scores = text.close()
        last = self._chunk(choice, shown, scores)
        part, top = last["choices"][0], self.request.prompt_logprobs
        part["finish_reason"] = str(choice.seen.finish)
        part["stop_reason"] = choice.stopped_by if text.stopped is None else text.stopped
        if top is not None:
            # Spelling the scores of a long prompt takes a while.
            shown_scores = await asyncio.to_thread(scores_of_prompt, choice.scores, self._speller(), top)
            part["prompt_logprobs"] = shown_scores
        return last

    def _speller(self) -> Speller:
        return Speller(self._model.encoding)

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
        if self.request.includes_usage:
            chunk["usage"] = None
        return chunk

    def _usage(self) -> Usage:
        """The tokens of all choices that began, those that were cut off included."""
        begun = self._begun
        prompt_tokens = sum(len(self._prompts[position]) for position in {seen.position for seen in begun})
        # The tokens of a prompt count once; they count as cached if none of its choices computed them.
        cached: dict[int, int] = {}
        for seen in begun:
            cached[seen.position] = min(cached.get(seen.position, seen.cached), seen.cached)
        return Usage(prompt_tokens, sum(cached.values()), sum(seen.sampled for seen in begun))


def _whole(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merges the chunks of a choice: joins texts and lists, and keeps the last value of all other fields."""
    scores = [part["logprobs"] for part in parts if part["logprobs"] is not None]
    joined = {key: [entry for each in scores for entry in each[key]] for key in scores[0]} if scores else None
    whole = {key: value for part in parts for key, value in part.items()}
    if "token_ids" in whole:
        whole["token_ids"] = [token for part in parts for token in part["token_ids"]]
    return {**whole, "text": "".join(part["text"] for part in parts), "logprobs": joined}
