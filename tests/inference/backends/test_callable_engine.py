"""A user's function as an engine."""

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


async def test_generations_run_one_after_the_other_in_order_of_arrival() -> None:
    calls, threads = [], set()

    def infer(tokens: list[int], temperature: float, new_request: bool) -> int:
        calls.append((tokens[0], len(tokens), temperature, new_request))
        threads.add(threading.get_ident())
        tokens.append(99)  # a function may change its argument
        return len(tokens)

    engine, sampling = CallableEngine(infer), Sampling(temperature=0.5, max_tokens=4)
    await asyncio.gather(*(generated(engine, sampling, [prompt, 0]) for prompt in (1, 2, 3)))
    assert calls == [(prompt, 2 + at, 0.5, at == 0) for prompt in (1, 2, 3) for at in range(4)]
    assert len(threads - {threading.get_ident()}) == len(threads) == 1


async def test_a_stalled_reader_delays_no_other() -> None:
    engine = CallableEngine(lambda tokens, temperature: 5)
    stalled = engine.generate([1], replace(GREEDY, max_tokens=1000))
    await anext(stalled)
    await asyncio.wait_for(generated(engine), 5)
    await stalled.aclose()


async def test_a_waiting_client_can_leave() -> None:
    gate = threading.Event()
    engine = CallableEngine(lambda tokens, temperature: int(gate.wait(5)))
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


@pytest.mark.parametrize("error", [KeyError("the shelf is empty"), SystemExit("the shelf is empty")])
async def test_the_error_names_the_functions_exception_and_only_the_log_has_its_text(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    errors = [None, None, error]

    def flaky(tokens: list[int], temperature: float) -> int:
        if errors and (problem := errors.pop(0)):
            raise problem
        return 5

    engine = CallableEngine(flaky)
    with pytest.raises(EngineFailed, match=type(error).__name__) as caught:
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
        *((value, f"{type(value).__name__}; {MUST}") for value in ("5", 5.0, [5], True, numpy.bool_(True))),
        *((token, f"token {token}; {RANGE}") for token in (-1, 201_088)),
    ],
)
async def test_a_value_that_is_no_token_is_an_error_that_names_it(value: Any, words: str) -> None:
    with pytest.raises(EngineFailed, match=f"returned .*{words}"):
        await generated(CallableEngine(lambda tokens, temperature: value))


IGNORED = [({"ignored_stop_ids": frozenset({7})}, 20), ({"ignored_stop_ids": frozenset({8})}, 1)]


@pytest.mark.parametrize(("fields", "count"), [({"min_tokens": 6}, 7), *IGNORED])
async def test_a_stop_id_is_sampled_past_where_it_may_not_end(fields: dict[str, Any], count: int) -> None:
    engine = CallableEngine(lambda tokens, temperature: 7)
    assert engine.info.honours == {"temperature", "min_tokens", "ignored_stop_ids"}
    sampling = Sampling(max_tokens=20, stop_token_ids=frozenset({7}), **fields)
    made = await generated(engine, sampling)
    assert made.tokens == (7,) * count
