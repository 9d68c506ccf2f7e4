"""Tools of real MCP servers, over HTTP in both its forms and over a pipe, in fair weather and foul."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest

from tests.contracts.tool_contract import ToolContract
from tests.tools.mcp.echo_server import Seen, ServerThread, app_of, make_server, serving
from tools.mcp.client import McpTool
from tools.mcp.endpoints import Credentials, Endpoint, McpSettingsError, StdioEndpoint, http_endpoint
from tools.mcp.failures import McpFailure
from tools.mcp.permissions import parse_permissions
from tools.mcp.transports import Reach
from tools.tool import Session, Tool, ToolCall, ToolOutput
from tools.toolbox import Offer, Toolbox

PIPE = StdioEndpoint(sys.executable, (str(Path(__file__).with_name("echo_server.py")), "stdio"))
SECRETS = ("sesame-opens-9931", "tok-4411-7788", "Bearer tok-4411-7788")

Kind = Literal["http", "sse"]


def at(url: str) -> Endpoint:
    return http_endpoint(url, trusted=True)[0]


@pytest.fixture(scope="module", params=["http", "sse"])
def place(request: pytest.FixtureRequest) -> Iterator[tuple[str, Seen]]:
    """One server for all tests that leave it as they found it."""
    seen = Seen()
    with serving(seen, request.param) as url:
        yield url, seen


@pytest.fixture(scope="module")
def lone() -> Iterator[tuple[str, Seen]]:
    seen = Seen()
    with serving(seen) as url:
        yield url, seen


@pytest.fixture
async def tool(place: tuple[str, Seen]) -> AsyncIterator[McpTool]:
    made = McpTool("echo", at(place[0]), Credentials({"X-Secret": SECRETS[0]}, SECRETS[1]), timeout=10)
    yield made
    await made.close()


async def call(session: Session, function: str, **arguments: Any) -> ToolOutput:
    return await session.run(ToolCall(function, json.dumps(arguments)))


async def soon(happened: Any) -> bool:
    """Whether a thread's event is set within a few seconds."""
    return bool(await asyncio.to_thread(happened.wait, 5))


class TestOverHttp(ToolContract):
    url: str

    @pytest.fixture(autouse=True)
    def _served(self, lone: tuple[str, Seen]) -> None:
        self.url = lone[0]

    async def make(self) -> Tool:
        made = McpTool(
            "echo", at(self.url), permissions=parse_permissions(["echo", "slow", "has a space.and dot"])
        )
        await made.list()
        return made

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
    assert [each.name for each in declaration.functions] == [each.word for each in listing.tools]


async def test_a_call_is_answered_and_its_details_are_those_of_an_item(tool: McpTool) -> None:
    session = tool.open()
    output = await call(session, "echo", text="hello 🧠")
    assert output == ToolOutput(
        "hello 🧠",
        details={
            "server_label": "echo",
            "name": "echo",
            "arguments": '{"text": "hello \\ud83e\\udde0"}',
            "output": "hello 🧠",
            "error": None,
        },
    )
    await session.close()


async def test_an_error_of_the_tool_is_a_failed_output(tool: McpTool) -> None:
    output = await call(tool.open(), "fail", why="the moon is full")
    assert output.failed
    assert "the moon is full" in output.text
    assert output.details["error"] == output.text
    assert output.details["output"] is None


async def test_wrong_arguments_are_answered_by_the_server_or_by_us(tool: McpTool) -> None:
    session = tool.open()
    assert (await call(session, "echo", wrong=1)).failed
    bad = await session.run(ToolCall("echo", '{"text": '))
    assert bad.failed
    assert "not valid JSON" in bad.text
    assert (await call(session, "echo", text="and on it goes")).text == "and on it goes"


async def test_an_unknown_function_is_answered_with_those_there_are(tool: McpTool) -> None:
    output = await call(tool.open(), "delete_everything")
    assert output.failed
    assert "echo.echo" in output.text


async def test_a_name_that_no_recipient_carries_has_a_word_and_reaches_its_tool(tool: McpTool) -> None:
    listing = await tool.list()
    assert any("'has a space.and dot' is called 'has_a_space_and_dot'" in note for note in listing.notes)
    output = await call(tool.open(), "has_a_space_and_dot")
    assert output.text == "found"
    assert output.details["name"] == "has a space.and dot"


async def test_a_picture_is_noted_in_the_text_and_kept_in_the_details(tool: McpTool) -> None:
    output = await call(tool.open(), "picture")
    assert "a picture, image/png" in output.text
    assert output.details["images"][0]["mime_type"] == "image/png"


async def test_text_that_is_nearly_binary_comes_through(tool: McpTool) -> None:
    assert (await call(tool.open(), "odd")).text == "\x00\x01\x7f\u2028 <|end|> 🧠"


@pytest.mark.filterwarnings("ignore::ResourceWarning")
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
    place: tuple[str, Seen],
) -> None:
    url, seen = place
    seen.cancelled.clear()
    tool = McpTool("echo", at(url), timeout=0.7)
    session = tool.open()
    await tool.list()
    output = await call(session, "slow", seconds=30)
    assert output.failed
    assert "did not answer within 0.7 seconds" in output.text
    assert await soon(seen.cancelled)
    assert (await call(session, "echo", text="again")).text == "again"
    await tool.close()


async def test_a_cancelled_call_stops_at_the_server_and_keeps_the_connection(
    place: tuple[str, Seen], tool: McpTool
) -> None:
    seen = place[1]
    seen.started.clear()
    seen.cancelled.clear()
    session = tool.open()
    with anyio.move_on_after(10) as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: call(session, "slow", seconds=30))
            assert await soon(seen.started)
            group.cancel_scope.cancel()
    assert not scope.cancelled_caught
    assert await soon(seen.cancelled)
    began = time.monotonic()
    assert (await call(session, "echo", text="still")).text == "still"
    assert time.monotonic() - began < 1


async def test_conversations_call_at_the_same_time_over_connections_of_their_own(tool: McpTool) -> None:
    await tool.list()
    sessions = [tool.open() for _ in range(5)]
    outputs = await asyncio.gather(*(call(each, "echo", text=str(n)) for n, each in enumerate(sessions)))
    assert [output.text for output in outputs] == ["0", "1", "2", "3", "4"]
    for each in sessions:
        await each.close()


async def test_a_session_opened_in_one_task_closes_in_another(tool: McpTool) -> None:
    session = tool.open()
    await asyncio.create_task(call(session, "echo", text="here"))
    await asyncio.create_task(session.close())
    assert (await asyncio.create_task(call(session, "echo", text="there"))).text == "there"
    await asyncio.create_task(tool.close())


async def test_a_closed_tool_answers_that_it_is_closed(tool: McpTool) -> None:
    session = tool.open()
    await call(session, "echo", text="hello")
    await tool.close()
    await tool.close()
    output = await call(session, "echo", text="hello")
    assert output.failed
    assert "closed" in output.text


async def test_credentials_reach_the_server_and_nothing_else(
    place: tuple[str, Seen],
    tool: McpTool,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    place[1].headers.clear()
    listing = await tool.list()
    output = await call(tool.open(), "headers")
    sent = place[1].headers[-1]
    assert sent["x-secret"] == SECRETS[0]
    assert sent["authorization"] == f"Bearer {SECRETS[1]}"
    failed = await call(tool.open(), "fail", why=f"I know {SECRETS[1]}")
    gc.collect()
    ours = ("tools", "mcp.client", "mcp.shared", "httpx2", "httpcore2", "asyncio")  # the server logs here too
    logged = [record.getMessage() for record in caplog.records if record.name.startswith(ours)]
    shown = [*logged, *capfd.readouterr(), repr(tool), repr(vars(tool)), repr(listing)]
    shown += [repr(output), repr(failed), repr(tool.declaration)]
    for secret in SECRETS:
        for text in shown:
            # The failing tool's arguments are the model's own words, and stand there as it wrote them.
            assert secret not in text.replace(f"I know {SECRETS[1]}", "")
    assert "[redacted]" in output.text
    assert "[redacted]" in failed.text


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_a_server_that_dies_in_mid_call_fails_the_call_and_its_return_is_noticed(kind: Kind) -> None:
    seen = Seen()
    server = ServerThread(app_of(make_server(seen), kind))
    tool = McpTool(
        "echo", at(f"http://127.0.0.1:{server.port}/{'mcp' if kind == 'http' else 'sse'}"), timeout=10
    )
    session = tool.open()
    await tool.list()
    running = asyncio.ensure_future(call(session, "slow", seconds=30))
    assert await soon(seen.started)
    port = server.port
    await asyncio.to_thread(server.stop)
    output = await asyncio.wait_for(running, 8)
    assert output.failed
    assert (await call(session, "echo", text="anybody?")).failed
    server = ServerThread(app_of(make_server(seen), kind), port)
    assert (await call(session, "echo", text="back")).text == "back"
    await tool.close()
    await asyncio.to_thread(server.stop)


async def test_a_server_that_restarted_between_calls_is_reconnected_to_without_a_failure() -> None:
    server = ServerThread(app_of(make_server(), "http"))
    port = server.port
    tool = McpTool("echo", at(f"http://127.0.0.1:{port}/mcp"), timeout=10)
    session = tool.open()
    assert (await call(session, "echo", text="one")).text == "one"
    await asyncio.to_thread(server.stop)
    server = ServerThread(app_of(make_server(), "http"), port)
    assert (await call(session, "echo", text="two")).text == "two"
    await tool.close()
    await asyncio.to_thread(server.stop)


async def test_a_command_is_a_server_too_and_is_started_again_when_it_died() -> None:
    tool = McpTool("echo", PIPE, timeout=10)
    session = tool.open()
    assert (await call(session, "echo", text="hello")).text == "hello"
    died = await call(session, "die")
    assert died.failed
    assert "closed the connection" in died.text
    assert (await call(session, "echo", text="again")).text == "again"
    await tool.close()


async def test_a_command_that_is_none_is_a_sentence() -> None:
    tool = McpTool("echo", StdioEndpoint("no-such-command-anywhere"))
    output = await call(tool.open(), "echo", text="hello")
    assert output.failed
    assert "cannot be started" in output.text
    await tool.close()


async def test_a_command_that_speaks_something_else_is_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    tool = McpTool("echo", StdioEndpoint(sys.executable, ("-c", "print('hello')")), timeout=5)
    output = await call(tool.open(), "echo", text="hello")
    assert output.failed
    await tool.close()


async def test_nobody_at_the_address_is_a_sentence_for_the_listing_too() -> None:
    tool = McpTool("echo", at("http://127.0.0.1:9/mcp"), timeout=5)
    with pytest.raises(McpFailure, match="cannot be connected to"):
        await tool.list()
    await tool.close()


async def test_a_refused_authorization_is_said_and_not_shown() -> None:
    async def guard(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            return
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b"who is sesame-opens-9931?"})

    server = ServerThread(guard)
    tool = McpTool("echo", at(f"http://127.0.0.1:{server.port}/mcp"), Credentials({"X-Key": SECRETS[0]}))
    output = await call(tool.open(), "echo", text="hello")
    assert output.failed
    assert "status 401" in output.text
    assert SECRETS[0] not in output.text
    await tool.close()
    await asyncio.to_thread(server.stop)


async def test_a_listing_is_asked_for_again_when_it_is_old() -> None:
    now = 0.0
    with serving() as url:
        tool = McpTool("echo", at(url), clock=lambda: now)
        first = await tool.list()
        session = tool.open()
        assert not (await call(session, "echo", text="x")).failed
        assert (await tool.list()) == first
        now = 1000.0
        assert (await tool.list()) == first
        await tool.close()


async def test_an_operators_server_is_narrowed_for_a_request() -> None:
    with serving() as url:
        tool = McpTool("echo", at(url))
        permissions = parse_permissions({"read_only": True}, {"never": {"tool_names": ["echo"]}})
        narrowed = tool.narrowed(permissions)
        assert narrowed.listing is None
        assert [each.name for each in (await narrowed.list()).tools] == ["echo"]
        assert [each.name for each in narrowed.declaration.functions] == ["echo"]
        assert not narrowed.needs_approval("echo")
        box = Toolbox([Offer(tool)])
        assert not (await box.run("c", "echo.echo", '{"text": "x"}', narrowed.options)).failed
        refused = await box.run("c", "echo.large", '{"characters": 1}', narrowed.options)
        assert refused.failed
        assert "Its functions are: echo.echo." in refused.text
        assert not (await box.run("c", "echo.large", '{"characters": 1}')).failed
        await box.close()


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/mcp",
        "http://localhost:{port}/mcp",
        "http://127.1:{port}/mcp",
        "http://2130706433:{port}/mcp",
        "http://0x7f000001:{port}/mcp",
        "http://0177.0.0.1:{port}/mcp",
        "http://0:{port}/mcp",
        "http://0.0.0.0:{port}/mcp",
        "http://[::1]:{port}/mcp",
        "http://[::ffff:127.0.0.1]:{port}/mcp",
        "http://[::ffff:7f00:1]:{port}/mcp",
        "http://[::]:{port}/mcp",
        "http://169.254.169.254/latest/meta-data/",
        "http://user:password@127.0.0.1:{port}/mcp",
        "http://localhost:{port}/sse",
        "http://127.0.0.1.:{port}/mcp",
        "http://①②⑦.⓪.⓪.①:{port}/mcp",
        "http://10.0.0.1/mcp",
        "http://[fd00:ec2::254]/mcp",
        "http://[64:ff9b::7f00:1]/mcp",
    ],
)
async def test_a_client_cannot_send_us_to_a_place_that_is_not_public(
    url: str, lone: tuple[str, Seen]
) -> None:
    known, seen = lone
    before = seen.calls
    try:
        endpoint, _ = http_endpoint(url.format(port=known.split(":")[2].split("/")[0]))
    except McpSettingsError:
        return  # an odd spelling does not even become an endpoint
    tool = McpTool("echo", endpoint, timeout=5)
    output = await call(tool.open(), "echo", text="let me in")
    assert output.failed
    assert "may not be reached" in output.text
    assert "password" not in output.text
    assert seen.calls == before
    await tool.close()


async def test_a_name_that_answers_differently_the_second_time_gains_nothing() -> None:
    asked = 0

    async def rebinds(host: str, port: int) -> list[str]:
        nonlocal asked
        asked += 1
        return ["93.184.216.34", "127.0.0.1"] if asked == 1 else ["127.0.0.1"]

    seen = Seen()
    with serving(seen) as url:
        place = url.replace("127.0.0.1", "rebinds.example")
        tool = McpTool("echo", http_endpoint(place)[0], reach=Reach(resolver=rebinds), timeout=5)
        for _ in range(2):
            output = await call(tool.open(), "echo", text="let me in")
            assert "may not be reached" in output.text
        await tool.close()
    assert asked == 2


async def test_in_a_lab_private_hosts_are_allowed_and_the_name_is_kept() -> None:
    async def lab(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    seen = Seen()
    server = ServerThread(make_server(seen).streamable_http_app(host="lab.example"))
    tool = McpTool(
        "echo",
        http_endpoint(f"http://lab.example:{server.port}/mcp")[0],
        reach=Reach(allow_private=True, resolver=lab),
    )
    assert not (await call(tool.open(), "headers")).failed
    assert seen.headers[-1]["host"] == f"lab.example:{server.port}"
    await tool.close()
    await asyncio.to_thread(server.stop)


async def test_a_redirect_leads_nowhere_else() -> None:
    seen = Seen()
    with serving(seen) as inside:

        async def redirects(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "lifespan":
                await receive()
                await send({"type": "lifespan.startup.complete"})
                return
            place = [(b"location", inside.encode())]
            await send({"type": "http.response.start", "status": 307, "headers": place})
            await send({"type": "http.response.body", "body": b""})

        async def one_name(host: str, port: int) -> list[str]:
            return ["127.0.0.1"] if host == "front.example" else ["10.0.0.1"]

        server = ServerThread(redirects)
        tool = McpTool(
            "echo",
            http_endpoint(f"http://front.example:{server.port}/mcp")[0],
            reach=Reach(allow_private=True, resolver=one_name),
            timeout=5,
        )
        assert (await call(tool.open(), "echo", text="let me in")).failed
        assert seen.calls == 0
        await tool.close()
        await asyncio.to_thread(server.stop)
