"""Servers of one model: what arrives on a connection, which one serves, and what becomes of a generation
whose server breaks. Of several ranks, the second serves while the first cannot, whatever kind each is.
"""

import asyncio
import gc
import logging
import ssl
import weakref
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import Any

import pytest

import inference
from inference.engine import CheckpointError, EngineBusy, EngineFailed, ModelNotFound
from inference.remote.connection import Received, parse_addresses
from inference.remote.engine import RemoteEngine
from inference.remote.replicas import Replica, Replicas
from tests.contracts.engine_contract import GREEDY, PROMPT, generated
from tests.contracts.remote_contract import model_tokens
from tests.doubles.engines.http_double import HttpDouble, Refusal
from tests.doubles.engines.llama_double import LlamaDouble
from tests.doubles.engines.sglang_double import SglangDouble
from tests.doubles.engines.vllm_double import END, VllmDouble
from tests.doubles.engines.written import Written
from tests.doubles.waiting import until

pytestmark = pytest.mark.anyio


async def test_one_whose_connection_fails_is_freed() -> None:
    """As after a failed TLS handshake, before which nothing is connected."""
    made: list[Received] = []

    def factory() -> Received:
        made.append(Received(30.0))
        return made[0]

    async def closes(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"no TLS\n")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(closes, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.get_running_loop().create_connection(
            factory, "127.0.0.1", port, ssl=ssl.create_default_context()
        )
    server.close()
    await asyncio.sleep(0.05)
    freed = weakref.ref(made.pop())
    gc.collect()
    assert freed() is None


async def test_a_reader_that_does_not_read_slows_the_other_side_down() -> None:
    sent = 0

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        for _ in range(400):
            writer.write(b"y" * 100_000)
            await writer.drain()
            sent += 100_000
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    loop, before, read = asyncio.get_running_loop(), -1, 0
    _, received = await loop.create_connection(lambda: Received(30.0), "127.0.0.1", port)
    while sent != before:
        before = sent
        await asyncio.sleep(0.2)
    assert sent < 30_000_000, "the rest waits at the other side"
    while piece := await received.piece():
        read += len(piece)
    assert read == 40_000_000
    received.abort()
    server.close()


KINDS: dict[str, type[HttpDouble]] = {"llama": LlamaDouble, "vllm": VllmDouble, "sglang": SglangDouble}
MADE: list[RemoteEngine] = []
Log = pytest.LogCaptureFixture


@pytest.fixture(params=KINDS)
async def doubles(request: pytest.FixtureRequest) -> AsyncIterator[list[HttpDouble]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(KINDS[request.param]()) for _ in range(2)]
        while MADE:
            await MADE.pop().close()


@pytest.fixture
def probing(monkeypatch: pytest.MonkeyPatch, caplog: Log) -> Log:
    """Probes follow each other at once; the log is what they found."""
    monkeypatch.setattr("inference.remote.engine._PROBE_SECONDS", 0.02)
    caplog.set_level(logging.WARNING, "inference")
    return caplog


async def connected(doubles: Sequence[HttpDouble]) -> RemoteEngine:
    kind = next(kind for kind, double in KINDS.items() if isinstance(doubles[0], double))
    urls = ",".join(double.url for double in doubles)
    engine = await asyncio.to_thread(inference.load, f"{kind}:{urls}")
    MADE.append(engine)
    return engine


async def test_generations_go_to_the_idlest(doubles: list[HttpDouble]) -> None:
    engine = await connected(doubles)
    for double in doubles:
        double.pace = 0.02
    async with AsyncExitStack() as stack:
        for number in range(6):
            stream = await stack.enter_async_context(aclosing(engine.generate([number, *PROMPT], GREEDY)))
            await anext(stream)
        assert [double.streaming for double in doubles] == [3, 3]


async def test_a_conversation_stays_where_it_was(doubles: list[HttpDouble]) -> None:
    engine = await connected(doubles)
    conversations = [[number, *range(300)] for number in range(4)]
    asked = []
    for turn in range(3):
        for conversation in conversations:
            for double in doubles:
                double.requests.clear()
            await generated(engine, replace(GREEDY, max_tokens=2), conversation)
            asked.append([any(body for _, body in double.requests) for double in doubles])
            conversation += range(turn * 40, turn * 40 + 40)
    assert asked == asked[:4] * 3


@pytest.mark.parametrize("cut", [0, 1, 200, 700])
async def test_a_generation_continues_elsewhere_after_a_cut(doubles: list[HttpDouble], cut: int) -> None:
    engine = await connected(doubles)
    doubles[0].cut_after = cut
    for _ in range(3):
        assert (await generated(engine)).tokens == model_tokens(40)
    assert engine.measures()["continued"] >= 1


@pytest.mark.parametrize("status", [429, 503])
async def test_a_full_server_is_passed_over(doubles: list[HttpDouble], status: int) -> None:
    engine = await connected(doubles)
    body = {"error": {"code": status, "message": "full", "type": "x"}}
    doubles[0].refusal = Refusal(status, body, (("retry-after", "30"),))
    for _ in range(3):
        assert (await generated(engine)).tokens == model_tokens(40)
    posts = len(doubles[0].requests)
    await generated(engine)
    assert len(doubles[0].requests) == posts, "a server that named a time is left alone for it"
    doubles[1].refusal = doubles[0].refusal
    with pytest.raises(EngineBusy):
        await generated(engine)
    with pytest.raises(EngineBusy, match="no request now"):
        engine.check_room()


async def test_a_generation_that_breaks_everywhere_is_a_failure(doubles: list[HttpDouble]) -> None:
    engine = await connected(doubles)
    for double in doubles:
        double.cut_after = 900
    tokens: list[int] = []
    with pytest.raises(EngineFailed):  # noqa: PT012
        async for step in engine.generate(PROMPT, replace(GREEDY, max_tokens=300)):
            tokens += step.tokens
    assert tuple(tokens) == model_tokens(len(tokens))


async def test_a_refused_request_is_sent_nowhere_else(doubles: list[HttpDouble]) -> None:
    engine = await connected(doubles)
    for double in doubles:
        double.refusal = Refusal(400, {"error": {"code": 400, "message": "no such field", "type": "x"}})
        double.requests.clear()
    with pytest.raises(EngineFailed, match="no such field"):
        await generated(engine)
    posts = [path for double in doubles for path, body in double.requests if body is not None]
    assert len(posts) == 1


async def test_one_that_is_missing_at_the_start_is_used_when_it_answers(
    doubles: list[HttpDouble], probing: Log
) -> None:
    late = doubles[1]
    port = late._port
    await late.__aexit__()
    engine = await connected(doubles)
    assert "is used when it answers" in probing.text
    assert (await generated(engine)).tokens == model_tokens(40)
    assert engine.measures()["replicas_ready"] == 1
    late._server = await asyncio.start_server(late._serve, "127.0.0.1", port)
    await until(lambda: engine.measures()["replicas_ready"] == 2)


async def test_a_proxy_without_a_path_of_health_is_not_dead(doubles: list[HttpDouble], probing: Log) -> None:
    engine = await connected(doubles)
    for double in doubles:
        double.ill = Refusal(404, {"error": {"message": "no such page"}})
    await generated(engine)
    await until(lambda: all(double.requests.count(("/health", None)) > 2 for double in doubles))
    assert "rests for" not in probing.text
    assert engine.measures()["replicas_ready"] == 2


async def test_a_server_that_falls_silent_is_found_by_a_probe(
    doubles: list[HttpDouble], probing: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference.remote.engine.CHECK_SECONDS", 0.3)
    engine = await connected(doubles)
    doubles[1].silent = True
    await generated(engine)
    await until(lambda: engine.measures()["replicas_ready"] == 1)
    assert "does not answer /health within" in probing.text


async def test_one_that_comes_back_with_another_model_is_not_used(
    doubles: list[HttpDouble], probing: Log
) -> None:
    engine = await connected(doubles)
    doubles[0].cut_after = 0
    await generated(engine)
    await generated(engine)
    doubles[0].context = 50
    await asyncio.sleep(0.2)  # a check that has begun before knows the old one
    doubles[0].cut_after = None
    await until(lambda: "context of" in probing.text)
    assert engine.measures()["replicas_ready"] == 1


async def test_replicas_of_different_models_are_refused(doubles: list[HttpDouble]) -> None:
    doubles[0].name = "some/other"
    with pytest.raises(CheckpointError, match="different models"):
        await connected(doubles)


async def test_no_server_at_all_is_a_failure(doubles: list[HttpDouble]) -> None:
    for double in doubles:
        await double.__aexit__()
    with pytest.raises(EngineFailed, match="None of the servers answers"):
        await connected(doubles)


async def test_labels_are_sent_along(doubles: list[HttpDouble]) -> None:
    engine = await connected(doubles[:1])
    await generated(engine, replace(GREEDY, max_tokens=2))
    assert "x-request-id" not in doubles[0].headers[-1]
    labels = {"x-request-id": "req_1", "x-session-id": "s1", "traceparent": "00-1-2-01"}
    await generated(engine, replace(GREEDY, labels=labels))
    assert doubles[0].headers[-1].items() >= labels.items()


def test_addresses_may_repeat_their_kind() -> None:
    found = parse_addresses("http://a:1, vllm:http://b:2/v1", "vllm")
    assert [address.url for address in found] == ["http://a:1", "http://b:2"]


def some_replicas(count: int) -> tuple[Replicas, list[float]]:
    """And their clock."""
    now = [0.0]
    return Replicas([Replica(None, str(number)) for number in range(count)], lambda: now[0]), now


def test_a_server_rests_longer_after_each_failure_and_is_tried_again() -> None:
    replicas, now = some_replicas(2)
    bad, good = replicas.all
    rests = []
    for _ in range(9):
        replicas.failed(bad, EngineFailed("broken"))
        rests.append(bad.rests_until - now[0])
        assert replicas.choose([1]) is good
        now[0] = bad.rests_until
        good.running = 1
        assert replicas.choose([1]) is bad
        good.running = 0
    assert rests[:3] == [0.5, 1.0, 2.0]
    assert rests[-1] == 30.0
    replicas.answered(bad)
    replicas.failed(bad, EngineFailed("broken"))
    assert bad.rests_until - now[0] == 0.5


def test_where_all_rest_the_first_to_wake_is_tried() -> None:
    replicas, _ = some_replicas(3)
    for number, replica in enumerate(replicas.all):
        for _ in range(3 - number):
            replicas.failed(replica, EngineFailed("broken"))
    assert replicas.choose([1]).url == "2"


def test_a_conversation_moves_where_its_server_is_much_busier() -> None:
    replicas, _ = some_replicas(2)
    prompt = list(range(512))
    first = replicas.choose(prompt)
    assert replicas.choose([*prompt, 1]) is first
    first.running = 20
    assert replicas.choose([*prompt, 1]) is not first


def test_a_shared_beginning_is_no_conversation() -> None:
    """A system prompt that all requests have must not send them all to one server."""
    replicas, _ = some_replicas(2)
    shared = list(range(256))
    first = replicas.choose([*shared, *[1] * 1024])
    first.running = 1
    assert replicas.choose([*shared, *[2] * 1024]) is not first


@pytest.fixture
async def ranked(probing: Log) -> AsyncIterator[list[HttpDouble]]:
    """Of models with different names: one may stand in for another."""
    async with AsyncExitStack() as stack:
        both = [await stack.enter_async_context(double) for double in (VllmDouble(), LlamaDouble())]
        both[1].name = "some/smaller"
        yield both


@pytest.fixture
async def engine(ranked: list[HttpDouble]) -> AsyncIterator[RemoteEngine]:
    engine = await asyncio.to_thread(inference.load, f"vllm:{ranked[0].url}|llama:{ranked[1].url}")
    for double in ranked:
        double.requests.clear()
    yield engine
    await engine.close()


def bodies(double: HttpDouble) -> list[dict[str, Any]]:
    """Of generations' requests, of which llama-server gets several where its stream hides a token."""
    return [body for _, body in double.requests if body is not None and "stream" in body]


async def test_the_first_serves_alone(engine: RemoteEngine, ranked: list[HttpDouble]) -> None:
    await asyncio.gather(*(generated(engine) for _ in range(10)))
    assert [len(bodies(double)) for double in ranked] == [10, 0]
    assert engine.info.name == "model"
    assert engine.info.description == f"vLLM at {ranked[0].url}; else llama-server at {ranked[1].url}"
    assert "presence_penalty" not in engine.info.honours, "llama-server does not obey it"


@pytest.mark.parametrize("cut", [0, 700])
async def test_a_generation_continues_on_the_second_and_the_next_returns(
    engine: RemoteEngine, ranked: list[HttpDouble], cut: int
) -> None:
    ranked[0].cut_after = cut
    assert (await generated(engine)).tokens == model_tokens(40)
    requests = bodies(ranked[1])
    assert (len(requests[0]["prompt"]) > len(PROMPT)) == (cut > 0)
    ranked[0].cut_after = None
    await until(lambda: engine.measures()["replicas_ready"] == 2)
    assert (await generated(engine)).tokens == model_tokens(40)
    assert bodies(ranked[1]) == requests


async def test_each_gets_the_grammar_in_its_own_notation(
    engine: RemoteEngine, ranked: list[HttpDouble]
) -> None:
    ranked[0].cut_after = 0
    await generated(engine, replace(GREEDY, continued=(3, 4), grammar=Written(END)))
    first, second = (bodies(double)[0] for double in ranked)
    assert first["structured_outputs"] == {"grammar": "xgrammar after [3, 4]"}
    assert second["grammar"] == "gbnf after [3, 4]"


def test_what_is_no_server_cannot_stand_in() -> None:
    with pytest.raises(ModelNotFound, match="must be one, such as llama:URL, and not 'tiny'"):
        inference.load("vllm:http://127.0.0.1:1|tiny")
