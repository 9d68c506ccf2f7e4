"""Writes a grammar down in the notation of an engine.

Both notations have a rule on each line, and differ in how they name tokens. Engines read special tokens as
characters too, so rules of characters must not let one be spelt; llama.cpp's notation has no "any token but
these" either, so there this holds for free text as well. No ordinary token has both signs with which the
names of special ones begin: where the second follows the first, it is named as a token.

An engine allows its own end tokens where a grammar is complete, and nowhere else: they are not written, and
what a grammar has after one is left out.
"""

from collections.abc import Iterable, Mapping, Sequence

from gpt_oss_server.constraints.spelling import nodes
from gpt_oss_server.harmony.encoding import FIRST_SPECIAL, STOP_IDS, VOCABULARY_SIZE
from inference.grammar import Notation

_EMPTY = '""'
_SIGN, _BAR = '"<"', "|"  # the name of a special token begins with both
_SIGNS = {(0, 1): "?", (0, None): "*", (1, None): "+"}


def written(tree: nodes.Tree, notation: Notation, *, bars: Mapping[int, str]) -> str:
    """The grammar as text. `bars` are the ordinary tokens whose text begins with a vertical bar."""
    return _Writer(tree.rules, notation, bars).whole(tree.start)


class _Writer:
    def __init__(self, rules: Mapping[str, nodes.Node], notation: Notation, bars: Mapping[int, str]) -> None:
        self._rules, self._notation, self._bars = rules, notation, bars
        self._names: dict[str, str] = {}
        self._lines: dict[str, str] = {}

    def whole(self, start: nodes.Node) -> str:
        root = self._of(start)
        return "\n".join([f"root ::= {root}", *self._lines.values()]) + "\n"

    def _of(self, node: nodes.Node) -> str:
        match node:
            case nodes.Token(token):
                return _EMPTY if token in STOP_IDS else self._tokens([token])
            case nodes.Literal(text):
                return f'"{"".join(map(_escaped, text))}"'
            case nodes.Chars(ranges):
                return _ranges(ranges)
            case nodes.All(parts):
                written = [self._of(part) for part in self._until_end(parts)]
                return " ".join(part for part in written if part != _EMPTY) or _EMPTY
            case nodes.Choice(options):
                return f"({' | '.join(dict.fromkeys(map(self._of, options)))})"
            case nodes.Repeat(inner, least, most):
                return self._repeated(inner, least, most)
            case nodes.Rule(name):
                return self._rule(name)
            case nodes.AnyText():
                return self._text()
            case nodes.JsonText():
                return self._json_text()

    def _until_end(self, parts: Sequence[nodes.Node]) -> Iterable[nodes.Node]:
        for part in parts:
            yield part
            if self._always_ends(part):
                return

    def _always_ends(self, node: nodes.Node) -> bool:
        match node:
            case nodes.Token(token):
                return token in STOP_IDS
            case nodes.All(parts):
                return any(map(self._always_ends, parts))
            case nodes.Choice(options):
                return all(map(self._always_ends, options))
            case nodes.Repeat(inner, least, _):
                return least > 0 and self._always_ends(inner)
            case _:
                return False

    def _repeated(self, node: nodes.Node, least: int, most: int | None) -> str:
        inner = self._of(node)
        if most == 0:
            return _EMPTY
        if least == most == 1:
            return inner
        times = f"{{{least},{'' if most is None else most}}}"
        return f"({inner}){_SIGNS.get((least, most), times)}"

    def _rule(self, name: str) -> str:
        if name not in self._names:
            short = self._names[name] = f"r{len(self._names)}"
            self._lines[short] = f"{short} ::= {self._of(self._rules[name])}"
        return self._names[name]

    def _text(self) -> str:
        if self._notation is Notation.XGRAMMAR:
            specials = ", ".join(map(str, range(FIRST_SPECIAL, VOCABULARY_SIZE)))
            self._lines["text"] = f"text ::= (ExcludeToken({specials}))*"
        else:
            self._unspelt("text", ["[^<]"], ["[^<|]"], list(self._bars))
        return "text"

    def _json_text(self) -> str:
        plain = [
            token for token, text in self._bars.items() if all(ord(sign) in nodes.PLAIN for sign in text)
        ]
        escape = self._of(nodes.ESCAPE)
        (*before, (first, last)), bar = nodes.PLAIN_UNSIGNED.ranges, ord(_BAR)
        after = (*before, (first, bar - 1), (bar + 1, last))
        self._unspelt(
            "chars", [_ranges(nodes.PLAIN_UNSIGNED.ranges), escape], [_ranges(after), escape], plain
        )
        return "chars"

    def _unspelt(
        self, name: str, plain: Sequence[str], after_sign: Sequence[str], bars: Sequence[int]
    ) -> None:
        """Rules for characters that spell no special token, though both signs may occur.

        Each option calls a rule at its end. For a repetition, xgrammar takes a thousand times as long.
        """
        signed = f"{name}s"
        after = [*after_sign, *([f"({self._tokens(bars)})"] if bars else [])]
        for rule, options in ((name, plain), (signed, after)):
            more = [f"{option} {name}" for option in options]
            self._lines[rule] = f"{rule} ::= {' | '.join([*more, f'{_SIGN} {signed}', _EMPTY])}"

    def _tokens(self, tokens: Sequence[int]) -> str:
        if self._notation is Notation.GBNF:
            return " | ".join(f"<[{token}]>" for token in tokens)
        return f"Token({', '.join(map(str, tokens))})"


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if character.isprintable() else _code(ord(character))


def _ranges(ranges: Sequence[tuple[int, int]]) -> str:
    parts = [_code(low) if low == high else f"{_code(low)}-{_code(high)}" for low, high in ranges]
    return f"[{''.join(parts)}]"


def _code(code: int) -> str:
    character = chr(code)
    if character.isalnum() and character.isascii():
        return character
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
