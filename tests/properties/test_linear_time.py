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


def of_json(text: str) -> object:
    return decode_json(text.encode())


def of_file(text: str) -> str:
    return file_text({"file_data": text}, "file")


def of_harmony(text: str) -> None:
    decode(ENCODING, ENCODING.encode_special(text))


def of_citations(text: str) -> None:
    rewriter = CitationRewriter(lambda cursor, line: (f"{URL}()", "[a]\\"), in_json=True)
    in_pieces(rewriter.feed, text)
    rewriter.close()


def of_stops(text: str) -> None:
    in_pieces(StopFilter(["a" * 999 + "b", "a" * 500 + "c", "ab" * 400]).feed, text)


def of_object(text: str) -> None:
    in_pieces(ObjectText().feed, text)


def of_grammar(syntax: Any, text: str) -> str:
    return text_grammar(grammars_of(ENCODING), syntax, text)


def of_html(text: str) -> object:
    return html_to_text(text, URL)


def of_markdown(text: str) -> object:
    return markdown_to_text(text, URL)


def of_charset(text: str) -> str:
    return charset.decode(text.encode("latin-1"))


def of_lines(text: str) -> None:
    lines = wrap(text)
    without_markers(lines)
    find_lines(lines, "aab")


# fmt: off
TEXTS: list[tuple[str, Callable[[str], object], str, Sequence[str], str]] = [
    ("json", of_json, "", ("[", '{"a":', "[[]", '"', '"a', "1", "[1,", '{"":1,', " "), ""),
    ("json", of_json, "[", ("[],", "{},", '"\\"",', '"",', "1e5,"), "0]"),
    ("json", of_json, '"', ("\\ud800", "\\u", "\\\\", "é"), '"'),
    ("json", of_json, "[0.", ("1", " "), "e-5]"),
    ("file", of_file, "data:text/plain", (";", ";base64", ";charset=", ";charset=utf-8", "a/b;"), ",YQ"),
    ("file", of_file, "data:text/plain;base64,", ("%", "%41", "%4", "=", "a", "a ", "\n", "a\n", ","), ""),
    ("file", of_file, "data:text/plain;charset=", ("xn--", "a"), ",YQ"),
    ("file", of_file, "", ("data:", "a", "= ", "\n", "é", "\x00"), ""),
    ("text", ENCODING.encode, "", ("<|start|>", "<", "é", "é1", "²", "a1", " ", "\n", "\r\n/", "/\n"), ""),
    ("text", ENCODING.encode_special, "", ("<|start|>", "<|", "<|end|>a", "<|reserved_1|>"), ""),
    ("harmony", of_harmony, "", ("<|start|>", "<|channel|>", f"<|start|>{FINAL}a<|end|>", "to="), ""),
    ("harmony", of_harmony, "<|start|>assistant", (" to=", "to = ", "to=a ", "json ", " "), ""),
    ("harmony", of_harmony, FINAL, ("<|message|>", "<|constrain|>", "{", "\ufffd"), ""),
    ("citations", of_citations, "", ("【", "】", "†", "【1†", "【1†L1†", "【1†L1】", "【9†" + "a" * 70), ""),
    ("stops", of_stops, "", ("a", "ab", "a" * 900 + "d", "b"), ""),
    ("arguments", partial(read_call, "open"), '{"id": "', ("【", "1", " ", "†", "\\\\"), '"}'),
    ("arguments", partial(read_call, "search"), '{"query": "', ("[", "a", '","query":"'), '"}'),
    ("arguments", read_source, "```\n", ("```", "\n", " ", "`", "```py\n", "{", '"'), "x"),
    ("arguments", read_source, "```", (" ", "\t", "python"), "x"),
    ("arguments", read_source, '{"code": "', ("[", '"a":', " ", "\\n"), "x"),
    ("arguments", ToolSearch(()).find, '{"query": "', ("a ", "_", '"', "["), '"}'),
    ("arguments", of_object, '{"a":', ("1", "\\u", "[", "a", " ", "-", '\\"'), ""),
    ("arguments", of_object, '{"a":"', ("\\u0041", "\n", "a"), ""),
    ("grammar", partial(of_grammar, "lark"), 'start: "', ('\\"', "\\n"), ""),
    ("grammar", partial(of_grammar, "lark"), "start: /", ("\\/", "a", "<"), ""),
    ("grammar", partial(of_grammar, "lark"), "start: ", ("//\n", "#\n", "(", "[", ' "a" |', '"a"~9 '), ""),
    ("grammar", partial(of_grammar, "ebnf"), "root ::= ", ("(", "[", '"', ' "a" |', "\\", "[^a]", "#"), ""),
    ("regex", partial(of_grammar, "regex"), "", ("(", "[", "a|", "(a+)+", "\\", "[a-z]", "{", "\\p{L}"), ""),
    ("long regex", partial(of_grammar, "regex"), "", (".*", "a?"), ""),
    ("html", of_html, "", ("<div>", "<p>", "<b>", "<", "</", "<!--", "&", "&amp", "<a ", "<li>", "<br>"), ""),
    ("html", of_html, "", ("<a href=b>c</a>", "<a href='/", "<pre>\n", "<svg>", "<math>", "<script>"), ""),
    ("html", of_html, "<ul>" * 500, ("<ul></ul>", "<b></b>", "<p>"), ""),
    ("html", of_html, "<table><tr>", ("<td>", "<td><p>", "<!----><p></p><!---->", "<h1>", "<title>"), ""),
    ("markdown", of_markdown, "", ("[", "![", "[a](", "<http://a", "```\n", "[a](b 'c", "#", "\n", "> "), ""),
    ("markdown", of_markdown, "# a", ("#", " ", "# ", " #"), "b"),
    ("markdown", of_markdown, "[a](b", (" ", "'", "("), "x"),
    ("lines", of_lines, "", ("a", "-", "a-", "a ", "\n", "【1†", "【1†a】", "【1\n", "—", "é"), ""),
    ("charset", of_charset, "", ("\xff", "é", "<meta ", "\x00", "<?xml ", "charset= "), ""),
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
    return lambda: of_html(f"<base href='/{'a' * (size // 2)}'>{links}")


def rows() -> Iterator[tuple[str, Row]]:
    tables = {"upload": UPLOADS, "head": HEADERS, "frames": CONNECTIONS, "request": REQUESTS}
    for table, found in tables.items():
        yield from ((f"{table}: {name}", row) for name, row in found.items())
    for table, read, before, units, after in TEXTS:
        for unit in units:
            name = f"{table}: {before[-25:]}{unit[:25]}…{after}".encode("unicode_escape").decode()
            yield (
                name,
                lambda n, read=read, before=before, unit=unit, after=after: partial(
                    read, f"{before}{filled(unit, n)}{after}"
                ),
            )
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
