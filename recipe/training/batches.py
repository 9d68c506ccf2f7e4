"""Conversations to batches: packed by length, with targets and the rows that the softmax is taken over."""

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
_NOT_KNOWN = ("values", "sets_", "kinds", "related")  # files of it whose words are copied, or only compared
USUAL_SIZE = 4096  # tokens of a batch
_POOL = 96  # conversations of as many that are sorted by length at a time
_NEGATIVES = 700  # drawn from the whole vocabulary
_USUAL = 1200  # drawn from the tokens with learned rows
_RIVALS = 4  # drawn for each target, of the tokens that share its word's first piece
# Of the prompts' tokens that can be told: they say how to copy to what cannot yet, and little to what can.
_PROMPT_SHARE, _CAREFUL_PROMPT_SHARE = 0.3, 0.05


@dataclass(frozen=True, slots=True)
class Batch:
    """Places are among `candidates`, the ids of the softmax; `prior` corrects for the sampled ones.

    The tokens that occur are the first of the candidates.
    """

    candidates: Longs
    prior: npt.NDArray[np.float32]
    tokens: Longs  # rows x length
    rows: Longs  # of every target
    columns: Longs
    targets: Longs
    turns: Longs  # which turn a target belongs to, -1 for the prompt's
    kinds: tuple[str, ...]  # of every turn
    weight: int  # tokens that are not padding
    marks: Marks


@cache
def learned_tokens(seed: int, sample: int = 1500) -> Longs:
    """The ids that get learned rows: those of the stock's texts, and those frequent in conversations."""
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
def never_said(seed: int, sample: int = 4000) -> Longs:
    """The tokens that can begin a word where no space may stand, and that no conversation has the model say.

    They are those of held-out words, mostly. All that a row of theirs in the head could learn is never to be
    said: a held-out "horse" was found, and " horse" said in its place.
    """
    said: set[int] = set()
    for place in range(sample):
        talk = make_talk(Random(f"{seed}/said/{place}"), 1.0)
        said.update(token for turn in talk.turns for token in talk.tokens[turn.start : turn.end])
    words = (token for token, text in enumerate(token_bytes()) if text.isalpha() and token not in said)
    return np.fromiter(words, dtype=np.int64)


def packed(talks: list[Talk], learned: Longs, rng: np.random.Generator, prompt_share: float) -> Batch:
    """One batch of `talks`; a share of the prompts' tokens that can be told are targets too."""
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
            if turn.kind == PAST:  # its header is written after reasoning, and here there is none
                begin = max(place for place in range(turn.start) if talk.tokens[place] == START)
                owner[row, begin : turn.start] = -2
            owner[row, turn.start : turn.end] = len(kinds)
            kinds.append(f"{talk.skill}/{turn.kind}")
    is_target = (owner >= 0) | (_can_be_told(talks, owner) & (rng.random(owner.shape) < prompt_share))
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
    """For every token those that spell the same after a space and after "_", itself where there is none."""
    table = token_table()
    whole = (table.pieces[:, 1] < 0) & (table.pieces[:, 0] != np.arange(VOCABULARY))
    spaced = (table.features >> SPACE_LEADS & 1).astype(np.bool_)
    found = np.tile(np.arange(VOCABULARY), (2, 1))
    for row, kind in enumerate((spaced, ~spaced)):
        found[row, table.pieces[whole & kind, 0]] = np.flatnonzero(whole & kind)
    return found


def _rivals(targets: Longs, known: Longs, rng: np.random.Generator) -> tuple[Longs, npt.NDArray[np.float32]]:
    """Tokens that a copy is easily mistaken for, with what corrects for how few of them were drawn.

    The same word with a space, without, and as a part of a name are always among them. Words with the same
    first piece differ in their other pieces alone (" lit", " lithium"): among tokens drawn from the whole
    vocabulary they are too seldom for the difference to be learned.
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


def _can_be_told(talks: list[Talk], owner: Longs) -> npt.NDArray[np.bool_]:
    """Where a prompt's token repeats what stood after the same token before.

    The others are drawn at random: to practise them would teach nothing, and drown the rest. Nor is who
    speaks next: the model would take the user's turn.
    """
    found = np.zeros(owner.shape, dtype=np.bool_)
    for row, talk in enumerate(talks):
        seen: set[tuple[int, int]] = set()
        for place, pair in enumerate(pairwise(talk.tokens), 1):
            found[row, place] = pair in seen and START not in pair
            seen.add(pair)
    told: npt.NDArray[np.bool_] = found & (owner == -1)
    return told


def usual_batches(size: int) -> int:
    """How many usual batches one of `size` tokens is as large as."""
    return max(1, size // USUAL_SIZE)


def _pool_of(size: int) -> int:
    """Of a large batch's conversations many more are sorted: else the longest make the others padding."""
    times = usual_batches(size)
    return _POOL * times * min(times, 4)


def batches(
    seed: str, learned: Longs, size: int, progress: Synchronized[float], *, careful: bool = False
) -> Iterator[Batch]:
    """Endless batches of about `size` tokens, padding included; `careful`: for a model that is trained."""
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
