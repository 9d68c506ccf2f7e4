"""Engines without weights: scripts, with the errors of mistakes in the file, and a user's function."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import inference
from gpt_oss_server.harmony.encoding import Encoding
from inference.backends import script_file
from inference.backends.callable_engine import CallableEngine
from inference.backends.script_file import Script, ScriptedTurn
from inference.backends.scripted import TOKENS_PER_STEP, ScriptedEngine
from inference.engine import (
    CheckpointError,
    Engine,
    EngineClosed,
    EngineFailed,
    Finish,
    ModelNotFound,
    Sampling,
)
from tests.contracts.engine_contract import GREEDY, EngineContract, generated

pytestmark = pytest.mark.anyio
RETURN = 200002


def script(tmp_path: Path, content: Any) -> ScriptedEngine:
    file = tmp_path / "script.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return inference.load(f"scripted:{file}")


async def answer(engine: ScriptedEngine, prompt: list[int] | None = None, **sampling: Any) -> list[int]:
    stream = engine.generate(prompt or [1], Sampling(**sampling))
    return [token for step in [step async for step in stream] for token in step.tokens]


async def test_text_is_encoded_with_special_tokens(tmp_path: Path, encoding: Encoding) -> None:
    text = "<|channel|>final<|message|>Hi, wörld<|return|>"
    engine = script(tmp_path, {"turns": [text]})
    assert await answer(engine) == encoding.encode_special(text)


@pytest.mark.parametrize(("loop", "last"), [(True, [1, 2, 1]), (False, [2, 2, 2])])
async def test_turns_without_when_answer_in_order(tmp_path: Path, loop: bool, last: list[int]) -> None:
    engine = script(tmp_path, {"turns": [{"tokens": [1]}, {"tokens": [2]}], "loop": loop})
    assert [await answer(engine) for _ in range(5)] == [[1], [2], *([token] for token in last)]


async def test_the_first_matching_when_answers_else_the_next_without(
    tmp_path: Path, encoding: Encoding
) -> None:
    first, last = {"when": "weather.*<\\|end\\|>", "tokens": [2]}, {"when": "Paris", "text": "x"}
    engine = script(tmp_path, {"turns": [{"tokens": [1]}, first, last, {"tokens": [3]}]})
    weather = encoding.encode_special("<|start|>user<|message|>weather\nin Paris<|end|>")
    paris, other = encoding.encode("Paris"), encoding.encode("Rome")
    answers = [await answer(engine, prompt) for prompt in (weather, other, paris, other, other)]
    assert answers == [[2], [1], encoding.encode("x"), [3], [1]]


async def test_a_when_reads_prompts_with_ids_without_text_and_needs_a_match(
    tmp_path: Path, encoding: Encoding
) -> None:
    engine = script(tmp_path, {"turns": [{"when": "Paris", "tokens": [2]}]})
    assert await answer(engine, [201_000, *encoding.encode("Paris"), 5_000_000]) == [2]
    with pytest.raises(EngineFailed, match='turn without "when"'):
        await answer(engine)
    assert engine.active == 0


@pytest.mark.parametrize(("tokens", "kept"), [([1, 2, 3], 3), ([], 0), ([1, RETURN, 3], 2)])
async def test_the_end_of_a_turn_and_a_stop_token_are_a_stop(
    tmp_path: Path, tokens: list[int], kept: int
) -> None:
    engine = script(tmp_path, {"turns": [{"tokens": tokens}]})
    steps = [step async for step in engine.generate([1], Sampling())]
    assert (list(steps[-1].tokens), steps[-1].finish) == (tokens[:kept], Finish.STOP)


async def test_steps_are_small_and_logprobs_are_zero(tmp_path: Path) -> None:
    engine = script(tmp_path, {"turns": [{"tokens": list(range(100))}]})
    steps = [step async for step in engine.generate([1], Sampling(logprobs=2))]
    assert max(len(step.tokens) for step in steps) == TOKENS_PER_STEP
    for step in steps:
        assert [entry.logprob for entry in step.logprobs or ()] == [0.0] * len(step.tokens)


async def test_the_rate_is_respected_and_closing_ends_a_slow_generation(tmp_path: Path) -> None:
    engine = script(tmp_path, {"turns": [{"tokens": [1] * 60}], "tokens_per_second": 300})
    began = time.perf_counter()
    assert len(await answer(engine)) == 60
    assert time.perf_counter() - began >= 0.19
    engine = script(tmp_path, {"turns": [{"tokens": [1] * 60}], "tokens_per_second": 0.01})
    reading = asyncio.create_task(answer(engine))
    await asyncio.sleep(0.01)
    await engine.close()
    with pytest.raises(EngineClosed):
        await asyncio.wait_for(reading, 1)


MISTAKES = {
    "not JSON": ("{", "not valid JSON: .* line 1"),
    "not an object": ("[]", "top level must be an object"),
    "empty turns": ('{"turns": []}', "at least one"),
    "unknown key": ('{"turns": ["a"], "lop": true}', "unknown key 'lop'; known are 'turns'"),
    "loop": ('{"turns": ["a"], "loop": 1}', '"loop" must be true or false, not 1'),
    "rate": ('{"turns": ["a"], "tokens_per_second": -1}', "must be a number, 0 or more"),
    "turn kind": ('{"turns": ["a", 3]}', "turn 1 .*must be a string or an object .*not a number"),
    "turn key": ('{"turns": [{"txt": "a"}]}', "turn 0 .*unknown key 'txt'"),
    "neither": ('{"turns": [{"when": "a"}]}', 'turn 0 .*either "text" or "tokens"'),
    "both": ('{"turns": [{"text": "a", "tokens": [1]}]}', "turn 0 .*not both"),
    "text": ('{"turns": ["a", {"text": ["a"]}]}', 'turn 1 .*"text" must be a string, not a list'),
    "regex": ('{"turns": [{"when": "(", "text": "a"}]}', "turn 0 .*not a valid regular expression"),
    "when": ('{"turns": [{"when": 1, "text": "a"}]}', "turn 0 .*must be a regular expression"),
    "tokens": ('{"turns": [{"tokens": "1"}]}', 'turn 0 .*"tokens" must be a list'),
    "token": ('{"turns": [{"tokens": [1, 201088]}]}', "turn 0 .*to 201087; number 1 of them is 201088"),
    "token kind": ('{"turns": [{"tokens": [true]}]}', "number 0 of them is True"),
}


@pytest.mark.parametrize(("content", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_with_its_file_and_turn(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        script(tmp_path, content)
    assert "script.json" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("/none.json", r"no script at .*none\.json"), ("", "lacks a path"), (" ", "lacks a path")],
)
def test_the_error_of_a_missing_script_says_so(name: str, sentence: str) -> None:
    with pytest.raises(ModelNotFound, match=sentence):
        inference.load(f"scripted:{name}")


def test_a_context_is_at_most_that_of_scripts(tmp_path: Path) -> None:
    engine = script(tmp_path, {"turns": ["a"]})
    assert (engine.info.name, engine.info.context_length) == ("scripted", 131_072)
    name = f"scripted:{tmp_path / 'script.json'}"
    assert inference.load(name, context=1000).info.context_length == 1000
    with pytest.raises(CheckpointError, match=r"requested context is 131073 tokens; .* at most 131072"):
        inference.load(name, context=131_073)


async def test_a_script_is_text_with_or_without_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    file.write_text('{"turns": [{"tokens": [7]}]}', encoding="utf-8-sig")
    assert await answer(inference.load(f"scripted:{file}")) == [7]
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CheckpointError, match="UTF-8"):
        inference.load(f"scripted:{file}")


async def test_a_when_that_never_ends_its_search_fails_and_blocks_nothing(
    tmp_path: Path, encoding: Encoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_file, "SECONDS", 0.3)
    nested = {"when": "(?:(?:a|aa)+)+x", "tokens": [2]}
    engine = script(tmp_path, {"turns": [{"when": "Paris", "tokens": [1]}, nested, {"tokens": [3]}]})
    failing = asyncio.create_task(answer(engine, encoding.encode("a" * 70)))
    for _ in range(4):
        await asyncio.sleep(0.005)
        assert not failing.done(), "the event loop runs on"
    with pytest.raises(EngineFailed, match=r"turn 1 .* searched a prompt of 70 characters"):
        await failing
    assert await answer(engine, encoding.encode("Paris")) == [1]
    assert engine.active == 0


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
