"""MCP in the response: servers are listed, tools are called, and no secret is kept."""

import asyncio
import json
import logging
import sys
from typing import Any

import pytest

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.encoding import Encoding
from tests.doubles.apis.asking import conversations_of
from tests.doubles.apis.mcp_asking import ANSWER, CALL, call, tool
from tests.doubles.tools import echo_server
from tests.doubles.tools.echo_server import Seen
from tests.responses.conftest import Echoes

SECRETS = ("tok_5f2d8a11c0ffee", "key_77aa88bb99cc")
ECHO = call("echo", text="hi")
UNREACHABLE = tool("http://127.0.0.1:9/mcp")


async def test_an_operators_server_is_listed_first_and_called_by_its_label(echoes: Echoes) -> None:
    ask = echoes(ECHO, ANSWER)
    listing, made, message = (await ask(tools=[tool()]))["output"]
    assert listing["type"] == "mcp_list_tools"
    assert "echo" in [listed["name"] for listed in listing["tools"]]
    steps = ["mcp_list_tools.in_progress", "mcp_list_tools.completed"]
    assert ask.kinds(0) == ["output_item.added", *steps, "output_item.done"]
    assert (made["type"], made["status"], made["output"]) == ("mcp_call", "completed", "hi")
    assert (made["server_label"], made["name"], made["arguments"]) == ("echoes", "echo", '{"text": "hi"}')
    texts = ["mcp_call_arguments.delta", "mcp_call_arguments.done"]
    steps = ["mcp_call.in_progress", *texts, "mcp_call.completed"]
    assert ask.kinds(1) == ["output_item.added", *steps, "output_item.done"]
    assert message["content"][0]["text"] == "Done."


async def test_a_clients_server_on_a_private_host_gives_a_failed_listing(echoes: Echoes, url: str) -> None:
    ask = echoes(ANSWER, mcp=())
    listing, message = (await ask(tools=[tool(url)]))["output"]
    assert "error" in listing
    assert listing["tools"] == []
    assert "mcp_list_tools.failed" in ask.kinds(0)
    assert message["status"] == "completed"


async def test_only_allowed_tools_are_listed_and_called(echoes: Echoes) -> None:
    response = await echoes(call("fail", why="x"), ANSWER)(tools=[tool(allowed_tools=["echo"])])
    listing, made, _ = response["output"]
    assert [listed["name"] for listed in listing["tools"]] == ["echo"]
    assert made["status"] == "failed"
    assert "echoes.echo" in made["error"]["content"][0]["text"]


@pytest.mark.parametrize("by_request", [False, True], ids=["the operator's", "the request's"])
async def test_the_model_reads_that_a_call_timed_out(echoes: Echoes, url: str, by_request: bool) -> None:
    settings: dict[str, Any] = {"allow_private_hosts": True} if by_request else {}
    ask = echoes(call("slow", seconds=30), ANSWER, mcp_timeout=0.5, **settings)
    response = await ask(tools=[tool(url if by_request else None)])
    made = response["output"][1]
    assert (response["status"], made["status"]) == ("completed", "failed")
    assert "within 0.5 seconds" in made["error"]["content"][0]["text"]


FAILURES = {
    "an error of the tool": call("fail", why="It rained."),
    "not JSON": CALL.replace("{}", "echo", 1).replace("{}", "not json", 1),
    "nothing": CALL.replace("{}", "echo", 1).replace("{}", "", 1),
    "missing arguments": call("echo"),
    "no such tool": call("fly"),
    "no function": "<|channel|>commentary to=echoes <|constrain|>json<|message|>{}<|call|>",
}


@pytest.mark.parametrize("turn", FAILURES.values(), ids=FAILURES)
async def test_a_failed_call_is_reported_and_the_turn_continues(echoes: Echoes, turn: str) -> None:
    ask = echoes(turn, ANSWER)
    response = await ask(tools=[tool()])
    _, made, message = response["output"]
    assert (response["status"], made["type"], made["status"]) == ("completed", "mcp_call", "failed")
    assert made["error"]["type"] == "mcp_tool_execution_error"
    assert made["error"]["content"][0]["text"]
    assert "output" not in made
    assert "mcp_call.failed" in ask.kinds(1)
    assert message["content"][0]["text"] == "Done."


@pytest.mark.parametrize("name", ["large", "odd", "picture"])
async def test_strange_results_are_well_formed(echoes: Echoes, name: str) -> None:
    arguments = {"characters": 3_000_000} if name == "large" else {}
    response = await echoes(call(name, **arguments), ANSWER)(tools=[tool()])
    made = response["output"][1]
    assert made["status"] == "completed"
    assert response["usage"]["input_tokens"] < 60_000, "the model's input is bounded"
    if name == "large":
        assert len(made["output"]) < 1_001_000
        assert "characters left out" in made["output"]


async def test_a_server_that_dies_in_a_call_is_a_failed_call(echoes: Echoes) -> None:
    command = f"echoes={sys.executable} {echo_server.__file__} stdio"
    response = await echoes(call("die"), ANSWER, mcp=(command,))(tools=[tool()])
    assert [item.get("status") for item in response["output"][1:]] == ["failed", "completed"]


async def test_secrets_reach_only_the_server(
    encoding: Encoding, echoes: Echoes, url: str, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = tool(url, authorization=SECRETS[0], headers={"X-Api-Key": SECRETS[1]})
    ask = echoes(call("headers"), ANSWER, allow_private_hosts=True, log_prompts=True)
    response = await ask(tools=[secret], metadata={"__debug": True})
    stored = await ask.service.stored(LOCAL).retrieve(response["id"])
    history = await ask.service.served.stores.responses.history(response["id"])
    assert history is not None
    sent = seen.headers[-1]
    assert (sent["authorization"], sent["x-api-key"]) == (f"Bearer {SECRETS[0]}", SECRETS[1])
    ours = ("gpt_oss_server", "tools", "inference")
    logged = "".join(record.getMessage() for record in caplog.records if record.name.startswith(ours))
    shown = encoding.decode([token for segment in history.segments for token in segment.tokens])
    for word in SECRETS:
        assert word not in json.dumps(ask.events) + repr(stored) + logged + shown
    assert response["tools"] == [tool(url)]


async def test_a_servers_sessions_end_with_a_request_that_is_not_stored(echoes: Echoes, url: str) -> None:
    ask = echoes(ECHO, ANSWER, mcp=(f"echoes={url}",), allow_private_hosts=True)
    response = await ask(tools=[tool(), tool(url, server_label="other")], store=False)
    assert response["output"][2]["output"] == "hi"
    tools = ask.service.served._tools
    assert not any((await tools.ready()).toolbox.sessions.values())


async def test_deleting_an_item_of_a_conversation_keeps_all_others(echoes: Echoes) -> None:
    ask = echoes(ANSWER, call("echo", text="what the tool said"), ANSWER)
    here = conversations_of(ask.service)
    conversation = (await here.create({}))["id"]
    await ask(input="Hello!", conversation=conversation)
    await ask(tools=[tool()], conversation=conversation)

    async def prompt() -> str:
        return (await ask.service.render(LOCAL, {"input": "And now?", "conversation": conversation})).text

    async def delete(place: int) -> None:
        items = (await here.items(conversation, {"order": "asc"}))["data"]
        await here.delete_item(conversation, items[place]["id"])

    left = await prompt()
    assert left.count("what the tool said") == 2  # the call and its result
    for gone in (
        "<|start|>user<|message|>Hello!<|end|>",
        "<|start|>assistant<|channel|>final<|message|>Done.<|end|>",
        "<|start|>user<|message|>Say hi.<|end|>",
    ):
        await delete(0)
        left = left.replace(gone, "", 1)
        assert await prompt() == left
    await delete(2)  # the answer: the other items of its part are rendered again
    assert "what the tool said" in await prompt()
    assert "Done." not in await prompt()


async def test_servers_are_connected_concurrently(echoes: Echoes) -> None:
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
        async with asyncio.timeout(25):  # less than one server may take
            response = await echoes(ANSWER, allow_private_hosts=True)(tools=tools)
    listings = response["output"][:3]
    assert [listing["server_label"] for listing in listings] == ["slow0", "slow1", "slow2"]
    assert all("error" in listing for listing in listings)


async def test_a_choice_of_an_unreachable_server_is_refused(echoes: Echoes) -> None:
    choice = {"type": "mcp", "server_label": "echoes"}
    ask = echoes(ANSWER, allow_private_hosts=True)
    with pytest.raises(InvalidRequest, match="cannot be connected to") as refused:
        await ask(tools=[UNREACHABLE], tool_choice=choice)
    assert refused.value.param == "tool_choice"
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [choice]}
    response = await ask(tools=[UNREACHABLE], tool_choice=allowed)
    assert [item["type"] for item in response["output"]] == ["mcp_list_tools", "message"]


async def test_an_approved_call_to_an_unreachable_server_fails(echoes: Echoes) -> None:
    named = {"id": "mcpr_1", "server_label": "echoes", "name": "echo", "arguments": "{}"}
    consent = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    ask = echoes(ANSWER, allow_private_hosts=True)
    response = await ask(tools=[UNREACHABLE], input=[{"type": "mcp_approval_request", **named}, consent])
    made = response["output"][1]
    assert made["status"] == "failed"
    assert "cannot be connected to" in made["error"]["content"][0]["text"]


def kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


@pytest.mark.parametrize("how", ["previous_response_id", "conversation", "items"])
async def test_a_continued_turn_uses_the_first_list(echoes: Echoes, seen: Seen, url: str, how: str) -> None:
    ask = echoes(ANSWER, call("echo", text="hi"), ANSWER, allow_private_hosts=True)
    body: dict[str, Any] = {"tools": [tool(url)]}
    if how == "conversation":
        body["conversation"] = (await conversations_of(ask.service).create({}))["id"]
    first = await ask(**body)
    before = seen.listings
    if how == "previous_response_id":
        body["previous_response_id"] = first["id"]
    elif how == "items":
        body["input"] = ["Say hi.", *first["output"], "Again."]
    second = await ask(**body)
    prompt = (await ask.service.render(LOCAL, {"input": "And?", **body})).text
    assert kinds(first) == ["mcp_list_tools", "message"]
    assert kinds(second) == ["mcp_call", "message"]
    assert second["output"][0]["output"] == "hi"
    assert 0 < seen.listings == before, "the server was listed once"
    assert "// Repeats what it is told." in prompt


async def test_a_list_serves_every_later_turn_and_branch(echoes: Echoes, seen: Seen, url: str) -> None:
    for named in (None, url):  # by the operator, by the request
        ask = echoes(ANSWER, **({"allow_private_hosts": True} if named else {}))
        response = first = await ask(tools=[tool(named)])
        assert kinds(first) == ["mcp_list_tools", "message"]
        before = seen.listings
        for _ in range(2):
            response = await ask(tools=[tool(named)], previous_response_id=response["id"])
            assert kinds(response) == ["message"]
    narrowed = [tool(url, allowed_tools=["echo"])]
    branch = await ask(tools=narrowed, previous_response_id=first["id"])
    body = {"tools": narrowed, "previous_response_id": branch["id"], "input": "?"}
    prompt = (await ask.service.render(LOCAL, body)).text
    assert kinds(branch) == ["message"]
    assert ("type echo =" in prompt, "type fail =" in prompt) == (True, False)
    assert seen.listings == before


async def test_another_address_and_a_failed_list_are_listed_again(echoes: Echoes, url: str) -> None:
    ask = echoes(ANSWER, allow_private_hosts=True)
    response = await ask(tools=[tool(url)])
    for address, fails in ((f"{url}?other=1", False), ("http://127.0.0.1:9/mcp", True), (url, False)):
        response = await ask(tools=[tool(address)], previous_response_id=response["id"])
        assert kinds(response) == ["mcp_list_tools", "message"]
        assert ("error" in response["output"][0]) is fails


async def test_a_malformed_list_of_the_client_is_not_used(echoes: Echoes, url: str) -> None:
    wrong = ({"name": "echo"}, {"name": 5, "input_schema": {}}, {"name": "f", "input_schema": 1})
    for tools in (None, [], "x", [5], *([one] for one in wrong)):
        item = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "echoes", "tools": tools}
        response = await echoes(ANSWER, allow_private_hosts=True)(tools=[tool(url)], input=["Hi", item])
        assert kinds(response) == ["mcp_list_tools", "message"], tools
