"""The official SDK, pointed at a server of a test."""

from collections.abc import Iterator
from contextlib import contextmanager

from openai import OpenAI

from gpt_oss_server.settings import Settings
from tests.doubles.serving import scripted, serving


@contextmanager
def client_of(*turns: object, settings: Settings | None = None, **options: object) -> Iterator[OpenAI]:
    with (
        serving(scripted(*turns, **options), settings) as url,
        OpenAI(base_url=url, api_key="any", max_retries=0) as client,
    ):
        yield client
