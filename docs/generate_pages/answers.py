"""Answers as served: real requests to the application, in this process, with a scripted model.

Takes nothing. Returns requests with their answers for the pages of the APIs. Ids and clock are counted, so
that the pages are the same on every machine.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import httpx

from generate_pages.markdown import json_block
from gpt_oss_server.apis.containers.sessions import Container, Metadata
from gpt_oss_server.app import create_app
from gpt_oss_server.harmony.encoding import VOCABULARY_SIZE
from gpt_oss_server.ids import CountingIds
from gpt_oss_server.settings import Settings
from inference.backends.script_file import parse_script
from inference.backends.scripted import ScriptedEngine
from tools.python import FileInfo, PythonSession

_CLOCK = 1.7e9
_WEATHER = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
_HI = {"messages": [{"role": "user", "content": "Hi"}]}
_ASK = {
    "messages": [{"role": "user", "content": "Weather in Oslo?"}],
    "tools": [{"type": "function", "function": {k: v for k, v in _WEATHER.items() if k != "type"}}],
}
_HELLO = "<|channel|>analysis<|message|>A greeting.<|end|><|start|>assistant<|channel|>final<|message|>Hello!"
_TURNS = [
    {"when": "Weather", "text": '<|channel|>commentary to=functions.weather json<|message|>{"city": "Oslo"}'},
    {"when": "Once upon a time$", "text": ", there was a harbour."},
    {"when": "Summary", "text": "<|channel|>final<|message|>They greeted each other."},
    _HELLO,
]


@dataclass(frozen=True)
class Example:
    request: str  # "POST /v1/responses"
    body: dict[str, Any] | None = None

    async def shown(self, client: httpx.AsyncClient) -> str:
        method, path = self.request.split(" ")
        answer = await client.request(method, path, json=self.body)
        assert answer.status_code == 200, f"{self.request}: {answer.text}"
        sent = json_block(self.body) + "\n" if self.body is not None else ""
        return f"`{self.request}`\n\n{sent}{_block(answer)}"


EXAMPLES = {
    "Responses": [Example("POST /v1/responses", {"model": "gpt-oss-20b", "input": "Hi", "store": True})],
    "Chat Completions": [
        Example("POST /v1/chat/completions", _HI),
        Example("POST /v1/chat/completions", {**_ASK, "include_reasoning": False}),
        Example(
            "POST /v1/chat/completions", {**_HI, "stream": True, "stream_options": {"include_usage": True}}
        ),
    ],
    "Completions": [
        Example("POST /v1/completions", {"prompt": "Once upon a time"}),
        Example("POST /tokenize", {"prompt": "Hello!"}),
        Example("POST /detokenize", {"tokens": [13225, 0]}),
    ],
    "Conversations": [
        Example("POST /v1/conversations", {"items": [{"role": "user", "content": "Hi"}]}),
        Example("GET /v1/conversations/conv_1/items"),
        Example("DELETE /v1/conversations/conv_1"),
    ],
}


def examples(tag: str) -> str:
    return asyncio.run(_run(EXAMPLES[tag]))


async def _run(shown: list[Example]) -> str:
    script = parse_script({"turns": _TURNS}, VOCABULARY_SIZE)
    settings = Settings(python="off", browser="off", served_model_name=("gpt-oss-20b",))
    app = create_app(ScriptedEngine(script), settings, ids=CountingIds(), clock=lambda: _CLOCK)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return "\n".join([await each.shown(client) for each in shown])


def _block(answer: httpx.Response) -> str:
    if answer.headers["content-type"].startswith("application/json"):
        return json_block(answer.json())
    return f"```text\n{answer.text.strip()}\n```\n"


def container_examples() -> str:
    """A container and a file as the API shows them; no python runs for it."""
    session = cast(PythonSession, SimpleNamespace(last_used=None, attached={}))
    container = Container("cntr_1", session, Metadata(_CLOCK, name="data"), lambda: _CLOCK)
    file = container.file_as_json(FileInfo(path="table.csv", size=120, modified=_CLOCK))
    shown = json_block({**file, "id": "cfile_1"})  # its real id depends on a secret of the process
    return f"A container:\n\n{json_block(container.as_json())}\nA file:\n\n{shown}"
