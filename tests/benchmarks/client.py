"""The load: N concurrent streams in a separate process, with as little work per byte as possible.

Takes HOST PORT STREAMS, and the request's body on standard input. Writes one line of JSON with its
measurements. It counts every text delta; a delta's time is that of the read that brought it.
"""

import asyncio
import itertools
import json
import sys
import time
from array import array

import uvloop

DELTA = b"event: response.output_text.delta\n"
END = b"event: response.completed\n"


class Stream(asyncio.Protocol):
    def __init__(self, request: bytes, done: asyncio.Future[None]) -> None:
        self.request = request
        self.done = done
        self.times = array("d")  # one entry per read that brought deltas
        self.counts = array("q")
        self.deltas = 0
        self.completed = False
        self.tail = b""  # the end of the last read: the network may split a name

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.started = time.perf_counter()
        transport.write(self.request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        data = self.tail + data
        found = data.count(DELTA)
        if found:
            self.times.append(time.perf_counter())
            self.counts.append(found)
            self.deltas += found
        if END in data:
            self.completed = True
        # One byte shorter than the counted name, so that no name is missed or counted twice.
        self.tail = data[-(len(DELTA) - 1) :]

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = time.perf_counter()
        if not self.done.done():
            self.done.set_result(None)


async def load(host: str, port: int, streams: int, body: bytes) -> list[Stream]:
    loop = asyncio.get_running_loop()
    head = f"POST /v1/responses HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
    opened = [Stream(request, loop.create_future()) for _ in range(streams)]
    await asyncio.gather(*(loop.create_connection(lambda s=s: s, host, port) for s in opened))
    await asyncio.gather(*(stream.done for stream in opened))
    return opened


def report(streams: list[Stream]) -> dict[str, object]:
    """Gaps lie between deltas of one stream; further deltas of the same read have gap 0."""
    waits = sorted(b - a for s in streams for a, b in itertools.pairwise(s.times))
    deltas = sum(s.deltas for s in streams)
    gaps = deltas - len(streams)
    zero = gaps - len(waits)
    at = int(gaps * 0.99) - zero
    seconds = max(s.ended for s in streams) - min(s.started for s in streams)
    first = sorted(s.times[0] - s.started for s in streams if s.times)
    return {
        "deltas": deltas,
        "per_stream": sorted({s.deltas for s in streams}),
        "completed": sum(s.completed for s in streams),
        "seconds": seconds,
        "p99_gap": waits[at] if 0 <= at < len(waits) else 0.0,
        "p99_wait": waits[int(len(waits) * 0.99)] if waits else 0.0,
        "longest_wait": waits[-1] if waits else 0.0,
        "median_first": first[len(first) // 2] if first else None,
        "tenths": tenths(streams[0]) if len(streams) == 1 else None,
    }


def tenths(stream: Stream) -> list[float]:
    """Seconds per delta in each tenth of the stream, which show whether later deltas cost more."""
    borders, seen, part = [stream.times[0]], 0, stream.deltas / 10
    for when, count in zip(stream.times, stream.counts, strict=True):
        seen += count
        while len(borders) < 11 and seen >= part * len(borders):
            borders.append(when)
    return [(b - a) / part for a, b in itertools.pairwise(borders)]


if __name__ == "__main__":
    host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        seen = runner.run(load(host, port, count, sys.stdin.buffer.read()))
    print(json.dumps(report(seen)))
