"""Measures the speed of the local engine's steps.

Takes arguments and writes a table to stdout and, with --json, the figures to a file. `python -m
inference.bench` and the server's command line share it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from inference.backends.checkpoints import checkpoint_folder
from inference.bench.arguments import add_step_arguments
from inference.bench.compare import compare
from inference.bench.divergence import divergence
from inference.bench.machine import Machine, measure_machine
from inference.bench.measure import Row, Workload, fits
from inference.bench.profile import kernels_of
from inference.bench.report import Report
from inference.engine import InferenceError
from inference.models.gpt_oss import GptOss, load_model
from inference.models.random_weights import RandomTensors, random_model
from inference.models.tensor_files import TensorFiles, TensorSource
from inference.models.weights import AS_COMPUTED, find_checkpoint
from inference.options import PRECISIONS, Precision
from inference.shapes import SHAPES

BATCHES = {"cuda": "1,8,32,64", "cpu": "1,8"}
CONTEXTS = {"cuda": "1024,8192", "cpu": "64"}
PREFILLS = {"cuda": "512,2048,8192", "cpu": "128"}
PROFILED = (1, 64)  # batches whose kernel times are reported, for the first context
SPARE_STEPS = 128  # tokens that a decode case adds to its context


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m inference.bench", description=__doc__)
    add_step_arguments(parser)
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
        write(report, Path(parsed.json))
    return 0


def run(parsed: argparse.Namespace) -> Report:
    """Raises `ValueError` for a list that does not hold numbers."""
    device = torch.device(parsed.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    batches, contexts, lengths = (
        _numbers(given or default[device.type])
        for given, default in (
            (parsed.batch, BATCHES),
            (parsed.contexts, CONTEXTS),
            (parsed.prefill, PREFILLS),
        )
    )
    random.seed(0)
    torch.manual_seed(0)
    precision = Precision(weights=parsed.weights, kv=parsed.kv_dtype)
    if parsed.compare == "bf16" and not precision.flags:
        raise ValueError("--compare bf16 needs --weights fp8 or --kv-dtype fp8: without, nothing differs.")
    machine = measure_machine(device)
    name, model, source = _model(parsed, device, precision)
    rows, profiles, missing = _measured(model, machine, batches, contexts, lengths)
    compared, apart = {}, None
    if parsed.compare == "bf16":
        apart = divergence(_model(parsed, device, AS_COMPUTED)[1], model)
    elif parsed.compare:
        compared = compare(model.config, source, device, [n for n in batches if n <= 8], contexts[0])
    return Report(
        model=name,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        command=" ".join(["python -m inference.bench", *sys.argv[1:]]),
        machine=machine,
        rows=rows,
        not_measured=missing,
        profiles=profiles,
        compared=compared,
        rounding=model.rounding,
        divergence=apart,
    )


def write(report: Report, path: Path) -> None:
    path.write_text(json.dumps(report.as_json(), indent=2) + "\n", encoding="utf-8")


def _model(
    parsed: argparse.Namespace, device: torch.device, precision: Precision
) -> tuple[str, GptOss, TensorSource]:
    asked = f", {precision.flags}" if precision.flags else ""
    if parsed.random:
        config = SHAPES[parsed.shape or "20b"]
        name = f"gpt-oss {parsed.shape or '20b'}, random weights{asked}"
        return name, random_model(config, device, precision=precision), RandomTensors(device)
    if parsed.shape:
        raise ValueError("--shape needs --random; a checkpoint defines its own shape.")
    folder = checkpoint_folder(parsed.model or "tiny")
    return (
        f"{parsed.model or 'tiny'}{asked}",
        load_model(folder, device=device, precision=precision),
        TensorFiles(find_checkpoint(folder)),
    )


def _measured(
    model: GptOss, machine: Machine, batches: list[int], contexts: list[int], lengths: list[int]
) -> tuple[list[Row], dict[str, dict[str, float]], list[str]]:
    cases = [(batch, context) for context in contexts for batch in batches]
    sizes = [batch * (context + SPARE_STEPS) for batch, context in cases] + lengths
    most = max((size for size in sizes if fits(model, size)), default=0)
    workload = Workload(model, machine, batches, most)
    missing = [
        f"decode of {batch} × {context} tokens: their keys and values do not fit."
        for batch, context in cases
        if batch * (context + SPARE_STEPS) > most
    ]
    cases = [(batch, context) for batch, context in cases if batch * (context + SPARE_STEPS) <= most]
    rows = [workload.decode(*case) for case in cases]
    rows += [workload.prefill(length) for length in lengths if length <= most]
    profiles = {}
    if model.device.type == "cuda":
        for batch, context in cases:
            if batch in PROFILED and context == contexts[0]:
                profiles[f"decode {batch} × {context}"] = kernels_of(workload.step(batch, context))
        if lengths[-1] <= most:
            profiles[f"prefill {lengths[-1]}"] = kernels_of(workload.prompt(lengths[-1]))
    return rows, profiles, missing


def _numbers(given: str) -> list[int]:
    numbers = [int(part) for part in given.split(",") if part.strip().isdecimal()]
    if len(numbers) != given.count(",") + 1 or min(numbers) < 1:
        raise ValueError(f"{given!r} must be numbers such as 1,8,64.")
    return numbers
