"""A client that disconnects stops every choice within one token, in both APIs, streaming or not."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from pydantic_core import to_json

from gpt_oss_server.app import create_app
from gpt_oss_server.harmony.encoding import load_encoding
from inference.engine import Sampling, Step
from tests.doubles.apis.chat_asking import HI
from tests.doubles.engines.replay import ReplayEngine


class Metronome(ReplayEngine):
    """Samples one token for each generation at every tick, and counts all tokens."""

    sampled = 0

    def __init__(self, enough: int) -> None:
        super().__init__(load_encoding().encode_special("<|channel|>final<|message|>" + "word " * 4_000))
        self.enough = asyncio.Event()
        self._enough = enough

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        async with aclosing(super().generate(tokens, sampling)) as steps:
            async for step in steps:
                await asyncio.sleep(0.002)
                self.sampled += 1
                if self.sampled == self._enough:
                    self.enough.set()
                yield step


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("path", "body"), [("chat/completions", HI), ("completions", {"prompt": "hi", "max_tokens": 4_000})]
)
async def test_every_choice_stops(path: str, body: Any, stream: bool, n: int) -> None:
    engine = Metronome(enough=20 * n)
    app = create_app(engine)
    sampled_at_leaving, sent = 0, to_json({**body, "stream": stream, "n": n})
    requests = [{"type": "http.request", "body": sent, "more_body": False}]

    async def receive() -> dict[str, Any]:
        nonlocal sampled_at_leaving
        if requests:
            return requests.pop()
        await engine.enough.wait()
        sampled_at_leaving = engine.sampled
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        """Discards the stream."""

    scope = {"type": "http", "method": "POST", "path": f"/v1/{path}", "query_string": b""}
    headers = [(b"content-type", b"application/json"), (b"host", b"127.0.0.1")]
    await asyncio.wait_for(app({**scope, "headers": headers}, receive, send), 30)
    assert engine.open_generations == 0
    assert engine.sampled <= sampled_at_leaving + n
    await asyncio.sleep(0.02)
    assert engine.sampled <= sampled_at_leaving + n, "nothing generates in the background"
