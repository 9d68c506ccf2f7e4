"""`cache_salt` and `priority`: how an engine treats a request relative to others, the same for every API."""

from __future__ import annotations

from typing import Any

import pytest

from gpt_oss_server.apis.responses.request import parse_request
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import ApiError
from gpt_oss_server.settings import Settings
from tests.doubles.apis.chat_asking import completion_of, replaying
from tests.doubles.apis.services import responses_service
from tests.doubles.engines.replay import ReplayEngine

TREATMENT: dict[str, Any] = {"cache_salt": "tenant 1", "priority": -3}
ANSWER = "<|channel|>final<|message|>Hi<|return|>"


@pytest.mark.parametrize("api", ["responses", "chat"])
@pytest.mark.parametrize("fields", [TREATMENT, {}])
async def test_salt_and_priority_reach_the_engine(api: str, fields: dict[str, Any]) -> None:
    engine: ReplayEngine = replaying(ANSWER)
    if api == "chat":
        await completion_of(engine, settings=Settings(allow_priority=True), **fields)
    else:
        service = responses_service(engine, Settings(allow_priority=True))
        await (await service.start(LOCAL, {"input": "hi", **fields})).wait()
    [sampling] = engine.samplings
    assert sampling.cache_salt == fields.get("cache_salt")
    assert sampling.priority == fields.get("priority", 0)


@pytest.mark.parametrize(
    "wrong", [{"cache_salt": ""}, {"cache_salt": 5}, {"priority": 1.5}, {"priority": 2**31}]
)
def test_an_invalid_salt_or_priority_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as raised:
        parse_request({"input": "hi", **wrong})
    assert (raised.value.status, raised.value.param) == (400, next(iter(wrong)))
