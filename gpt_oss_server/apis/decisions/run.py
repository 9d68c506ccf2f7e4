"""Runs one request for decisions: a prompt for each question, of which the engine computes one position.

Takes a validated request and what it is served by. Returns the answers with their probabilities: the model's
own for each possible answer, as shares of those of all. All prompts begin with the input; the first question
is asked alone, so that the others find the input in the cache.
"""

import math
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gpt_oss_server.apis.decisions.request import Choice, CreateDecision, Question
from gpt_oss_server.apis.responses.input import read_input
from gpt_oss_server.apis.responses.past import Past
from gpt_oss_server.apis.responses.resource import shown_usage
from gpt_oss_server.caller.limiter import Spending
from gpt_oss_server.errors import ContextLengthExceeded, InvalidRequest, UnsupportedField
from gpt_oss_server.harmony.declarations import Declared
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.runs.life import Life
from gpt_oss_server.runs.served import Served
from gpt_oss_server.runs.usage import Usage
from gpt_oss_server.runs.work import Work
from gpt_oss_server.turns.merged import merged
from gpt_oss_server.turns.prompt import cache_salt, check_can_fit
from gpt_oss_server.turns.watch import MeasuredSpan, generating, with_trace
from inference.engine import ContextOverflow, EngineFailed, Sampling

_INSTRUCTIONS = (
    "You judge what the conversation shows. Its last message is a question about all that precedes it. "
    "Answer with one of the answers that the question allows, and nothing else."
)
_Scored = tuple[int, dict[int, float]]  # a question's index; log-probabilities by token


@dataclass(frozen=True, slots=True)
class Asked:
    """The prompts of a request: what they share, and each question's own end and possible answers."""

    shared: tuple[int, ...]
    ends: Sequence[tuple[int, ...]]
    answers: Sequence[tuple[int, ...]]

    @property
    def tokens(self) -> int:
        return len(self.shared) + sum(map(len, self.ends))


def lay_out(request: CreateDecision, work: Work) -> Asked:
    """Raises an `ApiError` for an input that cannot be read, or that is too long."""
    model, renderer = work.model, work.model.renderer
    if "alternatives" not in model.info.honours:
        raise UnsupportedField(
            f"Decisions need the probabilities of chosen tokens, which the engine of the model "
            f"{model.info.name!r} does not report. The built-in engine, vLLM and llama-server do.",
            param="model",
        )
    check_can_fit(model.info.context_length, "input", request.input)
    conversation = read_input(request.input, work, Past(), leads=True)
    if not conversation.segments:
        raise InvalidRequest.at("input", "is empty: send what the questions are about.")
    system = renderer.system(effort="low", date=work.date(), identity=model.settings.identity)
    head, rest = renderer.opening(system, conversation.segments, Declared(_INSTRUCTIONS))
    shared = tuple(token for segment in (*head, *rest) for token in segment.tokens)
    encode = model.encoding.encode
    asked = Asked(
        shared,
        [_end(question, f"questions[{at}]", renderer) for at, question in enumerate(request.questions)],
        [tuple(token for text in each.answers for token in encode(text)) for each in request.questions],
    )
    longest = len(shared) + max(map(len, asked.ends))
    if longest >= model.info.context_length:
        raise ContextLengthExceeded(str(ContextOverflow(longest, model.info.context_length)), param="input")
    return asked


def _end(question: Question, where: str, renderer: Renderer) -> tuple[int, ...]:
    """The question, and the beginning of an answer without reasoning."""
    return (*renderer.user(question.text(where)).tokens, *renderer.answer("").tokens[:-1])


@dataclass(slots=True)
class _Seen:
    """What is counted of the run."""

    sampled: int = 0
    cached: int = 0  # of the first question's prompt
    generations: list[MeasuredSpan] = field(default_factory=list)


class DecisionRun:
    def __init__(
        self,
        request: CreateDecision,
        asked: Asked,
        served: Served,
        work: Work,
        decision_id: str,
        spending: Spending | None = None,
    ) -> None:
        self._request, self._asked, self._work = request, asked, work
        self._seen = _Seen()
        self._parallel = partial(served.parallel_choices, work.caller.client, len(asked.ends))
        self._life = Life(
            served,
            work,
            "decisions",
            "The decision",
            decision_id,
            request,
            usage=self._usage,
            finish=lambda: "stop",
            spending=spending,
        )

    async def wait(self) -> dict[str, Any]:
        scored: dict[int, dict[int, float]] = {}
        answers: list[dict[str, Any]] = []
        with self._life.running():
            with self._life.failing():
                async with aclosing(self._scored(0)) as first:
                    scored.update([each async for each in first])
                rest = (self._scored(at) for at in range(1, len(self._asked.ends)))
                with self._parallel() as most:
                    async with aclosing(merged(rest, most)) as others:
                        scored.update([each async for each in others])
                for at, question in enumerate(self._request.questions):
                    answers.append(_answer(question, _shares(scored[at], self._asked.answers[at])))
            self._life.observed.turn_ended(self._life.outcome(None), error=self._life.error)
        if self._life.error is not None:
            raise self._life.error
        return {
            "object": "decision",
            "model": self._life.model,
            "answers": answers,
            "usage": shown_usage(self._usage()),
        }

    async def _scored(self, at: int) -> AsyncGenerator[_Scored, None]:
        """The question's index, and the log-probabilities of its answers."""
        answers, caller, seen = self._asked.answers[at], self._work.caller, self._seen
        sampling = Sampling(
            temperature=0.0,
            max_tokens=1,
            logprobs=len(answers),
            alternatives=answers,
            cache_salt=cache_salt(caller.owner, None),
            owner=caller.client,
            priority=caller.priority,
            labels=caller.labels_with(self._request.prompt_cache_key),
        )
        prompt = (*self._asked.shared, *self._asked.ends[at])
        watch = self._life.observed.watch
        with generating(watch, 0, time.monotonic, lambda: seen.sampled) as span:
            seen.generations.append(span)
            sampling = with_trace(sampling, span.trace)
            async with aclosing(self._work.model.engine.generate(prompt, sampling)) as steps:
                async for step in steps:
                    span.reads.append(time.monotonic())
                    if span.first is None:
                        span.first_step(step, len(prompt), span.reads[-1])
                    seen.cached += step.cached_tokens if at == 0 else 0
                    seen.sampled += len(step.tokens)
                    for score in step.logprobs or ():
                        yield at, dict(score.top)

    def _usage(self) -> Usage:
        """The input counts once: the questions after the first find it in the cache."""
        cached = min(self._seen.cached, len(self._asked.shared))
        return Usage(self._asked.tokens, cached, self._seen.sampled)


def _shares(scores: dict[int, float], answers: Sequence[int]) -> list[float]:
    missing = [token for token in answers if token not in scores]
    if missing:
        raise EngineFailed(f"The engine reported no probability of the tokens {missing[:9]}.")
    best = max(scores[token] for token in answers)
    weights = [math.exp(scores[token] - best) for token in answers]
    total = sum(weights)
    return [weight / total for weight in weights]


def _answer(question: Question, shares: Sequence[float]) -> dict[str, Any]:
    head = {"type": question.type, "name": question.name}
    if question.type == "predicate":
        return {**head, "probability": shares[0]}
    likeliest = max(range(len(shares)), key=shares.__getitem__)
    chosen: dict[str, Any] = {"confidence": shares[likeliest]}
    listed = []
    for value, (option, share) in enumerate(zip(question.options, shares, strict=True)):
        own = (
            {"value": option.value} if isinstance(option, Choice) else {"value": value, "label": option.label}
        )
        listed.append({**own, "probability": share})
    if question.type == "choice":
        chosen["choice"] = listed[likeliest]["value"]
    else:
        chosen["score"] = sum(value * share for value, share in enumerate(shares))
    return {**head, **chosen, "probabilities": listed}
