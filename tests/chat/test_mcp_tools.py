"""MCP tools on Chat: they run here, and must not need approval."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import ToolNotAvailable, UnsupportedField
from gpt_oss_server.settings import Settings
from gpt_oss_server.toolset.offered import ToolsetMaker
from tests.doubles.apis.chat_asking import check_chunks, service_of
from tests.doubles.serving import scripted
from tests.doubles.tools.echo_server import Seen, serving

CALL = '<|channel|>commentary to=echoes.echo <|constrain|>json<|message|>{"text":"hi"}<|call|>'
ANSWER = "<|channel|>final<|message|>Done.<|return|>"
Asking = Callable[..., Any]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(Seen()) as url:
        yield url


@pytest.fixture
async def asking(url: str) -> AsyncIterator[Asking]:
    settings = Settings(python="off", browser="off", allow_private_hosts=True)
    chat = service_of(scripted(CALL, ANSWER), settings, tools=ToolsetMaker(settings))

    async def ask(**tool: Any) -> dict[str, Any]:
        given = {"type": "mcp", "server_label": "echoes", "server_url": url, **tool}
        body = {"stream": True, "tools": [given], "messages": [{"role": "user", "content": "Say hi."}]}
        run = await chat.start(LOCAL, body)
        return check_chunks([chunk async for batch in run.chunks() for chunk in batch])

    yield ask
    await chat.served.stop()
    await chat.served.close()


async def test_a_server_that_needs_no_approval_runs_immediately(asking: Asking) -> None:
    message = (await asking(require_approval="never"))["choices"][0]["message"]
    [ran] = message["executed_tools"]
    assert (ran["type"], ran["name"], ran["output"]) == ("mcp", "echoes.echo", "hi")
    assert (message["content"], "tool_calls" in message) == ("Done.", False)


@pytest.mark.parametrize("approval", [{}, {"require_approval": "always"}], ids=str)
async def test_a_tool_that_needs_approval_is_refused(asking: Asking, approval: Any) -> None:
    with pytest.raises(UnsupportedField, match="'echo' of the MCP server 'echoes' need approval"):
        await asking(**approval)


async def test_a_server_that_cannot_be_reached_is_an_error(asking: Asking) -> None:
    with pytest.raises(ToolNotAvailable, match="cannot be connected to"):
        await asking(require_approval="never", server_url="http://127.0.0.1:9/mcp")
