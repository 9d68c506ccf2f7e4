"""Where a client's MCP server may be, and where a redirect or a name may lead."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.doubles.tools.echo_server import Seen, ServerThread, make_server, serving
from tests.doubles.tools.mcp_helpers import answer, call, lifespan
from tools.mcp.client import McpTool
from tools.mcp.endpoints import McpSettingsError, http_endpoint
from tools.mcp.transports import Reach


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
async def test_a_client_cannot_make_the_server_reach_a_private_address(
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
    lookups = 0

    async def rebinds(host: str, port: int) -> list[str]:
        nonlocal lookups
        lookups += 1
        return ["93.184.216.34", "127.0.0.1"] if lookups == 1 else ["127.0.0.1"]

    seen = Seen()
    with serving(seen) as url:
        place = url.replace("127.0.0.1", "rebinds.example")
        tool = McpTool("echo", http_endpoint(place)[0], reach=Reach(resolver=rebinds), timeout=5)
        for _ in range(2):
            output = await call(tool.open(), "echo", text="let me in")
            assert "may not be reached" in output.text
        await tool.close()
    assert lookups == 2


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
