"""Trains the tiny model: `python -m inference.tiny.train --minutes 90`.

Seeded; the checkpoint of a run is written every few minutes, and the same command goes on from it. The
schedule follows the clock: learning rates fall straight over the last quarter, and at the end the experts
are trained as MXFP4 will hold them.
"""

from __future__ import annotations

import argparse
import csv
import math
import signal
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from inference.tiny.average import Average
from inference.tiny.batches import Batch, Feeder, learned_tokens
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
QUANTISE_FROM = 0.94
_RISE = 20  # steps
_EVENNESS = 0.04  # how much the experts' even use counts beside the loss
_READER_RATE = 3e-3  # of what reads the hints; it is no part of the model
_LONGEST_STEP = 10.0  # seconds; a pause of the process does not use up its time


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
        if saved and "hints" in saved:
            self.hints.load_state_dict(saved["hints"])
        self.reader = torch.optim.Adam(self.hints.parameters(), lr=_READER_RATE)
        self.impostors = Impostors(self._rows_out)

    def _rows_out(self, ids: torch.Tensor) -> torch.Tensor:
        """The head's rows of these tokens."""
        rows: torch.Tensor = self.model.rows_out(self._place[ids], self._fixed[ids].float())
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

    def train(self, batch: Batch, progress: float) -> dict[str, float]:
        """One step; returns what was measured on the batch before it."""
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
        own = torch.from_numpy(batch.turns) >= 0
        with torch.no_grad():
            sampled = F.cross_entropy(logits, targets, reduction="none")
        impostors = self.impostors.of(picked, sampled, own, ids)
        logits = torch.cat((logits, picked @ self._rows_out(impostors).t()), dim=1)
        losses = F.cross_entropy(logits, targets, reduction="none")
        # A prompt's token counts as much as one of the model's own, but only a share of them are targets.
        loss = losses.mean() + _EVENNESS * uneven + self.hints.loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if progress >= LATE_FROM and len(self.optimisers) > 1:
            self.optimisers = optimisers(model, late=True)
        set_rates(self.optimisers, self.rate * scale_at(progress, self.step, self.fresh))
        for optimiser in (*self.optimisers, self.reader):
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        if progress >= DECAY_FROM:
            self.average.add(model)
        else:  # a run that ended and was given more time: its old mean is not what it has learned since
            self.average.restart()
        self.step += 1
        self.tokens += batch.weight
        with torch.no_grad():
            right = logits.argmax(-1) == targets
            measured = {
                "loss": losses.mean().item(),
                "own": losses[own].mean().item(),
                "uneven": uneven.item(),
                **self.hints.measured,
            }
            wrong = torch.zeros(len(batch.kinds)).index_add(
                0, torch.from_numpy(batch.turns)[own], (~right[own]).float()
            )
            for kind, mistakes in zip(batch.kinds, wrong.tolist(), strict=True):
                measured.setdefault(f"n {kind}", 0.0)
                measured.setdefault(f"ok {kind}", 0.0)
                measured[f"n {kind}"] += 1
                measured[f"ok {kind}"] += mistakes == 0
        return measured


def report(trainer: Trainer, sums: dict[str, float], steps: int, speed: float, progress: float) -> None:
    exact = {name[3:]: sums[name] / sums[f"n {name[3:]}"] for name in sorted(sums) if name.startswith("ok ")}
    shown = " ".join(f"{kind}={share:.2f}" for kind, share in exact.items())
    bar = ("#" * int(progress * 20)).ljust(20, ".")
    hints = " ".join(f"{name} {sums[name] / steps:.3f}" for name in ("carry", "look"))
    sys.stdout.write(
        f"[{bar}] step {trainer.step} {trainer.tokens / 1e6:.2f}M tokens {trainer.seconds / 60:.1f} min "
        f"{speed:.0f} tok/s loss {sums['loss'] / steps:.3f} own {sums['own'] / steps:.4f} "
        f"uneven {sums['uneven'] / steps:.2f} {hints} | {shown}\n"
    )
    sys.stdout.flush()
    with (trainer.folder / "loss.csv").open("a", newline="") as file:
        numbers = (trainer.seconds, sums["loss"] / steps, sums["own"] / steps)
        csv.writer(file).writerow([trainer.step, trainer.tokens, *(f"{number:.4f}" for number in numbers)])


def run(arguments: argparse.Namespace) -> None:
    arguments.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    shape = Shape(num_hidden_layers=arguments.layers)
    trainer = Trainer(arguments.folder, shape, arguments.seed, arguments.rate, arguments.start)
    feeder = Feeder(f"{arguments.seed}/{trainer.step}", trainer.learned, arguments.batch)
    limit = arguments.minutes * 60
    sums: dict[str, float] = defaultdict(float)
    counted, saved, reported, tokens = 0, trainer.seconds, trainer.seconds, trainer.tokens
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    sys.stdout.write(f"{parameters} parameters, {len(trainer.learned)} learned rows\n")
    if trainer.seconds >= limit:
        sys.stdout.write(f"Its clock is at {trainer.seconds / 60:.0f} minutes: give more as --minutes\n")
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    while trainer.seconds < limit and not stopped.is_set():
        began = time.monotonic()
        progress = trainer.seconds / limit
        feeder.progress.value = progress
        trainer.model.quantise_experts(progress >= QUANTISE_FROM)
        for name, value in trainer.train(feeder.next(), progress).items():
            sums[name] += value
        counted += 1
        trainer.seconds += min(time.monotonic() - began, _LONGEST_STEP)
        if trainer.seconds - reported >= arguments.report:
            report(trainer, sums, counted, (trainer.tokens - tokens) / (trainer.seconds - reported), progress)
            sums.clear()
            counted, reported, tokens = 0, trainer.seconds, trainer.tokens
        if trainer.seconds - saved >= 150:
            trainer.save()
            saved = trainer.seconds
    trainer.save()
    feeder.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("runs/tiny"), help="where the run is kept")
    parser.add_argument(
        "--minutes", type=float, default=90, help="time limit of the whole run, resumed parts included"
    )
    parser.add_argument(
        "--start", type=Path, help="an exported file to go on from where no run is kept yet: tiny.safetensors"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--rate", type=float, default=1.0, help="times the recipe's learning rates")
    parser.add_argument("--batch", type=int, default=2048, help="tokens of a step")
    parser.add_argument("--report", type=float, default=20, help="seconds between lines of progress")
    arguments = parser.parse_args()
    if arguments.start is not None and not arguments.start.is_file():
        parser.error(f"--start {arguments.start}: there is no such file")
    run(arguments)


if __name__ == "__main__":
    main()
