"""The engine contract, for every engine."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from inference.backends.callable_engine import CallableEngine
from inference.backends.script_file import Script, ScriptedTurn
from inference.backends.scripted import ScriptedEngine
from inference.engine import Engine
from inference.local.engine import load_local
from inference.options import EngineOptions
from tests.contracts.engine_contract import EngineContract


def next_of(tokens: list[int], temperature: float, new_request: bool) -> int:
    return (sum(tokens) * 31 + len(tokens)) % 5000


SCRIPT = Script(turns=(ScriptedTurn(tokens=tuple(range(1000, 1060))),))
IN_LOOP: dict[str, Callable[[], Engine]] = {
    "scripted": lambda: ScriptedEngine(SCRIPT),
    "at a rate": lambda: ScriptedEngine(replace(SCRIPT, tokens_per_second=5000.0), context=200),
    "callable": lambda: CallableEngine(next_of, context_length=5000),
}


class TestOthers(EngineContract):
    @pytest.fixture(params=IN_LOOP)
    async def engine(self, request: pytest.FixtureRequest) -> AsyncIterator[Engine]:
        engine = IN_LOOP[request.param]()
        yield engine
        await engine.close()


class TestLocal(EngineContract):
    @pytest.fixture
    async def engine(self, checkpoint: Path) -> AsyncIterator[Engine]:
        engine = load_local(checkpoint, EngineOptions(device="cpu", context=600), name="small")
        yield engine
        await engine.close()
