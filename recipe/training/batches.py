"""Conversations to batches: packed by length, with targets and the rows of the softmax."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt

from inference.tiny.codes import VOCABULARY, Longs
from recipe.skills.data import make_talk
from recipe.text.talk import PAST, START, Talk
from recipe.text.vocabulary import ORDINARY_TOKENS, SPACE_LEADS, encode, token_bytes, token_table
from recipe.training.marks import Marks, marks_of

_STOCK = Path(__file__).parents[1] / "stock"
_NOT_KNOWN = ("values", "sets_", "kinds", "related")  # files whose words are copied, or only compared
USUAL_SIZE = 4096  # tokens of a batch
_POOL = 96  # conversations that are sorted by length at a time, for a usual batch
_NEGATIVES = 700  # drawn from the whole vocabulary
_USUAL = 1200  # drawn from the tokens with learned rows
_RIVALS = 4  # drawn for each target, of the tokens that share its word's first piece
# Of the prompts' predictable tokens: they teach copying to an untrained model, and little to a trained one.
_PROMPT_SHARE, _CAREFUL_PROMPT_SHARE = 0.3, 0.05


@dataclass(frozen=True, slots=True)
class Batch:
    """Places index `candidates`, the ids of the softmax; `prior` corrects for the sampled ones.

    The tokens that occur in the batch are the first candidates.
    """

    candidates: Longs
    prior: npt.NDArray[np.float32]
    tokens: Longs  # rows x length
    rows: Longs  # of every target
    columns: Longs
    targets: Longs
    turns: Longs  # the turn of each target, -1 for the prompt's
    kinds: tuple[str, ...]  # of every turn
    weight: int  # tokens that are not padding
    marks: Marks


@cache
def learned_tokens(seed: int, sample: int = 1500) -> Longs:
    """The ids with learned rows: those of the stock's texts, and those frequent in conversations."""
    found: set[int] = set(range(ORDINARY_TOKENS, 200_013))
    for file in sorted(_STOCK.iterdir()):
        if file.name.startswith(_NOT_KNOWN):
            continue
        for line in file.read_text("utf-8").splitlines():
            for part in (
                line.replace('"', " | ")
                .replace(" => ", " | ")
                .replace(" = ", " | ")
                .replace("{", " | ")
                .replace("}", " | ")
                .split(" | ")
            ):
                for form in {part, part[:1].upper() + part[1:], part[:1].lower() + part[1:]}:
                    found.update(encode(form))
                    found.update(encode(" " + form.strip()))
    counts: Counter[int] = Counter()
    for place in range(sample):
        counts.update(make_talk(Random(f"{seed}/vocabulary/{place}"), (place % 10) / 10).tokens)
    found.update(token for token, count in counts.items() if count >= 12)
    return np.array(sorted(found), dtype=np.int64)


@cache
def never_generated(seed: int, sample: int = 4000) -> Longs:
    """Tokens that can begin a word without a space, and that the model generates in no conversation.

    Most are those of held-out words. Their rows in the head could only learn that they never occur: the model
    found a held-out "horse", and wrote " horse" in its place.
    """
    generated: set[int] = set()
    for place in range(sample):
        talk = make_talk(Random(f"{seed}/said/{place}"), 1.0)
        generated.update(token for turn in talk.turns for token in talk.tokens[turn.start : turn.end])
    words = (token for token, text in enumerate(token_bytes()) if text.isalpha() and token not in generated)
    return np.fromiter(words, dtype=np.int64)


def packed(talks: list[Talk], learned: Longs, rng: np.random.Generator, prompt_share: float) -> Batch:
    """One batch of `talks`; a share of the prompts' predictable tokens are targets too."""
    longest = max(len(talk.tokens) for talk in talks)
    if longest > 384:
        longest = -(-longest // 128) * 128
    grid = np.zeros((len(talks), longest), dtype=np.int64)
    owner = np.full((len(talks), longest), -2, dtype=np.int64)
    kinds: list[str] = []
    for row, talk in enumerate(talks):
        grid[row, : len(talk.tokens)] = talk.tokens
        owner[row, 1 : len(talk.tokens)] = -1
        owner[row, : talk.rules_end] = -2
        for turn in talk.turns:
            if turn.kind == PAST:  # a header follows reasoning, which is absent here
                begin = max(place for place in range(turn.start) if talk.tokens[place] == START)
                owner[row, begin : turn.start] = -2
            owner[row, turn.start : turn.end] = len(kinds)
            kinds.append(f"{talk.skill}/{turn.kind}")
    is_target = (owner >= 0) | (_predictable(talks, owner) & (rng.random(owner.shape) < prompt_share))
    rows, columns = np.nonzero(is_target)
    sure = np.unique(grid)
    usual = np.setdiff1d(rng.choice(learned, min(_USUAL, len(learned)), replace=False), sure)
    known = np.concatenate([sure, learned])
    rivals, rival_prior = _rivals(np.unique(grid[rows, columns]), np.concatenate([sure, usual]), rng)
    drawn = np.setdiff1d(rng.integers(0, VOCABULARY, _NEGATIVES), np.concatenate([known, rivals]))
    candidates = np.concatenate([sure, usual, rivals, drawn])
    usual_prior = np.full(len(usual), np.log(max(1, len(learned) / max(1, _USUAL))))
    drawn_prior = np.full(len(drawn), np.log((VOCABULARY - len(learned)) / max(1, len(drawn))))
    prior = np.concatenate([np.zeros(len(sure)), usual_prior, rival_prior, drawn_prior]).astype(np.float32)
    place = np.searchsorted(sure, grid)
    return Batch(
        candidates, prior, place, rows, columns - 1, place[rows, columns], owner[rows, columns], tuple(kinds),
        sum(len(talk.tokens) for talk in talks), marks_of(talks, learned),
    )  # fmt: skip


@cache
def _by_first_piece() -> tuple[Longs, Longs]:
    """All tokens sorted by their word's first piece, and those pieces."""
    first = token_table().pieces[:, 0].astype(np.int64)
    order = np.argsort(first, kind="stable")
    return order, first[order]


@cache
def _variants() -> Longs:
    """For every token, those that spell the same after a space and after "_"; itself if there is none."""
    table = token_table()
    whole = (table.pieces[:, 1] < 0) & (table.pieces[:, 0] != np.arange(VOCABULARY))
    spaced = (table.features >> SPACE_LEADS & 1).astype(np.bool_)
    found = np.tile(np.arange(VOCABULARY), (2, 1))
    for row, kind in enumerate((spaced, ~spaced)):
        found[row, table.pieces[whole & kind, 0]] = np.flatnonzero(whole & kind)
    return found


def _rivals(targets: Longs, known: Longs, rng: np.random.Generator) -> tuple[Longs, npt.NDArray[np.float32]]:
    """Tokens that are easily confused with a copy, with a correction for how few of them were drawn.

    They always include the same word with a space, without, and as a part of a name. Words with the same
    first piece differ only in their other pieces (" lit", " lithium"): among tokens from the whole vocabulary
    they are too rare for the model to learn the difference.
    """
    order, pieces = _by_first_piece()
    first = np.unique(token_table().pieces[targets, 0].astype(np.int64))
    twins = np.setdiff1d(np.concatenate([first, *_variants()[:, first]]), known)
    begin, end = np.searchsorted(pieces, first), np.searchsorted(pieces, first, side="right")
    several = end - begin > 1
    begin, sizes = begin[several], (end - begin)[several]
    places = begin[:, None] + (rng.random((len(begin), _RIVALS)) * sizes[:, None]).astype(np.int64)
    found, where = np.unique(order[places].ravel(), return_index=True)
    weights = np.log(np.maximum(1, np.repeat(sizes, _RIVALS)[where] / _RIVALS))
    fresh = ~np.isin(found, np.concatenate([known, twins]))
    prior = np.concatenate([np.zeros(len(twins)), weights[fresh]])
    return np.concatenate([twins, found[fresh]]), prior.astype(np.float32)


def _predictable(talks: list[Talk], owner: Longs) -> npt.NDArray[np.bool_]:
    """The prompt's tokens that repeat a pair of tokens seen before.

    The others are random: practising them would teach nothing, and drown the rest. The next role is excluded
    too: the model would take the user's turn.
    """
    found = np.zeros(owner.shape, dtype=np.bool_)
    for row, talk in enumerate(talks):
        seen: set[tuple[int, int]] = set()
        for place, pair in enumerate(pairwise(talk.tokens), 1):
            found[row, place] = pair in seen and START not in pair
            seen.add(pair)
    predictable: npt.NDArray[np.bool_] = found & (owner == -1)
    return predictable


def usual_batches(size: int) -> int:
    """The number of usual batches in one of `size` tokens."""
    return max(1, size // USUAL_SIZE)


def _pool_of(size: int) -> int:
    """Large batches sort many more conversations: else the longest ones cause much padding."""
    times = usual_batches(size)
    return _POOL * times * min(times, 4)


def batches(
    seed: str, learned: Longs, size: int, progress: Synchronized[float], *, careful: bool = False
) -> Iterator[Batch]:
    """Endless batches of about `size` tokens, padding included; `careful` is for a trained model."""
    prompt_share = _CAREFUL_PROMPT_SHARE if careful else _PROMPT_SHARE
    rng, numbers = Random(seed), np.random.default_rng(zlib.crc32(seed.encode()))
    while True:
        pool = sorted(
            (make_talk(rng, progress.value) for _ in range(_pool_of(size))),
            key=lambda talk: len(talk.tokens),
        )
        groups: list[list[Talk]] = [[]]
        for talk in pool:
            if groups[-1] and (len(groups[-1]) + 1) * len(talk.tokens) > size:
                groups.append([])
            groups[-1].append(talk)
        rng.shuffle(groups)
        for group in groups:
            yield packed(group, learned, numbers, prompt_share)
