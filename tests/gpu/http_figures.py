"""Computes figures of streams: tokens per second, gaps between deltas, times to the first token."""

import itertools
from collections.abc import Sequence
from typing import Any

Result = dict[str, Any]
Window = tuple[float, float]


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """p50, p99 and the largest of seconds, in milliseconds; None without values."""
    ordered = sorted(values)
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    places = {name: min(len(ordered) - 1, int(len(ordered) * share)) for name, share in shares.items()}
    return {name: round(ordered[at] * 1e3, 2) if ordered else None for name, at in places.items()}


def counted(result: Result, what: str, other: str) -> int:
    """A number of the server's usage, by its name in either API; 0 if the stream ended before its usage."""
    usage = result["usage"] or {}
    return int(usage.get(what) or usage.get(other) or 0)


def output_tokens(result: Result) -> int:
    """The server's count, else the number of deltas."""
    return counted(result, "output_tokens", "completion_tokens") or sum(result["counts"])


def input_tokens(result: Result) -> int:
    return counted(result, "input_tokens", "prompt_tokens")


def cached_tokens(result: Result) -> int:
    usage = result["usage"] or {}
    details = usage.get("input_tokens_details") or usage.get("prompt_tokens_details") or {}
    return int(details.get("cached_tokens") or 0)


def gaps(results: Sequence[Result], window: Window = (0.0, float("inf"))) -> list[float]:
    """Seconds between reads of one stream that brought deltas, if both are in the window."""
    pairs = (pair for result in results for pair in itertools.pairwise(result["times"]))
    return [after - before for before, after in pairs if window[0] <= before and after <= window[1]]


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
        reads = zip(result["times"], result["counts"], strict=True)
        within = sum(count for when, count in reads if low < when <= high)
        total += within * output_tokens(result) / sum(result["counts"]) if within else 0.0
    return total / (high - low)


def figures(results: Sequence[Result]) -> dict[str, Any]:
    """All figures of streams that ran concurrently."""
    good = [result for result in results if result["times"]]
    found: dict[str, Any] = {
        "streams": len(results),
        "without_error": sum(result["error"] is None for result in results),
        "errors": sorted({result["error"] for result in results if result["error"]})[:3],
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
