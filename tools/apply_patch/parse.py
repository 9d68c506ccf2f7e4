"""Parses a patch: which files it adds, updates, moves and deletes, and by which lines. It reads no files.

Slips whose meaning is clear are accepted: a fence around the patch, blank lines between its parts, line
numbers after `@@`. Anything else is a `PatchError` that names the line.
"""

import re
from dataclasses import dataclass, field
from typing import Literal

BEGIN, END = "*** Begin Patch", "*** End Patch"
END_OF_FILE = "*** End of File"
_FILE = re.compile(r"\*\*\* (Add|Update|Delete) File: ?(.*)")
_MOVE = re.compile(r"\*\*\* Move to: ?(.*)")
_LINE_NUMBERS = re.compile(r"-\d+(,\d+)? \+\d+(,\d+)? @@")
_FENCE = re.compile(r"```[\w-]*\n(.*)\n```", re.DOTALL)


class PatchError(ValueError):
    """The patch cannot be applied, and nothing was changed. The message is a sentence for the model."""


@dataclass(slots=True)
class Hunk:
    """Lines of the file, and what becomes of them, all without line ends."""

    headers: list[str] = field(default_factory=list)  # lines to find first, in this order
    old: list[str] = field(default_factory=list)
    # (0 kept, -1 removed, +1 added) and the line. Kept lines keep the bytes that the file has.
    steps: list[tuple[int, str]] = field(default_factory=list)
    at_end: bool = False


@dataclass(slots=True)
class FilePatch:
    kind: Literal["Add", "Update", "Delete"]
    path: str
    move_to: str | None = None
    lines: list[str] = field(default_factory=list)  # only for a new file
    hunks: list[Hunk] = field(default_factory=list)


def parse(text: str) -> list[FilePatch]:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise PatchError("The patch has escapes that are not characters (lone surrogates).") from error
    lines = _between_markers(text)
    parts: list[FilePatch] = []
    at = 0
    while at < len(lines):
        number, line = lines[at]
        at += 1
        if not line.strip():
            continue
        match = _FILE.fullmatch(line.rstrip())
        if match is None:
            raise PatchError(
                f"Line {number} of the patch, {line[:80]!r}, should be '*** Add File: path', "
                "'*** Update File: path' or '*** Delete File: path'."
            )
        end = next((i for i in range(at, len(lines)) if _FILE.match(lines[i][1])), len(lines))
        parts.append(_part(match[1], match[2].strip(), lines[at:end], number))
        at = end
    if not parts:
        raise PatchError("The patch changes no file.")
    return parts


Numbered = list[tuple[int, str]]


def _between_markers(text: str) -> Numbered:
    bare = text.strip().replace("\r\n", "\n")
    if fenced := _FENCE.fullmatch(bare):
        bare = fenced[1].strip()
    lines = bare.split("\n")
    if lines[0].strip() != BEGIN:
        raise PatchError(f"The patch must begin with a line {BEGIN!r}, not {lines[0][:80]!r}.")
    if lines[-1].strip() != END:
        raise PatchError(f"The patch must end with a line {END!r}, not {lines[-1][:80]!r}.")
    return list(enumerate(lines, 1))[1:-1]


def _part(kind: str, path: str, body: Numbered, number: int) -> FilePatch:
    while body and not body[-1][1]:  # blank lines between parts belong to neither
        body.pop()
    match kind:
        case "Add":
            return FilePatch("Add", path, lines=[_added(*line) for line in body])
        case "Delete":
            if body:
                line = f"line {body[0][0]} is {body[0][1][:80]!r}"
                raise PatchError(f"'*** Delete File: {path}' takes no lines, but {line}.")
            return FilePatch("Delete", path)
        case _:
            return _update(path, body, number)


def _added(number: int, line: str) -> str:
    if line and not line.startswith("+"):
        where = f"Line {number} of the patch, {line[:80]!r}"
        raise PatchError(f"{where}: every line of an added file begins with '+'.")
    return line[1:]


def _update(path: str, body: Numbered, number: int) -> FilePatch:
    patch = FilePatch("Update", path)
    if body and (move := _MOVE.fullmatch(body[0][1].rstrip())):
        patch.move_to = move[1].strip()
        body = body[1:]
    patch.hunks = _hunks(body)
    if not patch.hunks and patch.move_to is None:
        raise PatchError(f"'*** Update File: {path}' (line {number}) has no changes under it.")
    return patch


def _hunks(body: Numbered) -> list[Hunk]:
    hunks: list[Hunk] = []
    fresh = True  # whether the next line starts a hunk
    for number, line in body:
        if line.rstrip() == END_OF_FILE:
            if not hunks:
                raise PatchError(f"{END_OF_FILE!r} (line {number}) follows no change.")
            hunks[-1].at_end, fresh = True, True
            continue
        if line.startswith("@@"):
            if fresh or hunks[-1].steps:
                hunks.append(Hunk())
            header = line[2:].removeprefix(" ").rstrip()
            # Line numbers, as of other formats of patches, are unreliable.
            if header and not _LINE_NUMBERS.match(header.strip()):
                hunks[-1].headers.append(header)
            fresh = False
            continue
        if fresh:
            if not line:
                continue
            hunks.append(Hunk())
            fresh = False
        _take(hunks[-1], number, line)
    for hunk in hunks:
        if all(step == 0 for step, _ in hunk.steps):
            where = f" after '@@ {hunk.headers[-1]}'" if hunk.headers else ""
            raise PatchError(f"A change{where} has no line that begins with '+' or '-'.")
    return hunks


def _take(hunk: Hunk, number: int, line: str) -> None:
    sign, rest = line[:1], line[1:]
    if sign not in ("", " ", "+", "-"):
        raise PatchError(
            f"Line {number} of the patch, {line[:80]!r}, must begin with a space (unchanged), '-' (removed) "
            "or '+' (added)."
        )
    if sign != "+":
        hunk.old.append(rest)
    hunk.steps.append(({"+": 1, "-": -1}.get(sign, 0), rest))
