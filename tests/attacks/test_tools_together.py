"""Twenty concurrent conversations with tools do not delay a plain stream. It measures the machine too."""

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from tests.doubles.commands import script
from tests.doubles.server_process import serving
from tests.doubles.tools import echo_server
from tests.tools.python.conftest import bubblewrap

OPEN = '<|channel|>analysis to=browser.open code<|message|>{"id":0}<|call|>'
CITED = "<|channel|>final<|message|>Done【0†L0-L1】.<|return|>"
CONVERSATIONS = 20
TRIES = 6  # other load may disturb a try; one quiet try shows the server's speed
MOST_SECONDS = 0.1
RATE = 50  # tokens per second: the script itself causes gaps of 20 ms
READING = 0.3  # seconds between an answer and the next question
TOOLS: dict[str, Any] = {
    "BROWSE": {"type": "web_search"},
    "COMPUTE": {"type": "code_interpreter"},
    "ECHO": {"type": "mcp", "server_label": "echoes", "require_approval": "never"},
}


def tools_of_words(folder: Path) -> str:
    """The last message of the prompt, a question or a tool's result, determines the turn."""

    def after(last: str, text: str) -> dict[str, str]:
        return {"when": last + r"((?!<\|start\|>)[\s\S])*<\|start\|>assistant$", "text": text}

    turns = [
        after("PLAIN", "<|channel|>final<|message|>" + "one two three four " * 75 + "<|return|>"),
        after("BROWSE", '<|channel|>analysis to=browser.search code<|message|>{"query":"harbour"}<|call|>'),
        after("COMPUTE", "<|channel|>analysis to=python code<|message|>sum(range(10_000))<|call|>"),
        after("ECHO", '<|channel|>commentary to=echoes.echo json<|message|>{"text":"hi"}<|call|>'),
        after(r"<\|start\|>browser\.search to=", OPEN),
        after(r"<\|start\|>(browser\.open|python|echoes\.echo) to=", CITED),
    ]
    return script(folder, *turns, tokens_per_second=RATE)


async def gaps_of_a_plain_stream(client: httpx.AsyncClient) -> list[float]:
    gaps, last = [], time.monotonic()
    body = {"input": "PLAIN", "stream": True, "store": False}
    async with client.stream("POST", "/responses", json=body) as answer:
        async for _ in answer.aiter_raw():
            now = time.monotonic()
            gaps.append(now - last)
            last = now
    return gaps


class Talk:
    """One conversation that continues over all tries, so that its kernel or connection starts once."""

    def __init__(self, word: str) -> None:
        self.word = word
        self.previous: str | None = None

    async def run(self, client: httpx.AsyncClient, stop: asyncio.Event) -> int:
        done = 0
        while not stop.is_set():
            body = {"input": self.word, "tools": [TOOLS[self.word]], "previous_response_id": self.previous}
            answer = await client.post("/responses", json=body)
            answer.raise_for_status()
            kinds = {item["type"]: item.get("status", "completed") for item in answer.json()["output"]}
            assert list(kinds)[-1] == "message"
            assert len(kinds) > 1
            assert set(kinds.values()) == {"completed"}
            self.previous = answer.json()["id"] if self.word != "BROWSE" else None  # pages fill the context
            done += 1
            await asyncio.sleep(READING)
        return done


async def one_try(url: str, talks: list[Talk]) -> tuple[float, int]:
    """The 99th percentile of the gaps, and the number of responses with tools in the same time."""
    stop = asyncio.Event()
    limits = httpx.Limits(max_connections=CONVERSATIONS + 1)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
        running = [asyncio.create_task(talk.run(client, stop)) for talk in talks]
        gaps = await gaps_of_a_plain_stream(client)
        stop.set()
        responses = sum(await asyncio.gather(*running))
    return sorted(gaps)[int(len(gaps) * 0.99)], responses


async def test_twenty_conversations_with_tools_do_not_delay_a_plain_stream(tmp_path: Path) -> None:
    await asyncio.to_thread(bubblewrap)
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    for number in range(50):
        (shelf / f"{number}.md").write_text(f"# Harbour {number}\n\n" + "The harbour is deep. " * 2000)
    flags = ["--model", tools_of_words(tmp_path), "--browser", f"local:{shelf}", "--python", "bubblewrap"]
    flags += ["--mcp", f"echoes={sys.executable} {echo_server.__file__} stdio"]
    talks = [Talk(list(TOOLS)[number % len(TOOLS)]) for number in range(CONVERSATIONS)]
    with serving(*flags) as served:
        tries = []
        for _ in range(TRIES):
            gap, responses = await one_try(served.api, talks)
            assert responses >= CONVERSATIONS
            tries.append(gap)
            if gap < MOST_SECONDS:
                return
    raise AssertionError(f"The 99th percentiles of the gaps were {[f'{gap:.3f} s' for gap in tries]}.")
