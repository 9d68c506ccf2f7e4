"""A restart after `kill -9` against a cold start, and what a folder costs that no prompt has a use for.

Asserts ratios of one run.
"""

import asyncio
import json
import random
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import inference
from inference.engine import Engine, Sampling
from inference.options import EngineOptions
from tests.doubles.inference import turns_of_a_process
from tests.doubles.inference.tiered import all_stored

pytestmark = pytest.mark.benchmark

TURNS, WHOLE = 50, 20_000
STREAMS, PROMPT, OUTPUT, TRIES = 64, 64, 16, 20


class Process:
    def __init__(self, folder: Path | str) -> None:
        command = [sys.executable, "-m", turns_of_a_process.__name__, str(folder)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answer(self, prompt: list[int]) -> dict[str, Any]:
        self.process.stdin.write(json.dumps(prompt) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_turn_50_after_kill_9_is_20_times_sooner_than_cold_and_has_the_same_logits(tmp_path: Path) -> None:
    draw = random.Random(5)
    process, conversation = Process(tmp_path / "cache"), list[int]()
    for turn in range(1, TURNS + 1):
        conversation += [draw.randrange(190_000) for _ in range(turn * WHOLE // TURNS - len(conversation))]
        if turn == TURNS:
            shutil.copytree(tmp_path / "cache", tmp_path / "killed")
        uninterrupted = process.answer(conversation)
        conversation += [score[0] for score in uninterrupted["scores"]] if turn < TURNS else []
    process.kill()
    found = []
    for folder in (tmp_path / "killed", "-"):
        process = Process(folder)
        process.answer([1] * 300)  # both have computed something
        found.append(process.answer(conversation))
        process.kill()
    restarted, cold = found
    ratio = cold["first"] / restarted["first"]
    print(
        f"\n{len(conversation):,} tokens, {restarted['cached']:,} restored: first token after "
        f"{restarted['first']:.2f} s, cold {cold['first']:.2f} s ({ratio:.0f} times sooner)"
    )
    assert restarted["measures"]["restored_from_disk"] == restarted["cached"] == uninterrupted["cached"]
    assert restarted["scores"] == uninterrupted["scores"], "bit for bit"
    assert ratio >= 20


def test_a_folder_without_use_costs_64_streams_at_most_2_percent(tmp_path: Path) -> None:
    async def read(engine: Engine, prompt: list[int]) -> None:
        sampling = Sampling(temperature=0.0, stop_token_ids=frozenset(), max_tokens=OUTPUT)
        async for _ in engine.generate(prompt, sampling):
            pass

    async def both() -> list[list[tuple[float, float]]]:
        draw, found = random.Random(6), [[], []]
        torch.set_num_threads(1)  # else the first of two engines in a process has one, and the other all
        options = EngineOptions(device="cpu", max_concurrent=STREAMS)
        engines = [
            inference.load("tiny", options=each, progress=False)
            for each in (options, replace(options, cache_dir=str(tmp_path)))
        ]
        for turn in range(TRIES + 1):
            for at in (0, 1) if turn % 2 else (1, 0):
                prompts = [[draw.randrange(190_000) for _ in range(PROMPT)] for _ in range(STREAMS)]
                wall, used = time.perf_counter(), time.process_time()
                await asyncio.gather(*(read(engines[at], prompt) for prompt in prompts))
                elapsed = time.perf_counter() - wall
                await all_stored(engines[at])
                found[at].append((time.process_time() - used, elapsed))
        for engine in engines:
            await engine.close()
        return found

    pairs = list(zip(*asyncio.run(both()), strict=True))[1:]
    processor, wall = (
        statistics.median(with_folder[at] / without[at] for without, with_folder in pairs) for at in (0, 1)
    )
    print(
        f"\n{len(pairs)} pairs of {statistics.median(pair[0][1] for pair in pairs):.2f} s without a folder; "
        f"with one {wall - 1:+.1%} of time, {processor - 1:+.1%} of processor time (medians)"
    )
    assert wall <= 1.02
