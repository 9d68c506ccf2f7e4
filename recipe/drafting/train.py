"""Trains a draft head for the embedded model: `python -m recipe.drafting.train --minutes 20`.

It learns from the model's hidden states over the recipe's conversations, which the model continues as they
are written. Training is seeded, but how far it comes depends on the machine. The result is for
`gpt-oss-server serve --speculation eagle:runs/head`.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
from torch import Tensor
from torch.nn import functional as F

from inference import tiny
from inference.models.gpt_oss import GptOss, HiddenStates, load_model
from inference.models.tensor_files import TensorFiles
from recipe.drafting.export import write_head
from recipe.drafting.network import HeadInTraining, HeadShape
from recipe.skills.data import make_talk
from recipe.text.talk import Talk

ROWS = 4096  # tokens that it can guess: 98 of 100 that the model writes
SAMPLED_TALKS = 1500
ROUNDS = 4  # guesses in a row; each counts less than the one before
DECAY = 0.8
RATE = 2e-3
TALKS_AT_ONCE = 4
LONGEST = 900  # tokens of a conversation
REPORTED = 20  # steps


@dataclass(frozen=True, slots=True)
class Lesson:
    tokens: Tensor
    states: Tensor  # T × those of the wanted layers, side by side
    asked: Tensor  # places whose next token the model writes


def usual_tokens(seed: int, rows: int, talks: int = SAMPLED_TALKS) -> Tensor:
    """The ids that the model writes most often, ascending."""
    counts: Counter[int] = Counter()
    for place in range(talks):
        talk = make_talk(Random(f"{seed}/head's vocabulary/{place}"), 1.0)
        for turn in talk.turns:
            counts.update(talk.tokens[turn.start : turn.end])
    return torch.tensor(sorted(token for token, _ in counts.most_common(rows)))


def lesson_of(talk: Talk, model: GptOss, states: tuple[int, ...]) -> Lesson:
    tokens = torch.tensor(talk.tokens)
    cache, hidden = model.new_cache(), HiddenStates(states)
    pages = cache.pages(len(tokens))
    model.forward(tokens, torch.arange(len(tokens)), cache.memory, pages, hidden)
    asked = [place for turn in talk.turns for place in range(max(1, turn.start - 1), turn.end - 1)]
    # The states were made in inference mode; training needs ordinary tensors.
    return Lesson(tokens, torch.cat(hidden.found, 1).clone(), torch.tensor(sorted({*asked})))


def loss_of(head: HeadInTraining, lesson: Lesson, places: Tensor) -> tuple[Tensor, list[tuple[int, int]]]:
    """The loss, and for each round how many next tokens were guessed, of how many.

    `places` has each id's row in the head, or -1.
    """
    total = torch.zeros(())
    right = []
    features = head.features(lesson.states)
    for turn, (at, logits) in enumerate(head.rounds(lesson.tokens, features, lesson.asked, ROUNDS)):
        wanted = places[lesson.tokens[at + 1]]
        total = total + DECAY**turn * F.cross_entropy(logits, wanted, ignore_index=-1, reduction="sum")
        right.append((int((logits.argmax(1) == wanted).sum()), len(at)))
    return total / max(1, len(lesson.asked)), right


def rate_at(progress: float, talks: int) -> float:
    """A factor: a short rise, then a fall to nearly nothing."""
    return min(1.0, (talks + 1) / 100) * (0.02 + 0.98 * math.cos(progress * math.pi / 2))


class Course:
    """The head, its optimiser, and conversations without end."""

    def __init__(self, folder: Path, model: GptOss, shape: HeadShape, seed: int, ids: Tensor) -> None:
        """`folder`: the model's checkpoint."""
        torch.manual_seed(seed)
        files, config = TensorFiles(folder), model.config
        embedding = files.take("model.embed_tokens.weight", (config.vocab_size, config.hidden))
        rows = files.take("lm_head.weight", (config.vocab_size, config.hidden))[ids].float()
        norm = files.take("model.norm.weight", (config.hidden,)).float()
        self.model, self.ids, self.seed = model, ids, seed
        self.head = HeadInTraining(shape, embedding, rows, norm)
        self.places = torch.full((model.config.vocab_size,), -1).index_copy_(0, ids, torch.arange(len(ids)))
        self.optimiser = torch.optim.AdamW(
            self.head.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.0
        )
        self._talks = 0

    def step(self, progress: float) -> tuple[float, list[tuple[int, int]]]:
        for group in self.optimiser.param_groups:
            group["lr"] = RATE * rate_at(progress, self._talks)
        self.optimiser.zero_grad()
        loss, counted = 0.0, [(0, 0)] * ROUNDS
        for _ in range(TALKS_AT_ONCE):
            each, right = loss_of(self.head, self._next(), self.places)
            (each / TALKS_AT_ONCE).backward()  # type: ignore[no-untyped-call]
            loss += float(each.detach()) / TALKS_AT_ONCE
            counted = [(a + c, b + d) for (a, b), (c, d) in zip(counted, right, strict=False)]
        torch.nn.utils.clip_grad_norm_(self.head.parameters(), 1.0)
        self.optimiser.step()
        return loss, counted

    def _next(self) -> Lesson:
        while True:
            self._talks += 1
            talk = make_talk(Random(f"{self.seed}/head/{self._talks}"), 1.0)
            if len(talk.tokens) <= LONGEST and any(turn.end - turn.start > ROUNDS for turn in talk.turns):
                return lesson_of(talk, self.model, self.head.shape.states)


def train(folder: Path, minutes: float, seed: int) -> None:
    checkpoint = tiny.checkpoint()
    model = load_model(checkpoint, device=torch.device("cpu"))
    layers = model.config.layers
    shape = HeadShape(hidden=model.config.hidden, states=(1, layers // 2 + 1, layers))
    course = Course(checkpoint, model, shape, seed, usual_tokens(seed, ROWS))
    began, steps = time.monotonic(), 0
    while (progress := (time.monotonic() - began) / (60 * minutes)) < 1:
        loss, counted = course.step(progress)
        steps += 1
        if steps % REPORTED == 0:
            shares = " ".join(f"{right / max(1, of):.2f}" for right, of in counted)
            sys.stdout.write(f"step {steps}, {progress:.0%}: loss {loss:.3f}, right by round {shares}\n")
            sys.stdout.flush()
    write_head(folder, course.head, course.ids, model.config)
    sys.stdout.write(f"{folder}: {steps} steps\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("runs/head"), help="where the head is written")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.set_flush_denormal(True)
    train(arguments.folder, arguments.minutes, arguments.seed)


if __name__ == "__main__":
    main()
