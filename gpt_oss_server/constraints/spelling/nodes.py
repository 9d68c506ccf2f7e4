"""A grammar of tokens and characters as a tree of nodes.

Nodes are compared by identity, apart from those that `rest` makes while it follows tokens. No rule may begin
with itself, and what a `Repeat` repeats is never empty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile


@dataclass(frozen=True, slots=True)
class Token:
    """One token by its id, such as a special token."""

    id: int


@dataclass(frozen=True, slots=True)
class AnyText:
    """Choice number of ordinary tokens."""


@dataclass(frozen=True, slots=True)
class JsonText:
    """Choice number of characters of a JSON string, between its quotes."""


@dataclass(frozen=True, slots=True)
class Literal:
    """Characters; never none."""

    text: str


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of these ranges, both ends included."""

    ranges: tuple[tuple[int, int], ...]

    def __contains__(self, code: int) -> bool:
        return any(low <= code <= high for low, high in self.ranges)


@dataclass(frozen=True, slots=True, eq=False)
class All:
    """The parts, one after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """One of the options."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    node: Node
    least: int = 0
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """A reference to a rule by its name."""

    name: str


Node = Token | AnyText | JsonText | Literal | Chars | All | Choice | Repeat | Rule


@dataclass(frozen=True, slots=True)
class Tree:
    """A grammar: where it begins, and its rules."""

    start: Node
    rules: Mapping[str, Node]


NOTHING = All(())
TEXT, JSON_TEXT = AnyText(), JsonText()


def one_of(characters: str) -> Chars:
    return Chars(tuple((ord(character), ord(character)) for character in characters))


def sequence(*parts: Node | str) -> Node:
    return All(tuple(Literal(part) if isinstance(part, str) else part for part in parts if part != ""))


def choice(options: Sequence[Node | str]) -> Node:
    nodes = tuple(Literal(option) if isinstance(option, str) else option for option in options)
    return nodes[0] if len(nodes) == 1 else Choice(nodes)


def choice_after(options: Sequence[tuple[str, Node]]) -> Node:
    """One of the texts, with the node that follows it. What texts begin with in common is one node.

    Otherwise each token of a long list of names would be compared with all of them.
    """
    nodes: list[Node] = []
    by_first: dict[str, list[tuple[str, Node]]] = {}
    for text, node in options:
        by_first.setdefault(text[:1], []).append((text, node))
    for first, same in by_first.items():
        if not first:
            nodes += [node for _, node in same]
            continue
        shared = _beginning([text for text, _ in same])
        nodes.append(sequence(shared, choice_after([(text[len(shared) :], node) for text, node in same])))
    return choice(nodes)


def _beginning(texts: Sequence[str]) -> str:
    """What all of them begin with."""
    shared = takewhile(lambda signs: len(set(signs)) == 1, zip(*texts, strict=False))
    return "".join(signs[0] for signs in shared)


def maybe(node: Node) -> Node:
    return Repeat(node, 0, 1)


# One character of a JSON string, written as such or escaped.
LAST_CODE = 0x10FFFF
HEX = Chars(((48, 57), (65, 70), (97, 102)))
ESCAPE = sequence("\\", choice([one_of('"\\/bfnrt'), sequence("u", Repeat(HEX, 4, 4))]))
PLAIN = Chars(((0x20, 0x21), (0x23, 0x5B), (0x5D, LAST_CODE)))
# Without the sign with which special tokens are spelt, for engines that read them as characters.
PLAIN_UNSIGNED = Chars(((0x20, 0x21), (0x23, 0x3B), (0x3D, 0x5B), (0x5D, LAST_CODE)))
