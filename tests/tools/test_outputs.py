"""Outputs are limited, and every encoder accepts them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools import tool
from tools.tool import ToolOutput, bounded, cut


@given(st.text(max_size=300), st.integers(min_value=1, max_value=100))
def test_a_cut_text_keeps_both_ends_and_states_how_much_is_missing(text: str, limit: int) -> None:
    shown = cut(text, limit)
    if len(text) <= limit:
        assert shown == text
    else:
        head = limit - limit // 4
        assert shown.startswith(f"{text[:head]}\n[… {len(text) - limit} characters left out …]\n")
        assert shown.endswith(text[len(text) - limit // 4 :])


@given(st.text(alphabet=st.characters(categories=["Cs", "Lu"]), max_size=20))
def test_lone_surrogates_do_not_get_through(text: str) -> None:
    bounded(ToolOutput(text)).text.encode("utf-8")


def test_a_long_text_is_cut() -> None:
    assert len(bounded(ToolOutput("x" * 300_000)).text) < 200_100


@pytest.mark.parametrize("details", [{"data": "x" * 100}, {"data": b"bytes"}, {"data": {1, 2}}])
def test_details_that_are_too_large_or_not_json_are_dropped(
    details: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "DETAILS_BYTES", 50)
    assert bounded(ToolOutput("text", details=details)).details == {}
