"""Follows sampled tokens through a grammar: what is left of it is a grammar again.

A position is what may follow, as a linked list of nodes; the state is a set of positions. Each character or
token replaces a position by those after it.
"""

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence

from gpt_oss_server.constraints.spelling import nodes
from gpt_oss_server.harmony.encoding import UNKNOWN_TEXT

# The nodes that follow, the nearest first; None at the end of the grammar.
Position = tuple[nodes.Node, "Position"] | None  # type: ignore[misc, unused-ignore]
_MOST_POSITIONS = 4_096
_SPELT = (nodes.Literal, nodes.Chars, nodes.JsonText)  # what takes a character
_TAKING = (*_SPELT, nodes.Token, nodes.AnyText)


class Rest:
    """What is left of a grammar after the tokens that `take` was given."""

    def __init__(self, tree: nodes.Tree, ordinary: Callable[[int], bytes | None]) -> None:
        """`ordinary` returns the bytes of a token, or None for a special one."""
        self._rules, self._ordinary = tree.rules, ordinary
        self._positions: set[Position] = {(tree.start, None)}
        # Positions that an ordinary token does not change: free text, which only special tokens end.
        self._free: set[Position] | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    @property
    def positions(self) -> frozenset[Position]:
        """None of them where the tokens do not fit the grammar."""
        return frozenset(self._positions)

    def fits(self, token: int) -> bool:
        """Whether an ordinary token may come next, and breaks no character."""
        content, state = self._ordinary(token) or b"", self._decoder.getstate()
        try:
            if UNKNOWN_TEXT in self._decoder.decode(content):
                return False
            self._decoder.setstate(state)
            return bool(self._after_text(content))
        finally:
            self._decoder.setstate(state)

    @property
    def is_inside_character(self) -> bool:
        return bool(self._decoder.getstate()[0])

    def take(self, tokens: Iterable[int]) -> None:
        for token in tokens:
            if not self._positions:
                return
            self._positions = self._after(token)

    def take_fitting(self, tokens: Sequence[int]) -> int:
        """Takes the tokens up to the first misfit, or all after an earlier one, and returns their number."""
        if not self._positions:
            return len(tokens)
        for count, token in enumerate(tokens):
            state = self._decoder.getstate()
            after = self._after(token)
            if not after:
                self._decoder.setstate(state)
                return count
            self._positions = after
        return len(tokens)

    def _after(self, token: int) -> set[Position]:
        content = self._ordinary(token)
        if content is not None:
            return self._after_text(content)
        self._decoder.reset()
        return {at[1] for at in self._reached(self._positions) if at and at[0] == nodes.Token(token)}

    def _after_text(self, content: bytes) -> set[Position]:
        text = self._decoder.decode(content)
        if self._positions is self._free:
            return self._free
        heads = self._reached(self._positions)
        # Free text takes whole tokens, whatever their bytes.
        free: set[Position] = {at for at in heads if at and isinstance(at[0], nodes.AnyText)}
        spelt: set[Position] = {at for at in heads if at and isinstance(at[0], _SPELT)}
        if not spelt:
            self._free = free
            return free
        for character in text:
            spelt = self._after_character(spelt, character)
        return free | spelt

    def _after_character(self, positions: set[Position], character: str) -> set[Position]:
        after: set[Position] = set()
        for at in self._reached(positions):
            if at is None:
                continue
            head, tail = at
            match head:
                case nodes.Literal(text) if text[0] == character:
                    after.add((nodes.Literal(text[1:]), tail) if len(text) > 1 else tail)
                case nodes.Chars() if ord(character) in head:
                    after.add(tail)
                case nodes.JsonText() if ord(character) in nodes.PLAIN:
                    after.add(at)
                case nodes.JsonText() if character == "\\":
                    after |= self._after_character({(nodes.ESCAPE, (nodes.JSON_TEXT, tail))}, character)
                case _:
                    pass
        return after

    def _reached(self, positions: Iterable[Position]) -> set[Position]:
        """The same positions, each with a node at its head that takes a character or a token."""
        reached: set[Position] = set()
        seen: set[Position] = set()
        waiting = list(positions)
        while waiting:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            if len(seen) > _MOST_POSITIONS:
                return set()
            if at is None or isinstance(at[0], _TAKING):
                reached.add(at)
            if at is not None:
                waiting += self._opened(*at)
        return reached

    def _opened(self, head: nodes.Node, tail: Position) -> Iterator[Position]:
        match head:
            case nodes.All(parts):
                for part in reversed(parts):
                    tail = (part, tail)
                yield tail
            case nodes.Choice(options):
                for option in options:
                    yield (option, tail)
            case nodes.Repeat(node, least, most):
                if most != 0:
                    more = nodes.Repeat(node, max(least - 1, 0), None if most is None else most - 1)
                    yield (node, (more, tail))
                if least == 0:
                    yield tail
            case nodes.Rule(name):
                yield (self._rules[name], tail)
            case nodes.AnyText() | nodes.JsonText():
                yield tail
            case _:
                return


def position_nodes(position: Position) -> tuple[nodes.Node, ...]:
    following: list[nodes.Node] = []
    while position is not None:
        head, position = position
        following.append(head)
    return tuple(following)
