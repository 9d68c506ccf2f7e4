"""The tiny model in training: one step after another, and what a run's checkpoint holds."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from inference.tiny.codes import FIXED
from inference.tiny.shape import Shape
from recipe.network.model import TinyGptOss
from recipe.network.widen import widened
from recipe.network.wiring import wire, wire_meanings
from recipe.training.average import Average
from recipe.training.batches import Batch, learned_tokens, never_said
from recipe.training.export import COUNTED, UnfitError, checkpoint_of, counted, weights_of
from recipe.training.hints import Hints
from recipe.training.impostors import Impostors
from recipe.training.optimiser import optimisers, restore, set_rates
from recipe.training.precision import products_in_bf16
from recipe.training.rows import Rows

LATE_FROM = 0.7  # another optimiser from here on
# What goes on from a trained model has found its way, and what is left to learn is less than what a batch's
# chance does at higher rates: at 0.15 a run's end was worse than what it had begun with.
CAREFUL_RATE = 0.05
# From where rates fall straight, and from where the mean is taken: of a run from nothing, and a careful one.
DECAY_FROM, CAREFUL_DECAY_FROM = 0.75, 0.5
AVERAGE_FROM, CAREFUL_AVERAGE_FROM = 0.75, 0.1
# From where the experts are rounded as MXFP4 will hold them. What goes on from an exported file has them so
# from its first step on: rates are low, and what they move by less than half a step would be lost in the end.
ROUND_FROM, CAREFUL_ROUND_FROM = 0.94, 0.0
# Steps until rates are full. The first ones go anywhere, as no averages are known yet: what has been learned
# could be lost by them.
_RISE, _CAREFUL_RISE = 20, 150
_EVENNESS, _CAREFUL_EVENNESS = 0.04, 0.01  # how much the experts' even use counts beside the loss
_MEASURED_ON_CARD = 10  # steps: to read a number is to wait for all that the card was told to do
_READER_RATE = 3e-3  # of what reads the hints; it is no part of the model


def scale_at(progress: float, step: int, *, careful: bool = False) -> float:
    """The learning rate's factor: a short rise, a slow fall (batches are small), then straight down.

    The rise is `careful` where the model goes on from a trained one.
    """
    steps, begins = (_CAREFUL_RISE, CAREFUL_DECAY_FROM) if careful else (_RISE, DECAY_FROM)
    rise = min(1.0, (step + 1) / steps) / math.pow(1 + step / 2500, 0.85)
    return rise * min(1.0, max(0.02, (1 - progress) / (1 - begins)))


def begun_from(start: Path, shape: Shape) -> dict[str, Any]:
    """What a new run begins with: the weights of `start`, made larger if need be, and a clock at zero.

    Another run's checkpoint has its optimiser's averages too, and what reads the hints.
    """
    weights, saved = weights_of(start)
    theirs = Shape(**saved["shape"])
    grown = theirs != shape
    # What is new in a wider model has everything to learn; a deeper one does what it did with all its parts.
    wider = (theirs.hidden_size, theirs.num_key_value_heads) != (shape.hidden_size, shape.num_key_value_heads)
    if grown or len(saved["optimisers"]) != 1:
        saved["optimisers"] = []
    return {
        **{name: saved[name] for name in ("learned", "optimisers")},
        **{name: saved[name] for name in ("hints", "reader") if name in saved and not wider},
        **dict.fromkeys(COUNTED, 0),
        "model": widened(weights, theirs, shape),
        "before": counted(saved),
        "late": not wider,
    }


class Trainer:
    """The model, its optimisers and where the run stands."""

    def __init__(
        self,
        folder: Path,
        shape: Shape,
        seed: int,
        rate: float | None = None,
        start: Path | None = None,
        device: torch.device | None = None,
        batches_at_once: int = 1,
    ) -> None:
        """`batches_at_once`: how many usual batches one of its batches is as large as."""
        self.device = device or torch.device("cpu")
        self.folder = folder
        self.file = folder / "checkpoint.pt"
        saved: dict[str, Any] | None = None
        if self.file.exists():
            saved = checkpoint_of(self.file)
            if saved["shape"] != asdict(shape):
                raise UnfitError(self.file)
        elif start is not None:
            saved = begun_from(start, shape)
        torch.manual_seed(seed)
        self.learned = saved["learned"] if saved else np.zeros(0, dtype=np.int64)
        fresh = np.setdiff1d(learned_tokens(seed), self.learned)
        self.learned = np.concatenate([self.learned, fresh])
        self.model = TinyGptOss(shape, len(self.learned))
        # Places of the learned rows, from 1, that the head has to do without.
        silent = torch.from_numpy(np.flatnonzero(np.isin(self.learned, never_said(seed))) + 1)
        self.silent = silent.to(self.device)
        wire(self.model)
        self.model.to(self.device)
        # What the file that it goes on from had behind it; the schedule is that of this run alone.
        self.before: dict[str, float] = saved.get("before", {}) if saved else {}
        self.rate = rate or (CAREFUL_RATE if self.careful else 1.0)
        self.model.in_bf16 = products_in_bf16(self.device)
        late = saved is not None and (saved.get("late") or len(saved["optimisers"]) == 1)
        self.optimisers = self._optimisers(late=bool(late))
        self.step, self.tokens, self.seconds = 0, 0, 0.0
        if saved:
            self._restore(saved, len(fresh))
        # Rows that are new to the stock are in no mean yet: it begins anew.
        mean = saved.get("average") if saved and not len(fresh) else None
        self.average = Average(self.model, mean, fades=not self.careful)
        self.rows = Rows(self.model, self.learned)
        self.hints = Hints(shape, careful=self.careful).to(self.device)
        self.reader = torch.optim.Adam(self.hints.parameters(), lr=_READER_RATE)
        if saved and "reader" in saved:
            self._restore_hints(saved)
        self.impostors = Impostors(self.rows.all_out, half=self.model.in_bf16, times=batches_at_once)

    @property
    def careful(self) -> bool:
        """Whether it goes on from a trained model."""
        return bool(self.before)

    def _optimisers(self, *, late: bool) -> list[torch.optim.Optimizer]:
        return optimisers(self.model, late=late, settled=self.careful)

    def _restore_hints(self, saved: dict[str, Any]) -> None:
        self.hints.load_state_dict(saved["hints"], strict=False)
        if saved["hints"].keys() == self.hints.state_dict().keys():  # an older run's hints asked for less
            self.reader.load_state_dict(saved["reader"])

    def _restore(self, saved: dict[str, Any], fresh: int) -> None:
        """Goes on from `saved`; tokens new to the stock get rows of zero."""
        state = saved["model"]
        if fresh:
            for name in ("learned_in", "learned_out"):
                state[name] = torch.cat((state[name], torch.zeros(fresh, state[name].shape[1])))
        known = len(state["map_in"])
        for name in ("map_in", "map_out"):  # of a file made before words had meanings
            state[name] = torch.cat((state[name], self.model.state_dict()[name][known:].cpu()))
        self.model.load_state_dict(state)
        if known < FIXED:
            wire_meanings(self.model)
        self.step, self.tokens, self.seconds = saved["step"], saved["tokens"], saved["seconds"]
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
                "before": self.before,
                "shape": asdict(self.model.shape),
            },
            partial,
        )
        partial.replace(self.file)

    def _losses(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Every target's loss, whether it would have been said, and how unevenly the experts are used."""
        placed = self.rows.placed
        ids = placed(batch.candidates)
        self.hints.begin(batch.marks)
        hidden, uneven = self.model(self.rows.embedded(batch), self.hints.see)
        picked = hidden[placed(batch.rows), placed(batch.columns)]
        logits = self._logits(picked, ids) + placed(batch.prior)
        target = logits.gather(1, placed(batch.targets).unsqueeze(1)).squeeze(1)
        sampled = logits.logsumexp(1)
        own = placed(np.flatnonzero(batch.turns >= 0))
        found, prior = self.impostors.of(picked, (sampled - target).detach(), own, ids)
        impostors = self._logits(picked, found) + prior
        right = target >= torch.maximum(logits.amax(1), impostors.amax(1))
        return torch.logaddexp(sampled, impostors.logsumexp(1)) - target, right, uneven

    def _logits(self, hidden: Tensor, ids: Tensor) -> Tensor:
        rows = self.rows.out(ids)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.model.in_bf16):
            return F.linear(hidden, rows).float()

    def train(self, batch: Batch, progress: float) -> dict[str, float]:
        """One step; returns what was measured on the batch before it, on a card of one step in ten."""
        self.model.quantise_experts(progress >= (CAREFUL_ROUND_FROM if self.careful else ROUND_FROM))
        losses, right, uneven = self._losses(batch)
        # A prompt's token counts as much as one of the model's own, but only a share of them are targets.
        evenness = _CAREFUL_EVENNESS if self.careful else _EVENNESS
        loss = losses.mean() + evenness * uneven + self.hints.loss
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        if progress >= LATE_FROM and len(self.optimisers) > 1:
            self.optimisers = self._optimisers(late=True)
        set_rates(self.optimisers, self.rate * scale_at(progress, self.step, careful=self.careful))
        for optimiser in (*self.optimisers, self.reader):
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        with torch.no_grad():
            self.model.learned_out[self.silent] = 0
        if progress >= (CAREFUL_AVERAGE_FROM if self.careful else AVERAGE_FROM):
            self.average.add(self.model)
        else:  # a run that ended and was given more time: its old mean is not what it has learned since
            self.average.restart()
        self.step += 1
        self.tokens += batch.weight
        if self.step % (_MEASURED_ON_CARD if self.device.type == "cuda" else 1):
            return {}
        return {
            "uneven": uneven.item(),
            **{hint: value.item() for hint, value in self.hints.measured.items()},
            **_measured(batch, losses.detach().cpu(), right.cpu()),
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
