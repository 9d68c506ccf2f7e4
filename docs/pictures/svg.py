"""SVG: rectangles, text, arrows. Light and dark follow the reader's colour scheme."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape

LETTER = 7.3  # the width of a letter of the fixed-width font at its size
FIXED, PLAIN = "f", "p"

_COLOURS = {
    "page": ("#ffffff", "#10161d"),
    "ink": ("#1c2530", "#e3e9ef"),
    "quiet": ("#5b6874", "#93a1ae"),
    "line": ("#b9c3cc", "#465461"),
    "special": ("#36414d", "#c4ced8"),
    "onspecial": ("#ffffff", "#10161d"),
    "system": ("#e6eaee", "#2b353f"),
    "user": ("#d5e5ff", "#1d3a63"),
    "analysis": ("#ffedb8", "#544310"),
    "commentary": ("#ead9fb", "#46306a"),
    "final": ("#cdf0d8", "#1c4d2e"),
    "tool": ("#ffdccb", "#64331d"),
    "slip": ("#c62828", "#ff7b72"),
}


def _variables(column: int) -> str:
    return "".join(f"--{name}:{pair[column]};" for name, pair in _COLOURS.items())


_STYLE = (
    f"svg{{{_variables(0)}}}@media(prefers-color-scheme:dark){{svg{{{_variables(1)}}}}}"
    "text{fill:var(--ink)}"
    ".f{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}"
    ".p{font:13px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
    ".small{font-size:11px}.strong{font-weight:600}.quiet{fill:var(--quiet)}.header{font-style:italic}"
    ".onspecial{fill:var(--onspecial)}.slip{fill:var(--slip)}.middle{text-anchor:middle}.end{text-anchor:end}.faded{opacity:.32}"
)
_ARROW = (
    '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0L8 4L0 8z" fill="var(--quiet)"/></marker>'
)


@dataclass(slots=True)
class Canvas:
    """A picture that grows downwards. `title` and `description` are for those who cannot see it."""

    width: int
    title: str
    description: str
    height: int = 0
    _parts: list[str] = field(default_factory=list)

    def box(
        self, x: float, y: float, width: float, height: float, fill: str, *, css: str = "", **more: str
    ) -> None:
        stroke = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3"'
            f'{_css(css)} fill="{_colour(fill)}"{stroke}/>'
        )

    def text(self, x: float, y: float, text: str, css: str = PLAIN, *, width: float | None = None) -> None:
        fitted = "" if width is None else f' textLength="{width:g}" lengthAdjust="spacingAndGlyphs"'
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}"{_css(css)}{fitted} xml:space="preserve">{escape(text)}</text>'
        )

    def line(self, points: str, *, arrow: bool = False, dashed: bool = False, stroke: str = "quiet") -> None:
        end = ' marker-end="url(#head)"' if arrow else ""
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        self._parts.append(
            f'<path d="{points}" fill="none" stroke="{_colour(stroke)}" stroke-width="1.3"{dashes}{end}/>'
        )

    def drawn(self) -> str:
        box = f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img">',
                f"<title>{escape(self.title)}</title><desc>{escape(self.description)}</desc>",
                f"<style>{_STYLE}</style><defs>{_ARROW}</defs>",
                f'<rect width="{self.width}" height="{self.height}" rx="8" fill="var(--page)"/>',
                *self._parts,
                "</svg>\n",
            ]
        )


def _colour(name: str) -> str:
    return name if name == "none" else f"var(--{name})"


def _css(names: str) -> str:
    return f' class="{names}"' if names else ""
