"""MCP servers are listed once in a conversation, as at OpenAI: later turns use the list that it carries."""

from __future__ import annotations

from typing import Any

import pytest

from gpt_oss_server.caller.caller import LOCAL
from tests.doubles.apis.mcp_asking import ANSWER, call, tool
from tests.doubles.apis.services import conversations_of
from tests.doubles.tools.echo_server import Seen
from tests.responses.conftest import Echoes

UNREACHABLE = tool("http://127.0.0.1:9/mcp")


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
    ask = echoes(ANSWER, allow_private_hosts=True)
    response = first = await ask(tools=[tool(url)])
    before = seen.listings
    for _ in range(2):
        response = await ask(tools=[tool(url)], previous_response_id=response["id"])
        assert kinds(response) == ["message"]
    narrowed = [tool(url, allowed_tools=["echo"])]
    branch = await ask(tools=narrowed, previous_response_id=first["id"])
    body = {"tools": narrowed, "previous_response_id": branch["id"], "input": "?"}
    prompt = (await ask.service.render(LOCAL, body)).text
    assert kinds(branch) == ["message"]
    assert ("type echo =" in prompt, "type fail =" in prompt) == (True, False)
    assert seen.listings == before


async def test_another_address_is_listed_under_the_same_label(echoes: Echoes, url: str) -> None:
    ask = echoes(ANSWER, allow_private_hosts=True)
    first = await ask(tools=[tool(url)])
    other = await ask(tools=[tool(f"{url}?other=1")], previous_response_id=first["id"])
    assert kinds(other)[0] == "mcp_list_tools"
    unlisted = await ask(tools=[UNREACHABLE], previous_response_id=other["id"])
    assert "error" in unlisted["output"][0]


async def test_a_failed_list_is_tried_again(echoes: Echoes, url: str) -> None:
    ask = echoes(ANSWER, allow_private_hosts=True)
    first = await ask(tools=[UNREACHABLE])
    assert "error" in first["output"][0]
    again = await ask(tools=[tool(url)], previous_response_id=first["id"])
    assert kinds(again) == ["mcp_list_tools", "message"]
    assert "error" not in again["output"][0]


async def test_a_malformed_list_of_the_client_is_not_used(echoes: Echoes, url: str) -> None:
    wrong = ({"name": "echo"}, {"name": 5, "input_schema": {}}, {"name": "f", "input_schema": 1})
    for tools in (None, [], "x", [5], *([one] for one in wrong)):
        item = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "echoes", "tools": tools}
        response = await echoes(ANSWER, allow_private_hosts=True)(tools=[tool(url)], input=["Hi", item])
        assert kinds(response) == ["mcp_list_tools", "message"], tools


async def test_an_operators_list_is_shown_once(echoes: Echoes) -> None:
    ask = echoes(ANSWER)
    first = await ask(tools=[tool()])
    second = await ask(tools=[tool()], previous_response_id=first["id"])
    assert (kinds(first), kinds(second)) == (["mcp_list_tools", "message"], ["message"])
