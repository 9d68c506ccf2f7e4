"""Shared fixtures of the tests of the Responses API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from gpt_oss_server.settings import Settings
from tests.doubles.apis.api_client import Api
from tests.doubles.tools.echo_server import Seen, watched


@pytest.fixture
async def api() -> AsyncIterator[Callable[..., Api]]:
    """Creates clients of apps in this process from an engine and settings, and closes them at the end."""
    made: list[Api] = []

    def make(engine: Any, **settings: Any) -> Api:
        made.append(Api(engine, Settings(**settings)))
        return made[-1]

    yield make
    for each in made:
        await each.client.aclose()
        await each.service.close()


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[str, Seen]]:
    """An MCP server and its record of requests."""
    with watched() as found:
        yield found


@pytest.fixture
def url(place: tuple[str, Seen]) -> str:
    return place[0]
