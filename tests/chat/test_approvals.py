"""MCP tools that need consent, on Chat: asked for as a call, given as its answer, and made once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpt_oss_server.chat.service import ChatService
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.settings import Settings
from gpt_oss_server.tooling.toolset import ToolsetMaker
from tests.doubles.apis.chat_asking import check_chunks, service_of
from tests.doubles.serving import scripted
from tests.doubles.tools.echo_server import Seen, serving

CALL = '<|channel|>commentary to=echoes.echo <|constrain|>json<|message|>{"text":"hi"}<|call|>'
ANSWER = "<|channel|>final<|message|>Done.<|return|>"
ASK: list[dict[str, Any]] = [{"role": "user", "content": "Say hi."}]
USER = {"role": "user", "content": "And again?"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(Seen()) as place:
        yield place


def tools(url: str, **more: Any) -> list[dict[str, Any]]:
    return [
        {"type": "mcp", "server_label": "echoes", "server_url": url, "require_approval": "always", **more}
    ]


def service(*turns: str) -> ChatService:
    settings = Settings(python="off", browser="off", allow_private_hosts=True)
    return service_of(scripted(*turns), settings, tools=ToolsetMaker(settings))


async def completion_of(chat: ChatService, **body: Any) -> dict[str, Any]:
    run = await chat.start({"stream": True, **body})
    return check_chunks([chunk async for batch in run.chunks() for chunk in batch])


async def asked(chat: ChatService, url: str) -> tuple[dict[str, Any], str]:
    """The assistant's message that asks for consent, and the call's id."""
    completion = await completion_of(chat, messages=ASK, tools=tools(url))
    assert completion["choices"][0]["finish_reason"] == "tool_calls"
    message = completion["choices"][0]["message"]
    return message, message["tool_calls"][0]["id"]


async def test_a_call_that_needs_consent_is_a_marked_call(url: str) -> None:
    message, call_id = await asked(service(CALL), url)
    assert message["tool_calls"] == [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": "echoes.echo", "arguments": '{"text":"hi"}'},
            "mcp_approval_request": {"server_label": "echoes", "name": "echo"},
        }
    ]
    assert "executed_tools" not in message


async def test_consent_makes_the_call_and_the_model_goes_on(url: str) -> None:
    chat = service(CALL, ANSWER, ANSWER)
    message, call_id = await asked(chat, url)
    consent = {"role": "tool", "tool_call_id": call_id, "approve": True}
    completion = await completion_of(
        chat, messages=[*ASK, message, consent], tools=tools(url), metadata={"__debug": True}
    )
    answer = completion["choices"][0]["message"]
    [ran] = answer["executed_tools"]
    assert (ran["type"], ran["name"], json.loads(ran["arguments"])) == ("mcp", "echoes.echo", {"text": "hi"})
    assert "hi" in ran["output"]
    assert answer["content"] == "Done."
    assert "tool_calls" not in answer
    shown = completion["metadata"]["__debug"]
    result = f"<|start|>echoes.echo to=assistant<|channel|>commentary<|message|>{ran['output']}<|end|>"
    assert shown.endswith(f"{result}<|start|>assistant{ANSWER}")

    later = await completion_of(
        chat,
        messages=[*ASK, message, consent, answer, USER],
        tools=tools(url),
        metadata={"__debug": True},
    )
    assert "executed_tools" not in later["choices"][0]["message"], "it is not made again"
    assert (
        f"{CALL}{result}<|start|>assistant{ANSWER[: -len('<|return|>')]}"
        in later["metadata"]["__debug_input"]
    )


async def test_what_became_of_a_call_may_be_forgotten_but_it_is_not_made_again(url: str) -> None:
    chat = service(CALL, ANSWER)
    message, call_id = await asked(chat, url)
    consent = {"role": "tool", "tool_call_id": call_id, "approve": True, "content": ""}
    completion = await completion_of(
        chat,
        messages=[*ASK, message, consent, {"role": "assistant", "content": "Done."}, USER],
        tools=tools(url),
        metadata={"__debug": True},
    )
    assert "no longer known" in completion["metadata"]["__debug_input"]
    assert "executed_tools" not in completion["choices"][0]["message"]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            {"approve": False, "content": "Not today."},
            "The user did not approve this call, so it was not made. They said: Not today.",
        ),
        ({"approve": False}, "The user did not approve this call, so it was not made."),
        ({"content": "I ran it myself: hi"}, "I ran it myself: hi"),
    ],
    ids=["refused with a reason", "refused", "answered by the client"],
)
async def test_the_model_is_told_why_a_call_was_not_made_here(
    url: str, answer: dict[str, Any], told: str
) -> None:
    chat = service(CALL, ANSWER)
    message, call_id = await asked(chat, url)
    completion = await completion_of(
        chat,
        messages=[*ASK, message, {"role": "tool", "tool_call_id": call_id, **answer}],
        tools=tools(url),
        metadata={"__debug": True},
    )
    assert f"<|channel|>commentary<|message|>{told}<|end|>" in completion["metadata"]["__debug_input"]
    assert "executed_tools" not in completion["choices"][0]["message"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"n": 2}, "n"),
        ({"response_prefix": "Well"}, "response_prefix"),
        ({"tools": []}, "messages[2].approve"),
        ({"approve": "yes"}, "messages[2].approve"),
        ({"twice": True}, "messages[3].approve"),
    ],
    ids=str,
)
async def test_consent_that_cannot_be_acted_on_is_refused(url: str, body: dict[str, Any], param: str) -> None:
    chat = service(CALL, ANSWER)
    message, call_id = await asked(chat, url)
    consent = {"role": "tool", "tool_call_id": call_id, "approve": body.pop("approve", True)}
    messages = [*ASK, message, consent, *([dict(consent)] if body.pop("twice", False) else [])]
    with pytest.raises(InvalidRequest) as refused:
        await completion_of(chat, **{"messages": messages, "tools": tools(url), **body})
    assert refused.value.param == param


NOBODY = {"server_url": "http://127.0.0.1:9/mcp"}


@pytest.mark.parametrize(
    "later",
    [{"require_approval": "never"}, NOBODY, {"allowed_tools": ["fail"]}],
    ids=["asks no more", "cannot be reached", "is allowed no more"],
)
@pytest.mark.parametrize("approve", [True, False])
async def test_a_consent_of_the_past_stays_whatever_became_of_its_tool(
    url: str, later: dict[str, Any], approve: bool
) -> None:
    chat = service(CALL, ANSWER, ANSWER)
    message, call_id = await asked(chat, url)
    consent = {"role": "tool", "tool_call_id": call_id, "approve": approve, "content": ""}
    first = await completion_of(chat, messages=[*ASK, message, consent], tools=tools(url))
    history = [*ASK, message, consent, first["choices"][0]["message"], USER]
    second = await completion_of(
        chat, messages=history, tools=tools(url, **later), metadata={"__debug": True}
    )
    assert "executed_tools" not in second["choices"][0]["message"]
    told = "hi" if approve else "The user did not approve this call, so it was not made."
    assert f"<|channel|>commentary<|message|>{told}<|end|>" in second["metadata"]["__debug_input"]


async def test_a_call_is_made_where_its_tool_asks_no_more_from_the_consent_on(url: str) -> None:
    chat = service(CALL, ANSWER)
    message, call_id = await asked(chat, url)
    consent = {"role": "tool", "tool_call_id": call_id, "approve": True}
    completion = await completion_of(
        chat, messages=[*ASK, message, consent], tools=tools(url, require_approval="never")
    )
    assert completion["choices"][0]["message"]["executed_tools"][0]["output"] == "hi"


async def test_consent_to_a_call_of_a_server_that_is_not_there_says_that(url: str) -> None:
    chat = service(CALL, ANSWER)
    message, call_id = await asked(chat, url)
    consent = {"role": "tool", "tool_call_id": call_id, "approve": True}
    with pytest.raises(InvalidRequest, match="cannot be connected to"):
        await completion_of(chat, messages=[*ASK, message, consent], tools=tools(url, **NOBODY))


async def test_a_server_that_never_asks_runs_at_once(url: str) -> None:
    completion = await completion_of(
        service(CALL, ANSWER), messages=ASK, tools=tools(url, require_approval="never")
    )
    assert completion["choices"][0]["message"]["executed_tools"][0]["name"] == "echoes.echo"


async def test_a_call_that_was_cut_off_asks_for_no_consent_and_cannot_be_agreed_to(url: str) -> None:
    chat = service(CALL, ANSWER)
    completion = await completion_of(chat, messages=ASK, tools=tools(url), max_tokens=16)
    choice = completion["choices"][0]
    assert choice["finish_reason"] == "length"
    [call] = choice["message"]["tool_calls"]
    assert "mcp_approval_request" not in call
    assert call["function"]["arguments"] not in ("", '{"text":"hi"}')
    consent = {"role": "tool", "tool_call_id": call["id"], "approve": True}
    with pytest.raises(InvalidRequest, match="cut off"):
        await completion_of(chat, messages=[*ASK, choice["message"], consent], tools=tools(url))
