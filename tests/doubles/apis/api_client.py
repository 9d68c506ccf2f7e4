"""Clients: of an app in this process, whose parts tests inspect, and the official SDK's of a server."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import httpx
from openai import OpenAI
from starlette.requests import Request
from starlette.types import Message

from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.app import create_app
from gpt_oss_server.settings import Settings
from tests.doubles.lints import check_stream
from tests.doubles.serving import scripted, serving
from tests.doubles.waiting import until_found

APIS: dict[str, dict[str, Any]] = {
    "/responses": {"input": "Hi"},
    "/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "/completions": {"prompt": "Hi"},
}


def events_in(body: str) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: ")]


def upload_request(body: bytes, **headers: str) -> Request:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": raw}, receive)


def error_of(answer: httpx.Response | bytes) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(answer if isinstance(answer, bytes) else answer.content)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


class Api:
    def __init__(self, engine: Any, settings: Settings | None = None, **parts: Any) -> None:
        """`parts` are further arguments of `create_app`."""
        self.engine = engine
        self.app = create_app(engine, settings, **parts)
        self.service: ResponsesService = self.app.state.service
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=self.app), base_url="http://test/v1"
        )

    async def _answer(self, method: str, path: str, **options: Any) -> httpx.Response:
        answer = await self.client.request(method, path, **options)
        assert answer.status_code == 200, answer.text
        return answer

    async def post(self, path: str, **body: Any) -> dict[str, Any]:
        return dict((await self._answer("POST", path, json=body)).json())

    async def get(self, path: str, **query: Any) -> dict[str, Any]:
        return dict((await self._answer("GET", path, params=query)).json())

    async def delete(self, path: str) -> dict[str, Any]:
        return dict((await self._answer("DELETE", path)).json())

    async def refused(self, path: str, *, method: str = "POST", **body: Any) -> dict[str, Any]:
        answer = await self.client.request(method, path, json=body if method == "POST" else None)
        assert answer.status_code >= 400, answer.text
        return {**answer.json()["error"], "status": answer.status_code}

    async def create(self, **body: Any) -> dict[str, Any]:
        return await self.post("/responses", **{"input": "Hi", **body})

    async def streamed(self, **body: Any) -> list[dict[str, Any]]:
        body = {"input": "Hi", **body, "stream": True}
        return events_in((await self._answer("POST", "/responses", json=body)).text)

    async def ended(self, response_id: str) -> dict[str, Any]:
        running = ("queued", "in_progress")
        return await until_found(
            lambda: self.get(f"/responses/{response_id}"), lambda found: found["status"] not in running
        )

    async def telling(self, response_id: str) -> dict[str, Any]:
        """The response once it has an item in its output."""
        return await until_found(lambda: self.get(f"/responses/{response_id}"), lambda found: found["output"])

    async def replayed(self, response_id: str, after: int | None = None) -> list[dict[str, Any]]:
        query = {"stream": "true", **({} if after is None else {"starting_after": after})}
        return events_in((await self._answer("GET", f"/responses/{response_id}", params=query)).text)


@contextmanager
def client_with(engine: Any, settings: Settings | None = None) -> Iterator[OpenAI]:
    with serving(engine, settings) as url, OpenAI(base_url=url, api_key="any", max_retries=0) as client:
        yield client


def client_of(
    *turns: object, settings: Settings | None = None, **options: object
) -> AbstractContextManager[OpenAI]:
    return client_with(scripted(*turns, **options), settings)


def streamed(client: OpenAI, **body: Any) -> dict[str, Any]:
    """The final response of a stream, after a check of every event on the wire."""
    answer = httpx.post(f"{client.base_url}responses", json={**body, "stream": True}, timeout=120)
    assert answer.status_code == 200, answer.text
    return check_stream(events_in(answer.text))
