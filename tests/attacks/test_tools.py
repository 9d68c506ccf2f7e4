"""Hostile code in real boxes, pages that take long to parse, and twenty conversations with tools together."""

import asyncio
import resource
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.doubles.attacked import LONGEST_WAIT
from tests.doubles.commands import script
from tests.doubles.server_process import serving
from tests.doubles.tools import echo_server
from tests.doubles.tools.calling import call, output_of
from tests.tools.python.conftest import bubblewrap, known  # noqa: F401 (a fixture)
from tests.tools.python.test_escapes import FORGED, KILLED_FOR
from tools.browser.pages.convert import convert
from tools.browser.pages.document import Document, PageBody, PageError
from tools.python import PythonTool, SandboxLimits
from tools.python.sandboxes.bounds.cgroups import Groups
from tools.python.sandboxes.bounds.host_memory import host_memory
from tools.python.sandboxes.bounds.limits import MIB

MOST_OF_MACHINE = 1024 * MIB  # by which the machine's memory may fall: other programs use it too
MOST_OF_SERVER = 512 * MIB

HIDE_SOCKETS = """
import os, socket, struct, time
kept = socket.socketpair()
for _ in range(2000):
    one, other = socket.socketpair()
    one.setblocking(False)
    try:
        while True: one.send(b'x' * 65536)
    except OSError: pass
    try: socket.send_fds(kept[0], [b'x'], [one.fileno(), other.fileno()])
    except OSError: break
    one.close(); other.close()
time.sleep(3)
"""

MAPS = """
import mmap, os, time
def fill():
    kept = []
    try:
        for at in range(60_000): kept.append(mmap.mmap(-1, 4096, prot=1 + at % 2 * 2))
    except (OSError, MemoryError): pass
    time.sleep(20)
for _ in range(10):
    if os.fork() == 0: fill()
time.sleep(8)
"""

LEASES = """
import fcntl, os, sys
taken = 0
for folder, _, names in os.walk(os.path.dirname(os.__file__)):
    for name in names[:5]:
        try:
            file = os.open(os.path.join(folder, name), os.O_RDONLY)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            taken += 1
        except OSError: pass
        finally: os.close(file)
print(taken)
"""

PARTS = """
content = b'{"a":[' + b'[],' * 80_000 + b'0]}'
message = [b'x', b'<IDS|MSG>', b's', b'{"msg_type":"stream"}', b'{"msg_id":"1"}', b'{}', content]
app.iopub_thread.schedule(lambda: [socket.send_multipart(message) for _ in range(300)])
import time; time.sleep(3)
"""

SHARED = ("full sockets in many processes", "many small files in /dev/shm", "many small files in /run/kernel")
ATTACKS = {
    **{name: KILLED_FOR[name][0] for name in SHARED},
    "sockets that no process holds": HIDE_SOCKETS,
    "maps": MAPS,
    "parts": FORGED + PARTS,
}


@pytest.fixture(params=["control groups", "the watchdog alone"])
async def tool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PythonTool]:
    if request.param == "the watchdog alone":
        monkeypatch.setattr("tools.python.sandboxes.bubblewrap.make_groups", lambda limits: Groups(()))
    sandbox = await asyncio.to_thread(bubblewrap, SandboxLimits())
    tool = PythonTool(sandbox, timeout=15.0, grace=0.5)
    yield tool
    await tool.close()


class Probe:
    def __init__(self) -> None:
        self.longest, self.least = 0.0, sys.maxsize
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.05)
            self.longest = max(self.longest, time.monotonic() - before - 0.05)
            memory = host_memory()
            self.least = min(self.least, memory.available)


@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_costs_neither_the_machine_nor_the_loop_much(tool: PythonTool, name: str) -> None:
    session, neighbour = tool.open(), tool.open()
    assert await output_of(neighbour, "x = 1; x") == "1"
    assert await output_of(session, "1") == "1"
    memory = host_memory()
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    probe = Probe()
    await call(session, ATTACKS[name])
    await probe.stop()
    assert probe.longest < LONGEST_WAIT
    assert memory.available - probe.least < MOST_OF_MACHINE
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - resident < MOST_OF_SERVER
    assert await output_of(neighbour, "x") == "1"
    assert (await call(session, "1 + 1")).text.strip().endswith("2")


async def test_a_box_takes_no_lease(tool: PythonTool) -> None:
    assert await output_of(tool.open(), LEASES) == "0"


PAGES = {
    "40,000 deep": b"<div>" * 40_000,
    "300,000 deep": b"<div>" * 300_000,
    "deep and closed": b"<blockquote>" * 100_000 + b"</blockquote>" * 100_000,
    "attributes": b"<a " + b" ".join(b"a%d=1" % number for number in range(100_000)) + b">",
    "formats that every paragraph repeats": (
        b"".join(b"<b id=%d>" % number for number in range(5_000)) + b"<p>x" * 50_000
    ),
    "tables": b"<table><tr><td>" * 9_000,
    "one tag": b"<" * 2_000_000,
    "Markdown": b"[" * 300_000 + b"](",
}


async def read(page: bytes, kind: str) -> Document:
    return await convert(PageBody("https://a.example/", kind, page))


@pytest.mark.parametrize("name", PAGES)
async def test_seven_pages_hold_up_neither_the_loop_nor_other_threads(name: str) -> None:
    kind = "text/markdown" if name == "Markdown" else "text/html"
    hostile = [asyncio.create_task(read(PAGES[name], kind)) for _ in range(7)]
    longest = 0.0
    while not all(task.done() for task in hostile):
        began = time.monotonic()
        await asyncio.to_thread(time.sleep, 0.05)
        longest = max(longest, time.monotonic() - began - 0.05)
    answers = await asyncio.gather(*hostile, return_exceptions=True)
    assert all(isinstance(answer, Document | PageError) for answer in answers)
    assert longest < LONGEST_WAIT
    assert (await read(b"<p>Afterwards", "text/html")).text == "Afterwards"


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
