"""Measures the speed of the local engine's steps.

Takes arguments and writes a table to stdout and, with --json, the figures to a file. Importing it loads no
torch.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from inference.config import SHAPES
from inference.engine import InferenceError
from inference.options import PRECISIONS, Precision

if TYPE_CHECKING:
    import torch

    from inference.bench.divergence import Divergence
    from inference.bench.machine import Machine
    from inference.bench.measure import Row
    from inference.models.gpt_oss import GptOss

BATCHES = {"cuda": "1,8,32,64", "cpu": "1,8"}
CONTEXTS = {"cuda": "1024,8192", "cpu": "64"}
PREFILLS = {"cuda": "512,2048,8192", "cpu": "128"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    model: str
    date: str
    command: str
    machine: Machine
    rows: Sequence[Row]
    not_measured: Sequence[str] = ()  # sentences
    profiles: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # case → kernel → µs per step
    rounding: float | None = None  # with FP8 weights, their relative error
    divergence: Divergence | None = None

    def table(self) -> str:
        machine = self.machine
        lines = [
            f"{self.model} on {machine.device}, torch {machine.torch}, triton {machine.triton}, {self.date}",
            f"measured: copy {machine.copy_bytes_per_s / 1e9:,.1f} GB/s, "
            f"matrix product {machine.product_flops_per_s / 1e12:,.2f} TFLOP/s",
            "",
            f"{'':8} {'batch':>6} {'context':>8} {'ms':>10} {'tok/s':>12} {'of roofline':>12}",
        ]
        lines += [
            f"{row.what:8} {row.batch:>6} {row.context:>8} {row.ms:>10.3f} {row.tokens_per_s:>12,.1f} "
            f"{row.fraction:>11.1%}"
            for row in self.rows
        ]
        for case, kernels in self.profiles.items():
            lines += ["", f"{case}, µs per step by kernel:"]
            lines += [f"  {time:>10,.1f}  {name}" for name, time in kernels.items()]
        if self.rounding is not None:
            lines += ["", f"FP8 weights: relative error {self.rounding:.2%}"]
        if self.divergence is not None:
            lines += ["", f"FP8 against the same model without, {self.divergence.describe()}."]
        lines += ["", *[f"Not measured: {sentence}" for sentence in self.not_measured]]
        return "\n".join(lines).rstrip() + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m inference.bench", description=__doc__)
    parser.add_argument("--shape", choices=SHAPES, metavar="NAME", help=f"with --random: {', '.join(SHAPES)}")
    parser.add_argument("--random", action="store_true", help="random weights, created on the device")
    parser.add_argument("--batch", metavar="N[,…]", help="batch sizes of decode (1,8,32,64; CPU: 1,8)")
    parser.add_argument("--contexts", metavar="N[,…]", help="contexts of decode (1024,8192; CPU: 64)")
    parser.add_argument("--prefill", metavar="N[,…]", help="prompts of prefill (512,2048,8192; CPU: 128)")
    compare = "with --weights fp8 or --kv-dtype fp8, how far the model is from itself, on 10,000 tokens"
    parser.add_argument("--compare", choices=["bf16"], help=compare)
    parser.add_argument("--model", help="a folder with a checkpoint, a Hugging Face repo, or tiny")
    parser.add_argument("--device", help="such as cuda:0 or cpu (default: a GPU if available)")
    parser.add_argument("--weights", choices=PRECISIONS, default="auto", help="attention and head in FP8")
    parser.add_argument("--kv-dtype", choices=PRECISIONS, default="auto", help="keys and values in FP8")
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE")
    parsed = parser.parse_args(arguments)
    try:
        report = run(parsed)
    except (InferenceError, ValueError) as error:
        parser.error(str(error))
    sys.stdout.write(report.table())
    if parsed.json:
        Path(parsed.json).write_text(json.dumps(asdict(report), indent=2) + "\n", encoding="utf-8")
    return 0


def run(parsed: argparse.Namespace) -> Report:
    """Raises `ValueError` for a list that does not hold numbers."""
    import torch

    from inference.bench.divergence import divergence
    from inference.bench.machine import measure_machine
    from inference.bench.measure import measured

    device = torch.device(parsed.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    batches = _numbers("--batch", parsed.batch or BATCHES[device.type])
    contexts = _numbers("--contexts", parsed.contexts or CONTEXTS[device.type])
    lengths = _numbers("--prefill", parsed.prefill or PREFILLS[device.type])
    random.seed(0)
    torch.manual_seed(0)
    precision = Precision(weights=parsed.weights, kv=parsed.kv_dtype)
    if parsed.compare and not precision.flags:
        raise ValueError("--compare bf16 needs --weights fp8 or --kv-dtype fp8: without, nothing differs.")
    machine = measure_machine(device)
    name, model = _model(parsed, device, precision)
    rows, profiles, missing = measured(model, machine, batches, contexts, lengths)
    return Report(
        model=name,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        command=" ".join(["python -m inference.bench", *sys.argv[1:]]),
        machine=machine,
        rows=rows,
        not_measured=missing,
        profiles=profiles,
        rounding=model.rounding,
        divergence=divergence(_model(parsed, device, Precision())[1], model) if parsed.compare else None,
    )


def _model(parsed: argparse.Namespace, device: torch.device, precision: Precision) -> tuple[str, GptOss]:
    from inference.backends.checkpoints import checkpoint_folder
    from inference.models.gpt_oss import load_model
    from inference.models.random_weights import random_model

    flags = f", {precision.flags}" if precision.flags else ""
    if parsed.random:
        shape = parsed.shape or "20b"
        model = random_model(SHAPES[shape], device, precision=precision)
        return f"gpt-oss {shape}, random weights{flags}", model
    if parsed.shape:
        raise ValueError("--shape needs --random; a checkpoint defines its own shape.")
    name = parsed.model or "tiny"
    return f"{name}{flags}", load_model(checkpoint_folder(name), device=device, precision=precision)


def _numbers(flag: str, text: str) -> list[int]:
    numbers = [int(part) for part in text.split(",") if part.strip().isdecimal()]
    if len(numbers) != text.count(",") + 1 or min(numbers) < 1:
        raise ValueError(f"{flag} must be numbers such as 1,8,64, not {text!r}.")
    return numbers
