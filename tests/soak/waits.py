"""How long the server's event loop keeps an easy request waiting, and how long the tests' own loop does.

A wait that only the server has is a stall of the server; one that both have is a busy machine's.
"""

import asyncio
import time

import httpx

_EVERY = 0.1
_LONGEST = 120.0


class Waits:
    """Requests `/live` ten times a second: neither a thread nor the engine has a part in it."""

    def __init__(self, url: str) -> None:
        self._url = url.removesuffix("/v1") + "/live"
        self.server: list[float] = []
        self.own: list[float] = []

    async def run(self) -> None:
        async with httpx.AsyncClient(timeout=_LONGEST) as client:
            while True:
                start = time.perf_counter()
                (await client.get(self._url)).raise_for_status()
                answered = time.perf_counter()
                await asyncio.sleep(_EVERY)
                self.server.append(answered - start)
                self.own.append(time.perf_counter() - answered - _EVERY)

    def line(self) -> str:
        own = f"this client's own loop: {_quantiles(self.own)}"
        return f"/live: {_quantiles(self.server)}; {own} ({len(self.server)} requests)"


def _quantiles(waits: list[float]) -> str:
    ordered = sorted(waits)
    p50, p99 = (ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.99))
    return f"{p50 * 1000:.0f} ms (p50), {p99 * 1000:.0f} (p99), {ordered[-1] * 1000:.0f} (longest)"
