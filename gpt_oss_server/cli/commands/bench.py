"""Measure how fast a model runs here, for one stream; `python -m inference.bench` measures single steps.

Prefill is the prompt's tokens divided by the time to the first sampled token; decode is the later tokens
divided by their time. Each figure is the median of the repeats, after one warm-up run.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import time
from contextlib import aclosing
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from gpt_oss_server.cli.line.flags import add_flags, add_model
from gpt_oss_server.cli.server.start import load_engine
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.cli.terminal.console import CommandLineError
from gpt_oss_server.settings import Settings
from inference.engine import Engine, Sampling

EXAMPLES = """\
examples:
  gpt-oss-server bench openai/gpt-oss-20b --prompt 128,1024,8192 --output 256
  gpt-oss-server bench random:20b --json figures.json"""

FLAGS = ("model", "device", "context", "weights", "kv_dtype", "log_level")
TEXT_TOKENS = 199_998  # ids below are text; random ones make a prompt that is in no cache


@dataclass(frozen=True, slots=True)
class Measurement:
    """One row: medians over the repeats."""

    prompt_tokens: int
    output_tokens: int
    first_token_ms: float
    prefill_tokens_per_s: float
    decode_tokens_per_s: float


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    lengths = "prompt lengths (default: 128,1024)"
    parser.add_argument("--prompt", metavar="TOKENS[,…]", default="128,1024", help=lengths)
    parser.add_argument("--output", metavar="TOKENS", type=int, default=128, help="tokens to sample (128)")
    parser.add_argument("--repeat", metavar="TIMES", type=int, default=3, help="runs per figure (3)")
    to_file = "write the figures to FILE as JSON, or print them instead of the table"
    parser.add_argument("--json", metavar="FILE", nargs="?", const="-", help=to_file)
    add_model(parser)
    add_flags(parser, only=FLAGS, everything=everything)


def run(args: argparse.Namespace, settings: Settings) -> int:
    prompts = _lengths(args)
    engine = load_engine(settings)
    longest = max(prompts) + args.output
    if longest > engine.info.context_length:
        raise CommandLineError(
            f"A prompt of {max(prompts)} tokens and {args.output} sampled tokens exceed the context of "
            f"{engine.info.context_length}. Choose a smaller --prompt or --output."
        )
    with asyncio.Runner() as runner:
        try:
            rows = [runner.run(measure(engine, length, args.output, args.repeat)) for length in prompts]
        finally:
            runner.run(engine.close())
    report = {
        "model": engine.info.name,
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "machine": platform.machine(),
        "rows": [asdict(row) for row in rows],
    }
    text = json.dumps(report, indent=2)
    if args.json not in (None, "-"):
        try:
            Path(args.json).write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise CommandLineError(f"--json: {args.json} cannot be written: {error.strerror}.") from error
    console.out(text if args.json == "-" else _table(report, rows))
    return 0


def _lengths(args: argparse.Namespace) -> list[int]:
    try:
        prompts = [int(part) for part in args.prompt.split(",")]
    except ValueError:
        prompts = []
    if not prompts or min(prompts) < 1:
        raise CommandLineError(f"--prompt must be lengths such as 128 or 128,1024, not {args.prompt!r}.")
    if args.output < 2 or args.repeat < 1:
        raise CommandLineError("--output must be at least 2, and --repeat at least 1.")
    return prompts


async def measure(engine: Engine, prompt_tokens: int, output_tokens: int, repeat: int) -> Measurement:
    runs = [await _one_run(engine, prompt_tokens, output_tokens, seed) for seed in range(repeat + 1)]
    first = statistics.median(first for first, _, _ in runs[1:])
    decode = statistics.median(tokens / seconds if seconds else 0.0 for _, tokens, seconds in runs[1:])
    figures = (round(first * 1e3, 2), round(prompt_tokens / first, 1), round(decode, 1))
    return Measurement(prompt_tokens, output_tokens, *figures)


async def _one_run(
    engine: Engine, prompt_tokens: int, output_tokens: int, seed: int
) -> tuple[float, int, float]:
    """Seconds to the first token, the number of tokens after it, and the seconds that these took."""
    draw = random.Random(f"{seed} {prompt_tokens}")
    prompt = [draw.randrange(TEXT_TOKENS) for _ in range(prompt_tokens)]
    sampling = Sampling(seed=seed, stop_token_ids=frozenset(), max_tokens=output_tokens)
    start = time.perf_counter()
    first = last = start
    sampled = first_tokens = 0
    async with aclosing(engine.generate(prompt, sampling)) as steps:
        async for step in steps:
            if not step.tokens:
                continue
            last = time.perf_counter()
            if not sampled:
                first, first_tokens = last, len(step.tokens)
            sampled += len(step.tokens)
    return first - start, sampled - first_tokens, last - first


def _table(report: dict[str, Any], rows: list[Measurement]) -> str:
    lines = [
        f"{report['model']} on {report['cpus']} CPUs ({report['machine']}), torch {report['torch']}",
        "",
        f"{'prompt':>8} {'output':>8} {'first token':>14} {'prefill':>14} {'decode':>14}",
    ]
    lines += [
        f"{row.prompt_tokens:>8} {row.output_tokens:>8} {row.first_token_ms:>11.1f} ms"
        f" {row.prefill_tokens_per_s:>8,.0f} tok/s {row.decode_tokens_per_s:>8,.0f} tok/s"
        for row in rows
    ]
    return "\n".join(lines)
