"""A real SGLang that runs already, with any model of the vocabulary: the contract, and cancellation."""

import asyncio
import json
import os
import urllib.request
from collections.abc import AsyncIterator

import pytest

import inference
from inference.engine import Engine
from inference.options import EngineOptions
from tests.contracts.engine_contract import EngineContract
from tests.contracts.remote_contract import check_abandoned_ends
from tests.contracts.spelled_contract import SpelledContract

URL, KEY = os.environ.get("SGLANG_URL", ""), os.environ.get("SGLANG_KEY")
pytestmark = [
    pytest.mark.engines,
    pytest.mark.anyio,
    pytest.mark.skipif(not URL, reason="no SGLang: set SGLANG_URL to the address of one that runs"),
]


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    options = EngineOptions(engine_key=KEY)
    engine = await asyncio.to_thread(inference.load, f"sglang:{URL}", options=options)
    yield engine
    await engine.close()


class TestRealSglang(EngineContract, SpelledContract):
    any_bytes = True  # its model may be of random weights

    @pytest.fixture
    def engine(self, engine: Engine) -> Engine:
        return engine


async def test_an_abandoned_generation_ends_on_the_server(engine: Engine) -> None:
    def running() -> int:
        asked = urllib.request.Request(f"{URL}/v1/loads", headers={"authorization": f"Bearer {KEY}"})
        with urllib.request.urlopen(asked) as answer:
            return sum(int(load["num_running_reqs"]) for load in json.load(answer)["loads"])

    await check_abandoned_ends(engine, running)
