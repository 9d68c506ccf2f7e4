"""Measures a draft head of the embedded model: `python -m recipe.drafting.measure --head runs/head`.

Held-out conversations of the recipe, greedy, one at a time: without drafts, with drafts from the text, and
with the head, in turns, so that other work on the machine affects all three alike. Prints tokens a step and
tokens per second of processor time after each answer's first token. Every answer must be the same.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import torch

from inference import load
from inference.engine import Engine, Sampling
from inference.local.options import LocalOptions
from recipe.evaluation.evaluate import Case, cases_of

SKILLS = ("chat", "call", "memory", "json", "python")
SHORTEST, LONGEST = 12, 160  # tokens of an answer


@dataclass(slots=True)
class Sums:
    tokens: int = 0  # after each answer's first
    seconds: float = 0.0
    drafted: int = 0
    accepted: int = 0

    @property
    def steps(self) -> int:
        """Each gives one token besides the right drafts."""
        return self.tokens - self.accepted

    def line(self, name: str, plain: Sums) -> str:
        speed, before = self.tokens / self.seconds, plain.tokens / plain.seconds
        right = f", {self.accepted} of {self.drafted} drafts right" if self.drafted else ""
        return (
            f"{name:<6} {self.tokens / self.steps:.2f} tokens a step, {speed:.1f} tokens/s "
            f"({speed / before:.2f}){right}\n"
        )


async def answer(engine: Engine, case: Case, sums: Sums) -> list[int]:
    """Adds what the answer took to `sums`."""
    sampling = Sampling(temperature=0.0, max_tokens=LONGEST)
    tokens: list[int] = []
    began, before = 0.0, engine.measures()  # type: ignore[attr-defined]
    async with aclosing(engine.generate(case.prompt, sampling)) as stream:
        async for step in stream:
            if not tokens:
                began = time.process_time()
                sums.tokens -= 1  # the prompt's step
            tokens += step.tokens
    sums.seconds += time.process_time() - began
    after = engine.measures()  # type: ignore[attr-defined]
    sums.tokens += len(tokens)
    sums.drafted += int(after["drafted_tokens"] - before["drafted_tokens"])
    sums.accepted += int(after["accepted_tokens"] - before["accepted_tokens"])
    return tokens


async def measure(head: Path, per_skill: int, seed: int) -> dict[str, Sums]:
    """By the name of the kind of speculation. Raises `ValueError` if an answer differs."""
    engines = {
        "none": load("tiny"),
        "ngram": load("tiny", options=LocalOptions(speculation=True)),
        "eagle": load("tiny", options=LocalOptions(draft_head=str(head))),
    }
    sums = {name: Sums() for name in engines}
    try:
        for case in cases_of(seed, per_skill, SKILLS):
            if len(case.expected) < SHORTEST:
                continue
            found = {name: await answer(engine, case, sums[name]) for name, engine in engines.items()}
            if any(tokens != found["none"] for tokens in found.values()):
                raise ValueError(f"An answer with drafts differs: {found}")
    finally:
        for engine in engines.values():
            await engine.close()
    return sums


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--head", type=Path, default=Path("runs/head"), help="the folder of the head")
    parser.add_argument("--cases", type=int, default=4, help="conversations of each skill")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    sums = asyncio.run(measure(arguments.head, arguments.cases, arguments.seed))
    for name, each in sums.items():
        sys.stdout.write(each.line(name, sums["none"]))


if __name__ == "__main__":
    main()
