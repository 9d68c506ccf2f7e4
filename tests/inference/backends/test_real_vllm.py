"""A real vLLM on the embedded model's weights: the contract, cancellation, the local engine's texts."""

import asyncio
import re
import urllib.request
from collections.abc import AsyncIterator, Iterator

import pytest

import inference
from inference import tiny
from inference.engine import Engine
from tests.contracts.engine_contract import EngineContract
from tests.contracts.greedy_contract import GreedyContract, builtin
from tests.contracts.remote_contract import check_abandoned_ends
from tests.contracts.spelled_contract import SpelledContract
from tests.doubles.engines.live import found_vllm, vllm_server, write_folder

__all__ = ["builtin"]  # a fixture
PROGRAM = found_vllm()
pytestmark = [
    pytest.mark.engines,
    pytest.mark.anyio,
    pytest.mark.skipif(PROGRAM is None, reason="no vLLM: set VLLM to the path of its program"),
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    assert PROGRAM is not None
    with vllm_server(PROGRAM, write_folder(tiny.checkpoint(), tmp_path_factory.mktemp("folder"))) as url:
        yield url


@pytest.fixture
async def engine(url: str) -> AsyncIterator[Engine]:
    engine = await asyncio.to_thread(inference.load, f"vllm:{url}")
    yield engine
    await engine.close()


class TestRealVllm(EngineContract, SpelledContract, GreedyContract):
    widest = 0.05

    @pytest.fixture
    def engine(self, engine: Engine) -> Engine:
        return engine


async def test_an_abandoned_generation_ends_on_the_server(engine: Engine, url: str) -> None:
    def running() -> float:
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            return float(re.findall(r"vllm:num_requests_running\{.*\} (\S+)", answer.read().decode())[0])

    await check_abandoned_ends(engine, running)
