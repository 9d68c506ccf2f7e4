"""What the generated reference states of events and items, to compare it with what servers send."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference"
_KEY = re.compile(r"(\()?`(\w+)` ([a-z ]+)")
_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", list: "list", dict: "object"}
_OF_ALL = {"type", "sequence_number"}


@dataclass(frozen=True)
class Keys:
    kinds: dict[str, set[str]]  # by key: the types that its values may have
    always: frozenset[str]

    def check(self, made: dict[str, Any], what: str) -> None:
        assert self.always <= set(made), f"{what} lacks {self.always - set(made)}"
        assert set(made) <= set(self.kinds), f"the reference's {what} lacks {set(made) - set(self.kinds)}"
        for key, value in made.items():
            kind = "null" if value is None else _KINDS[type(value)]
            assert kind in self.kinds[key], f"{key} of {what} is {kind}"


@cache
def events() -> dict[str, Keys]:
    page = (REFERENCE / "responses-events.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w.]+)` \| .*? \| (.*) \|$", page, re.MULTILINE)
    return {kind: _keys(fields) for kind, fields in rows}


@cache
def items() -> dict[str, Keys]:
    page = (REFERENCE / "responses-items.md").read_text(encoding="utf-8")
    found = re.findall(r"^## `(\w+)`\n\n.*?\n\n(`id` .*)\.$", page, re.MULTILINE)
    return {kind: _keys(fields) for kind, fields in found}


def check_event(event: dict[str, Any]) -> None:
    kind = event["type"]
    assert kind in events(), f"the reference lacks {kind}"
    events()[kind].check({key: value for key, value in event.items() if key not in _OF_ALL}, kind)
    if kind == "response.output_item.done":
        check_item(event["item"])


def check_item(item: dict[str, Any]) -> None:
    assert item["type"] in items(), f"the reference lacks {item['type']}"
    items()[item["type"]].check(item, item["type"])


def _keys(text: str) -> Keys:
    found = _KEY.findall(text)
    kinds = {name: set(types.split(" or ")) for _, name, types in found}
    return Keys(kinds, frozenset(name for optional, name, _ in found if not optional))
