"""Runs the server in this process, and returns the traces of its responses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.testclient import TestClient

import inference
from gpt_oss_server.app import create_app
from gpt_oss_server.harmony.encoding import VOCABULARY_SIZE
from gpt_oss_server.settings import Settings
from inference.backends.script_file import parse_script
from inference.backends.scripted import ScriptedEngine
from inference.engine import Engine

NOON = 1_796_040_000.0  # the date in the prompts: 2026-11-30


class Server:
    def __init__(self, client: TestClient) -> None:
        self._client = client

    def response(self, **fields: Any) -> Any:
        answer = self._client.post("/v1/responses", json={"temperature": 0, **fields})
        answer.raise_for_status()
        return answer.json()

    def trace(self, response: Any) -> Any:
        answer = self._client.get(f"/v1/responses/{response['id']}/trace")
        answer.raise_for_status()
        return answer.json()


@contextmanager
def embedded() -> Iterator[Server]:
    with _serving(inference.load("tiny")) as server:
        yield server


@contextmanager
def scripted(*turns: str) -> Iterator[Server]:
    with _serving(ScriptedEngine(parse_script({"turns": list(turns)}, VOCABULARY_SIZE))) as server:
        yield server


@contextmanager
def _serving(engine: Engine) -> Iterator[Server]:
    app = create_app(engine, Settings(debug_api="on"), clock=lambda: NOON)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield Server(client)
