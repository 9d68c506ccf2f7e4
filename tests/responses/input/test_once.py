"""A request's tools and body are read once, and its prompt is rendered once."""

from __future__ import annotations

from typing import Any

import pytest

from gpt_oss_server.apis.responses import request
from gpt_oss_server.apis.responses.run import RefusedRun
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


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[tuple[Any, ...]]:
    """The arguments of each call of a function, which still runs."""
    calls: list[tuple[Any, ...]] = []
    real = getattr(owner, name)

    def watched(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, name, watched)
    return calls


async def test_tools_of_an_item_are_read_once(encoding: Encoding, monkeypatch: pytest.MonkeyPatch) -> None:
    read = counted(monkeypatch, function_call, "function_tool")
    service = responses_service(scripted(FINAL), encoding=encoding)
    added = {"type": "additional_tools", "role": "developer", "tools": [{**WEATHER, "name": "more"}]}
    await service.render(LOCAL, {"input": [{"role": "user", "content": "Hi"}, FOUND, added]})
    assert [where for _, where, *_ in read] == ["input[1].tools[0]", "input[2].tools[0]"]
    await service.close()


@pytest.mark.parametrize("management", [None, [{"type": "compaction"}]], ids=["plain", "managed"])
async def test_a_prompt_is_built_once(
    encoding: Encoding, monkeypatch: pytest.MonkeyPatch, management: Any
) -> None:
    opened, built = counted(monkeypatch, Renderer, "opening"), counted(monkeypatch, Layout, "tokens")
    service = responses_service(scripted(FINAL), encoding=encoding)
    await (await service.start(LOCAL, {"input": "Hi", "context_management": management})).wait()
    assert (len(opened), len(built)) == (1, 1)
    await service.close()


async def test_the_prompt_of_a_history_that_is_too_long_is_never_built(
    encoding: Encoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = counted(monkeypatch, Layout, "tokens")
    service = responses_service(scripted(FINAL), encoding=encoding)
    context = service.served.model.engine.info.context_length
    half = [{"role": "user", "content": " word" * (context // 2)}]
    conversation = (await conversations_of(service).create({"items": half}))["id"]
    await conversations_of(service).add_items(conversation, {"items": half})
    with pytest.raises(ContextLengthExceeded):
        await service.start(LOCAL, {"input": "Hi", "conversation": conversation})
    assert built == []
    cut = {"input": "Hi", "conversation": conversation, "truncation": "auto"}
    assert (await (await service.start(LOCAL, cut)).wait())["status"] == "completed"
    assert len(built) == 1
    await service.close()


async def test_a_body_whose_prompt_is_too_long_is_validated_once(
    encoding: Encoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    validated = counted(monkeypatch, request, "read_body")
    service = responses_service(scripted(FINAL), encoding=encoding)
    run = await service.start_streamed(LOCAL, {"input": "word " * 140_000, "stream": True})
    assert isinstance(run, RefusedRun)
    assert len(validated) == 1
    await service.close()
