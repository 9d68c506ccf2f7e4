"""MCP tools that need approval on Chat: requested as a call, given as its answer, and run once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpt_oss_server.apis.chat.service import ChatService
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.settings import Settings
from gpt_oss_server.toolset.offered import ToolsetMaker
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
    run = await chat.start(LOCAL, {"stream": True, **body})
    return check_chunks([chunk async for batch in run.chunks() for chunk in batch])


async def approval_request(chat: ChatService, url: str) -> tuple[dict[str, Any], str]:
    """The assistant's message that requests approval, and the call's id."""
    completion = await completion_of(chat, messages=ASK, tools=tools(url))
    assert completion["choices"][0]["finish_reason"] == "tool_calls"
    message = completion["choices"][0]["message"]
    return message, message["tool_calls"][0]["id"]


async def test_a_call_that_needs_approval_is_marked(url: str) -> None:
    message, call_id = await approval_request(service(CALL), url)
    assert message["tool_calls"] == [
        {
            "id": call_id,
            "type": "function",
            "function": {"name": "echoes.echo", "arguments": '{"text":"hi"}'},
            "mcp_approval_request": {"server_label": "echoes", "name": "echo"},
        }
    ]
    assert "executed_tools" not in message


async def test_approval_runs_the_call_and_the_model_continues(url: str) -> None:
    chat = service(CALL, ANSWER, ANSWER)
    message, call_id = await approval_request(chat, url)
    approval = {"role": "tool", "tool_call_id": call_id, "approve": True}
    completion = await completion_of(
        chat, messages=[*ASK, message, approval], tools=tools(url), metadata={"__debug": True}
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
        messages=[*ASK, message, approval, answer, USER],
        tools=tools(url),
        metadata={"__debug": True},
    )
    assert "executed_tools" not in later["choices"][0]["message"], "the call does not run again"
    assert (
        f"{CALL}{result}<|start|>assistant{ANSWER[: -len('<|return|>')]}"
        in later["metadata"]["__debug_input"]
    )


async def test_an_approved_call_whose_result_is_lost_does_not_run_again(url: str) -> None:
    chat = service(CALL, ANSWER)
    message, call_id = await approval_request(chat, url)
    approval = {"role": "tool", "tool_call_id": call_id, "approve": True, "content": ""}
    completion = await completion_of(
        chat,
        messages=[*ASK, message, approval, {"role": "assistant", "content": "Done."}, USER],
        tools=tools(url),
        metadata={"__debug": True},
    )
    assert "no longer known" in completion["metadata"]["__debug_input"]
    assert "executed_tools" not in completion["choices"][0]["message"]


@pytest.mark.parametrize(
    ("answer", "result"),
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
async def test_the_model_reads_why_a_call_did_not_run_here(
    url: str, answer: dict[str, Any], result: str
) -> None:
    chat = service(CALL, ANSWER)
    message, call_id = await approval_request(chat, url)
    completion = await completion_of(
        chat,
        messages=[*ASK, message, {"role": "tool", "tool_call_id": call_id, **answer}],
        tools=tools(url),
        metadata={"__debug": True},
    )
    assert f"<|channel|>commentary<|message|>{result}<|end|>" in completion["metadata"]["__debug_input"]
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
async def test_an_approval_that_cannot_take_effect_is_refused(
    url: str, body: dict[str, Any], param: str
) -> None:
    chat = service(CALL, ANSWER)
    message, call_id = await approval_request(chat, url)
    approval = {"role": "tool", "tool_call_id": call_id, "approve": body.pop("approve", True)}
    messages = [*ASK, message, approval, *([dict(approval)] if body.pop("twice", False) else [])]
    with pytest.raises(InvalidRequest) as refused:
        await completion_of(chat, **{"messages": messages, "tools": tools(url), **body})
    assert refused.value.param == param


UNREACHABLE = {"server_url": "http://127.0.0.1:9/mcp"}


@pytest.mark.parametrize(
    "later",
    [{"require_approval": "never"}, UNREACHABLE, {"allowed_tools": ["fail"]}],
    ids=["no longer needs approval", "cannot be reached", "is no longer allowed"],
)
@pytest.mark.parametrize("approve", [True, False])
async def test_a_past_approval_stays_valid_after_its_tool_changes(
    url: str, later: dict[str, Any], approve: bool
) -> None:
    chat = service(CALL, ANSWER, ANSWER)
    message, call_id = await approval_request(chat, url)
    approval = {"role": "tool", "tool_call_id": call_id, "approve": approve, "content": ""}
    first = await completion_of(chat, messages=[*ASK, message, approval], tools=tools(url))
    history = [*ASK, message, approval, first["choices"][0]["message"], USER]
    second = await completion_of(
        chat, messages=history, tools=tools(url, **later), metadata={"__debug": True}
    )
    assert "executed_tools" not in second["choices"][0]["message"]
    result = "hi" if approve else "The user did not approve this call, so it was not made."
    assert f"<|channel|>commentary<|message|>{result}<|end|>" in second["metadata"]["__debug_input"]


async def test_an_approved_call_runs_if_its_tool_no_longer_needs_approval(url: str) -> None:
    chat = service(CALL, ANSWER)
    message, call_id = await approval_request(chat, url)
    approval = {"role": "tool", "tool_call_id": call_id, "approve": True}
    completion = await completion_of(
        chat, messages=[*ASK, message, approval], tools=tools(url, require_approval="never")
    )
    assert completion["choices"][0]["message"]["executed_tools"][0]["output"] == "hi"


async def test_approval_of_a_call_to_an_unreachable_server_is_an_error(url: str) -> None:
    chat = service(CALL, ANSWER)
    message, call_id = await approval_request(chat, url)
    approval = {"role": "tool", "tool_call_id": call_id, "approve": True}
    with pytest.raises(InvalidRequest, match="cannot be connected to"):
        await completion_of(chat, messages=[*ASK, message, approval], tools=tools(url, **UNREACHABLE))


async def test_a_server_that_needs_no_approval_runs_immediately(url: str) -> None:
    completion = await completion_of(
        service(CALL, ANSWER), messages=ASK, tools=tools(url, require_approval="never")
    )
    assert completion["choices"][0]["message"]["executed_tools"][0]["name"] == "echoes.echo"


async def test_a_truncated_call_requests_no_approval_and_cannot_be_approved(url: str) -> None:
    chat = service(CALL, ANSWER)
    completion = await completion_of(chat, messages=ASK, tools=tools(url), max_tokens=16)
    choice = completion["choices"][0]
    assert choice["finish_reason"] == "length"
    [call] = choice["message"]["tool_calls"]
    assert "mcp_approval_request" not in call
    assert call["function"]["arguments"] not in ("", '{"text":"hi"}')
    approval = {"role": "tool", "tool_call_id": call["id"], "approve": True}
    with pytest.raises(InvalidRequest, match="cut off"):
        await completion_of(chat, messages=[*ASK, choice["message"], approval], tools=tools(url))
