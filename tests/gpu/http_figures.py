"""Computes figures of streams: tokens per second, gaps between deltas, times to the first token."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

Result = dict[str, Any]
Window = tuple[float, float]


def at_share(values: Sequence[float], share: float) -> float | None:
    """A percentile; None without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else None


def spread(values: Sequence[float], *, scale: float = 1e3) -> dict[str, float | None]:
    """p50, p99 and the largest, in milliseconds."""
    found = {"p50": at_share(values, 0.5), "p99": at_share(values, 0.99), "max": max(values, default=None)}
    return {name: None if value is None else round(value * scale, 2) for name, value in found.items()}


def output_tokens(result: Result) -> int:
    """The server's count, or the number of deltas if the stream ended before its usage."""
    usage = result["usage"] or {}
    return int(usage.get("output_tokens") or usage.get("completion_tokens") or sum(result["counts"]))


def input_tokens(result: Result) -> int:
    usage = result["usage"] or {}
    return int(usage.get("input_tokens") or usage.get("prompt_tokens") or 0)


def cached_tokens(result: Result) -> int:
    usage = result["usage"] or {}
    details = usage.get("input_tokens_details") or usage.get("prompt_tokens_details") or {}
    return int(details.get("cached_tokens") or 0)


def gaps(results: Sequence[Result], window: Window | None = None) -> list[float]:
    """Seconds between reads of one stream that brought deltas, if both are in the window."""
    low, high = window or (0.0, float("inf"))
    return [
        after - before
        for result in results
        for before, after in itertools.pairwise(result["times"])
        if low <= before and after <= high
    ]


def first_tokens(results: Sequence[Result]) -> list[float]:
    return [result["times"][0] - result["start"] for result in results if result["times"]]


def steady_window(results: Sequence[Result]) -> Window | None:
    """From the last stream's first token to the last token of the first full-length stream to end."""
    active = [result for result in results if len(result["times"]) > 1]
    if not active:
        return None
    most = max(map(output_tokens, active))
    low = max(result["times"][0] for result in active)
    high = min(result["times"][-1] for result in active if output_tokens(result) > 0.9 * most)
    return (low, high) if high > low else None


def steady_rate(results: Sequence[Result], window: Window) -> float:
    """Tokens per second. A delta counts as the stream's mean tokens per delta: some tokens have no text."""
    low, high = window
    total = 0.0
    for result in results:
        deltas = sum(result["counts"])
        within = sum(
            count for when, count in zip(result["times"], result["counts"], strict=True) if low < when <= high
        )
        total += within * output_tokens(result) / deltas if deltas else 0.0
    return total / (high - low)


def figures(results: Sequence[Result]) -> dict[str, Any]:
    """All figures of streams that ran concurrently."""
    good = [result for result in results if result["times"]]
    errors = sorted({result["error"] for result in results if result["error"]})
    found: dict[str, Any] = {
        "streams": len(results),
        "without_error": sum(result["error"] is None for result in results),
        "errors": errors[:3],
        "endings": sorted({str(result["ending"]) for result in results}),
    }
    if not good:
        return found
    tokens, deltas = sum(map(output_tokens, good)), sum(sum(result["counts"]) for result in good)
    seconds = max(result["ended"] for result in good) - min(result["start"] for result in good)
    window = steady_window(good)
    return found | {
        "input_tokens": round(sum(map(input_tokens, good)) / len(good)),
        "output_tokens": tokens,
        "shortest_output": min(map(output_tokens, good)),
        "deltas": deltas,
        "deltas_per_read": round(deltas / sum(len(result["times"]) for result in good), 3),
        "seconds": round(seconds, 3),
        "tokens_per_s": round(tokens / seconds, 1),
        "steady_seconds": round(window[1] - window[0], 3) if window else None,
        "steady_tokens_per_s": round(steady_rate(good, window), 1) if window else None,
        "first_token_ms": spread(first_tokens(good)),
        "gap_ms": spread(gaps(good)),
        "steady_gap_ms": spread(gaps(good, window)) if window else None,
    }
