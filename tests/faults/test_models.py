"""Four models behind one address under mixed requests, while two take turns in memory and one is killed.

The embedded model and one of random weights (of which one at a time is loaded), a scripted one, and a program
that the server has started, which is killed every few seconds. Every request ends properly, with the text
that its model wrote undisturbed. `make faults` runs it; REQUESTS changes its size.
"""

import asyncio
import json
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.doubles.commands import final, script
from tests.doubles.engines.processor_time import of_program
from tests.doubles.engines.program import write_program
from tests.doubles.inference.random_checkpoint import SMALLEST, write_random_checkpoint
from tests.doubles.server_process import ServerProcess

pytestmark = pytest.mark.faults
REQUESTS = int(os.environ.get("REQUESTS", "500"))
AT_ONCE = 16
BETWEEN_KILLS = 5.0  # seconds
MODELS = ("tiny", "random", "script", "kept")
QUESTION = "Tell me about the sea."
MESSAGES = [{"role": "user", "content": QUESTION}]
LIMIT = 24
BODIES: dict[str, dict[str, Any]] = {
    "/responses": {"input": QUESTION, "max_output_tokens": LIMIT},
    "/chat/completions": {"messages": MESSAGES, "max_completion_tokens": LIMIT},
    "/messages": {"messages": MESSAGES, "max_tokens": LIMIT},
    "/completions": {"prompt": QUESTION, "max_tokens": LIMIT},
}
LASTS = {"/responses": ("response.completed", "response.incomplete"), "/messages": ("message_stop",)}
TEXTS = (
    "text",
    "content",
    "reasoning",
    "reasoning_content",
    "thinking",
    "delta",
    "arguments",
    "partial_json",
)
Wanted = tuple[str, str, bool]  # the model, the API, whether it streams


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    (tmp_path / "some.gguf").write_bytes(b"GGUF")
    program = f"engine_program={write_program(tmp_path)} 'engine_args=--pace 0.01'"
    further = (
        f"random={write_random_checkpoint(tmp_path / 'random', SMALLEST)} context=2048",
        f"script={script(tmp_path, final('The script wrote this.'), tokens_per_second=200)}",
        f"kept={tmp_path / 'some.gguf'} {program}",
    )
    words = ["--model", "tiny", "--models-max", "1", "--context", "2048", "--python", "off"]
    server = ServerProcess(
        [*words, *(word for text in further for word in ("--models", text))], tmp_path / "log"
    )
    server.start()
    await server.ready()
    yield server
    server.stop()


def texts_in(found: object) -> list[str]:
    """All that a model wrote, in an answer or an event of any API."""
    if isinstance(found, list):
        return [text for value in found for text in texts_in(value)]
    if not isinstance(found, dict):
        return []
    return [
        text
        for name, value in found.items()
        for text in ([value] if name in TEXTS and isinstance(value, str) else texts_in(value))
    ]


async def written(client: httpx.AsyncClient, model: str, api: str, streams: bool) -> str:
    """What the model wrote. Fails if the answer does not end as its API wants."""
    body = {**BODIES[api], "model": model, "temperature": 0, "stream": streams}
    if not streams:
        answer = await client.post(api, json=body)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert found.get("status") in (None, "completed", "incomplete"), found
        return "|".join(texts_in(found))
    lines: list[str] = []
    async with client.stream("POST", api, json=body) as answer:
        assert answer.status_code == 200, await answer.aread()
        lines = [line[6:] async for line in answer.aiter_lines() if line.startswith("data: ")]
    if api not in LASTS:
        assert lines.pop() == "[DONE]"
    events = [json.loads(line) for line in lines]
    assert not [event for event in events if event.get("error")], events[-1]
    assert api not in LASTS or events[-1]["type"] in LASTS[api], events[-1]
    return "".join(texts_in(events))


async def test_mixed_requests_while_models_are_swapped_and_one_is_killed(server: ServerProcess) -> None:
    rng, problems, kills = random.Random(7), Counter[str](), 0
    wanted: list[Wanted] = [
        (model, api, streams) for model in MODELS for api in BODIES for streams in (False, True)
    ]
    async with httpx.AsyncClient(base_url=server.url, timeout=300) as client:
        expected = {one: await written(client, *one) for one in wanted}
        assert len({expected[model, "/completions", False] for model in MODELS}) == len(MODELS)
        room, ended = asyncio.Semaphore(AT_ONCE), asyncio.Event()

        async def disturb() -> None:
            nonlocal kills
            while not ended.is_set():
                await asyncio.sleep(BETWEEN_KILLS)
                for pid in of_program(server.process.pid, "llama-server"):
                    os.kill(pid, signal.SIGKILL)
                    kills += 1

        async def ask(one: Wanted) -> None:
            async with room:
                try:
                    found = await written(client, *one)
                except (AssertionError, httpx.HTTPError) as error:
                    problems[f"{one}: {error!s:.300}"] += 1
                else:
                    if found != expected[one]:
                        other = [model for model in MODELS if found == expected[model, one[1], one[2]]]
                        problems[f"{one}: another text {other or found!r:.300}"] += 1

        disturbing = asyncio.create_task(disturb())
        await asyncio.gather(*(ask(rng.choice(wanted)) for _ in range(REQUESTS)))
        ended.set()
        await disturbing
    log = server.log.read_text(errors="replace")
    loads, restarts = log.count("Loading "), log.count("serves again")
    counts = f"{REQUESTS} requests, {loads} loads, {kills} kills, {restarts} restarts"
    print(f"\n{counts}; {dict(problems) or 'no problem'}")
    assert not problems
    assert min(loads, kills, restarts) > 2, "nothing was disturbed"
