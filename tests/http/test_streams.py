"""Streams on the wire: heartbeats while they are silent, and events that are one line for every client."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import httpx
import pytest
from openai import OpenAI

from gpt_oss_server.http.sse import pump, to_line
from gpt_oss_server.settings import Settings
from inference.engine import Sampling, Step
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.lints import check_stream
from tests.doubles.serving import scripted, serving

FINAL = [200005, 17196, 200008, 13225, 0, 200002]  # a channel, a text, the end


class SlowToStart(ReplayEngine):
    """Simulates a long prompt: yields nothing for a while, then every token."""

    def __init__(self, seconds: float) -> None:
        super().__init__(FINAL)
        self._seconds = seconds

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        await asyncio.sleep(self._seconds)
        async for step in super().generate(tokens, sampling):
            yield step


def test_a_long_prefill_is_kept_alive_by_events_that_clients_count() -> None:
    with (
        serving(SlowToStart(1.5), Settings(keep_alive=0.2)) as url,
        OpenAI(base_url=url, api_key="any") as client,
    ):
        raw = client.responses.create(model="replay", input="Hi", stream=True)
        events = [event.to_dict() for event in raw]
        check_stream(events)
        with client.responses.stream(model="replay", input="Hi") as stream:
            assert stream.until_done().get_final_response().status == "completed"
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert 2 <= kinds[2:].count("response.in_progress") <= 8
    assert kinds[-1] == "response.completed"


CHAT = {"messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.parametrize(("path", "body"), [("chat/completions", CHAT), ("completions", {"prompt": "Hi"})])
def test_chunks_are_kept_alive_by_comments_that_clients_ignore(path: str, body: dict[str, Any]) -> None:
    with serving(SlowToStart(1.5), Settings(keep_alive=0.2)) as url:
        lines = httpx.post(f"{url}/{path}", json={**body, "stream": True}).text.splitlines()
    assert 2 <= sum(line.startswith(":") for line in lines) <= 8
    assert lines[-2] == "data: [DONE]"
    assert all(line.startswith(("data: ", ": ")) or not line for line in lines)


def test_heartbeats_can_be_disabled() -> None:
    with serving(SlowToStart(0.3), Settings(keep_alive=None)) as url:
        lines = httpx.post(f"{url}/responses", json={"input": "Hi", "stream": True}).text.splitlines()
    assert sum(line == "event: response.in_progress" for line in lines) == 1
    assert not any(line.startswith(":") for line in lines)


async def batches_of(*waits: float) -> AsyncGenerator[int, None]:
    for number, wait in enumerate(waits):
        await asyncio.sleep(wait)
        yield number


class Wire:
    """Records writes in order; a write can take time."""

    def __init__(self, seconds: float = 0) -> None:
        self.written: list[Any] = []
        self._seconds = seconds

    async def write(self, batch: int) -> None:
        await asyncio.sleep(self._seconds)
        self.written.append(batch)

    async def beat(self) -> None:
        self.written.append("beat")


@pytest.mark.parametrize(
    ("waits", "writing", "written"),
    [
        ([0.005] * 20, 0, [*range(20)]),
        ([0, 0.25, 0, 0.25], 0, [0, "beat", "beat", 1, 2, "beat", "beat", 3]),
        ([0, 0], 0.3, [0, 1]),
    ],
    ids=["no silence", "two silences", "a slow reader"],
)
async def test_each_silence_gets_beats(waits: list[float], writing: float, written: list[Any]) -> None:
    wire = Wire(seconds=writing)
    await pump(batches_of(*waits), wire.write, wire.beat, 0.1)
    assert wire.written == written


async def test_a_failed_beat_is_raised() -> None:
    async def beat() -> None:
        raise OSError("gone")

    wire = Wire()
    with pytest.raises(OSError, match="gone"):
        await pump(batches_of(0, 0.3), wire.write, beat, 0.1)


async def test_the_batches_are_closed_with_the_pump() -> None:
    closed = asyncio.Event()

    async def endless() -> AsyncGenerator[int, None]:
        try:
            while True:
                await asyncio.sleep(0.01)
                yield 1
        finally:
            closed.set()

    wire = Wire()
    task = asyncio.create_task(pump(endless(), wire.write, wire.beat, 1))
    await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert closed.is_set()


TEXT = "one\u2028two\u2029three\u0085four \N{EARTH GLOBE EUROPE-AFRICA} Å"
ANSWER = f"<|channel|>final<|message|>{TEXT}<|return|>"


@pytest.mark.parametrize("text", [TEXT, "\u2027\u202a\u0084\u0086", "\x0b\x0c\x1c\x1d\x1e\r\n", "é \u2028"])
def test_a_value_is_one_line_and_the_same_value(text: str) -> None:
    line = to_line({"text": text, text: 1}).decode()
    assert line.splitlines() == [line]
    assert json.loads(line) == {"text": text, text: 1}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("responses", {"input": "Hi"}),
        ("chat/completions", CHAT),
        ("completions", {"prompt": "Hi", "max_tokens": 40}),
    ],
)
def test_an_event_is_one_line_for_every_client(path: str, body: dict[str, Any]) -> None:
    with (
        serving(scripted(ANSWER)) as url,
        httpx.stream("POST", f"{url}/{path}", json={**body, "stream": True}) as response,
    ):
        lines = list(response.iter_lines())  # splits at every line end of Unicode
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    events = [json.loads(line) for line in data if line != "[DONE]"]
    assert TEXT in _shown(events)
    assert all(line.startswith(("data: ", "event: ", ": ")) for line in lines if line)


def _shown(events: list[dict[str, Any]]) -> str:
    choices = [choice for event in events for choice in event.get("choices", ())]
    texts = [event["delta"] for event in events if event.get("type") == "response.output_text.delta"]
    texts += [choice.get("text") or choice.get("delta", {}).get("content", "") for choice in choices]
    return "".join(texts)
