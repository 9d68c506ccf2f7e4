"""A client of streamed answers in a process of its own: how many tokens arrive, and when the first text does.

Reads a job as JSON from stdin: `host`, `port`, `path`, `streams` and `bodies`. So many connections at a time
take the bodies in turn. It works on bytes, so that it measures the servers and not itself.
"""

import asyncio
import json
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import uvloop

# The first piece of a text, of either API; the first chunk of a chat completion has an empty one.
_FIRST = re.compile(rb'"(?:delta|content|reasoning|reasoning_content)":\s?"[^"]')
_TOKENS = re.compile(rb'"(?:output|completion)_tokens":\s?(\d+)')
_TAIL = 65_536  # the last event of a response repeats its text


class Answer(asyncio.Protocol):
    def __init__(self, request: bytes, done: asyncio.Future[None]) -> None:
        self.request, self.done = request, done
        self.first = 0.0
        self.head = self.tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.started = time.perf_counter()
        transport.write(self.request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        if not self.first:
            self.head += data
            if _FIRST.search(self.head):
                self.first = time.perf_counter() - self.started
        self.tail = (self.tail + data)[-_TAIL:]

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)

    @property
    def tokens(self) -> int:
        found = _TOKENS.findall(self.tail)
        assert found, self.tail[-500:]
        return int(found[-1])


async def answers(job: dict[str, Any], bodies: Iterator[dict[str, Any]]) -> list[Answer]:
    loop, found = asyncio.get_running_loop(), []
    for body in bodies:
        content = json.dumps(body).encode()
        head = (
            f"POST {job['path']} HTTP/1.1\r\nHost: {job['host']}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        )
        answer = Answer(head.encode() + content, loop.create_future())
        await loop.create_connection(lambda answer=answer: answer, job["host"], job["port"])  # type: ignore[misc]
        await answer.done
        found.append(answer)
    return found


async def load(job: dict[str, Any]) -> dict[str, Any]:
    bodies = iter(job["bodies"])  # shared: each connection takes the next one
    start = time.perf_counter()
    parts = await asyncio.gather(*(answers(job, bodies) for _ in range(job["streams"])))
    seconds = time.perf_counter() - start
    found = [answer for part in parts for answer in part]
    firsts = sorted(answer.first for answer in found)
    tokens = sum(answer.tokens for answer in found)
    return {"tokens": tokens, "seconds": seconds, "first": firsts[len(firsts) // 2]}


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.stdout.write(json.dumps(runner.run(load(json.load(sys.stdin)))))
