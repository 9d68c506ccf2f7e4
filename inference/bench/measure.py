"""Times a runner's steps: decode over batch sizes and contexts, prefill over lengths.

It drives the runner as the engine's scheduler does, one step ahead if the runner allows that, so that the
host's share of a step counts. The memory of keys and values starts with random numbers.
"""

import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile

from inference.bench.machine import Machine, settle
from inference.bench.machine import seconds as median_seconds
from inference.bench.roofline import Widths, decode_bytes, prefill_flops
from inference.engine import Sampling
from inference.local.cuda.runner import CudaRunner
from inference.local.scheduling.step import PENDING, Flight, Runner, StepPart
from inference.local.torch_runner import TorchRunner
from inference.models.gpt_oss import GptOss
from inference.ops.device import runs_fp8
from inference.ops.pages import BLOCK_SIZE, BLOCK_SIZE_ON_GPU

CHUNK = {"cuda": 4096, "cpu": 256}
STEPS = {"cuda": 40, "cpu": 8}
REPEATS = 3
BLOCKS_AT_ONCE = 4096  # filled with random numbers
PROFILED = (1, 64)  # batches whose kernels are timed, for the first context
PROFILES = 3  # runs of each
SPARE_STEPS = 128  # tokens that a decode case adds to its context


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: `batch` sequences of `context` tokens each."""

    what: str  # decode or prefill
    batch: int
    context: int
    ms: float  # of a step for decode, of the whole prompt for prefill
    tokens_per_s: float
    fraction: float  # of the roofline: bytes for decode, operations for prefill


def measured(
    model: GptOss, machine: Machine, batches: list[int], contexts: list[int], lengths: list[int]
) -> tuple[list[Row], dict[str, dict[str, float]], list[str]]:
    """The rows, the times of kernels on a GPU, and a sentence for each case that does not fit."""
    sizes = {(batch, n): batch * (n + SPARE_STEPS) for n in contexts for batch in batches}
    most = max((size for size in [*sizes.values(), *lengths] if fits(model, size)), default=0)
    workload = Workload(model, machine, batches, most)
    missing = [
        f"decode of {batch} × {context} tokens: their keys and values do not fit."
        for (batch, context), size in sizes.items()
        if size > most
    ]
    cases = [case for case, size in sizes.items() if size <= most]
    rows = [workload.decode(*case) for case in cases]
    rows += [workload.prefill(length) for length in lengths if length <= most]
    profiles = {}
    if model.device.type == "cuda":
        for batch, context in cases:
            if batch in PROFILED and context == contexts[0]:
                profiles[f"decode {batch} × {context}"] = kernel_times(workload.step(batch, context))
        if lengths[-1] <= most:
            profiles[f"prefill {lengths[-1]}"] = kernel_times(workload.prompt(lengths[-1]))
    return rows, profiles, missing


def kernel_times(run: Callable[[], object], most: int = 14) -> dict[str, float]:
    """Microseconds of a run by kernel, as the device times them: the slowest, the others, and the sum."""
    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(PROFILES):
            run()
        torch.cuda.synchronize()
    times: dict[str, float] = defaultdict(float)
    for event in profiler.events() or ():
        if event.device_type.name == "CUDA":
            times[str(event.name)[:60]] += float(event.device_time) / PROFILES
    ranked = sorted(times.items(), key=lambda item: -item[1])
    reported = dict(ranked[:most])
    reported["(others)"] = sum(time for _, time in ranked[most:])
    reported["(sum)"] = sum(times.values())
    return {name: round(time, 1) for name, time in reported.items()}


class Workload:
    """One model with memory for the largest of the cases."""

    def __init__(self, model: GptOss, machine: Machine, batches: Sequence[int], most_tokens: int) -> None:
        """`most_tokens`: of all sequences of one case, sampled tokens included."""
        self._model, self._machine, self._device = model, machine, model.device
        self.runner = bench_runner(model, max(batches), most_tokens)
        for layer in self.runner.memory.layers:
            for part in layer:
                for block in torch.split(part, BLOCKS_AT_ONCE):  # FP8 has no normal_
                    block.copy_(torch.randn(block.shape, device=block.device))

    def decode(self, batch: int, context: int) -> Row:
        """Each sequence has `context` tokens and samples one per step."""
        steps = STEPS[self._device.type]
        times = [self._decode_once(batch, context, steps) for _ in range(REPEATS + 1)][1:]
        seconds = statistics.median(times)
        needed = decode_bytes(self._model.config, batch, context + steps // 2, stored_widths(self._model))
        return Row(
            "decode", batch, context, seconds * 1e3, batch / seconds,
            needed / self._machine.copy_bytes_per_s / seconds,
        )  # fmt: skip

    def _decode_once(self, batch: int, context: int, steps: int) -> float:
        """Seconds per step."""
        pickers = [self.runner.picker(Sampling(temperature=1.0, seed=at)) for at in range(batch)]
        tables = separate_tables(self.runner, self._model, batch, context + steps + 8)
        flights: list[Flight] = []
        newest = [self._token() for _ in range(batch)]

        def step(number: int) -> None:
            numbers, start = range(batch), context + number
            parts = [StepPart(at, [newest[at]], start, tables[at], 1, pickers[at]) for at in numbers]
            flights.append(self.runner.launch(parts))
            if len(flights) > self.runner.ahead:
                newest[:] = [outcome.sampled[0].token for outcome in flights.pop(0).outcomes()]
            if self.runner.ahead:
                newest[:] = [PENDING] * batch

        for number in range(4):
            step(number)
        settle(self._device)
        start = time.perf_counter()
        for number in range(4, 4 + steps):
            step(number)
        while flights:
            flights.pop(0).outcomes()
        settle(self._device)
        return (time.perf_counter() - start) / steps

    def step(self, batch: int, context: int) -> Callable[[], object]:
        """Returns a function that runs one step of decoding; it may be called repeatedly."""
        pickers = [self.runner.picker(Sampling(temperature=1.0, seed=at)) for at in range(batch)]
        tables = separate_tables(self.runner, self._model, batch, context + 1)
        parts = [StepPart(at, [self._token()], context, tables[at], 1, pickers[at]) for at in range(batch)]
        return lambda: self.runner.launch(parts).outcomes()

    def prompt(self, length: int) -> Callable[[], object]:
        """Returns a function that runs a whole prompt by chunks; it may be called repeatedly."""
        chunk = CHUNK[self._device.type]
        picker = self.runner.picker(Sampling(temperature=0.0))
        table = separate_tables(self.runner, self._model, 1, length)[0]
        tokens = [self._token() for _ in range(length)]

        def run() -> None:
            for at in range(0, length, chunk):
                part = tokens[at : at + chunk]
                last = at + len(part) == length
                flight = self.runner.launch([StepPart(0, part, at, table, int(last), picker)])
            flight.outcomes()

        return run

    def prefill(self, length: int) -> Row:
        seconds = median_seconds(self._device, self.prompt(length))
        needed = prefill_flops(self._model.config, length)
        return Row(
            "prefill", 1, length, seconds * 1e3, length / seconds,
            needed / self._machine.product_flops_per_s / seconds,
        )  # fmt: skip

    def _token(self) -> int:
        return random.randrange(self._model.config.vocab_size)


def bench_runner(model: GptOss, sequences: int, most_tokens: int) -> CudaRunner | TorchRunner:
    """With memory for these sequences, which have `most_tokens` together."""
    cuda = model.device.type == "cuda"
    size = BLOCK_SIZE_ON_GPU if cuda else BLOCK_SIZE
    blocks = [1 + -(-most_tokens // size) + sequences] * len(model.config.windows)
    return CudaRunner(model, blocks, sequences, size) if cuda else TorchRunner(model, blocks, size)


def separate_tables(runner: Runner, model: GptOss, sequences: int, tokens: int) -> list[list[list[int]]]:
    """Each sequence's blocks for each kind of layer; sequences share none."""
    count = -(-tokens // runner.block_size)
    own = [list(range(1 + at * count, 1 + (at + 1) * count)) for at in range(sequences)]
    return [[blocks] * len(model.config.windows) for blocks in own]


def stored_widths(model: GptOss) -> Widths:
    plain = model.dtype.itemsize
    is_fp8 = model.precision.weights == "fp8" and runs_fp8(model.device)
    return Widths(plain, weights=1 if is_fp8 else plain, kv=model.kv_dtype.itemsize)


def fits(model: GptOss, tokens: int) -> bool:
    """Whether memory holds the keys and values of `tokens` tokens, with a tenth to spare."""
    if model.device.type != "cuda":
        return True
    config = model.config
    per_token = 2 * config.layers * config.kv_heads * config.head_dim * model.kv_dtype.itemsize
    return tokens * per_token < 0.9 * torch.cuda.mem_get_info(model.device)[0]
