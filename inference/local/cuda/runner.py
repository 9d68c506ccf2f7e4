"""Runs steps on a GPU, replaying a recorded step where one fits, and one step ahead of the host's reading.

Takes the parts of a step and returns a flight whose outcomes wait only for the sampled tokens. A token that
the host does not know yet is read where the previous step left it on the device. Without a GPU it does the
same in plain PyTorch and records nothing; the tests run it so.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from inference.engine import EngineFailed, InferenceError, Sampling
from inference.local.cuda.flight import NOT_FINITE, CudaFlight, Pending, Scores, confirms_draft, on_host
from inference.local.cuda.graphs import Graphs
from inference.local.cuda.inputs import StepShape, Tables, inputs_of, numbers_of, shape_of
from inference.local.cuda.picker import CudaPicker, pick_rows, to_device
from inference.local.sampling.masks import Masks
from inference.local.scheduling.step import StepPart, failure_of
from inference.models.gpt_oss import GptOss
from inference.models.kv_cache import PagedMemory
from inference.ops.device_check import device_problem
from inference.ops.sampling import log_probabilities

BLOCK_SIZE = 64
# Triton recompiles a kernel if an argument is 1 or a multiple of 16; few rows have kernels of their own.
WARMED_ROWS = (1, 2, 3, 16, 17)


class CudaRunner:
    """Implements `inference.local.scheduling.step.Runner`."""

    ahead = 1

    def __init__(
        self,
        model: GptOss,
        blocks: Sequence[int],
        max_concurrent: int,
        block_size: int = BLOCK_SIZE,
        *,
        graphs: bool | None = None,
    ) -> None:
        """`blocks`: how many for each of the model's windows, with block 0. `graphs` None: if on a GPU."""
        self.block_size = block_size
        self._model, self._device = model, model.device
        self._windows = model.config.windows
        self._memory = PagedMemory(model.config, blocks, block_size, model.device, model.kv_dtype)
        self._clear_padding_block()
        width = -(-model.config.context_length // block_size) + 2
        self._tables = Tables(max_concurrent, width, len(self._windows), model.device)
        self._latest: CudaFlight | None = None
        # Each slot's latest sampled token, and one place for padding.
        self._newest = torch.zeros(max_concurrent + 1, dtype=torch.int64, device=model.device)
        records = graphs if graphs is not None else model.device.type == "cuda" and not model.waits_for_device
        self._graphs = (
            Graphs(
                self._computed, len(self._windows), max_concurrent, model.config.context_length, model.device
            )
            if records
            else None
        )

    def _clear_padding_block(self) -> None:
        """Padding rows read block 0, and memory that was never written may hold NaN."""
        for layer in self._memory.layers:
            for part in layer:
                part[0].zero_()

    def picker(self, sampling: Sampling, prompt: Sequence[int] = ()) -> CudaPicker:
        return CudaPicker(sampling, self._model.config.vocab_size, self._device, prompt)

    def prepare(self, progress: bool | None = None) -> None:
        """Compiles kernels and records steps, which would delay the first requests."""
        if self._graphs is not None:
            self._graphs.record_all(progress)
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

    def improve(self) -> bool:
        return False  # `prepare` has done all of it

    def problem(self) -> str | None:
        return device_problem(self._device)

    def close(self) -> None:
        """Frees recorded steps, which hold memory outside of tensors; references keep the rest alive."""
        self._graphs = self._latest = None

    @torch.inference_mode()
    def launch(self, parts: Sequence[StepPart]) -> CudaFlight:
        order = sorted(range(len(parts)), key=lambda at: len(parts[at].tokens) > 1)
        pending = [Pending(parts[at]) for at in order]
        self._tables.update(parts)
        logits = self._logits([each.part for each in pending])
        if self._latest is not None and any(each.picker.masks is not None for each in pending):
            # A mask needs the previous token: the host reads it while the device computes this step.
            self._latest.outcomes()
        tokens = on_host(self._sample(pending, logits) if logits is not None else self._newest[:0])
        back = sorted(range(len(parts)), key=lambda at: order[at])
        self._latest = CudaFlight([pending[at] for at in back], tokens)
        return self._latest

    # The model ----------------------------------------------------------------------------------------

    def _logits(self, parts: Sequence[StepPart]) -> Tensor | None:
        """The logits of the rows that need them, in the order of the parts; None if none does."""
        shape = shape_of(parts)
        counts = [_wanted_rows(part) for part in parts]
        recorded = None if self._graphs is None else self._graphs.shape_for(shape)
        if self._graphs is not None and recorded is not None:
            shape, spare = recorded, recorded.decodes - shape.decodes
            x = self._graphs.replay(self._numbers(parts, shape), shape)
            if shape.decodes == shape.sequences:
                return self._rows(x, [at for at, count in enumerate(counts) if count])
        else:
            spare = 0
            x = self._forward(to_device(self._numbers(parts, shape), self._device), shape)
        picked: list[int] = []
        end = 0
        for part, count in zip(parts, counts, strict=True):
            # The padding of the sequences with one token lies between them and the prompts.
            end += len(part.tokens)
            first = end - count if len(part.tokens) == 1 else end - count + spare
            picked += range(first, first + count)
        return self._model.logits(self._rows(x, picked)) if picked else None

    def _numbers(self, parts: Sequence[StepPart], shape: StepShape) -> Tensor:
        kinds = len(self._windows)
        numbers = numbers_of(parts, shape, kinds, self.block_size, self._tables.padding)
        return torch.from_numpy(numbers)

    def _rows(self, values: Tensor, rows: list[int]) -> Tensor:
        if rows == list(range(len(rows))):
            return values[: len(rows)]
        return values.index_select(0, to_device(torch.tensor(rows, dtype=torch.int64), self._device))

    def _forward(self, numbers: Tensor, shape: StepShape) -> Tensor:
        inputs = inputs_of(numbers, shape, len(self._windows))
        pages = self._tables.pages(inputs, shape, self._windows, self.block_size)
        newest = self._newest.index_select(0, inputs.owners[: shape.decodes])
        given = inputs.tokens[: shape.decodes]
        # A generation whose logits were not finite has ended, but may still have a part in the next step.
        known = torch.where(given < 0, newest, given).clamp(min=0)
        tokens = torch.cat((known, inputs.tokens[shape.decodes :]))
        return self._model.forward(tokens, inputs.positions, self._memory, pages)

    @torch.inference_mode()
    def _computed(self, numbers: Tensor, shape: StepShape) -> Tensor:
        """The logits of a step in which every sequence has one token; else the last layer's rows."""
        x = self._forward(numbers, shape)
        return self._model.logits(x) if shape.decodes == shape.sequences else x

    # Sampling -----------------------------------------------------------------------------------------

    def _sample(self, pending: Sequence[Pending], logits: Tensor) -> Tensor:
        """All tokens that the parts sample, concatenated, still on the device."""
        wanted = [_wanted_rows(each.part) for each in pending]
        own = dict(zip(map(id, pending), torch.split(logits, wanted), strict=True))
        for each in pending:
            _score_prompt(each, own[id(each)])
        together = [each for each in pending if each.part.samples and not _needs_each_token(each)]
        rows = [own[id(each)][-each.part.samples :] for each in together]
        # In most steps these are exactly `logits`.
        chosen = logits if wanted == [each.part.samples for each in together] else None
        found = (
            [self._sample_together(together, chosen if chosen is not None else torch.cat(rows))]
            if rows
            else []
        )
        end = 0
        for each in together:
            each.tokens = slice(end, end + each.part.samples)
            end += each.part.samples
        for each in pending:
            if each.part.samples and _needs_each_token(each):
                tokens = self._sample_in_turn(each, own[id(each)][-each.part.samples :])
                each.tokens = slice(end, end + len(tokens))
                end += len(tokens)
                found.append(tokens)
        for each in pending:
            if each.part.samples and each.picker.sampling.logprobs is not None:
                tokens = torch.cat(found)[each.tokens]
                each.logprobs = _scores(
                    own[id(each)][-each.part.samples :][: len(tokens)], tokens, each.picker.sampling.logprobs
                )
        return torch.cat(found) if found else self._newest[:0]

    def _sample_together(self, pending: Sequence[Pending], logits: Tensor) -> Tensor:
        """Picks for all rows in one call; the host computes masks while the device computes the logits."""
        pickers, points, masks = [], [], []
        for each, mask in zip(pending, _masks(pending), strict=True):
            count = each.part.samples
            pickers += [each.picker] * count
            points += each.picker.points(count)
            masks += [mask] * count
            if count == 1:
                each.picker.used(1)
        tokens = pick_rows(logits, pickers, points, masks)
        alone = [at for at, each in enumerate(pending) if each.part.samples == 1]
        if len(alone) == len(pending):
            slots = [each.part.slot for each in pending]
            self._newest.index_copy_(0, to_device(torch.tensor(slots), self._device), tokens)
        else:
            self._keep_newest(pending, tokens)
        _count(pending, tokens)
        return tokens

    def _keep_newest(self, pending: Sequence[Pending], tokens: Tensor) -> None:
        """For steps with drafts, whose rows the host reads before a later step builds on them."""
        end = 0
        for each in pending:
            if each.part.samples == 1:
                self._newest[each.part.slot] = tokens[end]
            end += each.part.samples

    def _sample_in_turn(self, pending: Pending, logits: Tensor) -> Tensor:
        """Samples drafts one by one where a token depends on the previous one through more than the model."""
        picker, part = pending.picker, pending.part
        found: list[int] = []
        try:
            for at in range(part.samples):
                mask = None if picker.masks is None else picker.masks.bits()
                token = pick_rows(logits[at : at + 1], [picker], picker.points(1), [mask])
                picker.used(1)
                picker.count(token)
                found.append(int(token.item()))
                if found[-1] < 0:
                    raise EngineFailed(NOT_FINITE)
                if picker.masks is not None:
                    picker.masks.accept(found[-1])
                if not confirms_draft(part, picker, at, found[-1]):
                    break
        except InferenceError as error:
            pending.error = error
        except Exception as error:
            # As in a flight: a grammar is foreign code.
            pending.error = failure_of(error)
        return torch.tensor(found, dtype=torch.int64, device=self._device)


def _wanted_rows(part: StepPart) -> int:
    """How many of a part's last rows need logits."""
    return len(part.tokens) if part.scored is not None else part.samples


def _needs_each_token(pending: Pending) -> bool:
    return pending.part.samples > 1 and not pending.picker.is_plain


def _masks(pending: Sequence[Pending]) -> list[bytes | None]:
    """The mask of each part, None if no grammar binds it or its grammar failed."""
    bound = [each.picker.masks for each in pending if each.picker.masks is not None]
    found = iter(Masks.bits_of_all(bound))
    masks: list[bytes | None] = []
    for each in pending:
        mask = None if each.picker.masks is None else next(found)
        if isinstance(mask, Exception):
            each.error = mask if isinstance(mask, InferenceError) else failure_of(mask)
            mask = None
        masks.append(mask)
    return masks


def _count(pending: Sequence[Pending], tokens: Tensor) -> None:
    end = 0
    for each in pending:
        if each.part.samples == 1:
            each.picker.count(tokens[end : end + 1])
        end += each.part.samples


def _score_prompt(pending: Pending, logits: Tensor) -> None:
    part = pending.part
    if part.scored is not None:
        count = min(len(part.scored), len(logits))
        tokens = to_device(torch.tensor(part.scored[:count], dtype=torch.int64), logits.device)
        top = pending.picker.sampling.prompt_logprobs or 0
        pending.scores = _scores(logits[:count], tokens, top, ranked=True)


def _scores(logits: Tensor, tokens: Tensor, top: int, *, ranked: bool = False) -> Scores:
    known = tokens.clamp(min=0)
    ranks = (logits > logits.gather(1, known[:, None])).sum(1) + 1 if ranked else None
    return Scores(tokens, *log_probabilities(logits, known, top), ranks).on_host()
