"""The engine contract, for every engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from inference.backends.callable_engine import CallableEngine
from inference.backends.script_file import Script, ScriptedTurn
from inference.backends.scripted import ScriptedEngine
from inference.engine import Engine
from inference.local.engine import load_local
from inference.options import EngineOptions
from tests.contracts.engine_contract import EngineContract

LONG_TURN = ScriptedTurn(tokens=tuple(range(1000, 1060)))


class TestScripted(EngineContract):
    @pytest.fixture
    async def engine(self) -> AsyncIterator[Engine]:
        engine = ScriptedEngine(Script(turns=(LONG_TURN,)))
        yield engine
        await engine.close()


class TestScriptedAtARate(EngineContract):
    @pytest.fixture
    async def engine(self) -> AsyncIterator[Engine]:
        engine = ScriptedEngine(Script(turns=(LONG_TURN,), tokens_per_second=5000), context=200)
        yield engine
        await engine.close()


class TestLocal(EngineContract):
    @pytest.fixture
    async def engine(self, checkpoint: Path) -> AsyncIterator[Engine]:
        engine = load_local(checkpoint, EngineOptions(device="cpu", context=600), name="small")
        yield engine
        await engine.close()


def next_of(tokens: list[int], temperature: float, new_request: bool) -> int:
    return (sum(tokens) * 31 + len(tokens)) % 5000


class TestCallable(EngineContract):
    @pytest.fixture
    async def engine(self) -> AsyncIterator[Engine]:
        engine = CallableEngine(next_of, context_length=5000)
        yield engine
        await engine.close()
