"""An engine whose prompts and outputs are in the log (`--log-prompts`).

A prompt is logged with its sampling when it arrives, so that the log has it even if it ends the process.
"""

import itertools
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import fields
from typing import Any

from gpt_oss_server.harmony.encoding import Encoding
from inference.engine import Engine, EngineInfo, Sampling, Step

_log = logging.getLogger(__name__)
_numbers = itertools.count(1)
_NOT_SHOWN = frozenset({"grammar", "labels", "owner", "stop_token_ids"})
_REQUEST = "x-request-id"


class LoggedEngine:
    def __init__(self, engine: Engine, encoding: Encoding) -> None:
        self._engine, self._encoding = engine, encoding

    @property
    def info(self) -> EngineInfo:
        return self._engine.info

    def __getattr__(self, name: str) -> Any:
        """What only some engines have: their checks and measures."""
        return getattr(self._engine, name)

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        name = f"Generation {next(_numbers)} of {sampling.labels.get(_REQUEST, 'this server')}"
        _log.info("%s: %s; prompt: %s", name, _shown(sampling), self._encoding.decode(tokens))
        sampled: list[int] = []
        try:
            async with aclosing(self._engine.generate(tokens, sampling)) as steps:
                async for step in steps:
                    sampled += step.tokens
                    yield step
        finally:
            _log.info("%s: output: %s", name, self._encoding.decode(sampled))

    async def close(self) -> None:
        await self._engine.close()


def _shown(sampling: Sampling) -> str:
    """The fields that are not neutral."""
    neutral = Sampling()
    values = {field.name: getattr(sampling, field.name) for field in fields(sampling)}
    given = [
        f"{name}={value}"
        for name, value in values.items()
        if name not in _NOT_SHOWN and value != getattr(neutral, name)
    ]
    return ", ".join(given) or "the engine's own sampling"
