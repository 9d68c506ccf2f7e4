"""Decides which sequences take part in the next step, and with which tokens.

Takes arriving sequences and the outcomes of steps; returns plans of steps. Every decoding sequence takes part
in every step; prompts share the rest of it. Waiting sequences start in order of priority; of equal ones, the
owner with the fewest running ones is next, and takes the slot of an owner with more if none is free. If
memory runs out, the sequence that would start last gives its blocks back and waits; its tokens are computed
again. Pure Python, for one thread; it must not know tensors or event loops.
"""

import bisect
from dataclasses import asdict, dataclass

from inference.engine import Sampling
from inference.local.scheduling.drafts import (
    ON_CPU,
    DraftCosts,
    Drafter,
    HeadDrafter,
    PredictedDrafter,
    TextDrafter,
)
from inference.local.scheduling.fairness import (
    in_turns,
    may_give_way,
    next_to_start,
    running_counts,
    standing,
    that_gives_way,
)
from inference.local.scheduling.prefix_cache import PrefixCache
from inference.local.scheduling.sequence import NO_SLOT, Sequence
from inference.local.scheduling.step import PENDING, StepPart


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerLimits:
    max_concurrent: int  # running sequences; each has a slot
    max_waiting: int  # sequences that wait for a slot; more are refused
    chunk: int = 256  # prompt tokens in a step without decoding sequences
    # The same alongside decoding sequences, for each short prompt: it lengthens the gap between two of their
    # tokens.
    shared_chunk: int = 64
    least_chunk: int = 32  # of one prompt: smaller chunks slow prompts more than they shorten the gap
    prompts: int = 8  # the most prompts in a step
    scored_chunk: int = 32  # of a prompt whose every token is scored: the head runs for each
    drafts: int = 0  # guessed tokens in a step; 0: none
    by_head: bool = False  # the runner guesses them, in place of the scheduler
    predicted: int = 0  # tokens of a request's prediction in a step; 0: predictions are not used
    costs: DraftCosts = ON_CPU  # of a head's drafts
    ahead: int = 0  # steps that may be planned before the outcomes of earlier ones are known

    @property
    def reach(self) -> int:
        """Positions after a sequence's newest token that its blocks may have to cover."""
        drafts = 2 * self.drafts if self.by_head else self.drafts
        return max(drafts, self.predicted)

    def drafter(self, sampling: Sampling) -> Drafter | None:
        """A new sequence's source of drafts."""
        drafter: Drafter | None = None
        if self.drafts:
            drafter = HeadDrafter(self.drafts, self.costs) if self.by_head else TextDrafter(self.drafts)
        if sampling.predicted and self.predicted:
            return PredictedDrafter(sampling.predicted, self.predicted, drafter or Drafter())
        return drafter


@dataclass(slots=True)
class Counts:
    """Since the start."""

    steps: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    preemptions: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    failed_steps: int = 0


@dataclass(frozen=True, slots=True)
class Share:
    """One sequence's share of a step."""

    sequence: Sequence
    part: StepPart

    @property
    def drafts(self) -> int:
        return max(0, self.part.samples - 1)


class Scheduler:
    def __init__(self, cache: PrefixCache, limits: SchedulerLimits) -> None:
        self.cache, self.limits = cache, limits
        self.counts = Counts()
        self.recent: tuple[dict[str, int], ...] = ()  # 240 steps; replaced whole, as another thread reads it
        self.waiting: list[Sequence] = []  # by rank
        self.running: list[Sequence] = []
        self._turns = 0
        self._slots = list(range(limits.max_concurrent - 1, -1, -1))

    def __len__(self) -> int:
        return len(self.waiting) + len(self.running)

    def measures(self) -> dict[str, float]:
        return {"running": len(self.running), "waiting": len(self.waiting), **asdict(self.counts)}

    # Sequences arrive and leave -----------------------------------------------------------------------

    def add(self, sequence: Sequence) -> None:
        bisect.insort(self.waiting, sequence, key=lambda queued: queued.rank)

    def remove(self, sequence: Sequence) -> None:
        """Removes a sequence that has ended or lost its reader."""
        sequence.ended = True
        if sequence.slot == NO_SLOT:
            self.waiting.remove(sequence)
        else:
            self._stop(sequence)

    def clear(self) -> list[Sequence]:
        """Removes all sequences, whatever their state, and resets the cache; returns them."""
        gone = [*self.running, *self.waiting]
        for sequence in gone:
            sequence.ended, sequence.holding, sequence.slot = True, None, NO_SLOT
        self.running, self.waiting = [], []
        self._slots = list(range(self.limits.max_concurrent - 1, -1, -1))
        self.cache.reset()
        return gone

    def _stop(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.cache.release(sequence)
        self._slots.append(sequence.slot)
        sequence.slot = NO_SLOT

    def _preempt(self, sequence: Sequence) -> None:
        """Sends it back to wait. When it starts again, it also computes the tokens that it had sampled."""
        self._stop(sequence)
        sequence.was_fetched = False
        self.add(sequence)
        self.counts.preemptions += 1

    # A step is planned --------------------------------------------------------------------------------

    def plan(self) -> list[Share]:
        """The next step; empty if no sequence can continue. Shares with one token come first."""
        decoding = self._decoding()
        self._begin()
        planned = decoding + self._chunks(decoding)
        # A prompt of higher rank may have taken the blocks of a sequence that was to decode.
        shares = [share for share in planned if share.sequence.slot != NO_SLOT]
        for share in shares:
            share.sequence.launched += len(share.part.tokens)
            share.sequence.in_flight += 1
        if shares:
            self._note_step(shares, sum(share.sequence.slot != NO_SLOT for share in decoding))
        return sorted(shares, key=lambda share: len(share.part.tokens))

    def _note_step(self, shares: list[Share], decoding: int) -> None:
        """`decoding`: how many of the shares, which come first; the others read prompts."""
        self.counts.steps += 1
        sizes = [len(share.part.tokens) for share in shares]
        step = {"step": self.counts.steps, "waiting": len(self.waiting)}
        step |= {"decoding": decoding, "decoded_tokens": sum(sizes[:decoding])}  # drafts included
        step |= {"prompts": len(shares) - decoding, "prompt_tokens": sum(sizes[decoding:])}
        self.recent = (*self.recent[-239:], step)

    def _decoding(self) -> list[Share]:
        """Shares of sequences that can sample, those first that are preempted last."""
        shares = []
        counts = running_counts(self.running)
        for sequence in sorted(self.running, key=lambda own: standing(own, counts)):
            if sequence.slot != NO_SLOT and not sequence.stalled and self._may_decode(sequence):
                share = self._decode(sequence)
                shares += [share] if share is not None else []
        return shares

    def _may_decode(self, sequence: Sequence) -> bool:
        if sequence.in_flight == 0:
            return sequence.remaining == 1 and sequence.limit > 0
        # A running step is sampling its token; a draft would need the token itself.
        return (
            sequence.remaining == 0
            and sequence.in_flight <= self.limits.ahead
            and sequence.sampled + sequence.in_flight < sequence.limit
            and sequence.drafter is None
        )

    def _decode(self, sequence: Sequence) -> Share | None:
        drafts: list[int] = []
        if sequence.drafter is not None and sequence.sampled > 0:
            drafts = sequence.drafter.draft(sequence.tokens, sequence.limit - sequence.sampled - 1)
        if not self._make_room(sequence, sequence.launched + 1 + len(drafts), gives_way=not drafts):
            if not drafts or not self._make_room(sequence, sequence.launched + 1, gives_way=True):
                return None
            drafts = []
        newest = sequence.tokens[-1] if sequence.remaining else PENDING
        guesses = self._guesses(sequence, sequence.launched + 1 + len(drafts), len(drafts))
        return self._share(sequence, [newest, *drafts], samples=1 + len(drafts), guesses=guesses)

    def _guesses(self, sequence: Sequence, length: int, drafts: int = 0) -> int:
        """How many tokens the runner shall guess after a share that ends at `length` and samples.

        Guesses are worth no other sequence's blocks. If all drafts are right, the next step still samples a
        token after all guesses within the limit.
        """
        if sequence.drafter is None:
            return 0
        left = sequence.limit - sequence.sampled - drafts - 2
        count = min(sequence.drafter.wanted(len(self.running)), left)
        return count if count > 0 and self._make_room(sequence, length + count, gives_way=False) else 0

    def _begin(self) -> None:
        """Starts waiting sequences while there are slots and room."""
        if not self.waiting or not (self._slots or self._may_give_way()):
            return  # as in nearly every step of a busy engine
        deferred = 0
        ready = [sequence for sequence in self.waiting if not sequence.stalled]
        while ready:
            sequence = next_to_start(ready, running_counts(self.running))
            if not self._slots and self._giving_way(sequence) is None:
                return
            ready.remove(sequence)
            hit = self.cache.look_up(sequence)
            if hit.promised:
                deferred += 1
                if deferred > self.limits.max_concurrent:
                    return  # looking up a long queue would delay the step
                continue  # soon it can start after the blocks that are being computed now
            while not self._slots or (self.running and not self.cache.has_room_for(sequence, hit)):
                other = self._giving_way(sequence)
                if other is None:
                    return  # no overtaking: short prompts would make a long one wait for ever
                self._preempt(other)
            if self.cache.fetch(sequence, hit):
                continue  # it alone waits for its blocks
            self.waiting.remove(sequence)
            self.cache.begin(sequence, hit)
            sequence.slot = self._slots.pop()
            self.running.append(sequence)
            self._count_cached(sequence)

    def _may_give_way(self) -> bool:
        """Whether `_giving_way` could find a sequence for any of those that wait."""
        stalled = any(running.stalled and not running.in_flight for running in self.running)
        return stalled or may_give_way(self.waiting, running_counts(self.running))

    def _giving_way(self, to: Sequence) -> Sequence | None:
        """A sequence whose reader is stalled, or one of an owner with more than its share."""
        for sequence in self.running:
            if sequence.stalled and not sequence.in_flight:
                return sequence
        return that_gives_way(self.running, to, running_counts(self.running))

    def _count_cached(self, sequence: Sequence) -> None:
        if sequence.was_admitted:
            return
        sequence.was_admitted = True
        sequence.outbox.begun(sequence.launched)
        self.counts.cached_tokens += sequence.launched
        self.counts.prompt_tokens += sequence.prompt_length

    def _chunks(self, decoding: list[Share]) -> list[Share]:
        """Prompts take turns at the step's budget; none gets less than the least chunk."""
        busy = {share.sequence.number for share in decoding}
        reading = [own for own in self.running if own.remaining > 0 and own.number not in busy]
        ready = sorted((own for own in reading if not own.stalled), key=lambda own: own.last_turn)
        owners = running_counts(ready)
        budget = self._shared_budget(ready) if decoding else self.limits.chunk
        each_owners = budget // max(1, min(len(owners), self.limits.prompts))
        shares: list[Share] = []
        for sequence in in_turns(ready):
            if budget > 0 and sequence.slot != NO_SLOT:
                fair = each_owners // min(owners[sequence.owner], self.limits.prompts)
                most = max(self.limits.least_chunk, fair)
                if sequence.scores is not None:
                    most = min(most, self.limits.scored_chunk)
                share = self._chunk(sequence, min(sequence.remaining, most, budget))
                if share is not None:
                    shares.append(share)
                    budget -= len(share.part.tokens)
        return shares

    def _shared_budget(self, ready: list[Sequence]) -> int:
        """Prompt tokens alongside decoding sequences. Short prompts that arrive together are
        read together: one by one, the last would wait for a step of each other. Long ones share one."""
        short = sum(sequence.remaining <= self.limits.chunk for sequence in ready)
        return min(self.limits.chunk, self.limits.shared_chunk * max(1, short))

    def _chunk(self, sequence: Sequence, count: int) -> Share | None:
        if not self._make_room(sequence, sequence.launched + count, gives_way=True):
            return None
        self._turns += 1
        sequence.last_turn = self._turns
        start, end = sequence.launched, sequence.launched + count
        samples = int(end == len(sequence.tokens) and sequence.limit > 0)
        guesses = self._guesses(sequence, end) if samples else 0
        return self._share(sequence, sequence.tokens[start:end], samples=samples, guesses=guesses)

    def _share(self, sequence: Sequence, tokens: list[int], *, samples: int, guesses: int) -> Share:
        assert sequence.holding is not None
        start = sequence.launched
        scored = None
        if sequence.scores is not None and start + 1 < sequence.prompt_length:
            scored = sequence.tokens[start + 1 : min(start + len(tokens) + 1, sequence.prompt_length)]
        tables = sequence.holding.tables
        part = StepPart(sequence.slot, tokens, start, tables, samples, sequence.picker, scored, guesses)
        return Share(sequence, part)

    def _make_room(self, sequence: Sequence, length: int, *, gives_way: bool) -> bool:
        """Takes blocks. `gives_way`: also from sequences of higher standing or with stalled readers."""
        while not self.cache.grow(sequence, length):
            counts = running_counts(self.running)
            own = standing(sequence, counts)
            others = [other for other in self.running if other is not sequence and not other.in_flight]
            victims = [other for other in others if other.stalled or standing(other, counts) > own]
            if not gives_way or not victims:
                return False
            self._preempt(max(victims, key=lambda other: (other.stalled, standing(other, counts))))
        return True

    # A step is done -----------------------------------------------------------------------------------

    def settle(self, share: Share, accepted: int) -> None:
        """Records a computed share; `accepted` is the number of right drafts."""
        sequence, part = share.sequence, share.part
        sequence.in_flight -= 1
        if sequence.ended:
            return
        wrong = share.drafts - accepted
        if sequence.drafter is not None and share.drafts:
            if isinstance(sequence.drafter, PredictedDrafter) and sequence.drafter.follows:
                sequence.outbox.tried(accepted, wrong)
            sequence.drafter.learn(share.drafts, accepted)
        self.counts.drafted_tokens += share.drafts
        self.counts.accepted_tokens += accepted
        sequence.launched -= wrong
        self.cache.computed(sequence, part.start + len(part.tokens) - wrong)
