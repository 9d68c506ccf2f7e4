"""A repeating engine keeps the contract of an engine, and answers over HTTP."""

from __future__ import annotations

import httpx
import pytest

from gpt_oss_server.harmony.encoding import load_encoding
from inference.engine import Engine
from inference.repeating import RepeatingEngine
from tests.contracts.engine_contract import EngineContract
from tests.doubles.serving import serving


class TestRepeating(EngineContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return RepeatingEngine(range(100, 150))


def test_it_answers_over_http() -> None:
    tokens = load_encoding().encode_special("<|channel|>final<|message|>Hello!<|return|>")
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    with serving(RepeatingEngine(tokens)) as base:
        answer = httpx.post(f"{base}/chat/completions", json=body, timeout=60).json()
    assert answer["choices"][0]["message"]["content"] == "Hello!"
