"""The browser, python or container of another MCP server in place of this project's: `--tool-server URL`.

`search`, `open` and `find` are the browser, a tool `python` is python, and everything else of a server named
`container` (or with an `exec`) is the container. Each conversation has a connection.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tools.mcp.calls import own_output
from tools.mcp.client import McpTool
from tools.mcp.endpoints import Credentials, McpSettingsError, http_endpoint
from tools.mcp.failures import McpFailure
from tools.mcp.listing import ListedTool, McpListing
from tools.tool import Declaration, Function, Session, ToolCall, ToolOutput

_BROWSER = ("search", "open", "find")
_PYTHON = "python"
_CONTAINER = "container"
_ADDRESS = re.compile(r"[\w.-]+:\d{1,5}(/|$)")


class ExternalTool:
    """One namespace of one server. Several may share the server; each closes it, which is safe to repeat."""

    def __init__(self, server: McpTool, declaration: Declaration, words: Mapping[str, str]) -> None:
        self._server = server
        self.declaration = declaration
        self._words = words  # the model's function → the word of the server's tool

    def open(self) -> Session:
        return _ExternalSession(self._server.open(), self._words)

    async def close(self) -> None:
        await self._server.close()


class _ExternalSession:
    def __init__(self, inner: Session, words: Mapping[str, str]) -> None:
        self._inner = inner
        self._words = words

    async def run(self, call: ToolCall) -> ToolOutput:
        """Forwards a call. `python` gets bare source, which its server takes as the argument `code`."""
        word = self._words.get(call.function)
        if word is None:
            return ToolOutput(f"There is no function {call.function[:80]!r}.", failed=True)
        arguments = call.arguments if call.function else json.dumps({"code": call.arguments})
        return own_output(await self._inner.run(replace(call, function=word, arguments=arguments)))

    async def close(self) -> None:
        await self._inner.close()


def tool_server(url: str, *, timeout: float = 300.0) -> McpTool:
    """The server of `--tool-server`, which is the operator's and so trusted. Raises McpSettingsError."""
    if "://" not in url:
        if not _ADDRESS.match(url):
            raise McpSettingsError(
                f"{url!r:.99} is no address. Write --tool-server http://HOST:PORT/mcp.", param="--tool-server"
            )
        url = f"http://{url}"
    endpoint, authorization = http_endpoint(url, trusted=True, param="--tool-server")
    credentials = Credentials(authorization=authorization)
    return McpTool("tool server", endpoint, credentials, timeout=timeout)


async def external_tools(server: McpTool) -> tuple[ExternalTool, ...]:
    """The tools that the server can provide. Raises McpFailure, or McpSettingsError if there are none."""
    try:
        listing = await server.list()
    except McpFailure as failure:
        await server.close()
        raise McpFailure(f"The tool server cannot be used. {failure}", lost=True) from failure
    offers = list(_offers(listing))
    if not offers:
        await server.close()
        names = ", ".join(tool.name for tool in listing.tools) or "nothing"
        message = f"The tool server has neither a browser, nor python, nor a container: it lists {names}."
        raise McpSettingsError(message, param="--tool-server")
    return tuple(ExternalTool(server, declaration, words) for declaration, words in offers)


def _offers(listing: McpListing) -> Iterator[tuple[Declaration, dict[str, str]]]:
    """Each namespace's declaration, and the word of the server's tool for each function of the model's."""
    browser = [tool for tool in listing.tools if tool.name in _BROWSER]
    if len(browser) == len(_BROWSER):
        yield _namespace("browser", listing, browser)
    else:
        browser = []
    python = listing.by_name(_PYTHON)
    if python is not None:
        yield Declaration(_PYTHON, python.description or listing.instructions), {"": python.word}
    rest = [tool for tool in listing.tools if tool not in (*browser, python)]
    if rest and (listing.server_name == _CONTAINER or listing.by_name("exec") is not None):
        yield _namespace(_CONTAINER, listing, rest)


def _namespace(
    name: str, listing: McpListing, listed: list[ListedTool]
) -> tuple[Declaration, dict[str, str]]:
    functions = tuple(Function(tool.word, tool.description, _plain(tool.input_schema)) for tool in listed)
    return Declaration(name, listing.instructions, functions), {tool.word: tool.word for tool in listed}


def _plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without generated titles, which the model did not see in training."""
    plain = {key: value for key, value in schema.items() if key != "title"}
    properties = plain.get("properties")
    if isinstance(properties, Mapping):
        plain["properties"] = {
            name: _plain(value) if isinstance(value, Mapping) else value for name, value in properties.items()
        }
    return plain
