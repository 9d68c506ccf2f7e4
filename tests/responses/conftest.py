"""Shared fixtures of the tests of the Responses API."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from gpt_oss_server.toolset.offered import Toolset
from inference.engine import Engine, EngineInfo, Finish, Sampling, Step
from tests.doubles.apis.api_client import Api
from tests.doubles.apis.asking import Asking
from tests.doubles.apis.mcp_asking import Asking as McpAsking
from tests.doubles.tools.echo_server import Seen, watched
from tests.doubles.tools.scripted_tool import Calculator, Ready
from tools.toolbox import Offer, Toolbox

Make = Callable[..., Api]
Echoes = Callable[..., McpAsking]
PYTHON: dict[str, Any] = {"type": "code_interpreter", "container": {"type": "auto"}}


def with_tool(engine: Engine, tool: Any = None, timeout: float = 60) -> Asking:
    """Requests to a service with one hosted tool, by default sums in place of python."""
    return Asking(
        engine=engine, tools=Ready(Toolset(Toolbox([Offer(tool or Calculator(), timeout=timeout)])))
    )


@pytest.fixture
async def api() -> AsyncIterator[Make]:
    """Creates clients of apps in this process from an engine and settings, and closes them at the end."""
    made: list[Api] = []

    def make(engine: Any, **settings: Any) -> Api:
        made.append(Api(engine, Settings(**settings)))
        return made[-1]

    yield make
    for client in made:
        await client.client.aclose()
        await client.service.close()


@pytest.fixture(scope="module")
def mcp_server() -> Iterator[tuple[str, Seen]]:
    """An MCP server and its record of requests."""
    with watched() as url_and_record:
        yield url_and_record


@pytest.fixture
def url(mcp_server: tuple[str, Seen]) -> str:
    return mcp_server[0]


@pytest.fixture
def seen(mcp_server: tuple[str, Seen]) -> Seen:
    """What the MCP server saw since the test began."""
    record = mcp_server[1]
    record.calls = record.listings = 0
    record.started.clear()
    return record


@pytest.fixture
async def echoes(encoding: Encoding, url: str) -> AsyncIterator[Echoes]:
    """Creates services with the MCP server as the operator's, or as one that requests may name."""
    async with AsyncExitStack() as stack:

        def make(*turns: str, **settings: Any) -> McpAsking:
            if "allow_private_hosts" not in settings:
                settings = {"mcp": (f"echoes={url}",), **settings}
            return stack.push_async_exit(McpAsking(encoding, *turns, **settings))

        yield make


SUMMARY = (
    "<|channel|>analysis<|message|>What matters?<|end|>"
    "<|start|>assistant<|channel|>final<|message|>{}<|return|>"
)
ANSWER = "<|channel|>final<|message|>{}<|return|>"


class Summariser:
    """Summarises on request, otherwise returns its answers in order; keeps the prompts as text."""

    def __init__(
        self, encoding: Encoding, *answers: str, context: int = 131_072, summary: str = "They grow roses."
    ) -> None:
        self._encoding = encoding
        self._answers = list(answers or (ANSWER.format("Fine."),))
        self._summary = summary
        self.info = EngineInfo(name="summariser", context_length=context)
        self.prompts: list[str] = []
        self.summary_prompts: list[str] = []
        self.tokens: list[Sequence[int]] = []
        self.samplings: list[Sampling] = []

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        prompt = self._encoding.decode(tokens)
        if "Write the summary, and nothing else." in prompt.rpartition("<|start|>user")[2]:
            self.summary_prompts.append(prompt)
            text = SUMMARY.format(self._summary)
        else:
            self.prompts.append(prompt)
            text = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        self.tokens.append(tokens)
        self.samplings.append(sampling)
        made = self._encoding.encode_special(text)
        yield Step(tuple(made[: sampling.max_tokens]), Finish.STOP)

    async def close(self) -> None:
        pass
