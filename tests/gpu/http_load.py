"""A client process of the load: streams over HTTP, with as little work per byte as possible.

Takes one JSON object on standard input: `host`, `port`, `begin` (of the monotonic clock, which all processes
share), `limit` in seconds, `jobs`, and perhaps `streams` (the most jobs at a time). A job has `at` (seconds
after `begin`), `path`, `body` and `mark` (bytes that occur once per delta). It may have `leave_after` (closes
the connection after this many deltas), `background` (ends with the last other job) and `keep` (returns the
whole text). Writes the results as JSON.
"""

import asyncio
import json
import sys
import time
from array import array
from typing import Any

import uvloop


class Stream(asyncio.Protocol):
    """One request. It stores the raw bytes and parses them after the stream has ended."""

    def __init__(self, job: dict[str, Any], host: str) -> None:
        body = json.dumps(job["body"]).encode()
        head = f"POST {job['path']} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        self._request = f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body
        self._mark: bytes = job["mark"].encode()
        self._leave_after: float = job.get("leave_after", float("inf"))
        self._tail = b""  # the end of the last read: a mark may be split
        self._transport: Any = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.raw = bytearray()
        self.times, self.counts = array("d"), array("q")  # one entry per read that brought deltas
        self.deltas, self.left = 0, False
        self.start = self.ended = time.monotonic()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.start = time.monotonic()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        self.raw += data
        joined = self._tail + data
        if found := joined.count(self._mark):
            self.times.append(now)
            self.counts.append(found)
            self.deltas += found
        self._tail = joined[-(len(self._mark) - 1) :]
        if self._leave_after <= self.deltas:
            self.leave()

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = time.monotonic()
        if not self.done.done():
            self.done.set_result(None)

    def leave(self) -> None:
        self.left = True
        if self._transport is not None:
            self._transport.abort()


def result(stream: Stream, job: dict[str, Any], problem: str | None) -> dict[str, Any]:
    head, _, rest = bytes(stream.raw).partition(b"\r\n\r\n")
    text = (unchunked(rest) if b"chunked" in head.lower() else rest).decode("utf-8", "replace")
    status = int(head.split(b" ", 2)[1]) if head.startswith(b"HTTP/") else 0
    summary = final_events(text)
    if status != 200 and problem is None and not stream.left:
        problem = f"status {status}: {text[:300]}"
    return {
        **{name: getattr(stream, name) for name in ("start", "ended", "left")},
        "times": stream.times.tolist(),
        "counts": stream.counts.tolist(),
        "background": bool(job.get("background")),
        **summary,
        "error": problem or summary["error"],
        "text": text if job.get("keep") else None,
    }


def unchunked(raw: bytes) -> bytes:
    """Removes the chunk sizes from a body; a truncated body ends early."""
    parts, at = [], 0
    while (end := raw.find(b"\r\n", at)) >= 0 and (size := int(raw[at:end].split(b";")[0] or b"0", 16)):
        parts.append(raw[end + 2 : end + 2 + size])
        at = end + 2 + size + 2
    return b"".join(parts)


def final_events(text: str) -> dict[str, Any]:
    """Usage, id, ending and error from the last events of a stream."""
    found: dict[str, Any] = {"usage": None, "id": None, "ending": None, "error": None}
    for line in reversed(text.rstrip().split("\n")[-12:]):
        try:
            event = json.loads(line.removeprefix("data: ")) if line.startswith("data: {") else {}
        except ValueError:
            continue
        whole = event.get("response") or event
        found["usage"] = found["usage"] or whole.get("usage")
        found["id"] = found["id"] or whole.get("id")
        for choice in event.get("choices", ()):
            found["ending"] = found["ending"] or choice.get("finish_reason")
        if str(event.get("type", "")).startswith("response.") and "response" in event:
            found["ending"] = found["ending"] or event["type"].removeprefix("response.")
        if event.get("type") == "message_stop":
            found["ending"] = "completed"
        if error := whole.get("error"):
            found["error"] = json.dumps(error)[:300]
    return found


async def run(plan: dict[str, Any]) -> list[dict[str, Any]]:
    host, port, begin, jobs = plan["host"], plan["port"], plan["begin"], plan["jobs"]
    streams = [Stream(job, host) for job in jobs]
    problems: list[str | None] = [None] * len(streams)
    room = asyncio.Semaphore(plan.get("streams", len(jobs)))

    async def one(at: int) -> None:
        await asyncio.sleep(max(0.0, begin + jobs[at]["at"] - time.monotonic()))
        async with room:
            try:
                await asyncio.get_running_loop().create_connection(lambda: streams[at], host, port)
                await streams[at].done
            except OSError as error:
                problems[at] = repr(error)

    tasks = [asyncio.create_task(one(at)) for at in range(len(streams))]
    foreground = [task for task, job in zip(tasks, jobs, strict=True) if not job.get("background")]
    if foreground:
        await asyncio.wait(foreground, timeout=max(0.1, begin + plan["limit"] - time.monotonic()))
    for at, (stream, job) in enumerate(zip(streams, jobs, strict=True)):
        if not stream.done.done():
            if not job.get("background") and problems[at] is None:
                problems[at] = "not finished within the time limit"
            stream.leave()
    await asyncio.wait(tasks, timeout=1.0)
    for task in tasks:
        task.cancel()
    return [result(*each) for each in zip(streams, jobs, problems, strict=True)]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(uvloop.run(run(json.load(sys.stdin)))))
