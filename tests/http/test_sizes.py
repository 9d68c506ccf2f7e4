"""Whether a body is large is found without reading all of it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt_oss_server.json_values import is_larger

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(0, 999), st.text("abc ", max_size=30)),
    lambda inner: st.one_of(st.lists(inner, max_size=6), st.dictionaries(st.text("ab", max_size=9), inner)),
    max_leaves=30,
)


@given(values, st.integers(0, 400))
def test_it_is_about_the_length_of_the_json(value: Any, limit: int) -> None:
    length = len(json.dumps(value))
    if length > 2 * limit + 8:
        assert is_larger(limit, value)
    if 3 * length + 8 <= limit:
        assert not is_larger(limit, value)


@pytest.mark.parametrize(
    "large",
    [
        "x" * 30_000_000,
        [{"role": "user", "content": "word " * 100}] * 50_000,
        [""] * 5_000_000,
        {"a": [list(range(2_000_000))]},
    ],
    ids=["one text", "messages", "empty texts", "numbers"],
)
def test_a_large_value_is_not_read_to_its_end(large: Any) -> None:
    start = time.perf_counter()
    assert is_larger(10_000, "small", large)
    assert time.perf_counter() - start < 0.02
