"""Tunes the vectors of words so that requests are close to the functions they need.

Run `python -m recipe.functions.tune_meanings` after `make_meanings`. In GloVe's vectors an umbrella is far
from the weather. The stock's requests, and its lists of words (`related_*.txt`), connect some thousand words
with functions. So this moves the first numbers of every vector, those that heads compare (`wiring.py`), until
these heads alone could choose: each word of a function's name and purpose looks at the most similar word of
the request, or at nothing, and the share that finds one decides whether the function fits. The result applies
to a word in any text; words without data do not move.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from recipe.functions.tool_sets import may_mean_both
from recipe.functions.tool_stock import sets_of_tools, stock_tool, tools_of_the_stock
from recipe.functions.tool_thoughts import purpose
from recipe.text import stock
from recipe.text.meanings import COMPARED, FILE, MOST, meanings, write
from recipe.text.vocabulary import encode, token_table
from recipe.text.words import Words

_STEPS, _RATE = 1000, 0.03
_BATCH = 96  # pairs of a step
_OF_LISTS = 0.5  # the weight of the lists, relative to the pairs
_FORMS, _REQUESTS = 2, 6  # declarations of each entry, at least, and requests for each
_UNFIT = 4.0  # the weight of all functions that do not fit, relative to the one that does
_CHOICE = 0.5  # the weight of the choice among all, relative to each alone
# Initial terms of the looks: sharpness, threshold of a word, weight of the found share, and the bias.
_SHARP, _NOTHING, _FOUND, _LEAST = 0.055, 5.0, 20.0, -3.0


@dataclass(frozen=True, slots=True)
class Pair:
    """A request and its function: the entry's place, and the places of both texts' words."""

    entry: int
    request: list[int]
    function: list[int]


def places_in(text: str) -> list[int]:
    """The places of its tokens' vectors."""
    found = token_table().meanings[np.array(encode(text))]
    return [int(place) for place in found if place >= 0]


def pairs_of(rng: Random, entries: Sequence[dict[str, Any]]) -> list[Pair]:
    """Requests as in training, with their values, for functions as a thought writes them."""
    words, found = Words(rng, False), []
    for place, entry in enumerate(entries):
        for _ in range(max(_FORMS, len(entry["asks"]) // 2)):
            offer = stock_tool(rng, words, False, [entry])
            function = places_in(f" {purpose(offer.tool)}: {offer.tool.name}")
            for _ in range(_REQUESTS):
                request = places_in(f" {offer.request().text}")
                if request and function:
                    found.append(Pair(place, request, function))
    return found


@dataclass(frozen=True, slots=True)
class Related:
    """Words of functions of one kind, and of requests for them."""

    functions: tuple[str, ...]
    requests: tuple[str, ...]


def related() -> list[Related]:
    files = sorted(file.name for file in stock.FOLDER.glob("related_*.txt"))
    sides = (line.split("|") for name in files for line in stock.lines(name))
    return [Related(tuple(left.split()), tuple(right.split())) for left, right in sides]


class Looks(nn.Module):
    """What the heads would find, and whether a function fits as a result."""

    def __init__(self, vectors: Tensor) -> None:
        super().__init__()
        self.vectors = nn.Parameter(vectors)
        self.loudness = nn.Parameter(torch.zeros(len(vectors) + 1))  # of a function's words
        self.terms = nn.Parameter(torch.tensor([_SHARP, _NOTHING, _FOUND, _LEAST]).abs().log())

    def rounded(self) -> Tensor:
        """The vectors as stored; the gradient is that of the exact ones."""
        return self.vectors + (self.vectors.clamp(-MOST, MOST).round() - self.vectors).detach()

    def _looked_up(self, texts: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
        none, longest = len(self.vectors), max(1, *map(len, texts))
        places = torch.tensor([text + [none] * (longest - len(text)) for text in texts])
        known = (places < none).float()
        return F.embedding(places.clamp(max=none - 1), self.rounded()) * known.unsqueeze(2), places

    def forward(self, requests: Sequence[list[int]], functions: Sequence[list[int]]) -> Tensor:
        """For every request and function, the evidence that it fits; 0 is undecided."""
        request, request_at = self._looked_up(requests)
        function, function_at = self._looked_up(functions)
        none = len(self.vectors)
        sharp, nothing, found, least = self.terms.exp().unbind()
        alike = torch.einsum("rwd,fvd->rfvw", request, function) * sharp - nothing
        alike = alike.masked_fill((request_at == none)[:, None, None], float("-inf"))
        looked = torch.sigmoid(alike.logsumexp(3))
        counts = self.loudness[function_at].exp() * (function_at < none)
        share = (looked * counts).sum(2) / (counts.sum(1) + 1e-6)
        return found * share - least


def lacking(looks: Looks, pairs: Sequence[Pair], fits_too: Tensor) -> Tensor:
    """The loss of the looks: yes for each request's own function, no for the others."""
    count = len(pairs)
    scores = looks([pair.request for pair in pairs], [pair.function for pair in pairs])
    entries = torch.tensor([pair.entry for pair in pairs])
    own = torch.eye(count)
    unclear = (fits_too[entries][:, entries] | (entries[:, None] == entries)) & ~own.bool()
    each = F.binary_cross_entropy_with_logits(scores, own, reduction="none").masked_fill(unclear, 0)
    yes, no = (each * own).sum() / count, (each * (1 - own)).sum() / (count * (count - 1))
    choice = F.cross_entropy(scores.masked_fill(unclear, float("-inf")), torch.arange(count))
    return yes + _UNFIT * no + _CHOICE * choice


class Lists(nn.Module):
    """Predicts by the looks which lists each single word of a request belongs to."""

    def __init__(self, lists: Sequence[Related]) -> None:
        super().__init__()
        requests = sorted({at for one in lists for word in one.requests for at in places_in(f" {word}")})
        functions = sorted({at for one in lists for word in one.functions for at in places_in(f" {word}")})
        share, own = torch.zeros(len(functions), len(lists)), torch.zeros(len(requests), len(lists))
        for place, one in enumerate(lists):
            for words, known, found in ((one.functions, functions, share), (one.requests, requests, own)):
                for at in {at for word in words for at in places_in(f" {word}")}:
                    found[known.index(at), place] = 1
        self.requests, self.functions = torch.tensor(requests), torch.tensor(functions)
        self.share = share / share.sum(0).clamp(min=1)  # averages each list's words of functions
        self.own = own / own.sum(1, keepdim=True)

    def lacking(self, looks: Looks) -> Tensor:
        sharp, nothing, found, _ = looks.terms.exp().unbind()
        vectors = looks.rounded()
        looked = torch.sigmoid(vectors[self.requests] @ vectors[self.functions].T * sharp - nothing)
        chosen = (found * (looked @ self.share)).log_softmax(1)
        return -(chosen * self.own).sum(1).mean()


def tune(steps: int, seed: int, report: int = 100) -> tuple[Looks, list[float]]:
    """The looks after `steps` steps, and the loss of each step."""
    rng = Random(seed)
    entries = [*(entry for entries in sets_of_tools() for entry in entries), *tools_of_the_stock()]
    fits_too = torch.tensor(may_mean_both(entries))
    pairs, lists = pairs_of(rng, entries), Lists(related())
    vectors = torch.from_numpy(meanings()[1].astype(np.float32))[:, :COMPARED]
    looks = Looks(vectors)
    optimiser = torch.optim.Adam(looks.parameters(), lr=_RATE)
    losses = []
    for step in range(steps):
        loss = lacking(looks, rng.sample(pairs, _BATCH), fits_too) + _OF_LISTS * lists.lacking(looks)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
        losses.append(loss.item())
        if report and step % report == report - 1:
            mean = sum(losses[-report:]) / report
            sys.stderr.write(f"step {step + 1} of {steps}: loss {mean:.3f}\n")
    return looks, losses


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=_STEPS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--to", type=Path, default=FILE)
    arguments = parser.parse_args()
    looks, _ = tune(arguments.steps, arguments.seed)
    words, vectors = meanings()
    tuned = looks.rounded().detach().numpy().astype(np.int8)
    write(arguments.to, list(words), np.concatenate([tuned, vectors[:, COMPARED:]], axis=1))
    moved = (tuned != vectors[:, :COMPARED]).any(1).sum()
    sharp, nothing, *_ = looks.terms.exp().tolist()
    sys.stdout.write(f"{arguments.to}: {moved:,} of {len(words):,} words moved\n")
    sys.stdout.write(f"words match from a product of {nothing / sharp:.0f} on\n")


if __name__ == "__main__":
    main()
