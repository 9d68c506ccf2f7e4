"""bf16 and FP8 in one run on a card: steps, kernels, ways to launch them, and the error.

`python tests/gpu/fp8_figures.py [--seconds N] [--json FILE]`. Each part prints its own figures, and its own
error if it fails; a part that would begin after N seconds is skipped. Kernels are compiled first, by several
processes.
"""

import argparse
import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from inference.bench.divergence import ROWS, divergence
from inference.bench.machine import Machine, measure_machine
from inference.bench.measure import Workload, kernel_times
from inference.config import SHAPES
from inference.models.gpt_oss import GptOss
from inference.models.random_weights import random_model
from inference.ops.scaled import rounding_error, scaled, squares
from inference.options import Precision
from tests.doubles.inference.full_size import PRODUCTS, attention_error, product_error
from tests.doubles.inference.timed_parts import TimedParts, parser_of, say
from tests.gpu.fp8_variants import TOKENS, Bench, Variant, compile_variant, every_variant

BATCHES, CONTEXT, LONG, PROMPTS = (1, 8, 32, 64), 1024, 65_536, (2048, 8192)
WORKERS = 8
PROMPT, PART = 0, -1  # in place of a batch: a prompt's chunk, or a part of a text that is compared
CHECKED = [(product, tokens) for product in PRODUCTS for tokens in (1, 2, 8, 16, 32, 64, 128, 300)]
ATTENDED = [(queries, window) for queries in ([1], [1] * 17, [1, 1, 77, 300]) for window in (None, 128)]
FP8, BOTH = Precision(weights="fp8"), Precision(weights="fp8", kv="fp8")
PRECISIONS = {"bf16": Precision(), "fp8": FP8, "fp8+kv": BOTH}


class Figures(TimedParts):
    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.device = torch.device("cuda")
        self.models: dict[str, GptOss] = {}
        self.machine: Machine | None = None
        self.best: dict[tuple[str, int], tuple[float, Variant]] = {}

    # The parts ----------------------------------------------------------------------------------------

    def compile(self) -> None:
        """Every variant and every step, in processes; they share Triton's cache."""
        environment = {**os.environ, "OMP_NUM_THREADS": "2"}
        workers = [
            subprocess.Popen(
                [sys.executable, __file__, "--worker", str(at)],
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment,
            )
            for at in range(WORKERS)
        ]  # fmt: skip
        try:
            for worker in workers:
                _, complaint = worker.communicate(timeout=100)
                for line in complaint.strip().splitlines()[-3:]:
                    say(f"compiling: {line[:200]}")
        finally:
            for worker in workers:
                worker.kill()
        say("compiled")

    def make_models(self) -> None:
        self.machine = measure_machine(self.device)
        say(f"{self.machine}")
        plain = random_model(SHAPES["20b"], self.device, progress=False)
        self.models = models_of(plain)
        say(f"weights made; FP8 differs by {self.models['fp8'].rounding:.2%}")

    def correct(self) -> dict[str, float]:
        found = {f"{product} {n}": product_error(product, n, self.device) for product, n in CHECKED}
        for queries, window in ATTENDED:
            key = f"attention {len(queries)} sequences, window {window}"
            found[key] = attention_error(queries, window, self.device)
        wrong = {name: error for name, error in found.items() if not error < 1e-2}
        say(f"largest relative error {max(found.values()):.5f}; wrong: {wrong or 'none'}")
        return found

    def steps(self, name: str, batches: tuple[int, ...] = BATCHES, more: bool = True) -> dict[str, float]:
        most = max(LONG + 128 if more else 0, max(batches) * (CONTEXT + 128))
        workload = Workload(self.models[name.partition(" ")[0]], self.machine, BATCHES, most)
        rows = [workload.decode(batch, CONTEXT) for batch in batches]
        if more:
            rows += [workload.prefill(length) for length in PROMPTS]
            rows.append(workload.decode(1, LONG))
        for row in rows:
            figures = f"{row.ms:9.3f} ms {row.tokens_per_s:10,.1f} tokens/s {row.fraction:6.1%} of its own"
            what = f"{name:12} {row.what:8} {row.batch:3} x {row.context:6}"
            say(f"{what}: {figures} bytes or operations")
        return {f"{row.what} {row.batch} x {row.context}": row.ms for row in rows}

    def kernels(self, name: str) -> dict[str, dict[str, float]]:
        workload = Workload(self.models[name], self.machine, BATCHES, 64 * (CONTEXT + 128))
        found = {}
        for batch in (1, 64):
            found[str(batch)] = kernel_times(workload.step(batch, CONTEXT), 12)
            times = ", ".join(f"{kernel[:34]} {time:.0f}" for kernel, time in found[str(batch)].items())
            say(f"{name} {batch}, µs: {times}")
        return found

    def sweep(self) -> dict[str, float]:
        from inference.ops import launches

        bench, found = Bench(self.device), {}
        for product in PRODUCTS:
            for tokens in TOKENS:
                plain, now = (bench.microseconds(product, tokens, fp8) for fp8 in (False, True))
                found[f"{product} {tokens} bf16"], found[f"{product} {tokens} now"] = plain, now
                timed: list[tuple[float, Variant]] = []
                for variant in every_variant():
                    if (variant.product, variant.tokens) == (product, tokens):
                        before = getattr(launches, variant.table)
                        variant.apply()
                        try:
                            timed.append((bench.microseconds(product, tokens, True), variant))
                            error = product_error(product, tokens, self.device) if product != "head" else 0.0
                            if not error < 1e-2:
                                say(f"WRONG by {error:.3f}: {product} {tokens} {variant}")
                                timed.pop()
                        except Exception as error:
                            say(f"{product} {tokens} {variant}: {type(error).__name__} {str(error)[:100]}")
                        finally:
                            setattr(launches, variant.table, before)
                timed.sort(key=lambda each: each[0])
                found |= {f"{product} {tokens} {variant}": time for time, variant in timed}
                if timed:
                    self.best[product, tokens] = timed[0]
                say(f"{product} {tokens}: bf16 {plain:.1f} µs, FP8 now {now:.1f}; best of {len(timed)}:")
                for time_taken, variant in timed[:3]:
                    sys.stdout.write(f"          {time_taken:7.1f} µs  {variant}\n")
        return found

    def tuned(self) -> dict[str, float]:
        for _, variant in self.best.values():
            variant.apply()
        self._shared().apply()
        return self.steps("fp8 tuned", more=False)

    def _shared(self) -> Variant:
        """The best for queries and output together: for 64 sequences, one entry of a table is for both."""
        swept: dict[str, float] = self.found["sweep"]
        both = [
            (swept[f"qkv 64 {each}"] + swept[f"out 64 {each}"], str(each), each)
            for each in every_variant()
            if each.tokens == 64 and {f"qkv 64 {each}", f"out 64 {each}"} <= swept.keys()
        ]
        total, _, variant = min(both, key=lambda each: each[:2])
        say(f"qkv and out 64 together: {total:.1f} µs with {variant}")
        return variant

    def apart(self) -> dict[str, str]:
        found = {}
        for name in ("fp8", "fp8+kv"):
            found[name] = divergence(self.models["bf16"], self.models[name], 10_000).describe()
            say(f"{name} against bf16: {found[name]}")
        return found


def models_of(plain: GptOss) -> dict[str, GptOss]:
    """The model in each precision; they share everything that is equal."""
    off = torch.zeros(2)

    def converted(rows: Any) -> Any:
        nonlocal off
        found = scaled(rows)
        off = off + squares(rows, found).cpu()
        return found

    weights = plain._weights
    layers = tuple(
        replace(layer, qkv=converted(layer.qkv), out=converted(layer.out)) for layer in weights.layers
    )
    assert isinstance(weights.head, torch.Tensor)
    head = converted(weights.head.t())
    fp8 = replace(weights, layers=layers, head=head, rounding=rounding_error(off))
    return {
        name: GptOss(plain.config, fp8 if precision.weights == "fp8" else weights, precision)
        for name, precision in PRECISIONS.items()
    }


@torch.inference_mode()
def work(number: int) -> None:
    """Compiles a share of the kernels by running them once, steps on a model of two layers."""
    for name, job in [*compilations(torch.device("cuda"))][number::WORKERS]:
        try:
            job()
        except Exception as error:
            sys.stderr.write(f"{name}: {type(error).__name__} {str(error)[:120]}\n")


def compilations(device: torch.device) -> Iterator[tuple[str, Callable[[], object]]]:
    bench = Bench(device)
    for variant in every_variant():
        yield f"{variant.product} {variant.tokens} {variant}", partial(compile_variant, variant, bench)
    for product, tokens in CHECKED:
        yield f"{product} {tokens}", partial(product_error, product, tokens, device)
    for queries, window in ATTENDED:
        yield f"attention {len(queries)}", partial(attention_error, queries, window, device)
    for name in PRECISIONS:
        for batch in (*BATCHES, PROMPT, PART):
            yield f"{name} step {batch}", partial(small_step, name, batch, device)


@functools.cache
def small_models(device: torch.device) -> dict[str, GptOss]:
    config = replace(SHAPES["20b"], layers=2, sliding_layers=(True, False))
    return models_of(random_model(config, device, progress=False))


def small_step(name: str, batch: int, device: torch.device) -> None:
    model = small_models(device)[name]
    if batch == PART:
        cache = model.new_cache(2 * ROWS)
        for _ in range(2):
            model.all_logits(list(range(ROWS)), cache)
        return
    workload = Workload(model, Machine("", "", "", "", 1.0, 1.0), BATCHES, 64 * (CONTEXT + 8))
    (workload.prompt(4096) if batch == PROMPT else workload.step(batch, CONTEXT))()


def main() -> int:
    parser = parser_of(__doc__, seconds=150.0)
    parser.add_argument("--only", help="parts, separated by commas")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if not torch.cuda.is_available():
        sys.stderr.write("No CUDA device is visible to torch: nothing was measured.\n")
        return 1
    if given.worker is not None:
        work(given.worker)
        return 0
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    figures = Figures(given.seconds)
    parts: dict[str, Callable[[], Any]] = {
        "compile": figures.compile,
        "models": figures.make_models,
        "correct": figures.correct,
        **{f"steps {name}": partial(figures.steps, name) for name in PRECISIONS},
        **{name: getattr(figures, name) for name in ("sweep", "tuned", "apart")},
        **{f"kernels {name}": partial(figures.kernels, name) for name in ("bf16", "fp8")},
    }
    chosen = given.only.split(",") if given.only else parts
    figures.parts({name: parts[name] for name in chosen}, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
