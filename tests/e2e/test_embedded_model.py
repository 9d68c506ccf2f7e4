"""The whole system with the embedded model: no script, every token is sampled from real weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI

import inference
from gpt_oss_server.settings import Settings
from tests.contracts.embedded_model_contract import EmbeddedModelContract, pages
from tests.doubles.serving import serving
from tests.tools.python.conftest import sandbox_of_servers

__all__ = ["pages"]  # a fixture


@pytest.fixture(scope="module")
def served(pages: Path) -> Iterator[OpenAI]:
    settings = Settings(model="tiny", browser=f"local:{pages}", python=sandbox_of_servers())
    with (
        serving(inference.load("tiny"), settings) as url,
        OpenAI(base_url=url, api_key="unused", max_retries=0, timeout=120) as client,
    ):
        yield client


class TestEmbeddedModel(EmbeddedModelContract):
    @pytest.fixture
    def client(self, served: OpenAI) -> OpenAI:
        return served
