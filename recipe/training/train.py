"""Trains the embedded model: `python -m recipe.training.train --minutes 90`.

Training is seeded. It writes a checkpoint every few minutes, and the same command resumes from it. The
schedule follows the clock: learning rates fall linearly over the last quarter, and at the end the experts are
rounded as in MXFP4. A run that starts from a trained model (`--start`) is more careful: rates are low and
fall over the second half, and experts are rounded from the first step on.
"""

from __future__ import annotations

import argparse
import csv
import ctypes
import os
import shutil
import signal
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

import torch

from inference.tiny.shape import Shape
from recipe.network.model import compile_small_steps
from recipe.network.widen import ShapeError
from recipe.skills.data import LAST_PHASE
from recipe.training.batches import USUAL_SIZE, usual_batches
from recipe.training.export import UnfitError
from recipe.training.feeder import Feeder
from recipe.training.trainer import CAREFUL_RATE, Trainer

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of mallopt
_LONGEST_STEP = 10.0  # seconds; a pause of the process does not use up its time


def keep_memory() -> None:
    """Makes the C library keep freed memory: returning and requesting it takes a sixth of the time."""
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        for option, value in ((_TRIM_THRESHOLD, 2**31 - 1), (_MMAP_MAX, 0)):
            getattr(library, "mallopt", lambda *_: 0)(option, value)


def report(trainer: Trainer, sums: dict[str, float], steps: int, speed: float, progress: float) -> None:
    exact = {name[3:]: sums[name] / sums[f"n {name[3:]}"] for name in sorted(sums) if name.startswith("ok ")}
    shown = " ".join(f"{kind}={share:.2f}" for kind, share in exact.items())
    bar = ("#" * int(progress * 20)).ljust(20, ".")
    hints = " ".join(
        f"{name} {sums[name] / steps:.3f}" for name in ("carry", "hold", "tag", "look", "match", "tell")
    )
    sys.stdout.write(
        f"[{bar}] step {trainer.step} {trainer.tokens / 1e6:.2f}M tokens {trainer.seconds / 60:.1f} min "
        f"{speed:.0f} tok/s loss {sums['loss'] / steps:.3f} own {sums['own'] / steps:.4f} "
        f"uneven {sums['uneven'] / steps:.2f} {hints} | {shown}\n"
    )
    sys.stdout.flush()
    with (trainer.folder / "loss.csv").open("a", newline="") as file:
        numbers = (trainer.seconds, sums["loss"] / steps, sums["own"] / steps)
        csv.writer(file).writerow([trainer.step, trainer.tokens, *(f"{number:.4f}" for number in numbers)])


def set_up(arguments: argparse.Namespace) -> Trainer:
    arguments.folder.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(
        arguments.folder,
        Shape(),
        arguments.seed,
        arguments.rate,
        arguments.start,
        torch.device(arguments.device),
        usual_batches(arguments.batch),
    )
    # These apply to the whole process, so set them only once there is something to train.
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    keep_memory()
    if shutil.which("c++") is not None and trainer.device.type == "cpu":
        compile_small_steps()
    return trainer


def run(arguments: argparse.Namespace) -> None:
    trainer = set_up(arguments)
    draws = f"{arguments.seed}/{trainer.step}"
    feeder = Feeder(
        draws, trainer.learned, arguments.batch, careful=trainer.careful, processes=arguments.feeders
    )
    limit = arguments.minutes * 60
    sums: dict[str, float] = defaultdict(float)
    counted, saved, reported, tokens = 0, trainer.seconds, trainer.seconds, trainer.tokens
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    sys.stdout.write(f"{parameters} parameters, {len(trainer.learned)} learned rows\n")
    if trainer.seconds >= limit:
        sys.stdout.write(f"The run has used {trainer.seconds / 60:.0f} minutes: set more with --minutes\n")
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    while trainer.seconds < limit and not stopped.is_set():
        began = time.monotonic()
        progress = trainer.seconds / limit
        # A run that starts from a file has already passed the easier mixtures.
        feeder.progress.value = max(progress, LAST_PHASE) if trainer.careful else progress
        measured = trainer.train(feeder.next(), progress)
        for name, value in measured.items():
            sums[name] += value
        counted += bool(measured)
        trainer.seconds += min(time.monotonic() - began, _LONGEST_STEP)
        if trainer.seconds - reported >= arguments.report:
            report(
                trainer,
                sums,
                max(1, counted),
                (trainer.tokens - tokens) / (trainer.seconds - reported),
                progress,
            )
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
    parser.add_argument("--folder", type=Path, default=Path("runs/tiny"), help="the folder of the run")
    parser.add_argument(
        "--minutes", type=float, default=90, help="time limit of the whole run, resumed parts included"
    )
    parser.add_argument(
        "--start",
        type=Path,
        help="an exported file or another run's checkpoint to start from, widened if necessary",
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--rate", type=float, help=f"a factor for the learning rates: 1, with --start {CAREFUL_RATE}"
    )
    parser.add_argument(
        "--device",
        default="cuda" if torch.cuda.is_available() else "cpu",
        help="such as cuda:0 or cpu (default: a GPU if there is one)",
    )
    parser.add_argument(
        "--batch", type=int, help=f"tokens of a step: {USUAL_SIZE}, on a GPU {8 * USUAL_SIZE}"
    )
    parser.add_argument(
        "--feeders", type=int, help="processes that make conversations: 1, with a GPU up to 12"
    )
    parser.add_argument("--report", type=float, default=20, help="seconds between lines of progress")
    arguments = parser.parse_args()
    on_card = torch.device(arguments.device).type == "cuda"
    arguments.batch = arguments.batch or (8 * USUAL_SIZE if on_card else USUAL_SIZE)
    arguments.feeders = arguments.feeders or (max(1, min(12, (os.cpu_count() or 1) - 2)) if on_card else 1)
    if arguments.start is not None and not arguments.start.is_file():
        parser.error(f"--start {arguments.start} does not exist")
    try:
        run(arguments)
    except (UnfitError, ShapeError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
