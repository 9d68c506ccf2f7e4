"""The whole system with the embedded model's weights, on the built-in engine and on those of other programs.

No script: every token is sampled, and the same requests get the same results.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI

from tests.contracts.embedded_model_contract import EmbeddedModelContract, pages
from tests.doubles.engines.live import KINDS, live_engine
from tests.doubles.server_process import serving

__all__ = ["pages"]  # a fixture


@pytest.fixture(
    scope="module", params=["tiny", *(pytest.param(kind, marks=pytest.mark.engines) for kind in KINDS)]
)
def served(
    request: pytest.FixtureRequest, pages: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OpenAI]:
    with (
        live_engine(request.param, tmp_path_factory.mktemp("model"), context=4096) as model,
        serving("--model", model, "--browser", f"local:{pages}", "--python", "auto") as server,
        OpenAI(base_url=server.api, api_key="unused", max_retries=0, timeout=300) as client,
    ):
        yield client


class TestEmbeddedModel(EmbeddedModelContract):
    @pytest.fixture
    def client(self, served: OpenAI) -> OpenAI:
        return served
