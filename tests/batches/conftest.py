"""Clients of Anthropic's front to batches."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import anthropic
import openai
import pytest

Anthropics = Callable[[openai.OpenAI], anthropic.Anthropic]


@pytest.fixture
def anthropics() -> Iterator[Anthropics]:
    """Makes clients of the same server, and closes them at the end."""
    with ExitStack() as clients:

        def made(client: openai.OpenAI) -> anthropic.Anthropic:
            url = str(client.base_url).removesuffix("/v1/")
            own = anthropic.Anthropic(base_url=url, api_key=client.api_key, max_retries=0)
            return clients.enter_context(own)

        yield made
