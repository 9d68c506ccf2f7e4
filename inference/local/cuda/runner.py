"""Runs steps on a GPU, replaying a recorded step where one fits, and one step ahead of the host's reading.

A token that the host does not know yet is read where the previous step left it on the device. On a CPU it
does the same in plain PyTorch and records nothing: so a draft head runs there.
"""

import itertools
import logging
from collections.abc import Sequence

import numpy
import torch
from torch import Tensor

from inference.drafting.head import DraftHead
from inference.engine import Sampling
from inference.local.cuda.flight import CudaFlight, Pending, on_host
from inference.local.cuda.guesser import MORE_ROWS, CudaGuesser
from inference.local.cuda.inputs import (
    StepShape,
    Tables,
    holding,
    is_prompt,
    shapes_for,
    single_rows,
    split_inputs,
    step_numbers,
    step_shape,
)
from inference.local.cuda.picker import CudaPicker, pick_rows, to_device
from inference.local.cuda.recordings import Recordings
from inference.local.cuda.sampling import RowSampler
from inference.local.scheduling.step import StepPart
from inference.models.gpt_oss import GptOss
from inference.models.kv_memory import PagedMemory
from inference.ops.device import device_problem
from inference.ops.pages import BLOCK_SIZE_ON_GPU

logger = logging.getLogger(__name__)

# Triton recompiles a kernel if an argument is 1 or a multiple of 16; few rows have kernels of their own.
WARMED_ROWS = (1, 2, 3, 16, 17)


class CudaRunner:
    """Implements `inference.local.scheduling.step.Runner`."""

    def __init__(
        self,
        model: GptOss,
        blocks: Sequence[int],
        max_concurrent: int,
        block_size: int = BLOCK_SIZE_ON_GPU,
        *,
        drafts: int = 0,
        head: DraftHead | None = None,
        graphs: bool | None = None,
    ) -> None:
        """`blocks`: how many for each of the model's windows, with block 0. `drafts`: the most in a part; a
        `head` guesses them. `graphs` None: if on a GPU."""
        self.block_size = block_size
        # A draft needs the tokens before it. With 1, sequences would also drift apart into steps of a few.
        self.ahead = 0 if drafts else 1
        self._model, self._device = model, model.device
        self._windows = model.config.windows
        self.memory = PagedMemory(model.config, blocks, block_size, model.device, model.kv_dtype)
        for part in itertools.chain.from_iterable(self.memory.layers):
            part[0].zero_()  # padding rows read block 0, and memory that was never written may hold NaN
        width = -(-model.config.context_length // block_size) + 2
        self._tables = Tables(max_concurrent, width, len(self._windows), model.device)
        self._latest: CudaFlight | None = None
        self._sampler = RowSampler(max_concurrent, model.device)
        records = graphs if graphs is not None else model.device.type == "cuda" and not model.waits_for_device
        self._guesser: CudaGuesser | None = None
        if head is not None:
            full_blocks = blocks[self._windows.index(None)]
            self._guesser = CudaGuesser(
                head, model, full_blocks, block_size, self._tables, drafts, records=records
            )
        self._guesses = head is not None  # until it fails
        self._graphs: Recordings[StepShape] | None = None
        if records:
            # With all numbers 0, a step reads no keys and writes to block 0.
            shapes = shapes_for(max_concurrent * (1 + drafts), model.config.context_length)
            self._graphs = Recordings(self._computed, self._length, shapes, model.device)

    def picker(self, sampling: Sampling, prompt: Sequence[int] = ()) -> CudaPicker:
        return CudaPicker(sampling, self._model.config.vocab_size, self._device, prompt)

    def prepare(self, progress: bool | None = None) -> None:
        """Compiles kernels and records steps, which would delay the first requests."""
        if self._graphs is not None:
            self._graphs.record_all("Recording steps", progress)
        if self._guesser is not None and self._guesser.graphs is not None:
            self._guesser.graphs.record_all("Recording guesses", progress)
        for rows in WARMED_ROWS:
            self._warm_up_sampling(rows)

    @torch.inference_mode()
    def _warm_up_sampling(self, rows: int) -> None:
        """Compiles the kernels for logits and sampling: steps with prompts do not record these."""
        config = self._model.config
        x = torch.zeros(rows, config.hidden, dtype=self._model.dtype, device=self._device)
        logits = self._model.logits(x)
        every_token = bytes([255]) * -(-config.vocab_size // 8)
        for bias, mask in itertools.product(({}, {0: 1.0}), (None, every_token)):
            picker = self.picker(Sampling(logit_bias=bias))
            pick_rows(logits, [picker] * rows, [0.5] * rows, [mask] * rows)

    def problem(self) -> str | None:
        return device_problem(self._device)

    def close(self) -> None:
        """Frees recorded steps, which hold memory outside of tensors; references keep the rest alive."""
        self._graphs = self._latest = self._guesser = None

    @torch.inference_mode()
    def launch(self, parts: Sequence[StepPart]) -> CudaFlight:
        order = sorted(range(len(parts)), key=lambda at: is_prompt(parts[at]))
        pending = [Pending(parts[at]) for at in order]
        self._tables.update(parts)
        logits = self._logits([entry.part for entry in pending])
        if self._latest is not None and any(entry.picker.masks is not None for entry in pending):
            # A mask needs the previous token: the host reads it while the device computes this step.
            self._latest.outcomes()
        tokens = self._sampler.sample(pending, logits) if logits is not None else self._sampler.newest[:0]
        guesses = self._guessed(pending, tokens)
        back = sorted(range(len(parts)), key=lambda at: order[at])
        self._latest = CudaFlight([pending[at] for at in back], on_host(tokens), guesses)
        return self._latest

    def _guessed(self, pending: Sequence[Pending], tokens: Tensor) -> Tensor | None:
        """The tokens are sampled: an error must not make the engine repeat the step."""
        if self._guesser is None or not self._guesses:
            return None
        try:
            guesses = self._guesser.guesses(pending, tokens)
        except Exception:
            # Any exception: the model's tokens are right without the head.
            logger.exception("The draft head failed; from here on no drafts are made.")
            self._guesses = False
            return None
        return None if guesses is None else on_host(guesses)

    # The model ----------------------------------------------------------------------------------------

    def _logits(self, parts: Sequence[StepPart]) -> Tensor | None:
        """The logits of the rows that need them, in the order of the parts; None if none does."""
        rows = single_rows(parts)
        shape = step_shape(rows)
        counts = [part.wanted for part in rows]
        recorded = None if self._graphs is None else holding(self._graphs.shapes, shape)
        if self._graphs is not None and recorded is not None:
            shape, spare = recorded, recorded.decodes - shape.decodes
            x = self._graphs.replay(self._numbers(parts, rows, shape), shape)
            if shape.decodes == shape.sequences:
                return self._rows(x, [at for at, count in enumerate(counts) if count])
        else:
            spare = 0
            x = self._forward(to_device(self._numbers(parts, rows, shape), self._device), shape)
        picked: list[int] = []
        ends = itertools.accumulate(len(part.tokens) for part in rows)
        for part, end, count in zip(rows, ends, counts, strict=True):
            # The padding of the sequences with one token lies between them and the prompts.
            first = end - count if len(part.tokens) == 1 else end - count + spare
            picked += range(first, first + count)
        return self._model.logits(self._rows(x, picked)) if picked else None

    def _length(self, shape: StepShape) -> int:
        more = 0 if self._guesser is None else MORE_ROWS * shape.rows
        return shape.length(len(self._windows)) + more

    def _numbers(self, parts: Sequence[StepPart], rows: Sequence[StepPart], shape: StepShape) -> Tensor:
        """`rows`: the parts with their drafts apart."""
        numbers = step_numbers(rows, shape, len(self._windows), self.block_size, self._tables.padding)
        if self._guesser is not None:
            numbers = numpy.concatenate((numbers, self._guesser.numbers(parts, shape)))
        return torch.from_numpy(numbers)

    def _rows(self, values: Tensor, rows: list[int]) -> Tensor:
        if rows == list(range(len(rows))):
            return values[: len(rows)]
        return values.index_select(0, to_device(torch.tensor(rows, dtype=torch.int64), self._device))

    def _forward(self, numbers: Tensor, shape: StepShape) -> Tensor:
        own = shape.length(len(self._windows))
        inputs = split_inputs(numbers[:own], shape, len(self._windows))
        pages = self._tables.pages(inputs, shape, self._windows, self.block_size)
        newest = self._sampler.newest.index_select(0, inputs.owners[: shape.decodes])
        stated = inputs.tokens[: shape.decodes]
        # A generation whose logits were not finite has ended, but may still have a part in the next step.
        known = torch.where(stated < 0, newest, stated).clamp(min=0)
        tokens = torch.cat((known, inputs.tokens[shape.decodes :]))
        hidden = None if self._guesser is None else self._guesser.hidden()
        x = self._model.forward(tokens, inputs.positions, self.memory, pages, hidden)
        if self._guesser is not None and hidden is not None:
            self._guesser.keep(numbers[own:], hidden, tokens, inputs.positions, pages)
        return x

    @torch.inference_mode()
    def _computed(self, numbers: Tensor, shape: StepShape) -> Tensor:
        """The logits of a step in which every sequence has one token; else the last layer's rows."""
        x = self._forward(numbers, shape)
        return self._model.logits(x) if shape.decodes == shape.sequences else x
