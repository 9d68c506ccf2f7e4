"""The sample: mutations drawn at random, each with what finds its line again after the code has moved.

A line is found by its text and the names of the definitions around it, in any file of the product. Its
identifiers may have changed, as long as its shape and its surroundings are the same.
"""

import json
import keyword
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.mutations.changes import changes

SAMPLE = Path(__file__).with_name("sample.json")
LEAST_POINTS = 6
TELLING = 25  # characters: the only line with such a text is the one that is wanted
WORD = re.compile(r"[^\W\d]\w*")
DEFINITION = re.compile(r"(?:async def|def|class) (\w+)")


class Spot(NamedTuple):
    """A line: its file, the definitions around it, the lines before and after. Texts are without comments."""

    file: str
    inside: str
    before: str
    line: str
    after: str


class Mutation(NamedTuple):
    id: str  # its room, and a number
    kind: str
    spot: Spot
    mutated: str

    @property
    def room(self) -> str:
        return self.id.partition("-")[0]


Index = dict[str, list[tuple[Spot, int]]]  # for each shape of a line, where it is, with the line's number


def index(root: Path) -> Index:
    spots: Index = {}
    for path in sorted([*root.glob("gpt_oss_server/**/*.py"), *root.glob("inference/**/*.py")]):
        for number, spot in enumerate(spots_of(root, str(path.relative_to(root))), 1):
            spots.setdefault(_shape(spot.line), []).append((spot, number))
    return spots


def spots_of(root: Path, file: str) -> list[Spot]:
    lines = (root / file).read_text(encoding="utf-8").split("\n")
    codes = ["", *map(_code, lines), ""]
    spots: list[Spot] = []
    around: list[tuple[int, str]] = []  # indentations and names
    for number, line in enumerate(lines, 1):
        indentation = len(line) - len(line.lstrip())
        if line.strip() and not line.lstrip().startswith(")"):
            around = [(outer, name) for outer, name in around if outer < indentation]
        if definition := DEFINITION.match(line.lstrip()):
            around.append((indentation, definition[1]))
        spots.append(Spot(file, ".".join(name for _, name in around), *codes[number - 1 : number + 2]))
    return spots


def _code(line: str) -> str:
    return line.partition("  # ")[0].strip()


def _shape(line: str) -> str:
    return WORD.sub(lambda word: word[0] if keyword.iskeyword(word[0]) else "_", line)


def locate(mutation: Mutation, spots: Index) -> tuple[Spot, int, str] | None:
    """Where its line is now, and what replaces that, with the names that it has there."""
    same = spots.get(_shape(mutation.spot.line), [])
    exact = [place for place in same if place[0].line == mutation.spot.line]
    points, spot, number = max(
        ((_points(mutation.spot, spot), spot, number) for spot, number in same), default=(0, mutation.spot, 0)
    )
    if len(exact) == 1 and len(mutation.spot.line) >= TELLING:
        spot, number = exact[0]
    elif points < LEAST_POINTS:
        return None
    names = dict(zip(WORD.findall(mutation.spot.line), WORD.findall(spot.line), strict=True))
    return spot, number, WORD.sub(lambda word: names.get(word[0], word[0]), mutation.mutated)


def _points(old: Spot, new: Spot) -> int:
    points = 3 * (old.line == new.line) + (old.file == new.file)
    if old.inside:
        points += 2 * (old.inside == new.inside)
        points += 2 * (old.inside.split(".")[-1] == new.inside.split(".")[-1])
    for a, b in ((old.before, new.before), (old.after, new.after)):
        points += (a == b) + (_shape(a) == _shape(b))
    return points


def draw(
    root: Path, room: str, files: list[str], kinds: list[str], drawn: list[Mutation]
) -> Iterator[Mutation]:
    """One for each of the wanted kinds ("" is any), on lines that have none yet and that are found again."""
    spots, possible = index(root), []
    for file in files:
        places = spots_of(root, file)
        for kind, number, line in changes((root / file).read_text(encoding="utf-8")):
            possible.append((kind, places[number - 1], number, _code(line)))
    random.Random(f"{room} {len(drawn)}").shuffle(possible)
    taken = {mutation.spot for mutation in drawn}
    numbers = [int(mutation.id.rpartition("-")[2]) for mutation in drawn if mutation.room == room]
    for new, wanted in enumerate(kinds, max(numbers, default=0) + 1):
        for kind, spot, number, mutated in possible:
            mutation = Mutation(f"{room}-{new:03}", kind, spot, mutated)
            is_free = wanted in ("", kind) and spot not in taken
            if is_free and locate(mutation, spots) == (spot, number, mutated):
                taken.add(spot)
                yield mutation
                break


def read() -> list[Mutation]:
    rows = json.loads(SAMPLE.read_text(encoding="utf-8")) if SAMPLE.exists() else []
    return [Mutation(row["id"], row["kind"], Spot(*row["spot"]), row["mutated"]) for row in rows]


def write(sample: list[Mutation]) -> None:
    rows = [json.dumps(mutation._asdict(), ensure_ascii=False) for mutation in sample]
    SAMPLE.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")
