"""Calls of every kind of client tool, complete, truncated and mutated, give well-formed streams."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gpt_oss_server.harmony.encoding import Encoding
from tests.doubles.apis.asking import NEXT, Asking
from tests.doubles.apis.client_tools import STREAMS
from tests.doubles.conversations import mutated
from tests.doubles.engines.replay import ReplayEngine

TOOLS: dict[str, list[dict[str, Any]]] = {name: tools for name, (_, tools) in STREAMS.items()}
TURNS = {name: turn for name, (turn, _) in STREAMS.items()}


@pytest.mark.parametrize("name", STREAMS)
async def test_cut_at_every_token(encoding: Encoding, name: str) -> None:
    tokens = encoding.encode_special(f"<|channel|>analysis<|message|>Hm.<|end|>{NEXT}{TURNS[name]}")
    for limit in range(1, len(tokens) + 1):
        ask = Asking(engine=ReplayEngine(tokens, per_step=limit % 4 + 1))
        response = await ask(tools=TOOLS[name], max_output_tokens=limit, store=False)
        assert response["status"] == ("completed" if limit == len(tokens) else "incomplete")


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("name", STREAMS)
async def test_mutated_by_one_to_five_tokens(encoding: Encoding, name: str, parallel: bool) -> None:
    rng = random.Random(f"{name} {parallel}")
    tokens = encoding.encode_special(f"{TURNS[name]}{NEXT}{TURNS[name]}")
    for _ in range(20):
        ask = Asking(engine=ReplayEngine(mutated(tokens, rng), per_step=8))
        response = await ask(tools=TOOLS[name], parallel_tool_calls=parallel, store=False)
        assert response["status"] in ("completed", "failed")
        if response["status"] == "failed":  # the mutated call does not fit its schema or grammar
            assert "invalid_output" in response["error"]["message"]
