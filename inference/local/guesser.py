"""A draft head at work: after each step it reads what the step computed and guesses the tokens that follow.

Takes a step's parts, their outcomes and the model's states; returns the outcomes with guesses. The head's
keys and values lie in the blocks of the model's full-attention layers, under the same positions. A pair
depends on no later token, so a block is right for every sequence that shares it. Each block also keeps the
feature of its newest position, which the next pair needs. It must not know the scheduler.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor

from inference.drafting.head import FIRST_PAIR, DraftHead
from inference.local.scheduling.step import Outcome, StepPart, right_drafts
from inference.models.gpt_oss import GptOss, HiddenStates
from inference.models.kv_memory import empty_blocks
from inference.ops.pages import Span, pages_from_spans, slot_range, span


def bytes_per_block(head: DraftHead, block_size: int, dtype: torch.dtype) -> int:
    """Keys and values of a block's pairs, and its feature."""
    config = head.config
    return (2 * config.kv_heads * config.head_dim * block_size + config.hidden) * dtype.itemsize


@dataclass(frozen=True, slots=True)
class Run:
    """One part's pairs, at consecutive positions."""

    part: int  # its place in the step
    table: Sequence[int]
    start: int  # the position of the first pair
    tokens: list[int]
    sources: list[int]  # the place of each pair's feature: a row of the step or, after those, a part's block
    guesses: int  # tokens to guess after the last pair

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


class Guesser:
    def __init__(self, head: DraftHead, model: GptOss, blocks: Sequence[int], block_size: int) -> None:
        """`blocks`: the number for each of the model's windows."""
        self._head, self._size, self._device = head, block_size, model.device
        self._kind = model.config.windows.index(None)
        config, count = head.config, blocks[self._kind]
        shape = (config.kv_heads, count, block_size, config.head_dim)
        self._keys, self._values = (empty_blocks(shape, model.device, model.dtype) for _ in range(2))
        self._newest = torch.empty(count, config.hidden, device=model.device, dtype=model.dtype)

    def hidden(self) -> HiddenStates:
        """What the model must keep of a step."""
        return HiddenStates(self._head.states)

    @torch.inference_mode()
    def extended(
        self, parts: Sequence[StepPart], outcomes: Sequence[Outcome], hidden: HiddenStates
    ) -> list[Outcome]:
        """The same outcomes, with guesses where the parts want them."""
        features = self._head.features(hidden.found)
        sources = torch.cat((features, self._before(parts)))
        runs, offset = [], 0
        kept: list[tuple[int, int]] = []  # a block, and the row of its newest feature
        for at, (part, outcome) in enumerate(zip(parts, outcomes, strict=True)):
            count = len(part.tokens) - max(0, part.samples - 1) + right_drafts(part, outcome)
            runs.append(self._run(at, part, outcome, offset, count, len(features)))
            kept += self._ends(part, offset, count)
            offset += len(part.tokens)
        blocks, rows = self._indices(block for block, _ in kept), self._indices(row for _, row in kept)
        self._newest[blocks] = features[rows]
        guessed = self._guessed([run for run in runs if run.tokens], sources)
        return [
            replace(outcome, guesses=tuple(guessed[at])) if at in guessed else outcome
            for at, outcome in enumerate(outcomes)
        ]

    def _before(self, parts: Sequence[StepPart]) -> Tensor:
        """For each part the feature of the position before it; arbitrary where there is none."""
        blocks = (part.tables[self._kind][max(0, part.start - 1) // self._size] for part in parts)
        return self._newest[self._indices(blocks)]

    def _run(self, at: int, part: StepPart, outcome: Outcome, offset: int, count: int, all_rows: int) -> Run:
        """`count`: of the part's first rows, those that its sequence keeps; `offset`: the first one."""
        table = part.tables[self._kind]
        tokens = list(part.tokens[:count])
        sources = [all_rows + at, *range(offset, offset + count)][:count]
        guesses = 0
        newest = outcome.sampled[right_drafts(part, outcome) :]
        if newest and part.start + count < len(table) * self._size:
            tokens.append(newest[0].token)
            sources.append(offset + count - 1)
            ends = outcome.error is not None or newest[0].token in part.picker.sampling.stop_token_ids
            guesses = 0 if ends else part.guesses
        first = max(0, FIRST_PAIR - part.start)
        return Run(at, table, part.start + first, tokens[first:], sources[first:], guesses)

    def _ends(self, part: StepPart, offset: int, count: int) -> list[tuple[int, int]]:
        """The last rows in each block among a part's first rows."""
        table, size, end = part.tables[self._kind], self._size, part.start + count
        blocks = range(part.start // size, -(-end // size))
        return [(table[block], offset + min((block + 1) * size, end) - 1 - part.start) for block in blocks]

    # The head -------------------------------------------------------------------------------------------

    def _guessed(self, runs: Sequence[Run], sources: Tensor) -> dict[int, list[int]]:
        """Runs the head over all pairs; returns the guesses of each part that wants any."""
        if not runs:
            return {}
        features = sources[self._indices(source for run in runs for source in run.sources)]
        ends = accumulate(len(run.tokens) for run in runs)
        asking = [(run, end - 1) for run, end in zip(runs, ends, strict=True) if run.guesses]
        asked = self._indices(at for _, at in asking)
        tokens = self._indices(token for run in runs for token in run.tokens)
        outputs = self._computed(runs, [run for run, _ in asking], tokens, features, asked)
        guessed: dict[int, list[int]] = {run.part: [] for run, _ in asking}
        active = [replace(run, start=run.end - 1, tokens=run.tokens[-1:]) for run, _ in asking]
        while active:
            tokens = self._head.guesses(outputs)
            for run, token in zip(active, tokens.tolist(), strict=True):
                guessed[run.part].append(token)
            more = [at for at, run in enumerate(active) if len(guessed[run.part]) < run.guesses]
            active = [replace(active[at], start=active[at].start + 1) for at in more]
            if active:
                chosen = self._indices(more)
                carried = self._head.carried(outputs[chosen])
                outputs = self._computed(active, active, tokens[chosen], carried, None)
        return guessed

    def _computed(
        self,
        runs: Sequence[Run],
        asking: Sequence[Run],
        tokens: Tensor,
        features: Tensor,
        asked: Tensor | None,
    ) -> Tensor:
        """The outputs after the last pairs of those runs that ask for them."""
        positions = [position for run in runs for position in range(run.start, run.end)]
        slots = [slot for run in runs for slot in slot_range(run.table, run.start, run.end, self._size)]
        spans = [self._span(at, run) for at, run in enumerate(asking)]
        pages = pages_from_spans(spans, self._indices(slots), self._head.config.window, self._size)
        return self._head.layer(
            tokens, features, self._indices(positions), self._keys, self._values, pages, asked
        )

    def _span(self, at: int, run: Run) -> Span:
        own = span(at, at + 1, run.end, run.table, self._head.config.window, self._size)
        return replace(own, first=max(FIRST_PAIR, own.first))

    def _indices(self, numbers: Iterable[int]) -> Tensor:
        return torch.tensor(list(numbers), dtype=torch.int64, device=self._device)
