"""Applies hunks to a text: finds them by their lines, exactly or except for spaces at line ends.

Kept lines stay unchanged, line ends included. New lines end like most of the file's lines.
"""

import re
from collections.abc import Sequence

from tools.apply_patch.parse import Hunk, PatchError

_LINE = re.compile(r"[^\n]*\n|[^\n]+")  # not str.splitlines, which also breaks at form feeds and the like
Line = tuple[str, str]  # text and line end


def patched(text: str, hunks: Sequence[Hunk], path: str) -> str:
    lines = [_split(match) for match in _LINE.findall(text)]
    ending = "\r\n" if 2 * sum(end == "\r\n" for _, end in lines) > len(lines) else "\n"
    result: list[Line] = []
    done = 0  # lines of the file that are already handled
    texts = [line for line, _ in lines]
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
    return _joined(result, ending, ends_line=not lines or lines[-1][1] != "")


def _split(line: str) -> Line:
    for end in ("\r\n", "\n"):
        if line.endswith(end):
            return line[: -len(end)], end
    return line, ""


def _joined(lines: Sequence[Line], ending: str, *, ends_line: bool) -> str:
    if not lines:
        return ""
    body = "".join(text + (end or ending) for text, end in lines[:-1])
    text, end = lines[-1]
    return body + text + ((end or ending) if ends_line else "")


def _place(lines: Sequence[str], hunk: Hunk, start: int, path: str) -> int:
    """The index of the hunk's first line, at `start` or later."""
    for header in hunk.headers:
        start = _after_header(lines, header, start, path)
    if not hunk.old:
        return _place_of_additions(lines, hunk, start, path)
    if hunk.at_end:
        last = len(lines) - len(hunk.old)
        if last >= start and (at := _find(lines, hunk.old, last)) is not None:
            return at
    at = _find(lines, hunk.old, start)
    if at is None:
        raise PatchError(_not_found(lines, hunk, start, path))
    return at


def _place_of_additions(lines: Sequence[str], hunk: Hunk, start: int, path: str) -> int:
    if hunk.at_end or not lines:
        return len(lines)
    if hunk.headers:
        return start
    raise PatchError(
        f"{path}: a change only adds lines and does not show where. Put unchanged lines around them, "
        "each beginning with a space, or '*** End of File' after them."
    )


def _after_header(lines: Sequence[str], header: str, start: int, path: str) -> int:
    for same in (str, str.strip):
        wanted = same(header)
        for at in range(start, len(lines)):
            if same(lines[at]) == wanted:
                return at + 1
    if any(line.strip() == header.strip() for line in lines[:start]):
        return start  # another change under the same header
    missing = f"{path} has no line {header.strip()!r}, after which a change should be"
    raise PatchError(f"{missing}. Give a whole line.")


def _find(lines: Sequence[str], wanted: Sequence[str], start: int) -> int | None:
    """Where the wanted lines stand, exactly or except for spaces at line ends."""
    for same in (str, str.rstrip):
        text, needle = [same(line) for line in lines], [same(line) for line in wanted]
        for at in range(start, len(text) - len(needle) + 1):
            if text[at] == needle[0] and text[at : at + len(needle)] == needle:
                return at
    return None


def _not_found(lines: Sequence[str], hunk: Hunk, start: int, path: str) -> str:
    shown = "\n".join(hunk.old[:12])
    message = f"{path}: these lines of the patch are not in the file"
    if _find(lines, hunk.old, 0) is not None:
        message = f"{path}: these lines are above an earlier change or header; keep the file's order"
    elif start:
        message += f" after line {start}"
    return f"{message}:\n{shown}\nLook at the file again: unchanged lines must match it exactly."
