"""Applies hunks to a text: finds them by their lines, exactly or except for spaces at line ends.

Kept lines stay unchanged, line ends included. New lines end like most of the file's lines.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate

from tools.apply_patch.parse import Hunk, PatchError

_LINE = re.compile(r"([^\n]*?)(\r?\n|\Z)")  # not str.splitlines, which also breaks at form feeds and the like
Line = tuple[str, str]  # text and line end
Spelling = Callable[[str], str]
_SPELLINGS: tuple[Spelling, ...] = (str, str.rstrip, str.strip)


def patched(text: str, hunks: Sequence[Hunk], path: str) -> str:
    lines: list[Line] = _LINE.findall(text)[:-1]  # the last match is the empty one at the end
    ending = "\r\n" if 2 * sum(end == "\r\n" for _, end in lines) > len(lines) else "\n"
    result: list[Line] = []
    done = 0  # lines of the file that are already handled
    texts = _Lines([line for line, _ in lines])
    for hunk in hunks:
        at = _place(texts, hunk, done, path)
        result += lines[done:at]
        done = at
        for step, new in hunk.steps:
            if step == 1:
                result.append((new, ending))
                continue
            if step == 0:
                result.append(lines[done])
            done += 1
    result += lines[done:]
    joined = "".join(line + (end or ending) for line, end in result)
    if not result or not lines or lines[-1][1]:
        return joined
    return joined.removesuffix(result[-1][1] or ending)  # as the file, whose last line has no end


class _Lines:
    """The lines of a file, in three spellings: exactly, without spaces at their ends, without any around."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.count = len(lines)
        self._known = {same: {same(line) for line in lines} for same in _SPELLINGS}
        self._spelt = {same: _joined_lines(same, lines) for same in _SPELLINGS}
        self._starts = {same: [0, *accumulate(len(same(line)) + 1 for line in lines)] for same in _SPELLINGS}

    def find(self, wanted: Sequence[str], start: int, *spellings: Spelling) -> int | None:
        """Where the wanted lines stand, at `start` or later, in the first of the spellings that has them."""
        for same in spellings:
            if not self._known[same].issuperset(map(same, wanted)):
                continue
            starts = self._starts[same]
            at = self._spelt[same].find(_joined_lines(same, wanted), starts[min(start, self.count)])
            if at >= 0:
                return bisect_left(starts, at)
        return None

    def find_all(self, wanted: Sequence[str], start: int) -> int | None:
        return self.find(wanted, start, str, str.rstrip)


def _joined_lines(same: Spelling, lines: Sequence[str]) -> str:
    return "".join(["\n", *(f"{same(line)}\n" for line in lines)])


def _place(lines: _Lines, hunk: Hunk, start: int, path: str) -> int:
    """The index of the hunk's first line, at `start` or later."""
    for header in hunk.headers:
        start = _after_header(lines, header, start, path)
    if not hunk.old:
        return _place_of_additions(lines, hunk, start, path)
    if hunk.at_end:
        last = lines.count - len(hunk.old)
        if last >= start and (at := lines.find_all(hunk.old, last)) is not None:
            return at
    at = lines.find_all(hunk.old, start)
    if at is None:
        raise PatchError(_not_found(lines, hunk, start, path))
    return at


def _place_of_additions(lines: _Lines, hunk: Hunk, start: int, path: str) -> int:
    if hunk.at_end or not lines.count:
        return lines.count
    if hunk.headers:
        return start
    raise PatchError(
        f"{path}: a change only adds lines and does not show where. Put unchanged lines around them, "
        "each beginning with a space, or '*** End of File' after them."
    )


def _after_header(lines: _Lines, header: str, start: int, path: str) -> int:
    at = lines.find([header], start, str, str.strip)
    if at is not None:
        return at + 1
    if lines.find([header], 0, str.strip) is not None:
        return start  # another change under the same header
    missing = f"{path} has no line {header.strip()!r}, after which a change should be"
    raise PatchError(f"{missing}. Give a whole line.")


def _not_found(lines: _Lines, hunk: Hunk, start: int, path: str) -> str:
    shown = "\n".join(hunk.old[:12])
    message = f"{path}: these lines of the patch are not in the file"
    if lines.find_all(hunk.old, 0) is not None:
        message = f"{path}: these lines are above an earlier change or header; keep the file's order"
    elif start:
        message += f" after line {start}"
    return f"{message}:\n{shown}\nLook at the file again: unchanged lines must match it exactly."
