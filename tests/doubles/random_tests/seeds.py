"""The seeds of tests that draw at random: a few in every run, all of them in `make proofs`."""

from collections.abc import Iterable
from typing import Any

import pytest


def seeds(always: int, proofs: int) -> list[Any]:
    """The numbers below `proofs`. Those from `always` on have the marker `proof`."""
    more = [pytest.param(seed, marks=pytest.mark.proof) for seed in range(always, proofs)]
    return [*range(always), *more]


def pairs(first: Iterable[Any], second: Iterable[Any]) -> list[Any]:
    """All pairs. Every other one has the marker `proof`; each value is in one of the rest."""
    rows = list(second)
    return [
        pytest.param(one, other, marks=[pytest.mark.proof] if (at + place) % 2 else [])
        for at, one in enumerate(first)
        for place, other in enumerate(rows)
    ]
