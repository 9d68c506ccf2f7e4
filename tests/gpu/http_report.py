"""Formats the figures of a measurement over HTTP as one compact table."""

from __future__ import annotations

from typing import Any


def table(report: dict[str, Any]) -> str:
    parts = report["parts"]
    lines = [
        f"{report['model']}: answers {report.get('start_s', '?')} s after its start; whole run "
        f"{report.get('seconds', '?')} s",
        "",
        f"{'':16} {'tokens/s':>9} {'steady':>9} {'bare':>9} {'ratio':>6} {'ttft p50':>9} {'p99':>8} "
        f"{'gap p50':>8} {'p99':>8} {'max':>8} {'loop cpu':>8} {'engine':>7} {'of s':>6}",
    ]
    for name, part in parts.items():
        if name.startswith(("completions", "responses")):
            lines.append(_row(name, part, report["bare"]))
        elif name.startswith("structured"):
            lines += [
                _row(f"{name} +", part.get("in_schema", {}), {}),
                _row(f"{name} -", part.get("without", {}), {}),
            ]
    lines.append("")
    lines += [
        f"{name}: {_plain(part)}"
        for name, part in parts.items()
        if not name.startswith(("completions", "responses"))
    ]
    for name, part in parts.items():
        if part.get("errors"):
            lines.append(f"{name}: {part['errors']}")
    lines += [f"FAILED {name}: {error.splitlines()[0]}" for name, error in report["failed"].items()]
    return "\n".join(lines) + "\n"


def _row(name: str, part: dict[str, Any], bare: dict[str, float]) -> str:
    """Gaps are those of the steady state, if there was one."""
    first = part.get("first_token_ms") or {}
    gap = part.get("steady_gap_ms") or part.get("gap_ms") or {}
    cpu = part.get("server_cpu_s") or {}
    steady, alone = part.get("steady_tokens_per_s"), bare.get(name.split()[-1])
    numbers = [
        (part.get("tokens_per_s"), 9),
        (steady, 9),
        (alone, 9),
        (round(steady / alone, 3) if steady and alone else None, 6),
        (first.get("p50"), 9),
        (first.get("p99"), 8),
        (gap.get("p50"), 8),
        (gap.get("p99"), 8),
        (gap.get("max"), 8),
        (cpu.get("event_loop"), 8),
        ((cpu.get("other_threads") or [None])[0], 7),
        (part.get("seconds"), 6),
    ]
    return f"{name:16} " + " ".join(f"{_number(value):>{width}}" for value, width in numbers)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _plain(part: dict[str, Any]) -> str:
    """A part's figures without those of streams, which have rows of their own."""
    return ", ".join(f"{key} {value}" for key, value in part.items() if key not in ("in_schema", "without"))
