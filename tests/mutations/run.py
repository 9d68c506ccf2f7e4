"""Which mutations of the sample do the tests find?

    python -m tests.mutations.run --out results.json [--tree FOLDER] [--ids ID …]
    python -m tests.mutations.run --redraw

First all tests run once, to see which functions each of them reaches. Then each mutation is applied to a copy
of the tree, and tests that reach its function run, up to a time. It is found by a test that fails or does not
end. An interrupted run continues. At the end it compares with `before.json`. `--redraw` replaces mutations
whose lines are gone.
"""

import argparse
import compileall
import functools
import importlib
import itertools
import json
import os
import queue
import random
import shutil
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutations.reach import Reach, Recorder, Selected, record_calls, run_forked
from tests.mutations.sample import Mutation, Spot, draw, index, locate, read, write

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TABLE = tomllib.loads((HERE / "rooms.toml").read_text(encoding="utf-8"))
ROOMS: dict[str, list[str]] = TABLE["rooms"]
SIZE = 300
JOBS = 2
ALL_SECONDS = 10.0  # of the tests that run for a mutation
MOST_SECONDS = 4.0  # of one of them
LIBRARIES = "torch fastapi uvicorn httpx openai.types.responses llguidance jsonschema hypothesis mcp.client"


def run(tree: Path, ids: list[str], out: Path) -> dict[str, str]:
    """Writes and returns for each mutation `found`, `survived` or `gone`."""
    results: dict[str, str] = json.loads(out.read_text()) if out.exists() else {}
    spots, roots = index(tree), queue.Queue[Path]()
    places = {mutation: locate(mutation, spots) for mutation in read()}
    sample = [
        mutation for mutation in places if mutation.id in ids or (not ids and mutation.id not in results)
    ]
    random.Random(0).shuffle(sample)  # a run that is cut short has tried each room
    for name in LIBRARIES.split():
        importlib.import_module(name)

    def attempt(reach: Reach, mutation: Mutation) -> None:
        began, root, place = time.monotonic(), roots.get(), places[mutation]
        try:
            test = failing_test(root, reach, *place) if place else ""
        finally:
            roots.put(root)
        results[mutation.id] = "gone" if not place else "found" if test else "survived"
        print(f"{mutation.id} {results[mutation.id]} {time.monotonic() - began:.0f} s {test}", flush=True)
        out.write_text(json.dumps(dict(sorted(results.items())), indent=0) + "\n", encoding="utf-8")

    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(JOBS) as threads:
        copies = [Path(folder, str(job)) for job in range(JOBS)]
        for copy in copies:
            shutil.copytree(tree, copy, ignore=shutil.ignore_patterns(".*"))
            compileall.compile_dir(copy, quiet=2)
            roots.put(copy)
        sys.dont_write_bytecode, os.environ["PYTHONDONTWRITEBYTECODE"] = True, "1"
        saved = out.with_suffix(".reach.json")
        if not saved.exists():
            changed = {place[0].file for place in places.values() if place}
            parts = threads.map(functools.partial(recorded, tree, changed), copies, range(JOBS))
            saved.write_text(json.dumps(dict(itertools.chain(*parts))), encoding="utf-8")
        reach = json.loads(saved.read_text(encoding="utf-8"))
        print(f"{len(reach)} tests", flush=True)
        list(threads.map(functools.partial(attempt, reach), sample))
    return results


def recorded(
    tree: Path, changed: set[str], root: Path, job: int
) -> list[tuple[str, tuple[float, list[str]]]]:
    """What this job's part of the tests reaches in the files that will be changed."""
    files: dict[Path, None] = {}
    for pattern in TABLE["tests"]:
        paths = sorted(root.glob(pattern))
        assert paths, f"{pattern} in rooms.toml names no test any more"
        for path in paths:
            files |= dict.fromkeys(sorted(path.rglob("test_*.py")) if path.is_dir() else [path])
    for file in changed:
        record_calls(root, file)
    part = [str(path.relative_to(root)) for path in files][job::JOBS]
    run_forked(root, ROOT, ["-k", TABLE["but"], *part], lambda: Recorder(root / "reached"))
    for file in changed:
        shutil.copy2(tree / file, root / file)
    output = (root / "output").read_text(encoding="utf-8").splitlines()
    print(*(f"Left out: {line}" for line in output if line.startswith(("FAILED", "ERROR"))), sep="\n")
    return list(json.loads((root / "reached").read_text(encoding="utf-8")).items())


def failing_test(root: Path, reach: Reach, spot: Spot, number: int, line: str) -> str:
    """The first one, or nothing. The changed file gets another time, so that Python compiles it."""
    path, under_way = root / spot.file, root / "under_way"
    source, changed = path.read_text(encoding="utf-8"), path.stat().st_mtime
    lines = source.split("\n")
    lines[number - 1] = lines[number - 1].replace(lines[number - 1].lstrip(), line)
    path.write_text("\n".join(lines), encoding="utf-8")
    os.utime(path, (changed + 10, changed + 10))
    under_way.write_text("an import", encoding="utf-8")
    tests = selected(root, reach, spot)
    files = dict.fromkeys(test.partition("::")[0] for test in tests)
    status = run_forked(root, ROOT, ["-x", *files], lambda: Selected(tests, under_way)) if tests else 0
    path.write_text(source, encoding="utf-8")
    os.utime(path, (changed, changed))
    ended = " (ended by its time)" if os.WIFSIGNALED(status) else ""
    return under_way.read_text(encoding="utf-8") + ended if status else ""


def selected(root: Path, reach: Reach, spot: Spot) -> list[str]:
    """First tests named as the changed file, then those that import it or its room, then the fastest."""
    function, path = f"{spot.file} {spot.inside}", Path(spot.file).with_suffix("")
    module, room = ".".join(path.parts), ".".join(path.parts[:-1])
    tests = [test for test, (_, reached) in reach.items() if function in reached] or [
        test
        for test, (_, reached) in reach.items()
        if any(name.startswith(f"{spot.file} ") for name in reached)
    ]

    @functools.cache
    def distance(file: str) -> int:
        text = (root / file).read_text(encoding="utf-8")
        return [Path(file).stem == f"test_{path.name}", module in text, room in text, True].index(True)

    def order(test: str) -> tuple[int, float]:
        return distance(test.partition("::")[0]), reach[test][0]

    tests = [test for test in sorted(tests, key=order) if reach[test][0] <= MOST_SECONDS]
    sums = itertools.accumulate(reach[test][0] for test in tests)
    tests = [test for test, seconds in zip(tests, sums, strict=True) if seconds <= ALL_SECONDS]
    return sorted(tests, key=lambda test: (order(test)[0], test.partition("::")[0], order(test)[1]))


def compare(results: dict[str, str], before: dict[str, str]) -> None:
    for room in ("", *ROOMS):
        for name, some in (("before", before), ("now", results)):
            outcomes = [
                outcome for key, outcome in some.items() if key.startswith(room) and outcome != "gone"
            ]
            share = outcomes.count("found") / max(len(outcomes), 1)
            print(f"{room or 'all rooms'}, {name}: {share:.1%} of {len(outcomes)} found")
    print("gone:", *(key for key, outcome in results.items() if outcome == "gone"))
    print(
        "found before only:",
        *(key for key in results if (before.get(key), results[key]) == ("found", "survived")),
    )


def redraw() -> None:
    """The first draw gives each room its part of the lines, and a later one the kinds that are gone."""
    sample, spots = read(), index(ROOT)
    paths = {
        room: [path for folder in ROOMS[room] for path in sorted((ROOT / folder).rglob("*.py"))]
        for room in ROOMS
    }
    files = {room: [str(path.relative_to(ROOT)) for path in paths[room]] for room in ROOMS}
    lines = {room: sum(len(path.read_bytes().splitlines()) for path in paths[room]) for room in ROOMS}
    parts = {room: [""] * round(SIZE * lines[room] / sum(lines.values())) for room in ROOMS if not sample}
    gone = [mutation for mutation in sample if locate(mutation, spots) is None]
    for room in ROOMS:
        kinds = parts.get(room) or [mutation.kind for mutation in gone if mutation.room == room]
        sample += list(draw(ROOT, room, files[room], kinds, sample))
    write([mutation for mutation in sample if mutation not in gone][:SIZE])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("results.json"))
    parser.add_argument("--tree", type=Path, default=ROOT)
    parser.add_argument("--ids", nargs="*", default=[])
    parser.add_argument("--redraw", action="store_true")
    arguments = parser.parse_args()
    if arguments.redraw:
        redraw()
    else:
        before = HERE / "before.json"
        results = run(arguments.tree, arguments.ids, arguments.out)
        compare(results, json.loads(before.read_text()) if before.exists() else {})


if __name__ == "__main__":
    main()
