"""The embedded model in training: its steps, and the content of a run's checkpoint."""

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
from recipe.training.batches import Batch, learned_tokens, never_generated
from recipe.training.export import COUNTED, UnfitError, checkpoint_of, counted, weights_of
from recipe.training.hints import Hints
from recipe.training.impostors import Impostors
from recipe.training.optimiser import optimisers, restore, set_rates
from recipe.training.precision import products_in_bf16
from recipe.training.rows import Rows

# All `…_FROM` are shares of a run: of one from nothing, and of a careful one, from a trained model.
LATE_FROM = 0.7  # another optimiser from here on
# A trained model has less left to learn than the noise that batches add at higher rates: at 0.15 a run ended
# worse than it had started.
CAREFUL_RATE = 0.05
# From here the rates fall linearly, and the mean is taken.
DECAY_FROM, CAREFUL_DECAY_FROM = 0.75, 0.5
AVERAGE_FROM, CAREFUL_AVERAGE_FROM = 0.75, 0.1
# From here the experts are rounded as in MXFP4. A careful run rounds them from its first step on: its rates
# are low, and a move of less than half a step would be lost in the end.
ROUND_FROM, CAREFUL_ROUND_FROM = 0.94, 0.0
# Steps until rates are full. Without averages the first steps are arbitrary, and could destroy what the model
# has learned.
_RISE, _CAREFUL_RISE = 20, 150
_EVENNESS, _CAREFUL_EVENNESS = 0.04, 0.01  # the weight of the experts' even use, relative to the loss
_MEASURED_ON_CARD = 10  # steps: reading a number waits for all queued work of the GPU
_READER_RATE = 3e-3  # of the layers that read the hints; they are no part of the model


def scale_at(progress: float, step: int, *, careful: bool = False) -> float:
    """The learning rate's factor: a short rise, a slow fall (batches are small), then a linear fall.

    A run from a trained model has a `careful` rise.
    """
    steps, begins = (_CAREFUL_RISE, CAREFUL_DECAY_FROM) if careful else (_RISE, DECAY_FROM)
    rise = min(1.0, (step + 1) / steps) / math.pow(1 + step / 2500, 0.85)
    return rise * min(1.0, max(0.02, (1 - progress) / (1 - begins)))


def begun_from(start: Path, shape: Shape) -> dict[str, Any]:
    """The state of a new run: the weights of `start`, widened if necessary, and a clock at zero.

    A checkpoint of another run also provides its optimiser's averages, and the reader of the hints.
    """
    weights, saved = weights_of(start)
    theirs = Shape(**saved["shape"])
    grown = theirs != shape
    # New dimensions of a wider model have everything to learn; a deeper model works as before.
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
    """The model, its optimisers and the progress of the run."""

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
        """`batches_at_once`: the number of usual batches in one of its batches."""
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
        # Places, from 1, of learned rows that the head must not have.
        silent = torch.from_numpy(np.flatnonzero(np.isin(self.learned, never_generated(seed))) + 1)
        self.silent = silent.to(self.device)
        wire(self.model)
        self.model.to(self.device)
        # The training of the file that it starts from; the schedule follows this run alone.
        self.before: dict[str, float] = saved.get("before", {}) if saved else {}
        self.rate = rate or (CAREFUL_RATE if self.careful else 1.0)
        self.model.in_bf16 = products_in_bf16(self.device)
        late = saved is not None and (saved.get("late") or len(saved["optimisers"]) == 1)
        self.optimisers = self._optimisers(late=bool(late))
        self.step, self.tokens, self.seconds = 0, 0, 0.0
        if saved:
            self._restore(saved, len(fresh))
        # New rows of the stock are in no mean yet, so it starts over.
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
        """Whether it starts from a trained model."""
        return bool(self.before)

    def _optimisers(self, *, late: bool) -> list[torch.optim.Optimizer]:
        return optimisers(self.model, late=late, settled=self.careful)

    def _restore_hints(self, saved: dict[str, Any]) -> None:
        self.hints.load_state_dict(saved["hints"], strict=False)
        if saved["hints"].keys() == self.hints.state_dict().keys():  # an older run had fewer hints
            self.reader.load_state_dict(saved["reader"])

    def _restore(self, saved: dict[str, Any], fresh: int) -> None:
        """Continues from `saved`; new tokens of the stock get rows of zero."""
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
        """Every target's loss, whether the model would have written it, and the experts' uneven use."""
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
        """One step; returns measurements of the batch before it, on a GPU for one step in ten."""
        self.model.quantise_experts(progress >= (CAREFUL_ROUND_FROM if self.careful else ROUND_FROM))
        losses, right, uneven = self._losses(batch)
        # A prompt's token counts as much as one of the model's turns, but only a share of them are targets.
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
        else:  # an ended run that got more time: its old mean does not include what it learns now
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
    """The mean losses; for each kind of turn, how many there were and how many were entirely right."""
    turns = torch.from_numpy(batch.turns)
    own = turns >= 0
    measured = {"loss": losses.mean().item(), "own": losses[own].mean().item()}
    wrong = torch.zeros(len(batch.kinds)).index_add(0, turns[own], (~right[own]).float())
    for kind, mistakes in zip(batch.kinds, wrong.tolist(), strict=True):
        measured[f"n {kind}"] = measured.get(f"n {kind}", 0.0) + 1
        measured[f"ok {kind}"] = measured.get(f"ok {kind}", 0.0) + (mistakes == 0)
    return measured
