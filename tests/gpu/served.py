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
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
sys.path[:] = [str(ROOT), *(entry for entry in sys.path if Path(entry or ".").resolve() != HERE)]

from tests.gpu.http_parts import FULL, SMALL, Parts, Sizes  # noqa: E402
from tests.gpu.http_server import serving  # noqa: E402

TO_END = 8.0  # seconds of the budget that are reserved for the end
LEAST_FOR_A_PART = 3.0
MOST_FOR_A_PART, MOST_FOR_THE_FIRST = 20.0, 40.0


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
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, _stop)
    report = measure(given)
    sys.stdout.write(table(report))
    return int(bool(report["failed"]))


def measure(given: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()
    out: Path = given.out.resolve()
    log = out.with_name(out.name + ".log")
    sizes = SMALL if given.model.endswith("tiny") else FULL
    report: dict[str, Any] = {"model": given.model, "date": time.strftime("%Y-%m-%d")}
    report |= {"failed": {}, "parts": {}}
    report["bare"] = _bare(given.bare, report)
    try:
        with serving(given.model, log, tuple(given.flag)) as server:
            report["start_s"] = round(server.wait(given.budget - TO_END), 2)
            report["model_card"] = server.request("GET", "/v1/models")["data"][0]
            _write(out, report)
            parts = Parts(server, sizes)
            for name, part in planned(parts, sizes):
                if given.only not in name:
                    continue
                left = given.budget - TO_END - (time.monotonic() - began)
                if left < LEAST_FOR_A_PART:
                    report["failed"][name] = "No time is left."
                    continue
                most = MOST_FOR_A_PART if report["parts"] else MOST_FOR_THE_FIRST
                parts.deadline = time.monotonic() + min(left, most)
                _run_part(name, part, report)
                _write(out, report)
            report["engine"] = server.counters()["engine"]
    except BaseException as error:
        report["failed"]["server"] = f"{error!r}\n{traceback.format_exc(limit=-4)}"
        if not isinstance(error, Exception):
            raise
    finally:
        report["seconds"] = round(time.monotonic() - began, 1)
        _write(out, report)
        if report["failed"] and log.exists():
            tail = log.read_text(encoding="utf-8", errors="replace").splitlines()[-40:]
            sys.stdout.write("\n".join(["The end of the server's log:", *tail, ""]))
    return report


def planned(parts: Parts, sizes: Sizes) -> list[tuple[str, Callable[[], dict[str, Any]]]]:
    """The most important parts come first: the budget may end before the others."""
    return [
        ("cold", parts.cold),
        *((f"completions {n}", lambda n=n: parts.completions(n)) for n in sizes.streams),
        *((f"responses {n}", lambda n=n: parts.responses(n)) for n in sizes.streams),
        ("leaving", parts.leaving),
        ("second turn", parts.second_turn),
        *((f"structured {n}", lambda n=n: parts.structured(n)) for n in sizes.streams[:2]),
        ("mixed", parts.mixed),
    ]


def _run_part(name: str, part: Callable[[], dict[str, Any]], report: dict[str, Any]) -> None:
    began = time.monotonic()
    try:
        report["parts"][name] = part()
    except Exception as error:  # the next part may still work
        report["failed"][name] = f"{error!r}\n{traceback.format_exc(limit=-3)}"
        report["parts"][name] = {}
    took = time.monotonic() - began
    report["parts"][name]["took_s"] = round(took, 2)
    sys.stderr.write(f"{name}: {took:.1f} s{' FAILED' if name in report['failed'] else ''}\n")


def _bare(path: Path | None, report: dict[str, Any]) -> dict[str, float]:
    """The bench's decode rates by batch."""
    if path is None:
        return {}
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        return {str(row["batch"]): round(row["tokens_per_s"], 1) for row in rows if row["what"] == "decode"}
    except (OSError, ValueError, KeyError) as error:
        report["failed"]["bare"] = repr(error)
        return {}


def table(report: dict[str, Any]) -> str:
    """Each part's figures, with the ratio of its steady rate to that of the bare engine."""
    lines = [f"{report['model']}: answers {report.get('start_s', '?')} s after its start"]
    for name, part in report["parts"].items():
        streams = {key: part[key] for key in ("in_schema", "without") if key in part}
        shown = {key: value for key, value in part.items() if key not in streams}
        bare, steady = report["bare"].get(name.split()[-1]), part.get("steady_tokens_per_s")
        if bare and steady:
            shown["of_bare"] = round(steady / bare, 3)
        for title, own in {name: shown, **{f"{name} {key}": value for key, value in streams.items()}}.items():
            lines.append(f"{title}: " + ", ".join(f"{key} {value}" for key, value in own.items()))
    lines += [f"FAILED {name}: {error.splitlines()[0]}" for name, error in report["failed"].items()]
    return "\n".join(lines) + "\n"


def _write(out: Path, report: dict[str, Any]) -> None:
    """Writes atomically: a run may be interrupted while it writes."""
    partial = out.with_name(out.name + ".part")
    partial.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(partial, out)


def _stop(*_: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
