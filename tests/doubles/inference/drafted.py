"""Readers that give a GPU's runner drafts, one right and one wrong in each step, and note its guesses."""

from __future__ import annotations

from dataclasses import dataclass

from inference.engine import Sampling
from inference.local.cuda.runner import CudaRunner
from inference.local.scheduling.step import StepPart

Answer = tuple[list[int], list[int]]  # sampled tokens, and guesses
EACH = 6  # blocks of each sequence


@dataclass
class Reader:
    """One sequence: its tokens so far, and those that follow."""

    tokens: list[int]
    later: list[int]
    computed: int = 0

    def part(self, runner: CudaRunner, slot: int, guesses: int) -> StepPart:
        drafts = [self.later[0], self.later[1] ^ 1] if self.computed else []
        tokens = [*self.tokens[self.computed :], *drafts]
        table = list(range(1 + EACH * slot, 1 + EACH * (slot + 1)))
        picker = runner.picker(Sampling(temperature=0.0, stop_token_ids=frozenset()))
        tables = [table] * len(runner._windows)
        return StepPart(slot, tokens, self.computed, tables, 1 + len(drafts), picker, guesses=guesses)


def answers(
    runner: CudaRunner, prompts: list[list[int]], texts: list[list[int]], steps: int, guesses: int
) -> list[list[Answer]]:
    """Of each step and sequence; `texts`: what follows the prompts."""
    readers = [Reader(list(prompt), list(text)) for prompt, text in zip(prompts, texts, strict=True)]
    found = []
    for _ in range(steps):
        parts = [reader.part(runner, slot, guesses) for slot, reader in enumerate(readers)]
        outcomes = runner.launch(parts).outcomes()
        for reader, outcome in zip(readers, outcomes, strict=True):
            sampled = [each.token for each in outcome.sampled]
            reader.computed = len(reader.tokens) + len(sampled) - 1
            reader.tokens += sampled
            del reader.later[: len(sampled)]
        found.append([([each.token for each in o.sampled], list(o.guesses)) for o in outcomes])
    return found
