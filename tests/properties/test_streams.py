"""For any output of the model, truncated anywhere, the event stream is well-formed and loses nothing.

Every reader of a background response receives the same stream.
"""

import asyncio
import random
from typing import Any

import pytest

from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.ids import CountingIds
from gpt_oss_server.stores.sql.events import EventLog
from inference.engine import EngineFailed
from tests.doubles.apis.api_client import events_in
from tests.doubles.apis.asking import NEXT, Asking, responses_service
from tests.doubles.apis.client_tools import STREAMS
from tests.doubles.conversations import encoded, mutated
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.lints import check_stream
from tests.doubles.random_tests.seeds import seeds

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
BODY = {"input": "hi", "tools": [TOOL]}


def linted(events: list[dict[str, Any]]) -> dict[str, Any]:
    return check_stream(events, sdk_types=False)


async def events_of(engine: ReplayEngine, encoding: Encoding, **fields: object) -> list[dict[str, Any]]:
    service = responses_service(engine, encoding=encoding)
    run = await service.start(LOCAL, {**BODY, "store": False, **fields})
    return [event async for batch in run for event in batch]


@pytest.mark.parametrize("seed", seeds(6, proofs=40))
async def test_legal_completions_cut_at_every_token(encoding: Encoding, seed: int) -> None:
    rng = random.Random(seed)
    tokens = encoded(encoding, rng)
    engine = ReplayEngine(tokens, per_step=rng.choice((1, 3, 16)))
    for cut in range(1, len(tokens) + 1):
        response = check_stream(await events_of(engine, encoding, max_output_tokens=cut))
        expected = "completed" if cut == len(tokens) else "incomplete"
        assert (response["status"], response["usage"]["output_tokens"]) == (expected, cut)
        reason = None if expected == "completed" else {"reason": "max_output_tokens"}
        assert response["incomplete_details"] == reason
    assert engine.open_generations == 0


@pytest.mark.parametrize("seed", seeds(1, proofs=20))
async def test_a_thousand_mutated_completions_complete(encoding: Encoding, seed: int) -> None:
    rng = random.Random(1_000 + seed)
    for _ in range(1_000):
        tokens = mutated(encoded(encoding, rng), rng)
        engine = ReplayEngine(tokens, per_step=8)
        response = linted(await events_of(engine, encoding))
        if response["status"] != "completed":  # the same tokens come again after reasoning without an answer
            assert "gave no answer" in response["incomplete_details"]["message"]
            phases = {item.get("phase", item["type"]) for item in response["output"]}
            assert phases <= {"reasoning", "commentary"}


@pytest.mark.parametrize("seed", seeds(4, proofs=25))
async def test_a_failure_after_any_token_is_one_failed_response(encoding: Encoding, seed: int) -> None:
    rng = random.Random(2_000 + seed)
    tokens = encoded(encoding, rng)
    for broken in (EngineFailed("out of memory"), RuntimeError("a defect")):
        for after in range(len(tokens) + 1):
            engine = ReplayEngine(tokens, fails_after=after, error=broken)
            response = check_stream(await events_of(engine, encoding))
            assert response["status"] == "failed"
            assert response["error"]["code"] == "server_error"
            assert "a defect" not in response["error"]["message"]
            assert engine.open_generations == 0


@pytest.mark.parametrize("per_step", [1, 5, 100])
async def test_each_token_with_text_is_one_delta_event(encoding: Encoding, per_step: int) -> None:
    text = "The quick brown fox jumps over the lazy dog."
    tokens = encoding.encode_special(f"<|channel|>final<|message|>{text}<|return|>")
    events = await events_of(ReplayEngine(tokens, per_step=per_step), encoding)
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert len(deltas) == len(encoding.encode(text))


def service_of(tokens: list[int], encoding: Encoding) -> ResponsesService:
    engine = ReplayEngine(tokens, per_step=3)
    return responses_service(engine, encoding=encoding, ids=CountingIds(), clock=lambda: 0.0)


async def reconnecting(log: EventLog, rng: random.Random) -> list[bytes]:
    """All events, read by a client whose connection breaks repeatedly."""
    received: list[bytes] = []
    while True:
        before, most = len(received), rng.randrange(1, 12)
        stream = log.read(before - 1)
        async for batch in stream:
            received += batch[: before + most - len(received)]  # the connection may break within a batch
            if len(received) == before + most:
                break
        await stream.aclose()
        if len(received) == before:
            return received
        await asyncio.sleep(0)


@pytest.mark.parametrize("seed", seeds(50, proofs=150))
async def test_any_split_of_live_and_replay_equals_the_foreground_stream(
    encoding: Encoding, seed: int
) -> None:
    rng = random.Random(5_000 + seed)
    tokens = mutated(encoded(encoding, rng), rng)
    service = service_of(tokens, encoding)
    run = await service.start(LOCAL, {**BODY, "background": True})
    log = await service.background.start(run)
    readers = [reconnecting(log, random.Random(rng.random())) for _ in range(3)]
    first, *others = await asyncio.gather(*readers)
    assert all(other == first for other in others)
    received = events_in(b"".join(first).decode())
    assert linted(received) == (await service.stored(LOCAL).retrieve(run.id)).response

    foreground = await service_of(tokens, encoding).start(LOCAL, BODY)
    events = [event async for batch in foreground for event in batch]
    background = [event for event in received if event["type"] != "response.queued"]
    for event, expected in zip(background, events, strict=True):
        event.pop("sequence_number"), expected.pop("sequence_number")
        if "response" in event:
            assert event["response"]["output"] == expected["response"]["output"]
        else:
            assert event == expected


@pytest.mark.parametrize("seed", seeds(20, proofs=60))
async def test_a_stream_cancelled_at_any_time_ends_well_formed(encoding: Encoding, seed: int) -> None:
    rng = random.Random(6_000 + seed)
    service = service_of(encoded(encoding, rng), encoding)
    run = await service.start(LOCAL, {**BODY, "background": True})
    log = await service.background.start(run)
    reader = asyncio.create_task(reconnecting(log, rng))
    for _ in range(rng.randrange(40)):
        await asyncio.sleep(0)
    await service.background.stop(run.id)
    events = events_in(b"".join(await asyncio.wait_for(reader, 10)).decode())
    assert linted(events)["status"] in ("cancelled", "completed")
    assert service.served.models.first.engine.open_generations == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", STREAMS)
async def test_client_calls_cut_at_every_token(encoding: Encoding, name: str) -> None:
    turn, tools = STREAMS[name]
    tokens = encoding.encode_special(f"<|channel|>analysis<|message|>Hm.<|end|>{NEXT}{turn}")
    for limit in range(1, len(tokens) + 1):
        ask = Asking(engine=ReplayEngine(tokens, per_step=limit % 4 + 1))
        response = await ask(tools=tools, max_output_tokens=limit, store=False)
        assert response["status"] == ("completed" if limit == len(tokens) else "incomplete")


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("name", STREAMS)
async def test_mutated_client_calls(encoding: Encoding, name: str, parallel: bool) -> None:
    rng = random.Random(f"{name} {parallel}")
    turn, tools = STREAMS[name]
    tokens = encoding.encode_special(f"{turn}{NEXT}{turn}")
    for _ in range(20):
        ask = Asking(engine=ReplayEngine(mutated(tokens, rng), per_step=8))
        response = await ask(tools=tools, parallel_tool_calls=parallel, store=False)
        assert response["status"] in ("completed", "failed")
        if response["status"] == "failed":  # the mutated call does not fit its schema or grammar
            assert "invalid_output" in response["error"]["message"]
