"""MCP in the response: servers are listed, tools are called, and no secret is kept."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.encoding import Encoding
from tests.doubles.apis.mcp_asking import ANSWER, CALL, Asking, call, tool
from tests.doubles.apis.services import conversations_of
from tests.doubles.tools.echo_server import Seen

SECRETS = ("tok_5f2d8a11c0ffee", "key_77aa88bb99cc")


async def test_an_operators_server_is_listed_first_and_called_by_its_label(
    encoding: Encoding, url: str
) -> None:
    async with Asking(encoding, call("echo", text="hi"), ANSWER, mcp=(f"echoes={url}",)) as ask:
        response = await ask(tools=[tool()])
    listing, made, message = response["output"]
    assert listing["type"] == "mcp_list_tools"
    assert "echo" in [each["name"] for each in listing["tools"]]
    assert ask.kinds(0) == [
        "output_item.added",
        "mcp_list_tools.in_progress",
        "mcp_list_tools.completed",
        "output_item.done",
    ]
    assert (made["type"], made["status"], made["output"]) == ("mcp_call", "completed", "hi")
    assert (made["server_label"], made["name"], made["arguments"]) == ("echoes", "echo", '{"text": "hi"}')
    assert ask.kinds(1) == [
        "output_item.added",
        "mcp_call.in_progress",
        "mcp_call_arguments.delta",
        "mcp_call_arguments.done",
        "mcp_call.completed",
        "output_item.done",
    ]
    assert message["content"][0]["text"] == "Done."


async def test_a_clients_server_is_reached_if_private_hosts_are_allowed(encoding: Encoding, url: str) -> None:
    async with Asking(encoding, call("echo", text="hi"), ANSWER, allow_private_hosts=True) as ask:
        response = await ask(tools=[tool(url)])
    assert [item["type"] for item in response["output"]] == ["mcp_list_tools", "mcp_call", "message"]
    assert response["output"][1]["output"] == "hi"


async def test_otherwise_a_private_host_gives_a_failed_listing(encoding: Encoding, url: str) -> None:
    async with Asking(encoding, ANSWER) as ask:
        response = await ask(tools=[tool(url)])
    listing, message = response["output"]
    assert "error" in listing
    assert listing["tools"] == []
    assert "mcp_list_tools.failed" in ask.kinds(0)
    assert message["status"] == "completed"


async def test_only_allowed_tools_are_listed_and_called(encoding: Encoding, url: str) -> None:
    turns = (call("fail", why="x"), ANSWER)
    async with Asking(encoding, *turns, mcp=(f"echoes={url}",)) as ask:
        response = await ask(tools=[tool(allowed_tools=["echo"])])
    listing, made, _ = response["output"]
    assert [each["name"] for each in listing["tools"]] == ["echo"]
    assert made["status"] == "failed"
    assert "echoes.echo" in made["error"]["content"][0]["text"]


@pytest.mark.parametrize("by_request", [False, True], ids=["the operator's", "the request's"])
async def test_the_model_reads_that_a_call_timed_out(encoding: Encoding, url: str, by_request: bool) -> None:
    settings: dict[str, Any] = {"allow_private_hosts": True} if by_request else {"mcp": (f"echoes={url}",)}
    async with Asking(encoding, call("slow", seconds=30), ANSWER, mcp_timeout=0.5, **settings) as ask:
        response = await ask(tools=[tool(url if by_request else None)])
    made = response["output"][1]
    assert made["status"] == "failed"
    assert "within 0.5 seconds" in made["error"]["content"][0]["text"]
    assert response["status"] == "completed"


FAILURES = {
    "an error of the tool": call("fail", why="It rained."),
    "not JSON": CALL.replace("{}", "echo", 1).replace("{}", "not json", 1),
    "nothing": CALL.replace("{}", "echo", 1).replace("{}", "", 1),
    "missing arguments": call("echo"),
    "no such tool": call("fly"),
    "no function": "<|channel|>commentary to=echoes <|constrain|>json<|message|>{}<|call|>",
}


@pytest.mark.parametrize("turn", FAILURES.values(), ids=FAILURES)
async def test_a_failed_call_is_reported_and_the_turn_continues(
    encoding: Encoding, url: str, turn: str
) -> None:
    async with Asking(encoding, turn, ANSWER, mcp=(f"echoes={url}",)) as ask:
        response = await ask(tools=[tool()])
    assert response["status"] == "completed"
    _, made, message = response["output"]
    assert (made["type"], made["status"]) == ("mcp_call", "failed")
    assert made["error"]["type"] == "mcp_tool_execution_error"
    assert made["error"]["content"][0]["text"]
    assert "output" not in made
    assert "mcp_call.failed" in ask.kinds(1)
    assert message["content"][0]["text"] == "Done."


@pytest.mark.parametrize("name", ["large", "odd", "picture"])
async def test_strange_results_are_well_formed(encoding: Encoding, url: str, name: str) -> None:
    arguments = {"characters": 3_000_000} if name == "large" else {}
    async with Asking(encoding, call(name, **arguments), ANSWER, mcp=(f"echoes={url}",)) as ask:
        response = await ask(tools=[tool()])
    made = response["output"][1]
    assert made["status"] == "completed"
    assert response["usage"]["input_tokens"] < 60_000, "the model's input is bounded"
    if name == "large":
        assert len(made["output"]) < 1_001_000
        assert "characters left out" in made["output"]


async def test_a_server_that_dies_in_a_call_is_a_failed_call(encoding: Encoding) -> None:
    import sys

    from tests.doubles.tools import echo_server

    command = f"echoes={sys.executable} {echo_server.__file__} stdio"
    async with Asking(encoding, call("die"), ANSWER, mcp=(command,)) as ask:
        response = await ask(tools=[tool()])
    assert [item.get("status") for item in response["output"][1:]] == ["failed", "completed"]


async def test_secrets_reach_only_the_server(
    encoding: Encoding, place: tuple[str, Seen], caplog: pytest.LogCaptureFixture
) -> None:
    url, seen = place
    caplog.set_level(logging.DEBUG)
    turns = (call("headers"), ANSWER)
    secret = tool(url, authorization=SECRETS[0], headers={"X-Api-Key": SECRETS[1]})
    async with Asking(encoding, *turns, allow_private_hosts=True, log_prompts=True) as ask:
        response = await ask(tools=[secret], metadata={"__debug": True})
        stored = await ask.service.stored(LOCAL).retrieve(response["id"])
        history = await ask.service.served.stores.responses.history(response["id"])
    assert history is not None
    assert seen.headers[-1]["authorization"] == f"Bearer {SECRETS[0]}"
    assert seen.headers[-1]["x-api-key"] == SECRETS[1]
    logged = [
        r.getMessage() for r in caplog.records if r.name.startswith(("gpt_oss_server", "tools", "inference"))
    ]
    kept = (
        json.dumps(ask.events)
        + repr(stored)
        + "".join(logged)
        + encoding.decode([token for segment in history.segments for token in segment.tokens])
    )
    for word in SECRETS:
        assert word not in kept
    assert response["tools"] == [tool(url)]


async def test_a_servers_sessions_end_with_a_request_that_is_not_stored(encoding: Encoding, url: str) -> None:
    turns = (call("echo", text="hi"), ANSWER)
    async with Asking(encoding, *turns, mcp=(f"echoes={url}",), allow_private_hosts=True) as ask:
        other = {"type": "mcp", "server_label": "other", "server_url": url, "require_approval": "never"}
        response = await ask(tools=[tool(), other], store=False)
        assert response["output"][2]["output"] == "hi"
        tools = ask.service.served._tools
        assert tools is not None
        assert not any((await tools.ready()).toolbox.sessions.values())


async def test_deleting_an_item_of_a_conversation_keeps_all_others(encoding: Encoding, url: str) -> None:
    turns = (ANSWER, call("echo", text="what the tool said"), ANSWER)
    async with Asking(encoding, *turns, mcp=(f"echoes={url}",)) as ask:
        here = conversations_of(ask.service)
        made = await here.create({})
        await ask(input="Hello!", conversation=made["id"])
        await ask(tools=[tool()], conversation=made["id"])

        async def prompt() -> str:
            return (await ask.service.render(LOCAL, {"input": "And now?", "conversation": made["id"]})).text

        async def delete(place: int) -> None:
            items = (await here.items(made["id"], {"order": "asc"}))["data"]
            await here.delete_item(made["id"], items[place]["id"])

        whole = await prompt()
        assert whole.count("what the tool said") == 2  # the call and its result
        await delete(0)
        first = "<|start|>user<|message|>Hello!<|end|>"
        assert await prompt() == whole.replace(first, "")
        await delete(0)
        left = whole.replace(first, "").replace(
            "<|start|>assistant<|channel|>final<|message|>Done.<|end|>", "", 1
        )
        assert await prompt() == left
        await delete(0)
        assert await prompt() == left.replace("<|start|>user<|message|>Say hi.<|end|>", "")
        await delete(2)  # the answer: the other items of its part are rendered again
        assert "what the tool said" in await prompt()
        assert "Done." not in await prompt()


async def test_servers_are_connected_concurrently(encoding: Encoding) -> None:
    """A server that does not answer does not delay the connections to the others."""
    opened, all_open = 0, asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal opened
        opened += 1
        if opened == 3:
            all_open.set()
        await all_open.wait()
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        tools = [tool(url, server_label=f"slow{number}") for number in range(3)]
        async with Asking(encoding, ANSWER, allow_private_hosts=True) as ask:
            async with asyncio.timeout(25):  # less than one server may take
                response = await ask(tools=tools)
    listings = response["output"][:3]
    assert [listing["server_label"] for listing in listings] == ["slow0", "slow1", "slow2"]
    assert all("error" in listing for listing in listings)


UNREACHABLE = "http://127.0.0.1:9/mcp"


async def test_a_choice_of_an_unreachable_server_is_refused(encoding: Encoding) -> None:
    choice = {"type": "mcp", "server_label": "echoes"}
    async with Asking(encoding, ANSWER, allow_private_hosts=True) as ask:
        with pytest.raises(InvalidRequest, match="cannot be connected to") as refused:
            await ask(tools=[tool(UNREACHABLE)], tool_choice=choice)
        assert refused.value.param == "tool_choice"
        allowed = {"type": "allowed_tools", "mode": "auto", "tools": [choice]}
        response = await ask(tools=[tool(UNREACHABLE)], tool_choice=allowed)
    assert [item["type"] for item in response["output"]] == ["mcp_list_tools", "message"]


async def test_an_approved_call_to_an_unreachable_server_fails(encoding: Encoding) -> None:
    request = {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "echoes", "name": "echo"}
    consent = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    async with Asking(encoding, ANSWER, allow_private_hosts=True) as ask:
        response = await ask(tools=[tool(UNREACHABLE)], input=[{**request, "arguments": "{}"}, consent])
    made = response["output"][1]
    assert made["status"] == "failed"
    assert "cannot be connected to" in made["error"]["content"][0]["text"]
