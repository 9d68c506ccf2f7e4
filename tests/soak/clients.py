"""Clients of every kind that use a server for a while, a fifth of which leave before the end.

Takes a server's URL. Each client repeats one request of a random kind and a pause, so that the load follows
the machine's speed. An answer that is neither complete nor refused in an orderly way is a problem.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

LEAVING = 0.2  # of all requests: the client disconnects before the end
_PAUSE = 0.5  # seconds on average between two requests of a client
_LONGEST = 300.0  # seconds for one answer; the machine may be busy
_ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
_QUESTIONS = (
    "Tell me a long story about the sea.|What is Harmony?|Who are you?|Count to fifty.|"
    "What is the weather in Paris?|Write a poem about the number {}.|My name is number {}. What is my name?"
)
_CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_WEATHER = {"type": "function", "name": "get_weather", "parameters": _CITY}
_ANSWER = {"type": "object", "properties": {"answer": {"type": "string", "maxLength": 20}}}
_FORMAT = {"type": "json_schema", "name": "answer", "schema": _ANSWER}


class Left(Exception):
    """The client disconnects."""


@dataclass
class Load:
    url: str
    done: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    last: str | None = None  # the id of a stored response
    stops: bool = False

    def __post_init__(self) -> None:
        self.random = random.Random(0)
        self.http = self.new_http()
        self.kinds: dict[str, Callable[[bool], Awaitable[None]]] = {
            "responses, streamed": self.streamed,
            "responses, JSON": self.as_json,
            "responses, continued": self.continued,
            "responses over WebSocket": self.over_websocket,
            "responses in the background": self.in_background,
            "chat, streamed": self.chat_streamed,
            "completions": self.completion,
        }

    def new_http(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=4)
        return httpx.AsyncClient(base_url=self.url, timeout=_LONGEST, limits=limits)

    async def close_idle_connections(self) -> None:
        await self.http.aclose()
        self.http = self.new_http()

    async def run(self, clients: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(self.client())

    async def client(self) -> None:
        while not self.stops:
            kind = self.random.choice(list(self.kinds))
            leaves = self.random.random() < LEAVING
            try:
                await self.kinds[kind](leaves)
                self.done[kind] += 1
            except Left:
                self.left[kind] += 1
            except (httpx.HTTPError, ConnectionClosed, OSError, AssertionError) as error:
                self.problems.append(f"{kind}: {error!r:.300}")
            await asyncio.sleep(self.random.expovariate(1 / _PAUSE))

    def body(self, **more: Any) -> dict[str, Any]:
        question = self.random.choice(_QUESTIONS.split("|")).format(self.random.randrange(10_000))
        body: dict[str, Any] = {"input": question, "max_output_tokens": self.random.choice((16, 60, 150))}
        form = self.random.random()
        if form < 0.15:
            body["tools"] = [_WEATHER]
        elif form < 0.25:
            body["text"] = {"format": _FORMAT}
        return {**body, **more}

    # One request of each kind ---------------------------------------------------------------------------

    async def streamed(self, leaves: bool) -> None:
        types = [event["type"] async for event in self.events("/responses", self.body(stream=True), leaves)]
        assert types[-1] in _ENDS[:2], types[-3:]

    async def as_json(self, leaves: bool, **more: Any) -> None:
        sent = self.http.post("/responses", json=self.body(**more))
        if leaves:
            try:
                answer = await asyncio.wait_for(sent, self.random.uniform(0.01, 1.0))
            except TimeoutError:
                raise Left from None
        else:
            answer = await sent
        assert answer.status_code == 200, answer.text
        response = answer.json()
        assert response["status"] in ("completed", "incomplete"), response["status"]
        if not any(item["type"] == "function_call" for item in response["output"]):  # its result is due
            self.last = response["id"]

    async def continued(self, leaves: bool) -> None:
        await self.as_json(leaves, previous_response_id=self.last if self.random.random() < 0.8 else None)

    async def over_websocket(self, leaves: bool) -> None:
        url = f"ws{self.url.removeprefix('http')}/responses"
        async with connect(url, max_size=None, ping_timeout=_LONGEST) as socket:
            await socket.send(json.dumps({"type": "response.create", **self.body()}))
            remaining = self.random.randrange(1, 40) if leaves else None
            async with asyncio.timeout(_LONGEST):
                while True:
                    event = json.loads(await socket.recv())
                    if event["type"] in _ENDS:
                        assert event["type"] in _ENDS[:2], event
                        return
                    remaining = remaining and remaining - 1
                    if remaining == 0:
                        raise Left

    async def in_background(self, leaves: bool) -> None:
        answer = await self.http.post("/responses", json=self.body(background=True))
        if answer.status_code == 503:
            return  # all background slots are taken, which an orderly client accepts
        assert answer.status_code == 200, answer.text
        path = f"/responses/{answer.json()['id']}"
        if leaves and self.random.random() < 0.5:
            cancelled = await self.http.post(f"{path}/cancel")
            assert cancelled.status_code in (200, 400), cancelled.text  # 400: it has ended by itself
            raise Left
        if leaves:
            raise Left  # the response runs to its end without its client
        async with asyncio.timeout(_LONGEST):
            async for _ in self.events(path, None, leaves=False):  # to the end
                pass

    async def chat_streamed(self, leaves: bool) -> None:
        body = {"messages": [{"role": "user", "content": self.body()["input"]}], "stream": True}
        await self.chunks("/chat/completions", {**body, "max_tokens": 100}, leaves)

    async def completion(self, leaves: bool) -> None:
        await self.chunks("/completions", {"prompt": "The sea", "max_tokens": 30, "stream": True}, leaves)

    async def chunks(self, path: str, body: dict[str, Any], leaves: bool) -> None:
        *_, last = [one async for one in self.events(path, body, leaves)]
        assert last["choices"][0]["finish_reason"] in ("stop", "length"), last

    async def events(
        self, path: str, body: dict[str, Any] | None, leaves: bool
    ) -> AsyncIterator[dict[str, Any]]:
        """The events of a stream. A client that leaves closes its connection after a few of them."""
        remaining = self.random.randrange(1, 40) if leaves else None
        method, query = ("POST", None) if body else ("GET", {"stream": "true"})
        async with self.http.stream(method, path, json=body, params=query) as answer:
            assert answer.status_code == 200, (await answer.aread()).decode()
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                yield json.loads(line[6:])
                remaining = remaining and remaining - 1
                if remaining == 0:
                    raise Left
