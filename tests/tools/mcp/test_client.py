"""Tools of real MCP servers, over HTTP in both its forms: lists, calls, permissions, secrets."""

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
import pytest

from tests.contracts.tool_contract import ToolContract
from tests.doubles.tools.echo_server import Seen, ServerThread, make_server, serving, watched
from tests.doubles.tools.mcp_helpers import SECRETS, answer, at, call, failure, lifespan, mcp_tool, soon
from tests.doubles.tools.web_servers import loopback
from tools.mcp.client import McpTool, Narrowed
from tools.mcp.endpoints import Credentials, McpSettingsError, http_endpoint
from tools.mcp.permissions import parse_permissions
from tools.mcp.transports import Reach
from tools.tool import Tool, ToolCall, ToolOutput
from tools.toolbox import Offer, Toolbox


@pytest.fixture(scope="module", params=["http", "sse"])
def echoes(request: pytest.FixtureRequest) -> Iterator[tuple[str, Seen]]:
    with watched(request.param) as server:
        yield server


@pytest.fixture(scope="module")
def lone() -> Iterator[tuple[str, Seen]]:
    with watched() as server:
        yield server


@pytest.fixture
async def tool(echoes: tuple[str, Seen]) -> AsyncIterator[McpTool]:
    credentials = Credentials({"X-Secret": SECRETS[0]}, SECRETS[1])
    async with mcp_tool(echoes[0], credentials=credentials, timeout=10) as tool:
        yield tool


class TestOverHttp(ToolContract):
    url: str

    @pytest.fixture(autouse=True)
    def _served(self, lone: tuple[str, Seen]) -> None:
        self.url = lone[0]

    async def make(self) -> Tool:
        permissions = parse_permissions(["echo", "slow", "has a space.and dot"])
        tool = McpTool("echo", at(self.url), permissions=permissions)
        await tool.list()
        return tool

    def slow_call(self) -> ToolCall:
        return ToolCall("slow", '{"seconds": 60}')


async def test_what_the_server_lists_is_declared(tool: McpTool) -> None:
    assert tool.listing is None
    assert tool.declaration.functions == ()
    listing = await tool.list()
    echo = listing.by_name("echo")
    assert echo is not None
    assert echo.description == "Says the same."
    assert echo.input_schema["properties"]["text"]["type"] == "string"
    assert echo.annotations == {"readOnlyHint": True}
    assert listing.server_name == "echoes"
    declaration = tool.declaration
    assert declaration.namespace == "echo"
    assert declaration.description == "Repeats what it is told."
    assert [function.name for function in declaration.functions] == [tool.word for tool in listing.tools]


async def test_a_call_is_answered_and_its_details_are_those_of_an_item(tool: McpTool) -> None:
    session = tool.open()
    output = await call(session, "echo", text="hello 🧠")
    details = {"server_label": "echo", "name": "echo", "arguments": '{"text": "hello \\ud83e\\udde0"}'}
    assert output == ToolOutput("hello 🧠", details={**details, "output": "hello 🧠", "error": None})
    await session.close()


async def test_errors_of_the_tool_and_wrong_arguments_are_failed_outputs(tool: McpTool) -> None:
    session = tool.open()
    failed, bad = await call(session, "fail", why="moon"), await session.run(ToolCall("echo", '{"text": '))
    for output, words in ((failed, "moon"), (bad, "not valid JSON")):
        assert words in output.text
        assert (output.failed, output.details["error"], output.details["output"]) == (True, output.text, None)
    assert (await call(session, "echo", wrong=1)).failed
    assert "echo.echo" in await failure(session, "delete_everything")
    assert (await call(session, "echo", text="and on it goes")).text == "and on it goes"


async def test_odd_names_images_and_text_that_is_nearly_binary_come_through(tool: McpTool) -> None:
    session = tool.open()
    named, picture = await call(session, "has_a_space_and_dot"), await call(session, "picture")
    assert (named.text, named.details["name"]) == ("found", "has a space.and dot")
    assert "a picture, image/png" in picture.text
    assert picture.details["images"][0]["mime_type"] == "image/png"
    assert (await call(session, "odd")).text == "\x00\x01\x7f\u2028 <|end|> 🧠"


async def test_an_answer_of_any_size_is_cut_or_refused_and_the_next_call_works(tool: McpTool) -> None:
    box = Toolbox([Offer(tool)])
    await tool.list()
    output = await box.run("c", "echo.large", '{"characters": 400000}')
    assert not output.failed
    assert len(output.text) < 201_000
    await box.run("c", "echo.large", '{"characters": 20000000}')
    assert (await box.run("c", "echo.echo", '{"text": "still here"}')).text == "still here"
    await box.close()


async def test_a_call_that_takes_too_long_is_stopped_at_the_server_and_the_next_one_reconnects(
    echoes: tuple[str, Seen],
) -> None:
    url, seen = echoes
    seen.cancelled.clear()
    async with mcp_tool(url) as tool:
        session = tool.open()
        await tool.list()
        tool.timeout = 0.7
        assert "did not answer within 0.7 seconds" in await failure(session, "slow", seconds=30)
        assert await soon(seen.cancelled)
        tool.timeout = 10.0
        assert (await call(session, "echo", text="again")).text == "again"


async def test_a_cancelled_call_stops_at_the_server_and_keeps_the_connection(
    echoes: tuple[str, Seen], tool: McpTool
) -> None:
    seen = echoes[1]
    seen.started.clear()
    seen.cancelled.clear()
    session = tool.open()
    with anyio.move_on_after(25) as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: call(session, "slow", seconds=30))
            assert await soon(seen.started)
            group.cancel_scope.cancel()
    assert not scope.cancelled_caught
    assert await soon(seen.cancelled)
    assert (await call(session, "echo", text="still")).text == "still"


async def test_a_session_opened_in_one_task_closes_in_another(tool: McpTool) -> None:
    session = tool.open()
    await asyncio.create_task(call(session, "echo", text="here"))
    await asyncio.create_task(session.close())
    assert (await asyncio.create_task(call(session, "echo", text="there"))).text == "there"
    for _ in range(2):
        await asyncio.create_task(tool.close())
    assert "closed" in await failure(session, "echo", text="hello")


async def test_credentials_reach_the_server_and_nothing_else(
    echoes: tuple[str, Seen],
    tool: McpTool,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    echoes[1].headers.clear()
    listing = await tool.list()
    output = await call(tool.open(), "headers")
    sent = echoes[1].headers[-1]
    assert sent["x-secret"] == SECRETS[0]
    assert sent["authorization"] == f"Bearer {SECRETS[1]}"
    failed = await call(tool.open(), "fail", why=f"I know {SECRETS[1]}")
    gc.collect()
    clients = ("tools", "mcp.client", "mcp.shared", "httpx2", "httpcore2", "asyncio")  # not the server's
    logged = [record.getMessage() for record in caplog.records if record.name.startswith(clients)]
    shown = [*logged, *capfd.readouterr(), repr(tool), repr(vars(tool)), repr(listing)]
    shown += [repr(output), repr(failed), repr(tool.declaration)]
    # The failing tool's arguments are the model's own words and are logged unchanged.
    text = "\n".join(shown).replace(f"I know {SECRETS[1]}", "")
    assert not [secret for secret in SECRETS if secret in text]
    assert "[redacted]" in output.text
    assert "[redacted]" in failed.text


async def test_an_old_listing_is_fetched_again(lone: tuple[str, Seen]) -> None:
    now, (url, seen) = 0.0, lone
    async with mcp_tool(url, clock=lambda: now) as tool:
        fetched = seen.listings
        first = await tool.list()
        assert not (await call(tool.open(), "echo", text="x")).failed
        assert (await tool.list()) == first
        assert seen.listings == fetched + 1
        now = 1000.0
        assert (await tool.list()) == first
        assert seen.listings == fetched + 2


async def test_an_operators_server_is_narrowed_for_a_request(lone: tuple[str, Seen]) -> None:
    async with mcp_tool(lone[0]) as tool:
        permissions = parse_permissions({"read_only": True}, {"never": {"tool_names": ["echo"]}})
        narrowed = Narrowed(tool, permissions)
        assert narrowed.listing is None
        assert [entry.name for entry in (await narrowed.list()).tools] == ["echo"]
        assert [function.name for function in narrowed.declaration.functions] == ["echo"]
        assert not narrowed.needs_approval("echo")
        box = Toolbox([Offer(tool)])
        assert not (await box.run("c", "echo.echo", '{"text": "x"}', narrowed.options)).failed
        refused = await box.run("c", "echo.large", '{"characters": 1}', narrowed.options)
        assert refused.failed
        assert "Its functions are: echo.echo." in refused.text
        assert not (await box.run("c", "echo.large", '{"characters": 1}')).failed
        await box.close()


# Where a client's MCP server may be, and where a redirect or a name may lead.


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1:{port}/mcp", "http://localhost:{port}/mcp", "http://127.1:{port}/mcp"),
        *("http://2130706433:{port}/mcp", "http://0x7f000001:{port}/mcp", "http://0177.0.0.1:{port}/mcp"),
        *("http://0:{port}/mcp", "http://0.0.0.0:{port}/mcp", "http://[::1]:{port}/mcp"),
        *("http://[::ffff:127.0.0.1]:{port}/mcp", "http://[::ffff:7f00:1]:{port}/mcp"),
        *("http://[::]:{port}/mcp", "http://169.254.169.254/latest/meta-data/"),
        *("http://user:password@127.0.0.1:{port}/mcp", "http://localhost:{port}/sse"),
        *("http://127.0.0.1.:{port}/mcp", "http://①②⑦.⓪.⓪.①:{port}/mcp", "http://10.0.0.1/mcp"),
        *("http://[fd00:ec2::254]/mcp", "http://[64:ff9b::7f00:1]/mcp"),
    ],
)
async def test_a_client_cannot_make_it_reach_a_private_address(url: str, lone: tuple[str, Seen]) -> None:
    known, seen = lone
    before = seen.calls
    try:
        endpoint, _ = http_endpoint(url.format(port=known.split(":")[2].split("/")[0]))
    except McpSettingsError:
        return  # an odd spelling does not even become an endpoint
    async with mcp_tool(endpoint, timeout=5) as tool:
        text = await failure(tool.open(), "echo", text="let me in")
    assert "may not be reached" in text
    assert "password" not in text
    assert seen.calls == before


async def test_a_name_that_answers_differently_the_second_time_gains_nothing() -> None:
    lookups = 0

    async def rebinds(host: str, port: int) -> list[str]:
        nonlocal lookups
        lookups += 1
        return ["93.184.216.34", "127.0.0.1"] if lookups == 1 else ["127.0.0.1"]

    with serving() as url:
        endpoint, _ = http_endpoint(url.replace("127.0.0.1", "rebinds.example"))
        async with mcp_tool(endpoint, reach=Reach(resolver=rebinds), timeout=5) as tool:
            for _ in range(2):
                assert "may not be reached" in await failure(tool.open(), "echo", text="let me in")
    assert lookups == 2


async def test_in_a_lab_private_hosts_are_allowed_and_the_name_is_kept() -> None:
    seen = Seen()
    with ServerThread(make_server(seen).streamable_http_app(host="lab.example")) as server:
        endpoint, _ = http_endpoint(server.url(host="lab.example"))
        async with mcp_tool(endpoint, reach=Reach(allow_private=True, resolver=loopback)) as tool:
            assert not (await call(tool.open(), "headers")).failed
        assert seen.headers[-1]["host"] == f"lab.example:{server.port}"


async def test_a_redirect_does_not_lead_elsewhere() -> None:
    seen = Seen()
    with serving(seen) as inside:

        async def redirects(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "lifespan":
                await lifespan(receive, send)
            else:
                await answer(send, 307, b"", (b"location", inside.encode()))

        async def one_name(host: str, port: int) -> list[str]:
            return ["127.0.0.1"] if host == "front.example" else ["10.0.0.1"]

        with ServerThread(redirects) as server:
            endpoint, _ = http_endpoint(server.url(host="front.example"))
            reach = Reach(allow_private=True, resolver=one_name)
            async with mcp_tool(endpoint, reach=reach, timeout=5) as tool:
                assert (await call(tool.open(), "echo", text="let me in")).failed
        assert seen.calls == 0
