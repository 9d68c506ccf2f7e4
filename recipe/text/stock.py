"""Reads the stock, the texts of conversations, as lists of lines and as JSON."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "stock"
TOOLS = ("tools.json", "tools_life.json", "tools_work.json")
# Sets of functions that are declared together; each file covers one domain.
CLASSICS = "sets_classics.json"
# Usual functions too, requested in the plainest words.
PLAIN = tuple(sorted(file.name for file in FOLDER.glob("sets_plain_*.json")))
SETS = tuple(sorted(file.name for file in FOLDER.glob("sets_*.json")))


@cache
def lines(name: str) -> tuple[str, ...]:
    text = (FOLDER / name).read_text("utf-8")
    return tuple(line for line in text.splitlines() if line and not line.startswith("#"))


@cache
def parsed(name: str) -> Any:
    return json.loads((FOLDER / name).read_text("utf-8"))


def thought(about: str, effort: str) -> str:
    """The model's thought before it acts: the more effort, the longer."""
    text: str = parsed("thoughts.json")[about][effort]
    return text
