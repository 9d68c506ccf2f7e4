"""Records are plain data, and a turn stores only its addition, however long its history is."""

from typing import Any

import pytest

from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.base import Append, StoredResponse
from gpt_oss_server.stores.memory import MemoryStore
from tests.doubles.apis.asking import conversations_of, responses_service
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.stored import known

FINAL = "<|channel|>final<|message|>Fine.<|return|>"


async def completed(service: ResponsesService, **body: Any) -> dict[str, Any]:
    response = await (await service.start(LOCAL, {"input": "Hi", **body})).wait()
    assert response["status"] == "completed"
    return response


class Counting(MemoryStore):
    """Counts the segments that each `put` stores with the response and in its conversation."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[tuple[int, int]] = []

    async def put(self, stored: StoredResponse, append: Append | None = None) -> None:
        parts = append.parts if append else ()
        self.counts.append((len(stored.added.segments), sum(len(part.added.segments) for part in parts)))
        await super().put(stored, append)


@pytest.mark.parametrize("by_conversation", [False, True])
async def test_a_late_turn_stores_as_many_segments_as_an_early_one(
    encoding: Encoding, by_conversation: bool
) -> None:
    store = Counting()
    engine = ReplayEngine(encoding.encode_special(FINAL))
    service = responses_service(engine, Settings(), encoding=encoding, store=store)
    past = {"conversation": (await conversations_of(service).create({}))["id"]} if by_conversation else {}
    for _ in range(60):
        response = await completed(service, **past)
        past = past if by_conversation else {"previous_response_id": response["id"]}
    assert store.counts == [(2, 2 if by_conversation else 0)] * 60
    history = known(await store.history(response["id"]))
    assert len(history.segments) == 120
    await service.close()


async def test_a_turn_whose_parent_is_deleted_meanwhile_is_stored_with_its_whole_history(
    encoding: Encoding,
) -> None:
    engine = ReplayEngine(encoding.encode_special(FINAL))
    service = responses_service(engine, Settings(), encoding=encoding)
    first = await completed(service, input="one")
    second = await service.start(LOCAL, {"input": "two", "previous_response_id": first["id"]})
    await service.stored(LOCAL).delete(first["id"])
    await second.wait()
    await completed(service, input="three", previous_response_id=second.id)
    prompt = encoding.decode(engine.prompts[-1])
    assert [text in prompt for text in ("one", "two", "three")] == [True] * 3
    assert prompt.count("Fine.") == 2
    await service.close()


async def test_turns_that_no_longer_fit_into_the_context_leave_the_chain(encoding: Encoding) -> None:
    engine = ReplayEngine(encoding.encode_special(FINAL), context_length=600)
    service = responses_service(engine, Settings(), encoding=encoding)
    response: dict[str, Any] = {"id": None}
    for number in range(6):
        body = {"input": f"turn {number}: " + "word " * 100, "truncation": "auto"}
        response = await completed(service, previous_response_id=response["id"], **body)
    stored = await service.stored(LOCAL).retrieve(response["id"])
    history = known(await service.served.stores.responses.history(response["id"]))
    assert stored.parent is None
    assert len(history.segments) < 12
    assert history.segments[-1] == Segment(
        "assistant", tuple(encoding.encode_special("<|start|>assistant" + FINAL[:-10] + "<|end|>")), "final"
    )
    await service.close()
