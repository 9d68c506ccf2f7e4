"""Outputs are limited, and every encoder accepts them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.outputs import OutputLimits, bounded, cut
from tools.tool import ToolOutput


@given(st.text(max_size=300), st.integers(min_value=1, max_value=100))
def test_a_bounded_text_can_be_encoded_and_keeps_both_ends(text: str, limit: int) -> None:
    output = bounded(ToolOutput(text), OutputLimits(text=limit))
    output.text.encode("utf-8")
    if len(text) <= limit:
        assert output.text == text
    else:
        assert "left out" in output.text
        assert output.text.startswith(text[: limit - limit // 4])
        assert len(output.text) < limit + 60


@given(st.text(alphabet=st.characters(categories=["Cs", "Lu"]), max_size=20))
def test_lone_surrogates_do_not_get_through(text: str) -> None:
    bounded(ToolOutput(text), OutputLimits()).text.encode("utf-8")


def test_a_cut_states_how_much_is_missing() -> None:
    assert "[… 60 characters left out …]" in cut("a" * 100, 40)


@pytest.mark.parametrize("details", [{"data": "x" * 100}, {"data": b"bytes"}, {"data": {1, 2}}])
def test_details_that_are_too_large_or_not_json_are_dropped(
    details: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert bounded(ToolOutput("text", details=details), OutputLimits(details=50)).details == {}
