"""A draft head on a GPU: what each step keeps for it, and its guesses after a step, without the host.

Takes the rows of a step while it runs, then its sampled tokens on the device; returns guesses there. The host
knows neither which drafts were right nor any guess before it reads the outcomes. Keys and values lie in the
model's blocks, as on a CPU. A step writes the pairs of all its rows, with the feature of the row before or,
for a part's first row, the kept one. Kept are the feature of each block's last position and those of each
slot's newest positions, so that no step needs to know whether a draft was right.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import torch
from torch import Tensor

from inference.drafting.head import FIRST_PAIR, DraftHead
from inference.local.cuda.flight import Pending
from inference.local.cuda.inputs import IntArray, Numbers, StepShape, Tables, is_prompt
from inference.local.cuda.picker import to_device
from inference.local.cuda.recordings import Recordings
from inference.local.scheduling.step import StepPart
from inference.models.gpt_oss import GptOss, HiddenStates
from inference.models.kv_memory import empty_blocks
from inference.ops.pages import Pages

MORE_ROWS = 2  # numbers for each row of a step: where its feature before lies, and where its own is kept
PREVIOUS_ROW = -1
NO_DRAFT, NO_TOKEN = -2, -1  # they equal no token, nor each other


@dataclass(frozen=True, slots=True)
class DraftShape:
    sequences: int
    rounds: int  # guesses of each


def draft_shapes(sequences: int, most: int) -> tuple[DraftShape, ...]:
    """All to record, the largest first. Few sizes: the head's weights cost more than its rows."""
    sizes = [1]
    while sizes[-1] < sequences:
        sizes.append(min(2 * sizes[-1], sequences))
    return tuple(DraftShape(size, rounds) for size in reversed(sizes) for rounds in range(most, 0, -1))


class CudaGuesser:
    def __init__(
        self,
        head: DraftHead,
        model: GptOss,
        blocks: int,
        block_size: int,
        tables: Tables,
        most: int,
        *,
        records: bool,
    ) -> None:
        """`blocks`: of the layers without a window. `most`: the largest number of guesses."""
        self._head, self._size, self._tables, self._most = head, block_size, tables, most
        self._device, self._kind = model.device, model.config.windows.index(None)
        config, slots = head.config, tables.padding  # the padding's slot follows those of sequences
        shape = (config.kv_heads, blocks, block_size, config.head_dim)
        self._keys, self._values = (empty_blocks(shape, model.device, model.dtype).zero_() for _ in range(2))
        self._blocks, self._each = blocks, most + 2
        kept = blocks + (slots + 1) * self._each
        self._kept = torch.zeros(kept, config.hidden, device=model.device, dtype=model.dtype)
        # The tokens that a step sampled, and a place for none.
        self._sampled = torch.full(
            (slots * (most + 1) + 1,), NO_TOKEN, dtype=torch.int64, device=model.device
        )
        self._starts = torch.arange(slots + 2, dtype=torch.int32, device=model.device)
        shapes = draft_shapes(slots, most)
        self.graphs: Recordings[DraftShape] | None = (
            Recordings(self._guessed, self._length, shapes, model.device) if records else None
        )

    def hidden(self) -> HiddenStates:
        """What the model must keep of a step."""
        return HiddenStates(self._head.states)

    # During a step --------------------------------------------------------------------------------------

    def numbers(self, parts: Sequence[StepPart], shape: StepShape) -> IntArray:
        """MORE_ROWS numbers for each row of a step, in the order of `step_numbers`."""
        decodes = [part for part in parts if not is_prompt(part)]
        prompts = [part for part in parts if is_prompt(part)]
        count = sum(len(part.tokens) for part in decodes)
        nothing = [0] * (shape.decodes - count)
        left = [0] * (shape.rows - shape.decodes - sum(len(part.tokens) for part in prompts))
        before: list[Numbers] = [[number for part in decodes for number in self._before(part)]]
        ranges = [(part, range(part.start, part.start + len(part.tokens))) for part in decodes]
        kept: list[Numbers] = [[self._place(part, at) for part, places in ranges for at in places]]
        before += [nothing, *(self._before(part) for part in prompts), left]
        kept += [nothing, *(self._prompt_places(part) for part in prompts), left]
        return numpy.concatenate([numpy.asarray(numbers, dtype=numpy.int64) for numbers in (*before, *kept)])

    def _before(self, part: StepPart) -> list[int]:
        first = self._place(part, part.start - 1) if part.start else 0
        return [first, *[PREVIOUS_ROW] * (len(part.tokens) - 1)]

    def _prompt_places(self, part: StepPart) -> IntArray:
        """Only of blocks' ends and of the last row: the sequence continues after it."""
        places = numpy.zeros(len(part.tokens), dtype=numpy.int64)
        table = numpy.asarray(part.tables[self._kind], dtype=numpy.int64)
        ends = numpy.arange(self._size - 1 - part.start % self._size, len(places), self._size)
        places[ends] = table[(part.start + ends) // self._size]
        places[-1] = self._place(part, part.start + len(places) - 1)
        return places

    def _place(self, part: StepPart, position: int) -> int:
        """Where the feature of a position is kept."""
        if position % self._size == self._size - 1:
            return part.tables[self._kind][position // self._size]
        return self._blocks + part.slot * self._each + position % self._each

    def keep(
        self, numbers: Tensor, hidden: HiddenStates, tokens: Tensor, positions: Tensor, pages: Sequence[Pages]
    ) -> None:
        """Writes the pairs of a step's rows, and keeps their features."""
        features = self._head.features(hidden.found)
        before, places = numbers.view(MORE_ROWS, -1)
        above = torch.cat((features[:1], features[:-1]))
        kept = self._kept.index_select(0, before.clamp(min=0))
        paired = torch.where((before == PREVIOUS_ROW).unsqueeze(1), above, kept)
        self._kept.index_copy_(0, places, features)
        self._head.write(tokens, paired, positions, self._keys, self._values, pages[self._kind])

    # After a step ---------------------------------------------------------------------------------------

    @torch.inference_mode()
    def guesses(self, pending: Sequence[Pending], tokens: Tensor) -> Tensor | None:
        """A row of guesses for each part that wants any, which learns its row; `tokens`: all sampled."""
        asking = [entry for entry in pending if entry.part.guesses and entry.error is None]
        if not asking:
            return None
        self._sampled[: len(tokens)] = tokens
        rounds = max(entry.part.guesses for entry in asking)
        shape = DraftShape(len(asking), rounds)
        if self.graphs is not None:
            shapes = reversed(self.graphs.shapes)
            shape = next(own for own in shapes if own.sequences >= len(asking) and own.rounds >= rounds)
        for row, entry in enumerate(asking):
            entry.guess_row = row
        numbers = self._draft_numbers(asking, shape.sequences)
        if self.graphs is not None:
            return self.graphs.replay(numbers, shape)
        return self._guessed(to_device(numbers, self._device), shape)

    def _length(self, shape: DraftShape) -> int:
        return shape.sequences * (3 + 2 * self._most + 1)

    def _draft_numbers(self, asking: Sequence[Pending], sequences: int) -> Tensor:
        """For each part: its slot, the position of the first row that samples, the guesses that it wants,
        where its sampled tokens are, and its drafts."""
        nowhere = len(self._sampled) - 1
        padding = [self._tables.padding, 0, 0, *[nowhere] * (self._most + 1), *[NO_DRAFT] * self._most]
        rows = [self._draft_row(entry, nowhere) for entry in asking]
        rows += [padding] * (sequences - len(rows))
        return torch.tensor(rows, dtype=torch.int64).t().flatten()

    def _draft_row(self, pending: Pending, nowhere: int) -> list[int]:
        part, most = pending.part, self._most
        first = len(part.tokens) - part.samples
        places = list(range(pending.tokens.start, pending.tokens.stop))
        drafts = list(part.tokens[first + 1 :])
        return [
            part.slot, part.start + first, part.guesses,
            *places, *[nowhere] * (most + 1 - len(places)), *drafts, *[NO_DRAFT] * (most - len(drafts)),
        ]  # fmt: skip

    @torch.inference_mode()
    def _guessed(self, numbers: Tensor, shape: DraftShape) -> Tensor:
        """Sequences × rounds."""
        most, size = self._most, self._size
        columns = numbers.view(-1, shape.sequences)
        slots, first, wanted = columns[:3]
        sampled = self._sampled[columns[3 : 4 + most]]
        right = (sampled[:-1] == columns[4 + most :]).long().cumprod(0).sum(0)
        tokens = sampled.gather(0, right.unsqueeze(0))[0].clamp(min=0)  # a failed one has ended
        newest = first + right
        tables = self._tables.rows[self._kind].index_select(0, slots)
        features = self._kept.index_select(0, self._kept_at(slots, newest, tables))

        # A round that a sequence does not want writes to block 0 and reads one place, whose result is unused.
        rounds = torch.arange(shape.rounds, device=self._device).unsqueeze(1)
        idle = wanted <= rounds
        positions = (newest + 1 + rounds).masked_fill(idle, FIRST_PAIR)
        block = tables.gather(1, (positions // size).t()).t()
        places = (block * size + positions % size).masked_fill(idle, 0)
        guesses = []
        for at in range(shape.rounds):
            pages = self._pages(tables, positions[at], places[at], shape.sequences)
            outputs = self._head.layer(tokens, features, positions[at], self._keys, self._values, pages)
            tokens, features = self._head.guesses(outputs), self._head.carried(outputs)
            guesses.append(tokens)
        return torch.stack(guesses, 1)

    def _kept_at(self, slots: Tensor, positions: Tensor, tables: Tensor) -> Tensor:
        """As `_place`, on the device."""
        block = tables.gather(1, (positions // self._size).unsqueeze(1)).squeeze(1)
        own = self._blocks + slots * self._each + positions % self._each
        return torch.where(positions % self._size == self._size - 1, block, own)

    def _pages(self, tables: Tensor, positions: Tensor, places: Tensor, sequences: int) -> Pages:
        lengths, starts = (positions + 1).int(), self._starts[: sequences + 1]
        window = self._head.config.window
        return Pages(tables, lengths, starts, places, window, self._size, sequences, 1, first=FIRST_PAIR)
