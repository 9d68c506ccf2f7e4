"""Measures the server over HTTP with random weights: `python tests/gpu/served.py served.json`.

It starts `gpt-oss-server serve --model random:20b`, loads it with client processes, and stops it. It rewrites
the JSON file after each part, so that an interrupted run leaves figures; the server's log is in the same
folder. `--bare` names a file with figures of the bare engine for comparison, as written by `python -m
inference.bench --shape 20b --random --batch 1,8,64 --contexts 1024 --json FILE`. The server's dependencies
must be installed; the project need not be.
"""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
sys.path[:] = [str(ROOT), *(entry for entry in sys.path if Path(entry or ".").resolve() != HERE)]

from tests.doubles.inference.timed_parts import TimedParts, say  # noqa: E402
from tests.doubles.server_process import serving  # noqa: E402
from tests.gpu.http_parts import FULL, SMALL, Parts, Sizes  # noqa: E402

TO_END = 8.0  # seconds of the budget that are reserved for the end
MOST_FOR_A_PART, MOST_FOR_THE_FIRST = 20.0, 40.0
FLAGS = ("--browser", "off", "--python", "off", "--shutdown-grace", "1s")
COMMAND = (sys.executable, "-m", "gpt_oss_server")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="OUT.json")
    parser.add_argument("--model", default="random:20b", help="a tiny one gets small loads (random:20b)")
    parser.add_argument("--budget", type=float, default=110.0, help="seconds for the whole run (110)")
    parser.add_argument("--bare", type=Path, metavar="FILE", help="figures of the bench, for comparison")
    parser.add_argument("--only", default="", help="only the parts whose names contain this word")
    parser.add_argument("--flag", action="append", default=[], help="another flag for serve")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    return measure(options)


def measure(options: argparse.Namespace) -> int:
    out: Path = options.out.resolve()
    sizes = SMALL if options.model.endswith("tiny") else FULL
    figures = TimedParts(options.budget - TO_END)
    bare = json.loads(options.bare.read_text(encoding="utf-8"))["rows"] if options.bare else []
    rates = {str(row["batch"]): row["tokens_per_s"] for row in bare if row["what"] == "decode"}
    report: dict[str, Any] = {"model": options.model, "date": time.strftime("%Y-%m-%d"), "bare": rates}
    report["parts"] = figures.found
    flags, env = ("--model", options.model, *FLAGS, *options.flag), {"PYTHONPATH": str(ROOT)}
    began = time.monotonic()
    with serving(*flags, env=env, command=COMMAND) as served:
        report["start_s"] = round(time.monotonic() - began, 2)
        say(f"{options.model}: answers {report['start_s']} s after its start")
        parts = Parts(served, sizes)
        report["model_card"] = parts.get("/v1/models")["data"][0]
        chosen = {name: run for name, run in planned(parts, sizes).items() if options.only in name}
        try:
            for name, run in chosen.items():
                most = MOST_FOR_A_PART if figures.found else MOST_FOR_THE_FIRST
                parts.deadline = time.monotonic() + min(figures.left(), most)
                figures.part(name, run)
                show(name, figures.found.get(name), rates.get(name.split()[-1]))
                write(out, report)
            report["engine"] = parts.counters()["engine"]
        finally:
            report["seconds"] = round(time.monotonic() - began, 1)
            write(out, report)
            out.with_name(out.name + ".log").write_text("".join(served.lines), encoding="utf-8")
    return int(not all(isinstance(figures.found.get(name), dict) for name in chosen))


def planned(parts: Parts, sizes: Sizes) -> dict[str, Callable[[], dict[str, Any]]]:
    """The most important parts come first: the budget may end before the others."""
    return {
        "cold": parts.cold,
        **{f"completions {n}": lambda n=n: parts.completions(n) for n in sizes.streams},
        **{f"responses {n}": lambda n=n: parts.responses(n) for n in sizes.streams},
        "leaving": parts.leaving,
        "second turn": parts.second_turn,
        **{f"structured {n}": lambda n=n: parts.structured(n) for n in sizes.streams[:2]},
        "mixed": parts.mixed,
    }


def show(name: str, part: Any, bare: float | None) -> None:
    """A part's figures, with the ratio of its steady rate to that of the bare engine."""
    if not isinstance(part, dict):
        return
    streams = {f"{name} {key}": part[key] for key in ("in_schema", "without") if key in part}
    shown = {key: value for key, value in part.items() if f"{name} {key}" not in streams}
    if bare and part.get("steady_tokens_per_s"):
        shown["of_bare"] = round(part["steady_tokens_per_s"] / bare, 3)
    for title, own in {name: shown, **streams}.items():
        say(f"{title}: " + ", ".join(f"{key} {value}" for key, value in own.items()))


def write(out: Path, report: dict[str, Any]) -> None:
    """Writes atomically: a run may be interrupted while it writes."""
    partial = out.with_name(out.name + ".part")
    partial.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(partial, out)


if __name__ == "__main__":
    sys.exit(main())
