"""Converts HTML to the text that the model reads: Markdown-like blocks with numbered links.

selectolax (lexbor) parses as browsers do, in time quadratic in the depth of the tree, so deep pages are
refused before. The tree is walked once, without recursion. What a reader would not see is left out: scripts,
and elements hidden by attribute or style, a common place for instructions meant only for models.
"""

from __future__ import annotations

import re
from typing import Final

from selectolax.lexbor import LexborHTMLParser, LexborNode

from tools.browser.pages.document import Document, PageError
from tools.browser.pages.links import Links
from tools.browser.pages.text import clean

_UNSEEN: Final = frozenset({
    "script", "style", "template", "noscript", "iframe", "object", "embed", "svg", "canvas", "audio", "video",
    "map", "datalist", "head", "select",
})  # fmt: skip
_BLOCKS: Final = frozenset({
    "address", "article", "aside", "blockquote", "body", "caption", "details", "dialog", "dd", "div", "dl",
    "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header",
    "hr", "html", "legend", "li", "main", "menu", "nav", "ol", "p", "pre", "search", "section", "summary",
    "table", "tbody", "tfoot", "thead", "tr", "ul",
})  # fmt: skip
# Blocks without a meaning of their own when they are all that a table cell holds, as in documentation.
_WRAPPING: Final = frozenset({"div", "figure", "h1", "h2", "h3", "h4", "h5", "h6", "p", "section"})
_SPACED: Final = frozenset({
    "p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "dl", "table", "pre", "blockquote", "figure", "hr",
})  # fmt: skip
_HEADINGS: Final = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_INVISIBLE: Final = re.compile(r"(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_SCRIPTS: Final = {"sup": "^{", "sub": "_{"}
_MAX_INDENT: Final = 8
MAX_DEPTH: Final = 10_000  # browsers stop at 512
_TAG: Final = re.compile(r"<(/?)([a-zA-Z][^\s/>]{0,31})")
_SHALLOW: Final = frozenset({  # closed by what follows, or never open
    "p", "li", "dt", "dd", "tr", "td", "th", "tbody", "thead", "tfoot", "option", "optgroup", "colgroup",
    "rt", "rp", "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "track", "wbr", "html", "head", "body",
})  # fmt: skip


def html_to_text(html: str, url: str) -> Document:
    if _too_deep(html):
        raise PageError("This page is nested too deeply to be read.")
    tree = LexborHTMLParser(html)
    base = tree.css_first("base[href]")
    links = Links(url, base.attributes["href"] if base is not None else None)
    writer = _Writer(links)
    if tree.body is not None:
        _walk(tree.body, writer)
    return Document(url, _title(tree), writer.text(), links.urls)


def _too_deep(html: str) -> bool:
    """Whether more elements are open somewhere than MAX_DEPTH, as far as tags alone show."""
    if html.count("<") <= MAX_DEPTH:
        return False
    depth = 0
    for tag in _TAG.finditer(html):
        if tag[2].lower() in _SHALLOW:
            continue
        depth = max(0, depth - 1) if tag[1] else depth + 1
        if depth > MAX_DEPTH:
            return True
    return False


def _title(tree: LexborHTMLParser) -> str:
    for selector in ("head > title", "title", "h1"):
        node = tree.css_first(selector)
        if node is not None and (text := " ".join(clean(node.text()).split())):
            return text
    return ""


def _walk(root: LexborNode, writer: _Writer) -> None:
    """Walks depth first: `enter` before an element's children, and `leave` after them if it was entered."""
    node: LexborNode | None = root
    while node is not None:
        entered = writer.enter(node)
        child = node.first_child if entered else None
        if child is not None:
            node = child
            continue
        if entered:
            writer.leave(node)
        while node is not None and node.mem_id != root.mem_id and node.next is None:
            node = node.parent
            if node is not None:
                writer.leave(node)
        node = None if node is None or node.mem_id == root.mem_id else node.next


class _Writer:
    """Collects the text. Blocks end lines; within one, white space collapses."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._lines: list[str] = []
        self._line: list[str] = []
        # The number of each open list's next item; None for an unnumbered list.
        self._lists: list[int | None] = []
        self._prefix = ""  # of the next line: a bullet, a heading's marks
        self._quotes = 0
        self._preformatted = 0
        self._anchor: tuple[str, list[str]] | None = None  # the open link's target, and the line before it
        self._anchor_id = 0
        self._images = 0
        self._cells: list[int] = []  # the number of lines at the start of each open cell
        self._wrappings: set[int] = set()  # ids of blocks that are the whole content of a cell

    def text(self) -> str:
        self._break()
        return re.sub(r"\n{3,}", "\n\n", "\n".join(self._lines)).strip("\n")

    def enter(self, node: LexborNode) -> bool:
        """Whether to walk its children, and to leave it after them."""
        if node.is_text_node:
            self._write(node.text_content or "")
            return False
        tag = node.tag or ""
        if not node.is_element_node or tag in _UNSEEN or _hidden(node):
            return False
        if tag == "math":
            self._write(node.attributes.get("alttext") or node.text())
            return False
        if self._wraps_a_cell(tag, node):
            self._wrappings.add(node.mem_id)
            return True
        if tag in _BLOCKS:
            self._block(tag)
        self._open(tag, node)
        return True

    def leave(self, node: LexborNode) -> None:
        tag = node.tag or ""
        if node.mem_id in self._wrappings:
            return
        match tag:
            case "a":
                self._close_anchor(node)
            case "sup" | "sub":
                self._line.append("}")
            case "code" if not self._preformatted:
                self._line.append("`")
            case "td" | "th":
                has_lines = len(self._lines) > self._cells.pop()
                if not has_lines or "".join(self._line).strip():
                    self._line.append(" | ")
            case "ul" | "ol" | "menu":
                self._break()
                if self._lists:
                    self._lists.pop()
        if tag in _BLOCKS:
            self._block(tag)
        if (tag == "li" or tag in _HEADINGS) and not self._anchor:
            self._prefix = ""  # otherwise an empty item's prefix would mark the next line
        if tag == "pre":
            self._preformatted -= 1
        elif tag == "blockquote":
            self._quotes -= 1

    def _open(self, tag: str, node: LexborNode) -> None:
        match tag:
            case "a":
                self._open_anchor(node)
            case "br":
                self._line.append(" ") if self._anchor else self._break()
            case "img":
                self._image(node)
            case "hr":
                self._lines.append("* * *")
            case "sup" | "sub":
                self._line.append(_SCRIPTS[tag])
            case "code" if not self._preformatted:
                self._line.append("`")
            case "pre":
                self._preformatted += 1
            case "blockquote":
                self._quotes += 1
            case "ul" | "menu":
                self._lists.append(None)
            case "ol":
                self._lists.append(_number(node, "start", 1))
            case "td" | "th":
                self._cells.append(len(self._lines))
            case "li":
                if self._lists and self._lists[-1] is not None:
                    self._lists[-1] = _number(node, "value", self._lists[-1])
                self._prefix = self._bullet()
            case _:
                self._prefix = _HEADINGS.get(tag, self._prefix)

    def _wraps_a_cell(self, tag: str, node: LexborNode) -> bool:
        parent = node.parent
        if tag not in _WRAPPING or parent is None:
            return False
        if parent.tag not in ("td", "th") and parent.mem_id not in self._wrappings:
            return False
        return not _has_sibling(node, forward=True) and not _has_sibling(node, forward=False)

    def _write(self, text: str) -> None:
        text = clean(text)
        if not self._preformatted or self._anchor:
            self._line.append(text)
            return
        first, *others = text.split("\n")
        self._line.append(first)
        for other in others:
            self._break(keep_empty=True)
            self._line.append(other)

    def _block(self, tag: str) -> None:
        if self._anchor:  # a link around blocks becomes one line
            self._line.append(" ")
            return
        self._break()
        if tag in _SPACED and not (self._lists and tag in ("ul", "ol", "p")):
            self._lines.append("")

    def _break(self, *, keep_empty: bool = False) -> None:
        """Ends the line, if it holds anything."""
        text = "".join(self._line)
        self._line = []
        text = text.rstrip() if self._preformatted else " ".join(text.split()).removesuffix(" |")
        if text or keep_empty:
            quote = "> " * min(self._quotes, _MAX_INDENT)
            self._lines.append(f"{quote}{self._prefix}{text}".rstrip())
            self._prefix = ""

    def _bullet(self) -> str:
        depth = "  " * max(1, min(len(self._lists), _MAX_INDENT))
        number = self._lists[-1] if self._lists else None
        if number is None:
            return f"{depth}* "
        self._lists[-1] = number + 1
        return f"{depth}{number}. "

    def _open_anchor(self, node: LexborNode) -> None:
        target = node.attributes.get("href")
        if target and self._anchor is None:
            self._anchor, self._anchor_id = (target, self._line), node.mem_id
            self._line = []

    def _close_anchor(self, node: LexborNode) -> None:
        if self._anchor is None or node.mem_id != self._anchor_id:
            return
        target, line = self._anchor
        text, self._line, self._anchor = "".join(self._line), line, None
        space = " " if text[:1].isspace() else ""
        self._line.append(f"{space}{self._links.marker(text, target)}{' ' if text[-1:].isspace() else ''}")

    def _image(self, node: LexborNode) -> None:
        name = node.attributes.get("alt") or node.attributes.get("title")
        if name and name.strip():
            self._line.append(f"[Image {self._images}: {' '.join(clean(name).split())[:200]}]")
            self._images += 1


def _has_sibling(node: LexborNode, *, forward: bool) -> bool:
    """Whether a sibling in this direction holds more than white space."""
    other = node.next if forward else node.prev
    while other is not None:
        if other.is_element_node or (other.is_text_node and (other.text_content or "").strip()):
            return True
        other = other.next if forward else other.prev
    return False


def _number(node: LexborNode, attribute: str, default: int) -> int:
    text = (node.attributes.get(attribute) or "").strip()
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else default


def _hidden(node: LexborNode) -> bool:
    attributes = node.attributes
    return "hidden" in attributes or bool(_INVISIBLE.search(attributes.get("style") or ""))
