"""The tiny model in training: one step after another, and what a run's checkpoint holds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from inference.tiny.average import Average
from inference.tiny.batches import Batch, learned_tokens
from inference.tiny.codes import VOCABULARY, fixed_part
from inference.tiny.export import state_of
from inference.tiny.hints import Hints
from inference.tiny.impostors import Impostors
from inference.tiny.model import TinyGptOss
from inference.tiny.optimiser import optimisers, restore, set_rates
from inference.tiny.shape import Shape
from inference.tiny.vocabulary import token_table
from inference.tiny.wiring import wire

LATE_FROM = 0.7  # another optimiser from here on
DECAY_FROM = 0.75
_RISE = 20  # steps
_EVENNESS = 0.04  # how much the experts' even use counts beside the loss
_READER_RATE = 3e-3  # of what reads the hints; it is no part of the model


def scale_at(progress: float, step: int, fresh: int = 0) -> float:
    """The learning rate's factor: a short rise, a slow fall (batches are small), then straight down.

    It rises from `fresh`, the step at which the optimisers' averages began.
    """
    rise = min(1.0, (step - fresh + 1) / _RISE) / math.pow(1 + step / 2500, 0.85)
    return rise * min(1.0, max(0.02, (1 - progress) / (1 - DECAY_FROM)))


class Trainer:
    """The model, its optimisers and where the run stands."""

    def __init__(
        self, folder: Path, shape: Shape, seed: int, rate: float = 1.0, start: Path | None = None
    ) -> None:
        self.folder, self.rate = folder, rate
        self.file = folder / "checkpoint.pt"
        saved: dict[str, Any] | None = None
        if self.file.exists():
            saved = torch.load(self.file, weights_only=False)
        elif start is not None:
            saved = state_of(start)
        torch.manual_seed(seed)
        self.learned = saved["learned"] if saved else np.zeros(0, dtype=np.int64)
        fresh = np.setdiff1d(learned_tokens(seed), self.learned)
        self.learned = np.concatenate([self.learned, fresh])
        self.model = TinyGptOss(shape, len(self.learned))
        wire(self.model)
        # What was exported holds no averages: Adam begins anew.
        late = saved is not None and len(saved["optimisers"]) < 2
        self.optimisers = optimisers(self.model, late=late)
        self.step, self.tokens, self.seconds, self.fresh = 0, 0, 0.0, 0
        if saved:
            self._restore(saved, len(fresh))
        # Rows that are new to the stock are in no mean yet: it begins anew.
        self.average = Average(self.model, saved.get("average") if saved and not len(fresh) else None)
        table = token_table()
        everything = np.arange(VOCABULARY, dtype=np.int32)
        self._fixed = torch.from_numpy(fixed_part(table, everything).astype(np.int8))
        self._place = torch.zeros(VOCABULARY, dtype=torch.long)
        self._place[torch.from_numpy(self.learned)] = torch.arange(1, len(self.learned) + 1)
        self.hints = Hints(shape)
        self.reader = torch.optim.Adam(self.hints.parameters(), lr=_READER_RATE)
        if saved and "reader" in saved:
            self.hints.load_state_dict(saved["hints"], strict=False)
            if saved["hints"].keys() == self.hints.state_dict().keys():  # an older run's hints asked for less
                self.reader.load_state_dict(saved["reader"])
        self.impostors = Impostors(self._rows_out)

    def _rows_out(self, ids: Tensor) -> Tensor:
        """The head's rows of these tokens."""
        rows: Tensor = self.model.rows_out(self._place[ids], self._fixed[ids].float())
        return rows

    def _restore(self, saved: dict[str, Any], fresh: int) -> None:
        """Goes on from `saved`; tokens new to the stock get rows of zero."""
        state = saved["model"]
        if fresh:
            for name in ("learned_in", "learned_out"):
                state[name] = torch.cat((state[name], torch.zeros(fresh, state[name].shape[1])))
        self.model.load_state_dict(state)
        self.step, self.tokens, self.seconds = saved["step"], saved["tokens"], saved["seconds"]
        self.fresh = saved.get("fresh", 0)
        if not saved["optimisers"]:
            return
        for optimiser, kept in zip(self.optimisers, saved["optimisers"], strict=True):
            if fresh:
                for entry in kept["state"].values():
                    for key, value in entry.items():
                        if (
                            torch.is_tensor(value)
                            and value.ndim == 2
                            and value.shape[0] == len(self.learned) + 1 - fresh
                        ):
                            entry[key] = torch.cat((value, torch.zeros(fresh, value.shape[1])))
            restore(optimiser, kept)

    def save(self) -> None:
        partial = self.file.with_suffix(".partial")
        torch.save(
            {
                "model": self.model.state_dict(),
                "average": self.average.state(),
                "hints": self.hints.state_dict(),
                "reader": self.reader.state_dict(),
                "optimisers": [optimiser.state_dict() for optimiser in self.optimisers],
                "learned": self.learned,
                "step": self.step,
                "tokens": self.tokens,
                "seconds": self.seconds,
                "fresh": self.fresh,
            },
            partial,
        )
        partial.replace(self.file)

    def _losses(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Every target's loss, whether it would have been said, and how unevenly the experts are used."""
        model = self.model
        ids = torch.from_numpy(batch.candidates)
        places = self._place[ids]
        used = torch.from_numpy(batch.tokens)
        # Rows of the input are made only for tokens that occur: those before the drawn negatives.
        present, inverse = torch.unique(used, return_inverse=True)
        embedded = F.embedding(inverse, model.rows_in(places[present], self._fixed[ids[present]].float()))
        self.hints.begin(batch.marks)
        hidden, uneven = model(embedded, self.hints.see)
        picked = hidden[torch.from_numpy(batch.rows), torch.from_numpy(batch.columns)]
        logits = picked @ self._rows_out(ids).t() + torch.from_numpy(batch.prior)
        targets = torch.from_numpy(batch.targets)
        with torch.no_grad():
            sampled = F.cross_entropy(logits, targets, reduction="none")
        impostors = self.impostors.of(picked, sampled, torch.from_numpy(batch.turns) >= 0, ids)
        logits = torch.cat((logits, picked @ self._rows_out(impostors).t()), dim=1)
        return F.cross_entropy(logits, targets, reduction="none"), logits.argmax(-1) == targets, uneven

    def train(self, batch: Batch, progress: float) -> dict[str, float]:
        """One step; returns what was measured on the batch before it."""
        losses, right, uneven = self._losses(batch)
        # A prompt's token counts as much as one of the model's own, but only a share of them are targets.
        loss = losses.mean() + _EVENNESS * uneven + self.hints.loss
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        if progress >= LATE_FROM and len(self.optimisers) > 1:
            self.optimisers = optimisers(self.model, late=True)
        set_rates(self.optimisers, self.rate * scale_at(progress, self.step, self.fresh))
        for optimiser in (*self.optimisers, self.reader):
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        if progress >= DECAY_FROM:
            self.average.add(self.model)
        else:  # a run that ended and was given more time: its old mean is not what it has learned since
            self.average.restart()
        self.step += 1
        self.tokens += batch.weight
        return {
            "uneven": uneven.item(),
            **self.hints.measured,
            **_measured(batch, losses.detach(), right),
        }


def _measured(batch: Batch, losses: Tensor, right: Tensor) -> dict[str, float]:
    """The mean losses; of each kind of turns how many there were, and how many of them right throughout."""
    turns = torch.from_numpy(batch.turns)
    own = turns >= 0
    measured = {"loss": losses.mean().item(), "own": losses[own].mean().item()}
    wrong = torch.zeros(len(batch.kinds)).index_add(0, turns[own], (~right[own]).float())
    for kind, mistakes in zip(batch.kinds, wrong.tolist(), strict=True):
        measured[f"n {kind}"] = measured.get(f"n {kind}", 0.0) + 1
        measured[f"ok {kind}"] = measured.get(f"ok {kind}", 0.0) + (mistakes == 0)
    return measured
