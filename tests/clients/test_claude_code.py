"""The unmodified Claude Code with scripted turns, and with the embedded model."""

import json
import sys
from collections.abc import AsyncGenerator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import inference
from gpt_oss_server.settings import Settings
from inference.backends.scripted import ScriptedEngine
from inference.engine import Sampling, Step
from tests.doubles.clients.running import (
    HELLO,
    ROOT,
    Agent,
    Recorder,
    abort_in_mid_stream,
    call,
    final,
    recorded,
    run,
)
from tests.doubles.pages.blocks import ADDRESS, blocks_of
from tests.doubles.serving import scripted

pytestmark = pytest.mark.clients

MESSAGES = "/v1/messages"
DONE = final("I did it.")


class Claude(Agent):
    def __init__(self, folder: Path, url: str) -> None:
        super().__init__("claude", folder)
        self.env = {
            "ANTHROPIC_BASE_URL": url.removesuffix("/v1"),
            "ANTHROPIC_API_KEY": "any",
            "ANTHROPIC_MODEL": "scripted",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "HOME": str(self.home),
            "CLAUDE_CONFIG_DIR": str(self.home / ".claude"),
        }

    def arguments(self, prompt: str, *more: str) -> list[str]:
        return [self.path, "-p", "--output-format", "stream-json", "--verbose", *more, "--", prompt]

    def events(self, prompt: str, *more: str, **options: Any) -> list[dict[str, Any]]:
        done = run(self.arguments(prompt, *more), self.project, env=self.env, **options)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def answer(self, prompt: str, *more: str) -> str:
        result = self.events(prompt, *more)[-1]
        assert (result["type"], result["is_error"]) == ("result", False)
        return str(result["result"])


class Cached:
    """The scripted engine, which counts as cached what a prompt shares with an earlier one and its answer."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self._engine, self.info = engine, engine.info
        self.check, self.close = engine.check, engine.close
        self.seen: list[tuple[int, ...]] = []

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        known = max((_shared(tokens, seen) for seen in self.seen), default=0)
        place = len(self.seen)
        self.seen.append(tuple(tokens))
        async for step in self._engine.generate(tokens, sampling):
            self.seen[place] += step.tokens
            yield Step(step.tokens, step.finish, step.logprobs, cached_tokens=known)


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    differ = (at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    return next(differ, min(len(one), len(other)))


def results(recorder: Recorder) -> list[Any]:
    """The results of tools in the last request."""
    blocks = [block for message in recorder.of(MESSAGES)[-1].body["messages"] for block in message["content"]]
    return [block for block in blocks if isinstance(block, dict) and block["type"] == "tool_result"]


def check_cache(recorder: Recorder) -> None:
    """Each request but the first finds 95 % of what was sent and answered before in the cache."""
    usages = [exchange.events[-2]["usage"] for exchange in recorder.of(MESSAGES)]
    for before, usage in pairwise(usages):
        known = before["input_tokens"] + before["cache_read_input_tokens"] + before["output_tokens"]
        assert usage["cache_read_input_tokens"] >= 0.95 * known, usages
    assert len(usages) > 1


def test_all_its_kinds_of_tools_run_from_its_cache(tmp_path: Path) -> None:
    made = tmp_path / "project" / "made.txt"
    server = str(ROOT / "tests" / "doubles" / "tools" / "echo_server.py")
    servers = {"mcpServers": {"echo": {"command": sys.executable, "args": [server, "stdio"]}}}
    edit = {"file_path": str(made), "old_string": "one", "new_string": "two"}
    turns = [
        call("Write", {"file_path": str(made), "content": "one\n"}),
        call("Edit", edit),
        call("Bash", {"command": "cat made.txt; echo 3 >> made.txt", "description": "Look"}),
        call("ToolSearch", {"query": "select:mcp__echo__echo"}),
        call("mcp__echo__echo", {"text": "ahoy"}),
        DONE,
    ]
    with recorded(Cached(scripted(*turns, loop=False))) as (url, recorder):
        flags = ("--allowedTools", "Write,Edit,Bash,mcp__echo__echo", "--mcp-config", json.dumps(servers))
        assert Claude(tmp_path, url).answer("Make made.txt", *flags) == "I did it."
    assert made.read_text() == "two\n3\n"
    assert len(recorder.of(MESSAGES)) == len(turns)
    *_, shell, found, echoed = results(recorder)
    assert shell["content"] == "two"
    assert found["content"] == [{"type": "tool_reference", "tool_name": "mcp__echo__echo"}]
    assert "ahoy" in echoed["content"]
    check_cache(recorder)


def test_its_web_search_is_the_servers_browser(tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "tides.md").write_text("# Tides\n\nHigh tide is at noon.")
    search = '<|channel|>analysis to=browser.search code<|message|>{"query": "tides"}<|call|>'
    turns = [
        call("ToolSearch", {"query": "select:WebSearch"}),
        call("WebSearch", {"query": "tides"}),
        search,
        final("It is at noon."),
        DONE,
    ]
    with recorded(scripted(*turns, loop=False), Settings(browser=f"local:{pages}")) as (url, recorder):
        assert Claude(tmp_path, url).answer("When?", "--allowedTools", "WebSearch") == "I did it."
    found = results(recorder)[-1]["content"]
    assert "It is at noon." in found
    assert "tides.md" in found


def test_a_sub_agent(tmp_path: Path) -> None:
    task = {"description": "Greet", "prompt": "Greet me", "subagent_type": "Explore"}
    turns = [
        {"when": "<result>Ahoy!</result>", "text": final("It says ahoy.")},
        {"when": "working in the background", "text": HELLO},
        {"when": "Make it greet", "text": call("Agent", task)},
        final("Ahoy!"),
    ]
    with recorded(scripted(*turns)) as (url, recorder):
        assert Claude(tmp_path, url).answer("Make it greet", "--allowedTools", "Agent") == "It says ahoy."
    asked = [str(exchange.body["messages"]) for exchange in recorder.of(MESSAGES)]
    assert sum("Make it greet" not in messages and "Greet me" in messages for messages in asked) == 1


def test_a_session_is_resumed_from_its_cache(tmp_path: Path) -> None:
    with recorded(Cached(scripted(HELLO, DONE, loop=False))) as (url, recorder):
        claude = Claude(tmp_path, url)
        session = claude.events("My name is Ada")[-1]["session_id"]
        assert claude.answer("Who am I?", "--resume", session) == "I did it."
    history = json.dumps(recorder.of(MESSAGES)[-1].body["messages"])
    assert "My name is Ada" in history
    assert "Hello!" in history
    check_cache(recorder)


def test_a_refused_permission_reaches_the_model(tmp_path: Path) -> None:
    write = call("Write", {"file_path": str(tmp_path / "elsewhere.txt"), "content": "x"})
    with recorded(scripted(write, HELLO, loop=False)) as (url, recorder):
        events = Claude(tmp_path, url).events("Write it")
    assert not (tmp_path / "elsewhere.txt").exists()
    [denied] = events[-1]["permission_denials"]
    assert denied["tool_name"] == "Write"
    [result] = results(recorder)
    assert result["is_error"] is True


def test_the_commands_of_its_page(tmp_path: Path) -> None:
    """As they stand, except for the address."""
    [page] = [block for block in blocks_of("docs/clients/claude-code.md") if block.reason]
    write = call("Write", {"file_path": str(tmp_path / "project" / "count.sh"), "content": "wc -w\n"})
    settings = Settings(served_model_name=("gpt-oss-20b",))
    with recorded(scripted(write, DONE, HELLO), settings) as (url, _):
        claude = Claude(tmp_path, url)
        code = page.code.replace(ADDRESS, url.removesuffix("/v1"))
        shown = run(["sh", "-ec", code], claude.project, env={"HOME": str(claude.home)}).stdout
    assert shown.split("\n") == ["I did it.", "Hello!", ""]


def test_an_abort_in_mid_stream_frees_the_slot(tmp_path: Path) -> None:
    abort_in_mid_stream(Claude, tmp_path)


def test_the_embedded_model_ends_properly_within_its_turns_and_from_its_cache(tmp_path: Path) -> None:
    """Its first prompt has 10,000 tokens, which take minutes on a small machine."""
    settings = Settings(served_model_name=("scripted",), repetition_limit=256)
    with recorded(inference.load("tiny"), settings) as (url, recorder):
        claude, patient = Claude(tmp_path, url), {"may_fail": True, "seconds": 1_800}
        first = claude.events("Who are you?", "--max-turns", "4", **patient)[-1]
        resumed = ("--max-turns", "4", "--resume", first["session_id"])
        again = claude.events("What is 2 + 2?", *resumed, **patient)[-1]
    for result in (first, again):
        assert result["type"] == "result"
        assert result["subtype"] in ("success", "error_max_turns")
    check_cache(recorder)
