"""The seeds of tests that draw at random: a few in every run, all of them in `make proofs`."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(always: int, proofs: int) -> list[Any]:
    """The numbers below `proofs`. Those from `always` on have the marker `proof`."""
    more = [pytest.param(seed, marks=pytest.mark.proof) for seed in range(always, proofs)]
    return [*range(always), *more]
