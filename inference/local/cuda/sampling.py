"""Samples a step's tokens on the device, from the logits of its rows, and keeps the newest of each slot.

Parts that check drafts are sampled row by row where a token depends on the previous one through more than the
model. It must not know the model.
"""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from inference.engine import EngineFailed
from inference.failures import as_failure
from inference.local.cuda.flight import NOT_FINITE, Pending, Scores, confirms_draft
from inference.local.cuda.picker import pick_rows, to_device
from inference.local.sampling.sampler import Masks
from inference.ops.sampling import log_probabilities


class RowSampler:
    def __init__(self, slots: int, device: torch.device) -> None:
        # Each slot's latest sampled token, and one place for padding.
        self.newest = torch.zeros(slots + 1, dtype=torch.int64, device=device)
        self._device = device

    def sample(self, pending: Sequence[Pending], logits: Tensor) -> Tensor:
        """All tokens that the parts sample, concatenated, on the device; the parts learn their places."""
        wanted = [entry.part.wanted for entry in pending]
        own = dict(zip(map(id, pending), torch.split(logits, wanted), strict=True))
        for entry in pending:
            _score_prompt(entry, own[id(entry)])
        together = [entry for entry in pending if entry.part.samples and not _needs_each_token(entry)]
        rows = [own[id(entry)][-entry.part.samples :] for entry in together]
        # In most steps these are exactly `logits`.
        chosen = logits if wanted == [entry.part.samples for entry in together] else None
        sampled, end = [], 0
        if rows:
            sampled.append(self._sample_together(together, torch.cat(rows) if chosen is None else chosen))
        for entry in together:
            entry.tokens = slice(end, end + entry.part.samples)
            end += entry.part.samples
        for entry in pending:
            if entry.part.samples and _needs_each_token(entry):
                tokens = self._sample_in_turn(entry, own[id(entry)][-entry.part.samples :])
                entry.tokens = slice(end, end + len(tokens))
                end += len(tokens)
                sampled.append(tokens)
        for entry in pending:
            if entry.part.samples and entry.picker.sampling.logprobs is not None:
                tokens = torch.cat(sampled)[entry.tokens]
                kept = own[id(entry)][-entry.part.samples :][: len(tokens)]
                sampling = entry.picker.sampling
                entry.logprobs = _scores(kept, tokens, sampling.logprobs or 0, sampling.alternatives)
        return torch.cat(sampled) if sampled else self.newest[:0]

    def _sample_together(self, pending: Sequence[Pending], logits: Tensor) -> Tensor:
        """Picks for all rows in one call; the host computes masks while the device computes the logits."""
        pickers, points, masks = [], [], []
        for entry, mask in zip(pending, _masks(pending), strict=True):
            count = entry.part.samples
            pickers += [entry.picker] * count
            points += entry.picker.points(count)
            masks += [mask] * count
            if count == 1:
                entry.picker.used(1)
        tokens = pick_rows(logits, pickers, points, masks)
        ends = itertools.accumulate(entry.part.samples for entry in pending)
        alone = [
            (entry, end - 1) for entry, end in zip(pending, ends, strict=True) if entry.part.samples == 1
        ]
        if len(alone) == len(pending):
            slots = [entry.part.slot for entry in pending]
            self.newest.index_copy_(0, to_device(torch.tensor(slots), self._device), tokens)
        else:  # a step with drafts, whose rows the host reads before a later step builds on them
            for entry, at in alone:
                self.newest[entry.part.slot] = tokens[at]
        for entry, at in alone:
            entry.picker.count(tokens[at : at + 1])
        return tokens

    def _sample_in_turn(self, pending: Pending, logits: Tensor) -> Tensor:
        """Samples drafts one by one where a token depends on the previous one through more than the model."""
        picker, part = pending.picker, pending.part
        tokens: list[int] = []
        try:
            for at in range(part.samples):
                mask = None if picker.masks is None else picker.masks.bits()
                token = pick_rows(logits[at : at + 1], [picker], picker.points(1), [mask])
                picker.used(1)
                picker.count(token)
                tokens.append(int(token.item()))
                if tokens[-1] < 0:
                    raise EngineFailed(NOT_FINITE)
                if picker.masks is not None:
                    picker.masks.accept(tokens[-1])
                if not confirms_draft(part, picker, at, tokens[-1]):
                    break
        except Exception as error:
            # As in a flight: a grammar is foreign code.
            pending.error = as_failure(error)
        return torch.tensor(tokens, dtype=torch.int64, device=self._device)


def _needs_each_token(pending: Pending) -> bool:
    return pending.part.samples > 1 and not pending.picker.is_plain


def _masks(pending: Sequence[Pending]) -> list[bytes | None]:
    """The mask of each part, None if no grammar binds it or its grammar failed."""
    bound = [entry.picker.masks for entry in pending if entry.picker.masks is not None]
    masks_left = iter(Masks.bits_of_all(bound))
    masks: list[bytes | None] = []
    for entry in pending:
        mask = None if entry.picker.masks is None else next(masks_left)
        if isinstance(mask, Exception):
            entry.error = as_failure(mask)
            mask = None
        masks.append(mask)
    return masks


def _score_prompt(pending: Pending, logits: Tensor) -> None:
    part = pending.part
    if part.scored is not None:
        count = min(len(part.scored), len(logits))
        tokens = to_device(torch.tensor(part.scored[:count], dtype=torch.int64), logits.device)
        top = pending.picker.sampling.prompt_logprobs or 0
        pending.scores = _scores(logits[:count], tokens, top, ranked=True)


def _scores(
    logits: Tensor, tokens: Tensor, top: int, among: Sequence[int] = (), *, ranked: bool = False
) -> Scores:
    known = tokens.clamp(min=0)
    ranks = (logits > logits.gather(1, known[:, None])).sum(1) + 1 if ranked else None
    ids = to_device(torch.tensor(among), logits.device) if among else None
    return Scores(tokens, *log_probabilities(logits, known, top, ids), ranks).on_host()
