"""Two small tools for tests to serve: `small_tools.py notes|python [port]` serves one on a pipe or port."""

from __future__ import annotations

import asyncio
import json
import socket
import sys

from tools.mcp.serve import serve_http, serve_stdio
from tools.tool import Declaration, Function, Session, ToolCall, ToolOutput

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
_TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class Notes:
    closed = 0
    declaration = Declaration(
        "notes", "Takes notes.", (Function("add", "Adds.", _TEXT), Function("all", "Lists."))
    )

    def open(self) -> Session:
        return _Notes(self)

    async def close(self) -> None:
        return None


class _Notes:
    def __init__(self, tool: Notes) -> None:
        self._tool = tool
        self._lines: list[str] = []

    async def run(self, call: ToolCall) -> ToolOutput:
        sys.stdout.write("a careless word on standard output\n")
        if call.function == "all":
            return ToolOutput(", ".join(self._lines) or "nothing")
        text = json.loads(call.arguments).get("text")
        if not isinstance(text, str):
            return ToolOutput("There is no text to add.", failed=True)
        self._lines.append(text)
        return ToolOutput("added")

    async def close(self) -> None:
        self._tool.closed += 1


class Sums:
    """Adds two numbers. Called by its bare name, as python is, and draws the result twice."""

    declaration = Declaration("python", "Adds.")

    def open(self) -> Sums:
        return self

    async def run(self, call: ToolCall) -> ToolOutput:
        if call.function:
            return ToolOutput("There are no functions.", failed=True)
        left, _, right = call.arguments.partition("+")
        try:
            total = str(int(left) + int(right))
        except ValueError:
            return ToolOutput("That is no sum.", failed=True)
        image = {"type": "image", "url": f"data:image/png;base64,{PIXEL}"}
        outputs = [{"type": "logs", "logs": total}, image]
        images = [{"mime_type": "image/png", "data": PIXEL}]
        return ToolOutput(total, details={"images": images, "outputs": outputs})

    async def close(self) -> None:
        return None


if __name__ == "__main__":
    served = Notes() if sys.argv[1] == "notes" else Sums()
    if len(sys.argv) > 2:
        at = ("127.0.0.1", int(sys.argv[2]))
        asyncio.run(serve_http(served, *at, socket.create_server(at)))
    else:
        asyncio.run(serve_stdio(served))
