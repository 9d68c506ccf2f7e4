"""A request's tools and body are read once, and its prompt is rendered once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gpt_oss_server.apis.responses import request
from gpt_oss_server.apis.responses.run import RefusedRun
from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import ContextLengthExceeded
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.harmony.history import Layout
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.items import function_call
from tests.doubles.apis.services import conversations_of, responses_service
from tests.doubles.serving import scripted

FINAL = "<|channel|>final<|message|>Hi<|return|>"
WEATHER = {"type": "function", "name": "weather", "parameters": {"type": "object"}}
FOUND = {"type": "tool_search_output", "call_id": None, "tools": [WEATHER]}


Counted = Callable[[Any, str], list[tuple[Any, ...]]]


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Gives the arguments of each call of a function, which still runs."""

    def counting(owner: Any, name: str) -> list[tuple[Any, ...]]:
        calls: list[tuple[Any, ...]] = []
        real = getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            calls.append(args)
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, watched)
        return calls

    return counting


@pytest.fixture
async def service(encoding: Encoding) -> AsyncIterator[ResponsesService]:
    made = responses_service(scripted(FINAL), encoding=encoding)
    yield made
    await made.close()


async def test_tools_of_an_item_are_read_once(counted: Counted, service: ResponsesService) -> None:
    read = counted(function_call, "function_tool")
    added = {"type": "additional_tools", "role": "developer", "tools": [{**WEATHER, "name": "more"}]}
    await service.render(LOCAL, {"input": [{"role": "user", "content": "Hi"}, FOUND, added]})
    assert [where for _, where, *_ in read] == ["input[1].tools[0]", "input[2].tools[0]"]


@pytest.mark.parametrize("management", [None, [{"type": "compaction"}]], ids=["plain", "managed"])
async def test_a_prompt_is_built_once(counted: Counted, service: ResponsesService, management: Any) -> None:
    opened, built = counted(Renderer, "opening"), counted(Layout, "tokens")
    await (await service.start(LOCAL, {"input": "Hi", "context_management": management})).wait()
    assert (len(opened), len(built)) == (1, 1)


async def test_a_prompt_that_is_too_long_is_never_built(counted: Counted, service: ResponsesService) -> None:
    built = counted(Layout, "tokens")
    context = service.served.model.engine.info.context_length
    half = [{"role": "user", "content": " word" * (context // 2)}]
    conversation = (await conversations_of(service).create({"items": half}))["id"]
    await conversations_of(service).add_items(conversation, {"items": half})
    body = {"input": "Hi", "conversation": conversation}
    with pytest.raises(ContextLengthExceeded):
        await service.start(LOCAL, body)
    assert built == []
    run = await service.start(LOCAL, {**body, "truncation": "auto"})
    assert ((await run.wait())["status"], len(built)) == ("completed", 1)


async def test_a_body_that_is_too_long_is_read_once(counted: Counted, service: ResponsesService) -> None:
    validated = counted(request, "read_body")
    run = await service.start_streamed(LOCAL, {"input": "word " * 140_000, "stream": True})
    assert isinstance(run, RefusedRun)
    assert len(validated) == 1
