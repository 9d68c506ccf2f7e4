"""For any output of the model, every reader of a background response receives the same stream."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.ids import CountingIds
from gpt_oss_server.stores.events import EventLog
from tests.doubles.apis.bodies import BODY
from tests.doubles.apis.services import responses_service
from tests.doubles.conversations import encoded, mutated
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.lints import StreamLint


def service_of(tokens: list[int], encoding: Encoding) -> ResponsesService:
    return responses_service(
        ReplayEngine(tokens, per_step=3), encoding=encoding, ids=CountingIds(), clock=lambda: 0.0
    )


def decoded(events: list[bytes]) -> list[dict[str, Any]]:
    return [json.loads(event.partition(b"data: ")[2]) for event in events]


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


@pytest.mark.parametrize("seed", range(150))
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
    lint = StreamLint(sdk_types=False)
    for event in decoded(first):
        lint.feed(event)
    ended = lint.close()
    assert ended == (await service.stored(LOCAL).retrieve(run.id)).response

    foreground = await service_of(tokens, encoding).start(LOCAL, BODY)
    events = [event async for batch in foreground for event in batch]
    background = [event for event in decoded(first) if event["type"] != "response.queued"]
    for event, expected in zip(background, events, strict=True):
        event.pop("sequence_number"), expected.pop("sequence_number")
        if "response" in event:
            assert event["response"]["output"] == expected["response"]["output"]
        else:
            assert event == expected


@pytest.mark.parametrize("seed", range(60))
async def test_a_stream_cancelled_at_any_time_ends_well_formed(encoding: Encoding, seed: int) -> None:
    rng = random.Random(6_000 + seed)
    service = service_of(encoded(encoding, rng), encoding)
    run = await service.start(LOCAL, {**BODY, "background": True})
    log = await service.background.start(run)
    reader = asyncio.create_task(reconnecting(log, rng))
    for _ in range(rng.randrange(40)):
        await asyncio.sleep(0)
    await service.background.stop(run.id)
    lint = StreamLint(sdk_types=False)
    for event in decoded(await asyncio.wait_for(reader, 10)):
        lint.feed(event)
    assert lint.close()["status"] in ("cancelled", "completed")
    assert service.served.model.engine.open_generations == 0  # type: ignore[attr-defined]
