"""A user's function as an engine."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import numpy
import pytest
import torch

from inference.backends.callable_engine import CallableEngine
from inference.engine import EngineFailed, Sampling
from tests.contracts.engine_contract import GREEDY, generated

pytestmark = pytest.mark.anyio


class Recorder:
    def __init__(self) -> None:
        self.calls: list[tuple[int, int, float, bool]] = []
        self.threads: set[int] = set()

    def __call__(self, tokens: list[int], temperature: float, new_request: bool) -> int:
        self.calls.append((tokens[0], len(tokens), temperature, new_request))
        self.threads.add(threading.get_ident())
        tokens.append(99)  # a function may change its argument
        return len(tokens)


async def test_generations_run_one_after_the_other_in_order_of_arrival() -> None:
    function = Recorder()
    engine = CallableEngine(function)
    sampling = Sampling(temperature=0.5, max_tokens=4)
    await asyncio.gather(*(generated(engine, sampling, [prompt, 0]) for prompt in (1, 2, 3)))
    wanted = [(prompt, 2 + at, 0.5, at == 0) for prompt in (1, 2, 3) for at in range(4)]
    assert function.calls == wanted
    assert function.threads.isdisjoint({threading.get_ident()})
    assert len(function.threads) == 1


async def test_a_stalled_reader_delays_no_other() -> None:
    engine = CallableEngine(lambda tokens, temperature: 5)
    stalled = engine.generate([1], replace(GREEDY, max_tokens=1000))
    await anext(stalled)
    await asyncio.wait_for(generated(engine), 5)
    await stalled.aclose()


async def test_a_waiting_client_can_leave() -> None:
    gate = threading.Event()

    def slow(tokens: list[int], temperature: float, new_request: bool) -> int:
        gate.wait(5)
        return 7

    engine = CallableEngine(slow)
    tasks = [asyncio.create_task(generated(engine)) for _ in range(3)]
    await asyncio.sleep(0.01)
    tasks[1].cancel()
    await asyncio.sleep(0.01)
    gate.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(found[1], asyncio.CancelledError)
    assert not isinstance(found[2], BaseException)


@pytest.mark.parametrize(
    ("function", "tokens"),
    [
        (lambda tokens, temperature: 2, (2, 2, 2)),
        (lambda tokens, temperature=0.0: 2, (2, 2, 2)),
        (lambda tokens, temperature, new_request: int(new_request), (1, 0, 0)),
        (lambda tokens, temperature=0.0, new_request=False: int(new_request), (1, 0, 0)),
        (lambda tokens, temperature=0.0, *, new_request=False: int(new_request), (1, 0, 0)),
        (lambda *arguments: len(arguments), (3, 3, 3)),
    ],
)
async def test_new_request_is_passed_where_and_as_the_function_takes_it(
    function: Any, tokens: tuple[int, ...]
) -> None:
    engine = CallableEngine(function)
    for _ in range(2):
        assert (await generated(engine, replace(GREEDY, max_tokens=3))).tokens == tokens


async def test_the_error_names_the_functions_exception_and_only_the_log_has_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = 0

    def flaky(tokens: list[int], temperature: float) -> int:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyError("the shelf is empty")
        return 5

    engine = CallableEngine(flaky)
    with pytest.raises(EngineFailed, match="KeyError") as caught:
        await generated(engine)
    assert "shelf" not in str(caught.value)
    assert "the shelf is empty" in caplog.text
    assert len((await generated(engine)).tokens) == 40


@pytest.mark.parametrize("value", [numpy.int64(5), torch.tensor(5)])
async def test_an_integer_of_another_type_is_a_token(value: Any) -> None:
    engine = CallableEngine(lambda tokens, temperature: value)
    found = await generated(engine, replace(GREEDY, max_tokens=1))
    assert found.tokens == (int(value),)
    assert type(found.tokens[0]) is int


MUST = "it must return one token id"
RANGE = "token ids range from 0 to 201087"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, f"None; {MUST}"),
        ("5", f"str; {MUST}"),
        (5.0, f"float; {MUST}"),
        ([5], f"list; {MUST}"),
        (True, f"bool; {MUST}"),
        (numpy.bool_(True), f"bool; {MUST}"),
        *((token, f"token {token}; {RANGE}") for token in (10**9, -1, 201_088)),
    ],
)
async def test_a_value_that_is_no_token_is_an_error_that_names_it(value: Any, words: str) -> None:
    with pytest.raises(EngineFailed, match=f"returned .*{words}"):
        await generated(CallableEngine(lambda tokens, temperature: value))


async def test_a_function_that_exits_ends_its_generation_alone() -> None:
    calls = iter([True])

    def leaving(tokens: list[int], temperature: float) -> int:
        if next(calls, False):
            raise SystemExit(3)
        return 5

    engine = CallableEngine(leaving)
    with pytest.raises(EngineFailed, match="SystemExit"):
        await generated(engine)
    assert len((await generated(engine)).tokens) == 40


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({}, 1),
        ({"min_tokens": 6}, 7),
        ({"ignored_stop_ids": frozenset({7})}, 20),
        ({"ignored_stop_ids": frozenset({8})}, 1),
    ],
)
async def test_a_stop_id_is_sampled_past_where_it_may_not_end(fields: dict[str, Any], count: int) -> None:
    engine = CallableEngine(lambda tokens, temperature: 7)
    assert engine.info.honours == {"temperature", "min_tokens", "ignored_stop_ids"}
    sampling = Sampling(max_tokens=20, stop_token_ids=frozenset({7}), **fields)
    made = await generated(engine, sampling)
    assert made.tokens == (7,) * count
