"""The parts of a measurement over HTTP: each sends random requests to the server and returns figures.

Figures are tokens per second, gaps between deltas, and times to the first token.
"""

import itertools
import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.doubles.engines.processor_time import seconds_of_threads
from tests.doubles.server_process import Served

Result = dict[str, Any]
Window = tuple[float, float]

ROOT = Path(__file__).resolve().parents[2]
HEAD_START = 0.7  # seconds for the client processes to start
AFTER_LIMIT = 4.0  # seconds for them to report after the time limit
TEXT_TOKENS = 199_998  # smaller ids are text
COMPLETION_MARK = '"finish_reason":null'  # once in each delta, and not in the last chunk
RESPONSE_MARK = ".delta\n"  # the end of an event's name
WORDS = (
    "time year people way day man thing woman life child world school state family student group country "
    "problem hand part place case week company system program question work government number night point "
    "home water room mother area money story fact month lot right study book eye job word business issue"
)
ITEMS = 8
FIELDS: dict[str, Any] = {
    "kind": {"type": "string", "enum": ["red", "green", "blue", "something else"]},
    "count": {"type": "integer", "minimum": 0, "maximum": 9999},
    "known": {"type": "boolean"},
}


def closed(properties: dict[str, Any]) -> dict[str, Any]:
    required = {"required": list(properties), "additionalProperties": False}
    return {"type": "object", "properties": properties, **required}


SCHEMA = closed({"items": {"type": "array", "minItems": ITEMS, "maxItems": ITEMS, "items": closed(FIELDS)}})


@dataclass(frozen=True, slots=True)
class Sizes:
    streams: tuple[int, ...]
    processes: int
    prompt: int
    output: int
    mixed: int  # prompts that arrive while others decode
    mixed_longest: int
    decoding: int  # streams that decode meanwhile
    long_prompt: int


FULL = Sizes((1, 8, 64), 4, 1000, 512, 64, 8000, 16, 10_000)
SMALL = Sizes((1, 4, 8), 2, 100, 48, 8, 400, 4, 1_500)


class Parts:
    """`deadline`: when the current part must end, by the monotonic clock; set before each part."""

    def __init__(self, served: Served, sizes: Sizes) -> None:
        self.served, self.sizes, self.deadline = served, sizes, time.monotonic() + 60.0
        self._draw = random.Random(1)

    def get(self, path: str) -> Any:
        return httpx.get(self.served.url + path, timeout=10.0).raise_for_status().json()

    def counters(self) -> Any:
        return self.get("/health")["counters"]

    def cold(self) -> dict[str, Any]:
        """Measures the first request, then sends others that trigger all initialisation on first use."""
        first = self._load([self._completion(self.sizes.prompt, 16)])
        for count in self.sizes.streams[1:]:
            self._load([self._completion(self._draw.randrange(4, 300), 12) for _ in range(count)])
        self._load([self._response(self.sizes.prompt, 12) for _ in range(4)])
        return {"first_request_ms": spread(first_tokens(first)), "errors": errors_of(first)}

    def completions(self, count: int) -> dict[str, Any]:
        return self._measured([self._completion(self.sizes.prompt, self.sizes.output) for _ in range(count)])

    def responses(self, count: int) -> dict[str, Any]:
        return self._measured([self._response(self.sizes.prompt, self.sizes.output) for _ in range(count)])

    def leaving(self) -> dict[str, Any]:
        """Clients disconnect in mid-stream; the engine must be free soon after."""
        before = self.counters()
        jobs = [self._completion(self.sizes.prompt, 100_000) | {"leave_after": 20} for _ in range(4)]
        most = 0.0
        with ThreadPoolExecutor(1) as pool:
            loading = pool.submit(self._load, jobs)
            while not loading.done():
                most = max(most, self.counters()["engine"]["running"])
                time.sleep(0.01)
            results = loading.result()
        left = max(result["ended"] for result in results)
        freed = None
        while freed is None and time.monotonic() < min(left + 10.0, self.deadline):
            engine = self.counters()["engine"]
            if not engine["running"] + engine["waiting"]:
                freed = time.monotonic()
            time.sleep(0.01)
        after = self.counters()
        return {
            "clients_that_left": sum(result["left"] for result in results),
            "most_running": most,
            "is_free_again": freed is not None,
            "free_within_s": None if freed is None else round(max(0.0, freed - left), 3),
            "cancelled": after["cancelled"] - before["cancelled"],
            "blocks_used_after": after["engine"]["kv_blocks_used"],
        }

    def structured(self, count: int) -> dict[str, Any]:
        """Answers with a schema, then the same number of tokens without one. A bias makes `final` the first
        channel: a model with random weights would reason without end."""
        tokens = httpx.post(f"{self.served.url}/tokenize", json={"prompt": "final"}).json()["tokens"]
        bias = {"logit_bias": {str(tokens[0]): 100.0}}
        form = {"format": {"type": "json_schema", "name": "list", "schema": SCHEMA, "strict": True}}
        bound = self._load(
            [self._response(200, 1500, text=form, **bias) | {"keep": True} for _ in range(count)]
        )
        length = max(map(output_tokens, bound))
        free = self._load([self._response(200, length, **bias) for _ in range(count)])
        verdicts = [verdict(result) for result in bound]
        return {
            "fit": verdicts.count("fits"),
            "verdicts": sorted(set(verdicts))[:3],
            "in_schema": figures(bound),
            "without": figures(free),
        }

    def second_turn(self) -> dict[str, Any]:
        turns = []
        for _ in range(3):
            [first] = self._load([self._response(self.sizes.long_prompt, 16)])
            turns.append([first, *self._load([self._response(8, 16, previous_response_id=first["id"])])])
        return {
            "prompt_tokens": input_tokens(turns[-1][0]),
            "first_token_ms": [[round(1e3 * t, 1) for t in first_tokens(turn)] for turn in turns],
            "cached_tokens": [[counted(result, "cached_tokens") for result in turn] for turn in turns],
            "errors": [error for turn in turns for error in errors_of(turn)],
        }

    def mixed(self) -> dict[str, Any]:
        """Prompts with log-uniform lengths from 16 up arrive while other streams decode."""
        sizes, draw = self.sizes, self._draw
        decoding = [
            self._completion(sizes.prompt // 4, 100_000) | {"background": True} for _ in range(sizes.decoding)
        ]
        lengths = [round(16 * (sizes.mixed_longest / 16) ** draw.random()) for _ in range(sizes.mixed)]
        arriving = [self._completion(length, 16) | {"at": 1.5 + 2.0 * draw.random()} for length in lengths]
        results = self._load(decoding + arriving)
        old = [result for result in results if result["background"]]
        new = [result for result in results if not result["background"] and result["times"]]
        window = (min(r["start"] for r in new), max(r["times"][0] for r in new))
        alone = (max(r["times"][0] for r in old), window[0])
        return {
            "prompts": len(lengths),
            "prompt_tokens": sum(lengths),
            "longest_prompt": max(lengths),
            "answered": sum(result["error"] is None for result in new),
            "errors": sorted(set(errors_of(results)))[:3],
            "first_token_ms": spread(first_tokens(new)),
            "seconds_until_last_first_token": round(window[1] - window[0], 3),
            "gap_ms_of_those_that_decode": spread(gaps(old, window)),
            "gap_ms_before": spread(gaps(old, alone)),
        }

    # Requests ------------------------------------------------------------------------------------------

    def _completion(self, prompt: int, output: int) -> dict[str, Any]:
        body = {"prompt": [self._draw.randrange(TEXT_TOKENS) for _ in range(prompt)], "max_tokens": output}
        return self._job(
            "/v1/completions", COMPLETION_MARK, body | {"stream_options": {"include_usage": True}}
        )

    def _response(self, prompt: int, output: int, **more: Any) -> dict[str, Any]:
        body = {"input": " ".join(self._draw.choices(WORDS.split(), k=prompt)), "max_output_tokens": output}
        return self._job("/v1/responses", RESPONSE_MARK, body | more)

    def _job(self, path: str, mark: str, body: dict[str, Any]) -> dict[str, Any]:
        body |= {"temperature": 1, "seed": self._draw.randrange(2**31), "stream": True}
        return {"at": 0.0, "path": path, "mark": mark, "body": body}

    # Load ---------------------------------------------------------------------------------------------

    def _measured(self, jobs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Figures of a load, with the server's CPU time by thread."""
        loop = self.served.process.pid  # the first thread's id too
        before = seconds_of_threads(loop)
        results = self._load(jobs)
        after = seconds_of_threads(loop)
        spent = {thread: round(seconds - before.get(thread, 0.0), 2) for thread, seconds in after.items()}
        cpu = {"event_loop": spent.pop(loop), "other_threads": sorted(spent.values(), reverse=True)[:3]}
        return figures(results) | {"server_cpu_s": cpu}

    def _load(self, jobs: Sequence[dict[str, Any]]) -> list[Result]:
        count = min(len(jobs), self.sizes.processes)
        begin = time.monotonic() + HEAD_START
        limit = self.deadline - begin
        if limit <= 0:
            raise TimeoutError("No time is left for this load.")
        url = httpx.URL(self.served.url)
        plan = {"host": url.host, "port": url.port, "begin": begin, "limit": limit}
        shares = [json.dumps(plan | {"jobs": jobs[at::count]}) for at in range(count)]
        with ThreadPoolExecutor(count) as pool:
            return [result for part in pool.map(self._one_process, shares) for result in part]

    def _one_process(self, plan: str) -> list[Result]:
        command = [sys.executable, "-m", "tests.gpu.http_load"]
        limit = max(0.0, self.deadline - time.monotonic()) + AFTER_LIMIT
        done = subprocess.run(command, input=plan, capture_output=True, text=True, cwd=ROOT, timeout=limit)
        if done.returncode:
            raise RuntimeError(f"A client process failed: {done.stderr[-600:]}")
        return json.loads(done.stdout)


def errors_of(results: Sequence[Result]) -> list[str]:
    return [result["error"] for result in results if result["error"]]


def verdict(result: Result) -> str:
    """Whether the answer of a kept stream parses and fits `SCHEMA`, as a phrase."""
    if result["error"] or result["ending"] != "completed":
        return f"ended as {result['ending']}: {result['error']}"
    lines = result["text"].split("\n")
    end = next(line for line in lines if line.startswith('data: {"type":"response.completed"'))
    output = json.loads(end[6:])["response"]["output"]
    texts = [part["text"] for item in output if item["type"] == "message" for part in item["content"]]
    try:
        items = json.loads(texts[-1])["items"]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        return f"does not parse: {error!r}"
    fits = len(items) == ITEMS and all(
        item.keys() == FIELDS.keys()
        and item["kind"] in FIELDS["kind"]["enum"]
        and item["count"] in range(10_000)
        and isinstance(item["known"], bool)
        for item in items
    )
    return "fits" if fits else "does not fit"


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """p50, p99 and the largest of seconds, in milliseconds; None without values."""
    ordered = sorted(values)
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    places = {name: min(len(ordered) - 1, int(len(ordered) * share)) for name, share in shares.items()}
    return {name: round(ordered[at] * 1e3, 2) if ordered else None for name, at in places.items()}


def counted(result: Result, *names: str) -> int:
    """A number of the server's usage, by its name in either API; 0 if the stream ended before its usage."""
    usage = result["usage"] or {}
    details = usage.get("input_tokens_details") or usage.get("prompt_tokens_details") or {}
    return int(next(filter(None, map({**details, **usage}.get, names)), 0))


def output_tokens(result: Result) -> int:
    """The server's count, else the number of deltas."""
    return counted(result, "output_tokens", "completion_tokens") or sum(result["counts"])


def input_tokens(result: Result) -> int:
    return counted(result, "input_tokens", "prompt_tokens")


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
