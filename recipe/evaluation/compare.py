"""Compares states of the model: `python -m recipe.evaluation.compare checkpoint.pt tiny.safetensors`.

Whole greedy calls are either right or wrong: of 180, a difference of five is noise. This measures the loss of
each token of held-out calls, given everything before it, over the whole vocabulary and with rounded experts.
In half a minute it separates states that `evaluate` does not, so use it to choose means (`export
--mean-with`); `evaluate` has the last word.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from inference.tiny.codes import Longs
from inference.tiny.shape import Shape
from recipe.network.model import TinyGptOss
from recipe.skills.data import SKILLS
from recipe.text.talk import Talk
from recipe.text.words import Words
from recipe.training.batches import Batch, packed
from recipe.training.export import UnfitError, weights_of
from recipe.training.rows import Rows

_LONGEST = 900  # tokens of a conversation
_AT_ONCE = 8  # conversations
_TARGETS_AT_ONCE = 256  # each has a logit for every token of the vocabulary
_CALLS = ("call", "preamble")


@dataclass(frozen=True, slots=True)
class Score:
    loss: float  # per token of the model's turns
    right: int  # calls with their thoughts in which every step was right
    calls: int


def held_out_talks(count: int, skill: str, seed: int) -> list[Talk]:
    """The first `count` conversations that are not too long, sorted by length."""
    talks: list[Talk] = []
    place = 0
    while len(talks) < count:
        rng = Random(f"compare/{seed}/{skill}/{place}")
        talk = SKILLS[skill](rng, Words(rng, True), True)
        place += 1
        if len(talk.tokens) < _LONGEST:
            talks.append(talk)
    return sorted(talks, key=lambda talk: len(talk.tokens))


class Scorer:
    """A model with the rows of all tokens."""

    def __init__(self, weights: dict[str, Tensor], learned: Longs, shape: Shape) -> None:
        self.learned = learned
        self.model = TinyGptOss(shape, len(learned))
        self.model.load_state_dict(weights)
        self.model.quantise_experts(True)
        self.rows = Rows(self.model, learned)
        self._rows_out = self.rows.all_out()

    @torch.no_grad()
    def score(self, talks: list[Talk]) -> Score:
        cost, targets, right, calls = 0.0, 0, 0, 0
        for batch in _batches(talks, self.learned):
            wrong = torch.zeros(len(batch.kinds))
            turns = torch.from_numpy(batch.turns)
            tokens = torch.from_numpy(batch.candidates)[torch.from_numpy(batch.targets)]
            parts = (torch.split(each, _TARGETS_AT_ONCE) for each in (self._hidden(batch), tokens, turns))
            for hidden, wanted, turn in zip(*parts, strict=True):
                logits = hidden @ self._rows_out.t()
                cost += F.cross_entropy(logits, wanted, reduction="sum").item()
                wrong.index_add_(0, turn, (logits.argmax(1) != wanted).float())
            of_calls = [
                count
                for kind, count in zip(batch.kinds, wrong.tolist(), strict=True)
                if kind.endswith(_CALLS)
            ]
            targets += len(tokens)
            calls += len(of_calls)
            right += of_calls.count(0)
        return Score(cost / targets, right, calls)

    def _hidden(self, batch: Batch) -> Tensor:
        """The last layer's output before each target."""
        hidden: Tensor = self.model(self.rows.embedded(batch))[0]
        return hidden[torch.from_numpy(batch.rows), torch.from_numpy(batch.columns)]


def _batches(talks: list[Talk], learned: Longs) -> Iterator[Batch]:
    for begin in range(0, len(talks), _AT_ONCE):
        yield packed(talks[begin : begin + _AT_ONCE], learned, np.random.default_rng(0), 0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("files", type=Path, nargs="+", help="exported files and checkpoints of runs")
    parser.add_argument("--cases", type=int, default=200, help="conversations")
    parser.add_argument("--skill", choices=sorted(SKILLS), default="call")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for file in arguments.files:
        if not file.is_file():
            parser.error(f"{file} does not exist")
    talks = held_out_talks(arguments.cases, arguments.skill, arguments.seed)
    width = max(len(str(file)) for file in arguments.files)
    for file in arguments.files:
        try:
            weights, saved = weights_of(file)
        except UnfitError as error:
            parser.error(str(error))
        score = Scorer(weights, saved["learned"], Shape(**saved["shape"])).score(talks)
        calls = f"  {score.right}/{score.calls} calls right at every step" if score.calls else ""
        sys.stdout.write(f"{str(file).ljust(width)}  loss {score.loss:.5f}{calls}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
