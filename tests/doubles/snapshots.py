"""Whole streams, compared with snapshots that a person has reviewed.

A missing snapshot is written, and the test fails: review the file, then run the test again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def compare(path: Path, events: list[dict[str, Any]]) -> None:
    lines = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events)
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(lines, encoding="utf-8")
        pytest.fail(f"{path.name} was written: review it")
    assert lines == path.read_text(encoding="utf-8")
