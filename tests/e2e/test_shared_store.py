"""Servers that share a store, one after the other or side by side, are one server to their clients."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest

from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from inference.engine import EngineInfo, Finish, Step
from tests.doubles.apis.api_client import Api, events_in
from tests.doubles.lints import check_stream
from tests.doubles.postgres import running_postgres
from tests.doubles.serving import scripted
from tests.doubles.waiting import until_found

LAST = r"((?!<\|start\|>)[\s\S])*<\|start\|>assistant$"
SEARCH = '<|channel|>analysis to=browser.search code<|message|>{"query":"fjord"}<|call|>'
OPEN = '<|channel|>analysis to=browser.open code<|message|>{"id":0}<|call|>'
CITED = "<|channel|>final<|message|>It is deep【1†L0-L2】.<|return|>"
CLOSED: Any = {"browser": "off", "python": "off"}
TURNS: list[dict[str, str]] = [
    {"when": r"browser\.search to=" + LAST, "text": OPEN},
    {"when": r"browser\.open to=" + LAST, "text": CITED},
    {"when": "search" + LAST, "text": SEARCH},
    {"when": "a call" + LAST, "text": "<|channel|>commentary to=functions.f<|message|>{}<|call|>"},
    {"when": "Hi", "text": "<|channel|>final<|message|>Hello, you there!<|return|>"},
]
FUNCTION = {"type": "function", "name": "f", "parameters": {}}
WEB = {"type": "web_search"}


class Counting:
    """An engine that counts the tokens of a prompt that an earlier prompt, of any server, began with."""

    info = EngineInfo(name="scripted", context_length=131_072)

    def __init__(self, seen: list[tuple[int, ...]]) -> None:
        self._seen = seen
        self._script = scripted(*TURNS)

    async def generate(self, tokens: Any, sampling: Any) -> AsyncIterator[Step]:
        prompt = tuple(tokens)
        sampled: list[int] = []
        async for step in self._script.generate(tokens, sampling):
            sampled += step.tokens
        cached = max((_common(prompt, earlier) for earlier in self._seen), default=0)
        self._seen.append((*prompt, *sampled))
        yield Step(tuple(sampled), Finish.STOP, cached_tokens=min(cached, len(prompt) - 1))

    async def close(self) -> None:
        await self._script.close()


def _common(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return sum(itertools.takewhile(bool, (a == b for a, b in zip(one, other, strict=False))))


async def close(*servers: Api) -> None:
    for server in servers:
        await server.client.aclose()
        await server.service.close()


@pytest.fixture
def pages(tmp_path: Path) -> str:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "fjord.md").write_text("# The fjord\n\nThe fjord is very deep.\n\nIt is cold.\n")
    return f"local:{tmp_path / 'pages'}"


async def dialogue(servers: list[Api], *, conversation: bool) -> list[Any]:
    """Six turns, each on the next server; what each answers and caches."""
    answers: list[Any] = []
    past: dict[str, Any] = {}
    if conversation:
        past["conversation"] = (await servers[0].post("/conversations"))["id"]
    given: Any = "search"
    for number in range(6):
        here = servers[number % len(servers)]
        response = await here.create(input=given, tools=[WEB, FUNCTION], **past)
        items = [{**item, "id": "", "call_id": ""} for item in response["output"]]
        usage = response["usage"]
        answers.append((items, usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]))
        if not conversation:
            past["previous_response_id"] = response["id"]
        calls = [item["call_id"] for item in response["output"] if item["type"] == "function_call"]
        results = [{"type": "function_call_output", "call_id": call, "output": "Hi"} for call in calls]
        given = results or ("a call", "search", "Hi")[number % 3]
    return answers


@pytest.mark.parametrize("conversation", [False, True])
async def test_turns_that_alternate_between_two_servers_are_those_of_one(
    conversation: bool, pages: str, encoding: Encoding
) -> None:
    def server(store: str, seen: list[tuple[int, ...]]) -> Api:
        return Api(Counting(seen), Settings(store=store, browser=pages, python="off"))

    with running_postgres() as postgres:
        url = postgres.new_database()
        shared: list[tuple[int, ...]] = []
        two = [server(url, shared), server(url, shared)]
        one = [server("memory", [])]
        answers = await dialogue(two, conversation=conversation)
        assert answers == await dialogue(one, conversation=conversation)
        assert sum("annotations" in json.dumps(items) for items, _, _ in answers) > 1
        assert all(cached > 0 for _, _, cached in answers[1:])
        await close(*two, *one)


async def test_a_restarted_server_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Responses, conversations, sealed items and a background response that ran when it stopped."""
    settings = Settings(store=f"sqlite:{tmp_path / 'store.sqlite'}", **CLOSED)
    slow = scripted(*TURNS, tokens_per_second=20)
    first = Api(slow, settings)
    first.service.continuing.start()
    answered = await first.create(include=["reasoning.encrypted_content"])
    made = await first.post("/conversations", metadata={"topic": "demo"})
    await first.create(conversation=made["id"])
    running = await first.create(background=True, input="Hi, slowly")
    sealed = first.service.served.stores.sealer.seal("test", b"content")
    await asyncio.sleep(0.15)
    slow.close = AsyncMock()  # type: ignore[method-assign]  # the next server has the same engine
    await close(first)

    second = Api(slow, settings)
    second.service.continuing.start()
    assert (await second.get(f"/responses/{answered['id']}")) == answered
    await second.create(previous_response_id=answered["id"])
    assert (await second.get(f"/conversations/{made['id']}"))["metadata"] == {"topic": "demo"}
    assert len((await second.get(f"/conversations/{made['id']}/items"))["data"]) == 2
    assert second.service.served.stores.sealer.open("test", sealed) == b"content"
    ended = await second.ended(running["id"])
    assert (ended["status"], ended["id"]) == ("completed", running["id"])
    streamed = await second.client.get(f"/responses/{running['id']}", params={"stream": "true"})
    assert check_stream(events_in(streamed.text)) == ended
    await close(second)


@pytest.mark.parametrize("how", ["cancel", "delete"])
async def test_any_server_stops_a_run_of_any_other(how: str, tmp_path: Path) -> None:
    settings = Settings(store=f"sqlite:{tmp_path / 'store.sqlite'}", **CLOSED)
    word = "<|channel|>final<|message|>" + "word " * 2_000 + "<|return|>"
    here, there = (Api(scripted(word, tokens_per_second=50), settings) for _ in range(2))
    for each in (here, there):
        each.service.continuing.start()
    running = await here.create(background=True)
    shown = await there.get(f"/responses/{running['id']}")
    assert shown["status"] in ("queued", "in_progress")
    assert len((await there.get(f"/responses/{running['id']}/input_items"))["data"]) == 1
    refused = await there.refused("/responses", previous_response_id=running["id"], input="?")
    assert "still being generated" in refused["message"]
    if how == "cancel":
        cancelled = await there.post(f"/responses/{running['id']}/cancel")
        assert cancelled["status"] == "cancelled"
        assert await here.get(f"/responses/{running['id']}") == cancelled
    else:
        await there.delete(f"/responses/{running['id']}")
        place = f"/responses/{running['id']}"  # the server that runs it learns of the deletion soon
        await until_found(lambda: here.client.get(place), lambda found: found.status_code == 404)
    assert here.engine.active == 0
    await close(here, there)
