"""How a greeting introduces a model."""

from __future__ import annotations

import pytest

from gpt_oss_server.cli.terminal.introduction import introduction


@pytest.mark.parametrize(
    ("description", "introduced"),
    [
        ("A 16M-parameter demo model.", "tiny, a 16M-parameter demo model"),
        ("SGLang at http://gpu:1", "tiny, SGLang at http://gpu:1"),
        ("vLLM at http://gpu:1", "tiny, vLLM at http://gpu:1"),
        ("", "tiny"),
    ],
)
def test_a_name_keeps_its_capitals(description: str, introduced: str) -> None:
    assert introduction("tiny", description) == introduced
