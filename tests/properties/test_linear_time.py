"""Every parser that a stranger feeds takes time that grows with the length of its input alone.

Each row makes a hostile input of a given size, and what reads it. The processor's time for four times the
size is compared with that for the size, in one run. `make attacks` takes 1 and 4 MB for most. Otherwise the
inputs are smaller, where a quadratic parser shows as well. Where a limit refuses the large ones, that counts.
"""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import pairwise
from typing import Any

import pytest

from gpt_oss_server.apis.messages.object_text import ObjectText
from gpt_oss_server.constraints.json_grammar import as_far_as_enforceable, enforceable
from gpt_oss_server.constraints.matcher import grammars_of
from gpt_oss_server.constraints.schema_support import SchemaRefused
from gpt_oss_server.constraints.text_grammar import LONGEST, LONGEST_REGEX, GrammarRefused, text_grammar
from gpt_oss_server.content.parts import file_text
from gpt_oss_server.errors import ApiError
from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.harmony.typescript import to_typescript
from gpt_oss_server.http.body import decode_json
from gpt_oss_server.items.tool_search import ToolSearch
from gpt_oss_server.turns.stops import StopFilter
from tests.doubles.apis.hostile import CONNECTIONS, HEADERS, REQUESTS, UPLOADS, Read, Row, filled
from tests.doubles.harmony.decoding import decode
from tools.browser.arguments import read_call
from tools.browser.citations import CitationRewriter
from tools.browser.pages import charset
from tools.browser.pages.document import PageError, UsageError
from tools.browser.pages.html_text import html_to_text
from tools.browser.pages.markdown_text import markdown_to_text
from tools.browser.pages.text import find_lines, without_markers, wrap
from tools.python.session import read_source

REFUSALS = (ApiError, GrammarRefused, SchemaRefused, PageError, UsageError, ValueError)
ENCODING = load_encoding()
URL = "https://a.example/"
FINAL = "<|channel|>final<|message|>"


def in_pieces(feed: Callable[[str], object], text: str, length: int = 5) -> None:
    for at in range(0, len(text), length):
        feed(text[at : at + length])


def of_citations(text: str) -> None:
    rewriter = CitationRewriter(lambda cursor, line: (f"{URL}()", "[a]\\"), in_json=True)
    in_pieces(rewriter.feed, text)
    rewriter.close()


def of_grammar(syntax: Any, text: str) -> str:
    return text_grammar(grammars_of(ENCODING), syntax, text)


def of_lines(text: str) -> None:
    lines = wrap(text)
    without_markers(lines)
    find_lines(lines, "aab")


STOPS = ["a" * 999 + "b", "a" * 500 + "c", "ab" * 400]
READERS: dict[str, Callable[[str], object]] = {
    "json": lambda text: decode_json(text.encode()),
    "file": lambda text: file_text({"file_data": text}, "file"),
    "text": ENCODING.encode,
    "text: special": ENCODING.encode_special,
    "harmony": lambda text: decode(ENCODING, ENCODING.encode_special(text)),
    "citations": of_citations,
    "stops": lambda text: in_pieces(StopFilter(STOPS).feed, text),
    "arguments: open": partial(read_call, "open"),
    "arguments: search": partial(read_call, "search"),
    "arguments: source": read_source,
    "arguments: tools": ToolSearch(()).find,
    "arguments: object": lambda text: in_pieces(ObjectText().feed, text),
    **{f"grammar: {syntax}": partial(of_grammar, syntax) for syntax in ("lark", "ebnf")},
    **dict.fromkeys(("regex", "long regex"), partial(of_grammar, "regex")),
    "html": lambda text: html_to_text(text, URL),
    "markdown": lambda text: markdown_to_text(text, URL),
    "lines": of_lines,
    "charset": lambda text: charset.decode(text.encode("latin-1")),
}
# fmt: off
TEXTS: list[tuple[str, str, Sequence[str], str]] = [
    ("json", "", ("[", '{"a":', "[[]", '"', '"a', "1", "[1,", '{"":1,', " "), ""),
    ("json", "[", ("[],", "{},", '"\\"",', '"",', "1e5,"), "0]"),
    ("json", '"', ("\\ud800", "\\u", "\\\\", "é"), '"'),
    ("json", "[0.", ("1", " "), "e-5]"),
    ("file", "data:text/plain", (";", ";base64", ";charset=", ";charset=utf-8", "a/b;"), ",YQ"),
    ("file", "data:text/plain;base64,", ("%", "%41", "%4", "=", "a", "a ", "\n", "a\n", ","), ""),
    ("file", "data:text/plain;charset=", ("xn--", "a"), ",YQ"),
    ("file", "", ("data:", "a", "= ", "\n", "é", "\x00"), ""),
    ("text", "", ("<|start|>", "<", "é", "é1", "²", "a1", " ", "\n", "\r\n/", "/\n"), ""),
    ("text: special", "", ("<|start|>", "<|", "<|end|>a", "<|reserved_1|>"), ""),
    ("harmony", "", ("<|start|>", "<|channel|>", f"<|start|>{FINAL}a<|end|>", "to="), ""),
    ("harmony", "<|start|>assistant", (" to=", "to = ", "to=a ", "json ", " "), ""),
    ("harmony", FINAL, ("<|message|>", "<|constrain|>", "{", "\ufffd"), ""),
    ("citations", "", ("【", "】", "†", "【1†", "【1†L1†", "【1†L1】", "【9†" + "a" * 70), ""),
    ("stops", "", ("a", "ab", "a" * 900 + "d", "b"), ""),
    ("arguments: open", '{"id": "', ("【", "1", " ", "†", "\\\\"), '"}'),
    ("arguments: search", '{"query": "', ("[", "a", '","query":"'), '"}'),
    ("arguments: source", "```\n", ("```", "\n", " ", "`", "```py\n", "{", '"'), "x"),
    ("arguments: source", "```", (" ", "\t", "python"), "x"),
    ("arguments: source", '{"code": "', ("[", '"a":', " ", "\\n"), "x"),
    ("arguments: tools", '{"query": "', ("a ", "_", '"', "["), '"}'),
    ("arguments: object", '{"a":', ("1", "\\u", "[", "a", " ", "-", '\\"'), ""),
    ("arguments: object", '{"a":"', ("\\u0041", "\n", "a"), ""),
    ("grammar: lark", 'start: "', ('\\"', "\\n"), ""),
    ("grammar: lark", "start: /", ("\\/", "a", "<"), ""),
    ("grammar: lark", "start: ", ("//\n", "#\n", "(", "[", ' "a" |', '"a"~9 '), ""),
    ("grammar: ebnf", "root ::= ", ("(", "[", '"', ' "a" |', "\\", "[^a]", "#"), ""),
    ("regex", "", ("(", "[", "a|", "(a+)+", "\\", "[a-z]", "{", "\\p{L}"), ""),
    ("long regex", "", (".*", "a?"), ""),
    ("html", "", ("<div>", "<p>", "<b>", "<", "</", "<!--", "&", "&amp", "<a ", "<li>", "<br>"), ""),
    ("html", "", ("<a href=b>c</a>", "<a href='/", "<pre>\n", "<svg>", "<math>", "<script>"), ""),
    ("html", "<ul>" * 500, ("<ul></ul>", "<b></b>", "<p>"), ""),
    ("html", "<table><tr>", ("<td>", "<td><p>", "<!----><p></p><!---->", "<h1>", "<title>"), ""),
    ("markdown", "", ("[", "![", "[a](", "<http://a", "```\n", "[a](b 'c", "#", "\n", "> "), ""),
    ("markdown", "# a", ("#", " ", "# ", " #"), "b"),
    ("markdown", "[a](b", (" ", "'", "("), "x"),
    ("lines", "", ("a", "-", "a-", "a ", "\n", "【1†", "【1†a】", "【1\n", "—", "é"), ""),
    ("charset", "", ("\xff", "é", "<meta ", "\x00", "<?xml ", "charset= "), ""),
]
# fmt: on


def chained(count: int, step: int) -> dict[str, Any]:
    """References, each to the one before it or after it."""
    names = [f"d{number:05}" for number in range(count)][::step]
    defs: dict[str, Any] = {names[0]: {"type": "null"}}
    defs |= {name: {"$ref": f"#/$defs/{to}"} for to, name in pairwise(names)}
    return {"$defs": defs, "anyOf": [{"$ref": f"#/$defs/{name}"} for name in sorted(names)]}


def properties(count: int) -> dict[str, Any]:
    names = [f"p{number}" for number in range(count)]
    return {"type": "object", "properties": {name: {} for name in names}, "required": names[::-1]}


SCHEMAS: dict[str, Callable[[int], Any]] = {
    "properties": properties,
    "optional": lambda n: {"type": "object", "properties": {f"p{i}": {} for i in range(n // 4)}},
    "words": lambda n: {"enum": [f"{number:07}" for number in range(n)]},
    "cases": lambda n: {"anyOf": [{"const": number} for number in range(n)]},
    "references onwards": lambda n: chained(n // 3, 1),
    "references back": lambda n: chained(n // 3, -1),
    "a reference": lambda n: {"$ref": "#/" + "a/" * n},
}


def of_base(size: int) -> Read:
    links = filled("<a href=b>c</a>", size // 2)
    return lambda: html_to_text(f"<base href='/{'a' * (size // 2)}'>{links}", URL)


def text_row(read: Callable[[str], object], before: str, unit: str, after: str, size: int) -> Read:
    return partial(read, f"{before}{filled(unit, size)}{after}")


def rows() -> Iterator[tuple[str, Row]]:
    tables = {"upload": UPLOADS, "head": HEADERS, "frames": CONNECTIONS, "request": REQUESTS}
    for table, found in tables.items():
        yield from ((f"{table}: {name}", row) for name, row in found.items())
    for table, before, units, after in TEXTS:
        for unit in units:
            name = f"{table}: {before[-25:]}{unit[:25]}…{after}".encode("unicode_escape").decode()
            yield name, partial(text_row, READERS[table], before, unit, after)
    for name, make in SCHEMAS.items():
        yield f"types: {name}", lambda n, make=make: partial(to_typescript, make(n // 20))
        for reader in (enforceable, as_far_as_enforceable):
            yield (
                f"schema: {name}, {reader.__name__}",
                lambda n, make=make, reader=reader: partial(reader, grammars_of(ENCODING), make(n)),
            )
    yield "html: a base", of_base


ROWS = dict(rows())
ALL, FEW = 2**20, 2**12  # bytes of the shorter input
# Of those that are taken; pages of fewer bytes are not too deep yet, where time grows with the depth.
OWN = {"head": 4_000, "text": 2**14, "html": 2**16, "schema": 120}
OWN |= {"grammar": LONGEST // 5, "regex": LONGEST_REGEX // 5}
# For `make attacks`, where all of it would take minutes.
WHOLE = {"frames": 2**17, "harmony": 2**17, "request": 2**18, "text": 2**18}
MOST = 8  # times the time, for four times the size
TRIES = 2


def seconds(read: Read) -> float:
    """Of the processor, for all threads, without the search for garbage among all objects of the tests."""
    gc.disable()
    began = time.process_time()
    with suppress(*REFUSALS):
        read()
    took = time.process_time() - began
    gc.enable()
    return took


@cache
def plain(size: int) -> float:
    """For as many characters, one by one: what is about as quick need not be compared."""
    text = "a" * size
    return min(seconds(lambda: [str(sign.encode()) for sign in text]) for _ in range(TRIES))


def check(name: str, size: int) -> None:
    once, four_times = ROWS[name](size), ROWS[name](4 * size)
    seconds(once)  # imports, and fills caches
    took = seconds(four_times)
    if took > max(MOST * plain(size), 0.02):  # seconds; less holds nobody up
        base = min(seconds(once) for _ in range(TRIES))
        took = min(took, *(seconds(four_times) for _ in range(TRIES - 1)))
        assert took < MOST * base, f"{took / base:.1f} times as long"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.proof] if at % 2 else []) for at, name in enumerate(ROWS)]
)
def test_time_grows_with_length_alone(name: str) -> None:
    """Every other row; the rest are proofs."""
    check(name, OWN.get(name.partition(":")[0], FEW))


@pytest.mark.attacks
@pytest.mark.parametrize("name", ROWS)
def test_time_grows_with_length_alone_for_megabytes(name: str) -> None:
    check(name, WHOLE.get(name.partition(":")[0], ALL))
