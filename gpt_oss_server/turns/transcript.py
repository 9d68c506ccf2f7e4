"""The record of one turn: append-only tokens, and the messages found in them.

Takes the prompt, then the tokens of each generation and the results of tools between generations. Returns the
prompt of the next generation, counts for usage, text for debugging, and the turn's segments for the
conversation's history. It must not know items or HTTP.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from weakref import ref

from gpt_oss_server.harmony.events import MessageFinished, Slip
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.turns.repetition import TurnWarning, WarningKind
from gpt_oss_server.turns.watch import UNWATCHED, MeasuredSpan, Watch, generating
from inference.engine import Step, TokenLogprob
from inference.grammar import Grammar


@dataclass(frozen=True, slots=True)
class ToolRun:
    """A run of a built-in tool: after `generation` generations, for its call."""

    generation: int
    recipient: str
    arguments: str
    output: str
    began: float
    ended: float


@dataclass(slots=True)
class Transcript:
    prompt: Sequence[int]  # ends with the cue, <|start|>assistant
    tokens: list[int] = field(default_factory=list)  # after the prompt: sampled, or results of tools
    segments: list[Segment] = field(default_factory=list)  # the same tokens as whole messages
    slips: list[Slip] = field(default_factory=list)
    warnings: list[TurnWarning] = field(default_factory=list)
    sampled: int = 0  # stop tokens included
    reasoning_tokens: int = 0  # headers and ends of the messages included
    given: int = 0  # results of tools: input, not output; with the cues after them
    results: int = 0  # the results alone
    unread: bool = False  # the turn ended before the engine was given its prompt
    cached_tokens: int = 0
    accepted: int = 0  # tokens of the request's prediction that were tried and right,
    rejected: int = 0  # or wrong
    prefilled: int = 0  # the given beginning of the answer: input, not output
    scores: dict[int, float] = field(default_factory=dict)  # log-probabilities, by the place in `tokens`
    alternatives: dict[int, tuple[tuple[int, float], ...]] = field(default_factory=dict)  # likewise
    # By the place in `tokens` from which on each bound an engine that has masks.
    grammars: dict[int, ref[Grammar]] = field(default_factory=dict)
    messages: list[MessageFinished] = field(default_factory=list)
    generations: list[MeasuredSpan] = field(default_factory=list)
    tool_runs: list[ToolRun] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic
    watch: Watch = UNWATCHED
    _generation: list[int] = field(default_factory=list)  # sampled since the last `end_generation`
    _ended: int = 0  # how many messages belong to earlier generations

    def prefill(self, tokens: Sequence[int]) -> None:
        """Begin the answer with tokens that are not sampled. Call this before any other method."""
        self._generation += tokens
        self.tokens += tokens
        self.prefilled = len(tokens)

    @contextmanager
    def generating(self) -> Iterator[MeasuredSpan]:
        """The time in which a generation samples."""
        start = len(self.tokens) - len(self._generation)
        with generating(self.watch, start, self.clock, lambda: self.sampled) as span:
            self.generations.append(span)
            yield span

    def first_step(self, step: Step, prompt: int) -> None:
        """The first step of an engine's call. Later prompts of a turn contain the turn's own tokens."""
        if not self.sampled:
            self.cached_tokens += step.cached_tokens
        span = self.generations[-1]
        if span.first is None:
            span.first_step(step, prompt, span.reads[-1])

    def sample(self, tokens: Sequence[int], scores: Sequence[TokenLogprob] | None = None) -> None:
        """`scores` are the tokens' log-probabilities, where the request or its debugging needs them."""
        if scores is not None:
            for place, score in enumerate(scores, len(self.tokens)):
                self.scores[place] = score.logprob
                if score.top:
                    self.alternatives[place] = score.top
        self._generation += tokens
        self.tokens += tokens
        self.sampled += len(tokens)

    def finish_message(self, message: MessageFinished) -> None:
        self.messages.append(message)
        if message.header.channel == "analysis" and message.header.recipient is None:
            first = message.start if self.segments else max(message.start, self.prefilled)
            self.reasoning_tokens += max(message.end - first, 0)

    def spoken(self, message: MessageFinished, renderer: Renderer) -> Segment:
        """A message of the current generation, as the conversation's history will contain it."""
        [segment] = renderer.from_completion(self._generation, [message])
        return segment

    def end_generation(self, renderer: Renderer) -> MessageFinished | None:
        """Turn the generation's messages into segments, and return the last message, if any."""
        messages = self.messages[self._ended :]
        self.segments += renderer.from_completion(self._generation, messages)
        self._generation, self._ended = [], len(self.messages)
        if self.generations:
            self.generations[-1].ended = self.clock()
        return messages[-1] if messages else None

    @property
    def departures(self) -> list[str]:
        """The kinds of the slips that were repaired, and of the warnings that say why the server ended it."""
        return [*(slip.kind for slip in self.slips), *(warning.kind for warning in self.warnings)]

    @property
    def cut_short(self) -> TurnWarning | None:
        """Why the turn was ended as incomplete, if it repeated itself or has no answer."""
        kinds = (WarningKind.REPETITION, WarningKind.NO_ANSWER)
        return next((warning for warning in self.warnings if warning.kind in kinds), None)

    def pass_over(self, token: int) -> None:
        """Record a token that was sampled between passages and belongs to no message."""
        self.tokens.append(token)
        self.sampled += 1

    def give(self, results: Sequence[Segment], cue: Sequence[int]) -> None:
        """Append the results of tools, and the cue if the model continues after them."""
        if self.generations:
            self.generations[-1].end = len(self.tokens)
        self.segments += results
        given = [token for result in results for token in result.tokens] + list(cue)
        self.tokens += given
        self.given += len(given)
        self.results += sum(len(result.tokens) for result in results)

    def prompt_so_far(self, cue: Sequence[int]) -> list[int]:
        """The prompt of the next generation: all ids so far. Segments include their cue."""
        if not self.segments:
            return [*self.prompt, *self._generation]
        past = [token for segment in self.segments for token in segment.tokens]
        return [*self.prompt[: len(self.prompt) - len(cue)], *past, *cue, *self._generation]
