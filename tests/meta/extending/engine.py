"""A repeating engine keeps the contract of an engine, and answers over HTTP."""

import httpx
import pytest

import inference
from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.settings import OPTIONS
from inference.backends.repeating import RepeatingEngine
from inference.engine import Engine, ModelNotFound, Sampling
from tests.contracts.engine_contract import EngineContract
from tests.doubles.serving import serving


class TestRepeating(EngineContract):
    @pytest.fixture
    def engine(self) -> Engine:
        return RepeatingEngine(range(100, 150))


async def test_its_name_loads_it_and_is_among_the_known_ones() -> None:
    engine = inference.load("repeating:7,8")
    sampled = [step.tokens async for step in engine.generate([1], Sampling(max_tokens=3))]
    assert sampled == [(7,), (8,), (7,), ()]
    with pytest.raises(ModelNotFound, match=r"scripted:FILE, repeating:ID,….* or random"):
        inference.load("unknown")
    assert "`repeating:ID,…`" in next(each.help for each in OPTIONS if each.name == "model")


def test_it_answers_over_http() -> None:
    tokens = load_encoding().encode_special("<|channel|>final<|message|>Hello!<|return|>")
    body = {"messages": [{"role": "user", "content": "Hi"}]}
    with serving(RepeatingEngine(tokens)) as base:
        answer = httpx.post(f"{base}/chat/completions", json=body, timeout=60).json()
    assert answer["choices"][0]["message"]["content"] == "Hello!"
