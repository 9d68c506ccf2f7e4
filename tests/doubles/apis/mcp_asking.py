"""Requests with MCP servers to a service whose model follows a script."""

from __future__ import annotations

import json
from typing import Any

from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from gpt_oss_server.toolset.offered import ToolsetMaker
from tests.doubles.apis import asking

CALL = "<|channel|>commentary to=echoes.{} <|constrain|>json<|message|>{}<|call|>"
ANSWER = "<|channel|>final<|message|>Done.<|return|>"


def call(name: str, **arguments: Any) -> str:
    return CALL.replace("{}", name, 1).replace("{}", json.dumps(arguments), 1)


class Asking(asking.Asking):
    """A service with scripted turns and the operator's tools."""

    def __init__(self, encoding: Encoding, *turns: str, **settings: Any) -> None:
        given = Settings(python="off", browser="off", **settings)
        super().__init__(*turns, settings=given, tools=ToolsetMaker(given))

    async def __call__(self, **body: Any) -> dict[str, Any]:
        return await super().__call__(**{"input": "Say hi.", **body})

    def kinds(self, index: int) -> list[str]:
        of_item = [e for e in self.events if e.get("output_index") == index]
        return list(dict.fromkeys(e["type"].removeprefix("response.") for e in of_item))

    async def __aenter__(self) -> Asking:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.service.close()


def tool(url: str | None = None, **more: Any) -> dict[str, Any]:
    place = {"server_url": url} if url else {}
    return {"type": "mcp", "server_label": "echoes", "require_approval": "never", **place, **more}
