"""The grammar of a turn for an engine that takes it as text.

Texts that must follow a grammar of their own are left free, unless that is one
regular expression or a list of texts: the finished turn is checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gpt_oss_server.constraints.grammar import Body, JsonBody, TurnShape, turn_tree
from gpt_oss_server.constraints.matcher import GrammarError, ordinary_tokens
from gpt_oss_server.constraints.spelled_json import SPELT, JsonValues
from gpt_oss_server.constraints.spelling.nodes import NOTHING, TEXT, Node, Token, Tree, choice, sequence
from gpt_oss_server.constraints.spelling.notation import written
from gpt_oss_server.constraints.spelling.regex import node_of_pattern
from gpt_oss_server.constraints.spelling.rest import Rest, position_nodes
from gpt_oss_server.harmony.encoding import FIRST_SPECIAL, STOP_IDS, Encoding
from inference.engine import EngineFailed
from inference.grammar import GrammarState, Notation

_INNER = 0x80  # the two highest bits of a byte that continues a character
# As `text_grammar` writes a client's regular expression and its list of texts.
_PATTERN = re.compile(r"start: /(.+)/\n", re.DOTALL)
_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"')
_TEXTS = re.compile(rf"start: {_STRING.pattern}(?: \| {_STRING.pattern})*\n")


@dataclass(frozen=True, slots=True)
class SpelledTurn:
    """Implements `inference.grammar.SpelledGrammar`."""

    tree: Tree
    encoding: Encoding
    is_usual: bool = False
    begun: tuple[int, ...] = ()  # tokens of the turn that precede the generation

    def start(self) -> GrammarState:
        raise EngineFailed("This grammar is a text for an engine of another program, and has no masks.")

    def spelling(self) -> TurnSpelling:
        return TurnSpelling(self)

    def after(self, tokens: Sequence[int]) -> SpelledTurn:
        """The grammar of what may follow the tokens; raises `GrammarError` if they do not fit."""
        grammar = replace(self, begun=(*self.begun, *tokens))
        if not grammar.spelling().positions():
            raise GrammarError("The tokens do not fit the grammar.")
        return grammar


def spelled_turn(shape: TurnShape, encoding: Encoding, *, is_usual: bool = False) -> SpelledTurn:
    rules: dict[str, Node] = {}

    def body_node(body: Body) -> Node:
        if isinstance(body, JsonBody):
            return JsonValues(body.schema, rules, f"body{len(rules)}").value()
        return TEXT if body is None else _text(body.lark)

    return SpelledTurn(turn_tree(shape, rules, body_node), encoding, is_usual)


def _text(lark: str) -> Node:
    """A grammar that is one regular expression or a list of texts; any other is left to the check."""
    node: Node | None = None
    if pattern := _PATTERN.fullmatch(lark):
        node = node_of_pattern(pattern[1].replace(r"\/", "/"))
    elif _TEXTS.fullmatch(lark):
        texts = [json.loads(text) for text in _STRING.findall(lark)]
        node = choice(texts) if all(text and SPELT not in text for text in texts) else None
    return TEXT if node is None else node


class TurnSpelling:
    """Implements `inference.grammar.Spelling`."""

    ends = STOP_IDS

    def __init__(self, grammar: SpelledTurn) -> None:
        self._tree, self._encoding = grammar.tree, grammar.encoding
        self._rest = Rest(grammar.tree, self._ordinary)
        self._waiting: list[int] = list(grammar.begun)

    def take(self, tokens: Iterable[int]) -> None:
        self._waiting += tokens

    def take_fitting(self, tokens: Sequence[int]) -> int:
        return self._followed().take_fitting(tokens)

    def positions(self) -> Sequence[Node]:
        positions = sorted(map(position_nodes, self._followed().positions), key=len)
        return [sequence(*nodes) if nodes else NOTHING for nodes in positions]

    def rest(self, notation: Notation) -> str | None:
        positions = self.positions()
        if not positions:
            return None
        tree = Tree(choice(positions), self._tree.rules)
        bars, inner = _bars_and_inner(self._encoding)
        if self._rest.is_inside_character:
            if notation is Notation.GBNF:  # llama.cpp reads such a token as broken, even by its id
                return None
            tree = Tree(choice([Token(token) for token in inner if self._rest.fits(token)]), {})
        return written(tree, notation, bars=bars)

    @property
    def is_inside_character(self) -> bool:
        return self._followed().is_inside_character

    def _followed(self) -> Rest:
        """What is left after all tokens so far."""
        self._rest.take(self._waiting)
        self._waiting.clear()
        return self._rest

    def _ordinary(self, token: int) -> bytes | None:
        return None if token >= FIRST_SPECIAL else self._encoding.ordinary_bytes(token)


@lru_cache(4)
def _bars_and_inner(encoding: Encoding) -> tuple[Mapping[int, str], Sequence[int]]:
    """The ordinary tokens that begin with a bar, with their texts, and those that begin in mid-character."""
    bars, inner = {}, []
    for token, content in enumerate(ordinary_tokens(encoding)):
        if content[:1] == b"|":
            bars[token] = content.decode("utf-8", "replace")
        elif content and content[0] & 0xC0 == _INNER:
            inner.append(token)
    return bars, inner
