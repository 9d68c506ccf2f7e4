"""Drives the engine's loop turn by turn, over a model that is only a memory.

Each place of the memory holds the hash of all tokens up to it. A step follows these hashes through its
tables, so it immediately finds a block that is missing, stale, wrongly shared or released too early. The next
token is a function of the last hash, so the output is predictable.
"""

import random
import threading
from collections.abc import Sequence as Listed
from dataclasses import dataclass, field, replace

from inference.engine import Finish, InferenceError, Sampling
from inference.local.loop import Loop
from inference.local.memory_plan import LayerKind, plan_memory
from inference.local.scheduling.lower import LowerTiers
from inference.local.scheduling.prefix_cache import PrefixCache
from inference.local.scheduling.scheduler import Scheduler, SchedulerLimits
from inference.local.scheduling.sequence import Sequence
from inference.local.scheduling.step import PENDING, Outcome, Runner, Sampled, StepPart
from inference.models.gpt_oss import GptOss
from inference.outbox import Outbox

Place = tuple[int, int]  # hash of the tokens up to here, and up to the place before
NOTHING = 0
VOCABULARY = 50


def after(past: int, token: int) -> int:
    return hash((past, token))


def next_token(past: int) -> int:
    """One of few tokens, so that drafts are sometimes right."""
    return past % 1009 % 7 if past % 3 else past % VOCABULARY


def predicted(prompt: Listed[int], count: int) -> list[int]:
    past = NOTHING
    for token in prompt:
        past = after(past, token)
    found = []
    for _ in range(count):
        found.append(next_token(past))
        past = after(past, found[-1])
    return found


@dataclass
class Picked:
    sampling: Sampling


@dataclass
class Underway:
    found: list[Outcome]

    def outcomes(self) -> list[Outcome]:
        return self.found


@dataclass
class MemoryRunner:
    """Implements `Runner`: stores hashes in place of keys and values."""

    windows: tuple[int | None, ...]
    block_size: int
    ahead: int = 0
    places: dict[tuple[int, int], Place] = field(default_factory=dict)  # (kind, block·size + offset)
    newest: dict[int, int] = field(default_factory=dict)  # by slot

    def picker(self, sampling: Sampling, prompt: Listed[int] = ()) -> Picked:
        return Picked(sampling)

    def problem(self) -> str | None:
        return None

    def close(self) -> None:
        pass

    def launch(self, parts: Listed[StepPart]) -> Underway:
        assert len({part.slot for part in parts}) == len(parts)
        tokens = [self._known(part) for part in parts]
        pasts = [self._write(part, known) for part, known in zip(parts, tokens, strict=True)]
        for part in parts:
            self._read(part)
        return Underway([self._sample(*each) for each in zip(parts, tokens, pasts, strict=True)])

    def _known(self, part: StepPart) -> list[int]:
        assert PENDING not in part.tokens or self.ahead
        return [self.newest[part.slot] if token == PENDING else token for token in part.tokens]

    def _write(self, part: StepPart, tokens: list[int]) -> list[int]:
        past = NOTHING if part.start == 0 else self._at(part, 0, part.start - 1)[0]
        pasts = []
        for at, token in enumerate(tokens, part.start):
            now = after(past, token)
            for kind in range(len(self.windows)):
                self.places[kind, self._slot(part, kind, at)] = (now, past)
            pasts.append(past := now)
        return pasts

    def _read(self, part: StepPart) -> None:
        """Every place that a query sees must continue the one before it."""
        end = part.start + len(part.tokens)
        for kind, window in enumerate(self.windows):
            first = 0 if window is None else max(0, part.start - window + 1)
            for at in range(first + 1, end):
                before = self._at(part, kind, at - 1)[0]
                assert self._at(part, kind, at)[1] == before, "a block is not its own"

    def _sample(self, part: StepPart, tokens: list[int], pasts: list[int]) -> Outcome:
        sampled: list[Sampled] = []
        for at in range(len(tokens) - part.samples, len(tokens)):
            token = next_token(pasts[at])
            sampled.append(Sampled(token))
            self.newest[part.slot] = token
            if at + 1 < len(tokens) and tokens[at + 1] != token:
                break
        return Outcome(tuple(sampled), guesses=self._guesses(part, tokens, pasts, len(sampled)))

    def _guesses(self, part: StepPart, tokens: list[int], pasts: list[int], sampled: int) -> tuple[int, ...]:
        """Some right ones, then a wrong one; each has a place in every kind of layer."""
        if not sampled:
            assert not part.guesses
            return ()
        kept = len(tokens) - part.samples + sampled
        past, found = pasts[kept - 1], list[int]()
        for at in range(part.start + kept, part.start + kept + part.guesses):
            for kind in range(len(self.windows)):
                self._slot(part, kind, at)
            past = after(past, next_token(past))
            found.append(next_token(past) if past % 5 else VOCABULARY)
        return tuple(found)

    def _slot(self, part: StepPart, kind: int, at: int) -> int:
        block = part.tables[kind][at // self.block_size]
        assert block, f"position {at} has no block"
        return block * self.block_size + at % self.block_size

    def _at(self, part: StepPart, kind: int, at: int) -> Place:
        return self.places[kind, self._slot(part, kind, at)]


@dataclass
class Client:
    prompt: list[int]
    limit: int
    outbox: Outbox
    tokens: list[int] = field(default_factory=list)
    cached: int = 0
    end: Finish | InferenceError | None = None

    def read(self) -> None:
        step, end = self.outbox.take()
        if step is not None:
            self.tokens += step.tokens
            self.cached += step.cached_tokens
        self.end = end if end is not None else self.end


def check(client: Client) -> None:
    """Of a memory's model: it got every token."""
    assert client.end is Finish.LENGTH
    assert client.tokens == predicted(client.prompt, client.limit)
    assert 0 <= client.cached < len(client.prompt)


class Driven:
    def __init__(
        self,
        runner: Runner,
        windows: Listed[int | None],
        blocks: Listed[int],
        limits: SchedulerLimits,
        lower: LowerTiers | None = None,
    ) -> None:
        self.runner = runner
        self.cache = PrefixCache(windows, blocks, runner.block_size, lower)
        self.scheduler = Scheduler(self.cache, limits)
        self.loop = Loop(runner, self.scheduler, "driven")
        self.loop._thread, self.loop._started = threading.current_thread(), True  # it starts no thread
        self.clients: list[Client] = []
        self._arrived = 0

    def request(self, prompt: list[int], limit: int, sampling: Sampling, capacity: int = 10_000) -> Client:
        """Call it in an event loop."""
        client = Client(prompt, limit, Outbox(lambda: None, capacity))
        self._arrived += 1
        self.loop.submit(
            Sequence(
                number=self._arrived,
                tokens=list(prompt),
                prompt_length=len(prompt),
                limit=limit,
                sampling=replace(sampling, stop_token_ids=frozenset()),
                picker=self.runner.picker(sampling),
                outbox=client.outbox,
                drafter=self.scheduler.limits.drafter(sampling),
            )
        )
        self.clients.append(client)
        return client

    def turn(self) -> bool:
        assert self.loop.take_in_news()
        continued = self.loop.turn()
        self.cache.check_integrity(self.scheduler.running)
        scheduler = self.scheduler
        assert len(scheduler.running) + len(scheduler._slots) == scheduler.limits.max_concurrent
        return continued

    def leave(self, client: Client) -> None:
        client.outbox.abandoned = True
        self.clients.remove(client)

    def finish(self) -> None:
        for _ in range(100_000):
            for client in self.clients:
                client.read()
            if not self.turn() and not self.loop.active:
                for client in self.clients:
                    client.read()
                return
        raise AssertionError(f"{self.loop.active} sequences never end")


def alone(model: GptOss, prompt: list[int], count: int) -> list[int]:
    """What a model answers to one prompt alone, greedily: the oracle for batches."""
    cache, last, found = model.new_cache(), prompt, []
    for _ in range(count):
        last = [int(model.all_logits(last, cache)[-1].argmax())]
        found += last
    return found


def check_each_as_alone(engine: Driven, model: GptOss) -> None:
    for client in engine.clients:
        assert client.end is Finish.LENGTH
        assert client.tokens == alone(model, client.prompt, client.limit)


def tight_blocks(
    kinds: Listed[LayerKind], limits: SchedulerLimits, *, context: int, size: int, spare: int
) -> list[int]:
    """Of each kind of layer: enough for one whole context or the running windows, and `spare` more."""
    plenty = plan_memory(kinds, 1 << 40, context=context, may_shorten=False, limits=limits, block_size=size)
    running, chunk = limits.max_concurrent + 3, limits.chunk // size

    def least(window: int | None) -> int:
        return 3 + context // size if window is None else running * (window // size + 3) + chunk

    pairs = zip(plenty.blocks, kinds, strict=True)
    return [min(count, spare + least(kind.window)) for count, kind in pairs]


@dataclass
class Prompts:
    draw: random.Random
    longest: int
    vocabulary: int = VOCABULARY
    past: list[list[int]] = field(default_factory=list)

    def next(self) -> list[int]:
        begun: list[int] = []
        if self.past and self.draw.random() < 0.8:
            before = self.draw.choice(self.past)
            begun = before if self.draw.random() < 0.5 else before[: self.draw.randint(0, len(before))]
        tail = [self.draw.randrange(self.vocabulary) for _ in range(self.draw.choice([1, 3, 10, 40]))]
        found = (begun + tail)[: self.longest]
        self.past.append(found)
        return found
