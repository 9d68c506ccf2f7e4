"""The whole system on real engines of other programs, which run the embedded model's weights.

The same requests get the same results as on the built-in engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI

from tests.contracts.embedded_model_contract import EmbeddedModelContract, pages
from tests.doubles.engines.live import KINDS, live_engine
from tests.doubles.server_process import serving

pytestmark = pytest.mark.engines
__all__ = ["pages"]  # a fixture


@pytest.fixture(scope="module", params=KINDS)
def served(
    request: pytest.FixtureRequest, pages: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OpenAI]:
    scratch = tmp_path_factory.mktemp("model")
    with (
        live_engine(request.param, scratch, context=4096) as model,
        serving("--model", model, "--browser", f"local:{pages}") as server,
        OpenAI(base_url=server.api, api_key="unused", max_retries=0, timeout=300) as client,
    ):
        yield client


class TestRealEngines(EmbeddedModelContract):
    @pytest.fixture
    def client(self, served: OpenAI) -> OpenAI:
        return served
