"""What the model writes instead of bare source."""

from __future__ import annotations

import json

import pytest

from tools.python.source import read_source

MEANT = "x = 1\nprint('a\\nb')"


@pytest.mark.parametrize(
    "written",
    [
        *(MEANT, json.dumps({"code": MEANT}), json.dumps({"source": MEANT})),
        *("  " + json.dumps({"input": MEANT}) + "\n", '{"code": "x = 1\nprint(\'a\\\\nb\')"}'),
        *(f"```python\n{MEANT}\n```", f"```py\n{MEANT}\n```\n", f"```\n{MEANT}\n```", f"```python\n{MEANT}"),
        *(f"\n```Python\r\n{MEANT}\n```  ", json.dumps({"code": f"```python\n{MEANT}\n```"})),
    ],
)
def test_slips_are_read_as_the_intended_source(written: str) -> None:
    assert read_source(written) == MEANT


@pytest.mark.parametrize(
    "source",
    [
        *("", "{'code': 'x'}", '{"code": 1}', '{"code": "x", "other": "y"}', '{"a": 1}["a"]'),
        *('{"code": "x"}["code"]', '{"code": ', "s = '```python\\nx\\n```'", '"""```"""', "%timeit 1"),
        *("```python\na\n```\ntext\n```python\nb\n```", "[" * 100_000, '{"a":' * 100_000),
    ],
)
def test_anything_else_is_source_unchanged(source: str) -> None:
    assert read_source(source) == source
