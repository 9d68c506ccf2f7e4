"""What the server costs besides the model, and at its start: figures of one run on this machine, over HTTP.

The scripted engine replays known tokens; the client runs in a separate process. Machines
differ, so the tests assert only ratios: to the reference server, of long answers to short ones, and of a
start to a process that only imports torch, measured in turns.
"""

import http.client
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from gpt_oss_server.harmony.encoding import RETURN, Encoding
from tests.doubles.commands import script
from tests.doubles.engines.processor_time import seconds_of_one
from tests.doubles.peer import PEER, fetch_peer, peer_serving
from tests.doubles.server_process import serving

pytestmark = pytest.mark.benchmark

STREAMS, TOKENS = 64, 2_000
TEXT = " The quick brown fox jumps over the lazy dog, and then it runs home to see what is for dinner."
REPEATS = 5
COMPARISONS = 24
NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="needs Linux's /proc")

Report = dict[str, Any]
Side, T = TypeVar("Side"), TypeVar("T")


def completion(encoding: Encoding, text_tokens: int) -> list[int]:
    """A final answer with exactly this many tokens of text."""
    words = encoding.encode(TEXT)
    text = (words * (text_tokens // len(words) + 1))[:text_tokens]
    return [*encoding.encode_special("<|channel|>final<|message|>"), *text, RETURN]


def streamed(port: int, jobs: list[Report], **plan: int) -> list[Report]:
    """What a client in a process of its own (`tests.gpu.http_load`) measures of these requests."""
    whole = {"host": "127.0.0.1", "port": port, "begin": time.monotonic(), "limit": 600, "jobs": jobs, **plan}
    command, root = [sys.executable, "-m", "tests.gpu.http_load"], Path(__file__).parents[2]
    done = subprocess.run(
        command, input=json.dumps(whole).encode(), stdout=subprocess.PIPE, cwd=root, check=True
    )
    results: list[Report] = json.loads(done.stdout)
    assert not [result["error"] for result in results if result["error"]]
    return results


RESPONSES = ("/v1/responses", "event: response.output_text.delta\n")
MESSAGES = ("/v1/messages", "event: content_block_delta\n")


def load(port: int, streams: int, body: dict[str, Any], api: tuple[str, str] = RESPONSES) -> Report:
    """Gaps lie between deltas of one stream; further deltas of the same read have gap 0."""
    job = {"at": 0, "path": api[0], "body": body, "mark": api[1]}
    results = streamed(port, [job] * streams)
    waits = sorted(b - a for result in results for a, b in itertools.pairwise(result["times"]))
    deltas = [sum(result["counts"]) for result in results]
    gaps = sum(deltas) - streams
    at = int(gaps * 0.99) - (gaps - len(waits))
    first = sorted(result["times"][0] - result["start"] for result in results)
    return {
        "deltas": sum(deltas),
        "per_stream": sorted(set(deltas)),
        "completed": sum(result["ending"] == "completed" for result in results),
        "seconds": max(result["ended"] for result in results) - min(result["start"] for result in results),
        "p99_gap": waits[at] if 0 <= at < len(waits) else 0.0,
        "p99_wait": waits[int(len(waits) * 0.99)] if waits else 0.0,
        "longest_wait": waits[-1] if waits else 0.0,
        "median_first": first[len(first) // 2],
        "tenths": tenths(results[0]),
    }


def tenths(result: Report) -> list[float]:
    """Seconds per delta in each tenth of a stream, which show whether later deltas cost more."""
    borders, seen, part = [result["times"][0]], 0, sum(result["counts"]) / 10
    for when, count in zip(result["times"], result["counts"], strict=True):
        seen += count
        while len(borders) < 11 and seen >= part * len(borders):
            borders.append(when)
    return [(b - a) / part for a, b in itertools.pairwise(borders)]


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def served(scratch: Path, turns: list[dict[str, Any]], measure: Callable[[int], None]) -> None:
    with serving("--model", script(scratch, *turns), "--default-max-output-tokens", "none") as server:
        load(port_of(server.url), 1, {"input": "Warm up.", "stream": True})
        measure(port_of(server.url))


def interleaved(sides: Iterable[Side], rounds: int, measure: Callable[[Side, int], T]) -> dict[Side, list[T]]:
    """What each side measures, in turns of changing order, so that other load disturbs all alike. The first
    turn warms up."""
    order = list(sides)
    found: dict[Side, list[T]] = {side: [] for side in order}
    for turn in range(rounds + 1):
        for side in order if turn % 2 else reversed(order):
            measured = measure(side, turn)
            if turn:
                found[side].append(measured)
    return found


def printed_rate(name: str, report: Report) -> float:
    rate: float = report["deltas"] / report["seconds"]
    print(
        f"  {name:<28} {rate:>9,.0f} tokens/s   gap p99 {report['p99_gap'] * 1e3:7.1f} ms"
        f"   wait between reads p99 {report['p99_wait'] * 1e3:7.1f} ms, longest"
        f" {report['longest_wait'] * 1e3:7.1f} ms   first delta {report['median_first'] * 1e3:7.1f} ms"
    )
    return rate


def processor_seconds(process: subprocess.Popen[str]) -> float:
    """That the main thread of a process, which runs its event loop, has used so far."""
    return int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[0]) / 1e9


def check_complete(report: Report, streams: int, tokens: int) -> None:
    assert report["per_stream"] == [tokens], "a delta was lost or repeated"
    assert report["completed"] == streams


def test_64_streams_are_15_times_as_fast_as_the_reference_server(encoding: Encoding, tmp_path: Path) -> None:
    tokens = completion(encoding, TOKENS)
    body = {"input": "Write.", "stream": True}
    reports: list[Report] = []

    def measure(port: int) -> None:
        reports.extend(load(port, STREAMS, body) for _ in range(3))

    served(tmp_path, [{"tokens": tokens}], measure)
    print(f"\n{STREAMS} streams of {TOKENS:,} tokens through HTTP, client in its own process:")
    for report in reports:
        check_complete(report, STREAMS, TOKENS)
    own = printed_rate("gpt-oss-server (median of 3)", sorted(reports, key=lambda r: r["seconds"])[1])

    try:
        folder = fetch_peer()
    except subprocess.CalledProcessError:
        pytest.skip(f"{PEER} cannot be fetched here, so nothing can be compared")
    with peer_serving(folder, tokens, tmp_path) as port:
        reference = load(port, STREAMS, body)
    check_complete(reference, STREAMS, TOKENS)
    ratio = own / printed_rate(f"{PEER} (1 run)", reference)
    print(f"  ratio {ratio:.1f}")
    assert ratio >= 15


def test_a_token_of_a_long_answer_costs_as_much_as_one_of_a_short_answer(
    encoding: Encoding, tmp_path: Path
) -> None:
    lengths = (50_000, 500)
    turns = [{"tokens": completion(encoding, length)} for length in (500, *lengths)]
    best: dict[int, float] = {}
    slope: list[float] = []

    def measure(port: int) -> None:
        # The first turn was the warm-up. The script loops over its turns, so the first one comes again.
        for length in (*lengths, *((500, *lengths) * REPEATS)):
            report = load(port, 1, {"input": "Write.", "stream": True})
            check_complete(report, 1, length)
            best[length] = min(best.get(length, 1.0), report["seconds"] / length)
            if length == max(lengths):
                slope.append(report["tenths"][-1] / report["tenths"][0])

    served(tmp_path, turns, measure)
    ratio = best[50_000] / best[500]
    within = sorted(slope)[len(slope) // 2]
    print(
        f"\nOne stream, best of {REPEATS}: {best[500] * 1e6:.1f} µs per token at 500 tokens,"
        f" {best[50_000] * 1e6:.1f} µs at 50,000: ratio {ratio:.2f};"
        f" last tenth over first tenth of the long one (median): {within:.2f}"
    )
    assert ratio <= 1.2
    assert within <= 1.2


@NEEDS_PROC
def test_a_token_of_the_messages_api_costs_little_more_than_one_of_responses(
    encoding: Encoding, tmp_path: Path
) -> None:
    """Processor time of one server in turns. Messages also compares an answer's tokens with its text's."""
    said = {"messages": [{"role": "user", "content": "Write."}], "max_tokens": 2 * TOKENS, "stream": True}
    apis = {RESPONSES: {"input": "Write.", "stream": True}, MESSAGES: said}
    with serving("--model", script(tmp_path, {"tokens": completion(encoding, TOKENS)})) as server:

        def cost(api: tuple[str, str], _: int) -> float:
            before = processor_seconds(server.process)
            check_complete(load(port_of(server.url), STREAMS, apis[api], api), STREAMS, TOKENS)
            return (processor_seconds(server.process) - before) / (STREAMS * TOKENS)

        used = interleaved(apis, COMPARISONS // 2, cost)
    ratios = sorted(own / other for own, other in zip(used[MESSAGES], used[RESPONSES], strict=True))
    own, other, ratio = min(used[MESSAGES]), min(used[RESPONSES]), ratios[len(ratios) // 2]
    print(
        f"\nProcessor time of a token: Messages {own * 1e6:.2f} µs, Responses {other * 1e6:.2f} µs;"
        f" of {len(ratios)} pairs, median {ratio:.2f}"
    )
    assert min(ratio, own / other) <= 1.4


@NEEDS_PROC
def test_figures_cost_less_than_two_percent(encoding: Encoding, tmp_path: Path) -> None:
    """Processor time of two servers that differ in nothing else, in turns: others disturb both alike."""
    model = script(tmp_path, {"tokens": completion(encoding, TOKENS)})
    flags = ("--model", model, "--default-max-output-tokens", "none")
    with serving(*flags, "--metrics-names", "off") as off, serving(*flags, "--metrics-names", "own") as own:
        servers = {"off": off, "own": own}

        def cost(names: str, _: int) -> float:
            process, before = servers[names].process, processor_seconds(servers[names].process)
            report = load(port_of(servers[names].url), STREAMS, {"input": "Write.", "stream": True})
            check_complete(report, STREAMS, TOKENS)
            return processor_seconds(process) - before

        used = interleaved(servers, COMPARISONS, cost)
    ratios = sorted(own / off for own, off in zip(used["own"], used["off"], strict=True))
    low, ratio, high = (ratios[len(ratios) * quarter // 4] for quarter in (1, 2, 3))
    least = min(used["own"]) / min(used["off"])
    print(
        f"\nProcessor time with figures over without, {COMPARISONS} pairs of {STREAMS} streams of"
        f" {TOKENS:,} tokens: median {ratio:.3f} ({low:.3f} to {high:.3f}), of the least {least:.3f}"
    )
    assert min(ratio, least) <= 1.02


STARTS, TOGETHER = 5, 32
IMPORTS_OF_TORCH = 3.3  # 2.8 when this was written, 3.8 before parts of the start were left for later


def import_of_torch() -> float:
    code = "import torch, time; print(time.process_time())"
    return float(subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout)


def await_first_token(address: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=120)
    body = json.dumps({"input": "Who are you?", "temperature": 0, "stream": True})
    connection.request("POST", "/v1/responses", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200
    while b".delta" not in (line := answer.readline()):
        assert line, "the answer has no token"
    connection.close()


def start() -> float:
    with serving(fresh=True) as server:
        await_first_token(server.url.removeprefix("http://"))
        return seconds_of_one(server.process.pid)


@NEEDS_PROC
def test_a_start_costs_a_few_imports_of_torch() -> None:
    start()  # unpacks the embedded model, compiles modules, warms the disk's cache
    pairs = [(import_of_torch(), start()) for _ in range(STARTS)]
    imports, starts = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(own / torch for torch, own in pairs)
    print(f"start to first token: {starts:.2f} s of CPU; import of torch: {imports:.2f} s; ratio {ratio:.2f}")
    assert ratio < IMPORTS_OF_TORCH


def seconds_to_first_token(address: str) -> float:
    began = time.perf_counter()
    await_first_token(address)
    return time.perf_counter() - began


def test_prompts_that_arrive_together_are_read_together() -> None:
    """The last first token of many comes well before as many prompts alone would have had theirs."""
    with serving() as server:
        address = server.url.removeprefix("http://")
        await_first_token(address)
        alone = [seconds_to_first_token(address) for _ in range(TOGETHER)]
        with ThreadPoolExecutor(TOGETHER) as clients:
            times = sorted(clients.map(seconds_to_first_token, [address] * TOGETHER))
    first, last, usual = times[0], times[-1], statistics.median(alone)
    print(f"first tokens of {TOGETHER}: {first:.2f} to {last:.2f} s; of one alone {usual:.2f} s")
    assert last < sum(alone)
