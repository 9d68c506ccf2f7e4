"""Calls of MCP tools that wait for the client's approval: one request, one call."""

import json
from typing import Any

import pytest

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.encoding import Encoding
from tests.doubles.apis.asking import conversations_of
from tests.doubles.apis.mcp_asking import ANSWER, call, tool
from tests.doubles.tools.echo_server import Seen
from tests.doubles.tools.mcp_helpers import ONE_TOOL, PlainServer, plain_server, text
from tests.doubles.waiting import until
from tests.responses.conftest import Echoes

TOOLS = [tool(require_approval="always")]
ECHO = call("echo", text="hi")
QUESTION, THANKS = {"role": "user", "content": "Say hi."}, {"role": "user", "content": "Thanks."}
DEBUG = {"__debug": True}


def approval_of(request: dict[str, Any], approve: bool = True) -> dict[str, Any]:
    return {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve}


def approval(number: int, name: str = "echo", **arguments: Any) -> list[dict[str, Any]]:
    """A request for approval and the approval, as a client sends them back."""
    kind = {"type": "mcp_approval_request", "id": f"mcpr_{number}", "server_label": "echoes"}
    request = {**kind, "name": name, "arguments": json.dumps(arguments)}
    return [request, approval_of(request)]


@pytest.mark.parametrize("by_items", [False, True], ids=["previous_response_id", "items"])
@pytest.mark.parametrize("approve", [True, False])
async def test_a_call_waits_for_approval(echoes: Echoes, seen: Seen, approve: bool, by_items: bool) -> None:
    ask = echoes(ECHO, ANSWER)
    first = await ask(tools=TOOLS)
    request = first["output"][-1]
    called = request["type"], request["server_label"], request["name"], request["arguments"]
    assert called == ("mcp_approval_request", "echoes", "echo", '{"text": "hi"}')
    assert seen.calls == 0
    answer = {**approval_of(request, approve), **({} if approve else {"reason": "Not on Sundays."})}
    sent: dict[str, Any] = {"input": [answer], "previous_response_id": first["id"]}
    if by_items:
        sent = {"input": [QUESTION, *first["output"], answer]}
    second = await ask(tools=TOOLS, metadata=DEBUG, **sent)
    assert seen.calls == approve
    assert [item["type"] for item in second["output"]] == ["mcp_call", "message"][not approve :]
    if approve:
        made = second["output"][0]
        assert (made["approval_request_id"], made["output"]) == (request["id"], "hi")
        assert "mcp_call_arguments.delta" in ask.kinds(0)
    else:
        assert "Not on Sundays." in second["metadata"]["__debug_input"]


async def test_a_call_that_was_cut_off_requests_no_approval(encoding: Encoding, echoes: Echoes) -> None:
    made = call("echo", text="hi there, all of you")
    begun = len(encoding.encode_special(made[: made.index("{")]))
    for limit in range(begun, len(encoding.encode_special(made)) + 1):
        response = await echoes(made)(tools=TOOLS, max_output_tokens=limit)
        kinds = [item["type"] for item in response["output"][1:]]
        if response["status"] == "completed":
            assert kinds == ["mcp_approval_request"]
        else:
            assert kinds in ([], ["mcp_call"])
            assert all(item["status"] == "incomplete" for item in response["output"][1:])
    assert response["status"] == "completed", "the last limit cuts nothing"


async def test_a_wrong_approval_is_refused(echoes: Echoes) -> None:
    ask = echoes(ANSWER)
    with pytest.raises(InvalidRequest, match="mcpr_none"):
        await ask(tools=[tool()], input=[approval_of({"id": "mcpr_none"})])
    request, answer = approval(1, text="one")
    for approve in (None, "true", 1):
        with pytest.raises(InvalidRequest, match="must be true or false") as refused:
            await ask(tools=TOOLS, input=[request, {**answer, "approve": approve}])
        assert refused.value.param == "input[1].approve"


async def test_approved_calls_of_tools_with_any_name_run(echoes: Echoes) -> None:
    sent = [*approval(1, text="one"), *approval(2, text="two"), *approval(3, name="has a space.and dot")]
    response = await echoes(ANSWER)(tools=TOOLS, input=sent)
    made = [item for item in response["output"] if item["type"] == "mcp_call"]
    results = [(item["output"], item["approval_request_id"]) for item in made]
    assert results == [("one", "mcpr_1"), ("two", "mcpr_2"), ("found", "mcpr_3")]
    assert made[2]["name"] == "has a space.and dot"


async def test_an_approved_call_needs_its_tool_in_the_request(echoes: Echoes, seen: Seen) -> None:
    made = (await echoes(ANSWER)(input=approval(1, text="one")))["output"][0]
    assert (made["type"], made["status"], seen.calls) == ("mcp_call", "failed", 0)


async def test_of_two_names_with_the_same_safe_name_the_approved_one_is_called(echoes: Echoes) -> None:
    tools = [{**ONE_TOOL, "name": name} for name in ("get_user", "get.user")]
    server = PlainServer(tools, lambda call: text(f"{call['name']} ran"))
    async with (
        plain_server(server) as url,
        echoes(call("get_user_2"), ANSWER, ANSWER, mcp=(f"echoes={url}",)) as ask,
    ):
        first = await ask(tools=TOOLS, store=False)
        request = first["output"][-1]
        history = [QUESTION, *first["output"], approval_of(request)]
        second = await ask(tools=TOOLS, store=False, input=history)
        history += [*second["output"], THANKS]
        third = await ask(tools=TOOLS, store=False, input=history, metadata=DEBUG)
    made = second["output"][0]
    assert (request["name"], made["name"], made["output"]) == ("get.user", "get.user", "get.user ran")
    assert "to=echoes.get_user_2" in third["metadata"]["__debug_input"]


async def test_a_tool_that_the_server_dropped_is_not_mistaken_for_another(echoes: Echoes) -> None:
    server = PlainServer([{**ONE_TOOL, "name": "get_user"}])
    async with plain_server(server) as url, echoes(ANSWER, mcp=(f"echoes={url}",)) as ask:
        response = await ask(tools=TOOLS, input=approval(1, name="get.user"))
    assert response["output"][1]["status"] == "failed"
    assert "tools/call" not in server.methods


@pytest.mark.parametrize("keeps_calls", [True, False], ids=["with its mcp_call", "without"])
async def test_an_approved_call_does_not_run_again(echoes: Echoes, seen: Seen, keeps_calls: bool) -> None:
    ask = echoes(ECHO, ANSWER, ANSWER)
    history: list[Any] = [QUESTION]
    first = await ask(tools=TOOLS, input=history, store=False)
    history += [*first["output"], approval_of(first["output"][-1])]
    second = await ask(tools=TOOLS, input=history, store=False)
    history += [item for item in second["output"] if keeps_calls or item["type"] != "mcp_call"]
    third = await ask(tools=TOOLS, input=[*history, THANKS], store=False, metadata=DEBUG)
    assert seen.calls == 1
    assert [item["type"] for item in third["output"]] == ["message"]
    prompt = third["metadata"]["__debug_input"]
    assert prompt.count("to=echoes.echo") == 1
    result = "hi" if keeps_calls else "The user approved this call and it was made."
    assert f"<|start|>echoes.echo to=assistant<|channel|>commentary<|message|>{result}" in prompt


@pytest.mark.parametrize("choice", ["required", {"type": "mcp", "server_label": "echoes"}])
async def test_an_approved_call_satisfies_tool_choice(echoes: Echoes, seen: Seen, choice: Any) -> None:
    ask = echoes(ECHO, ANSWER)
    first = await ask(tools=TOOLS, tool_choice=choice)
    answer = [approval_of(first["output"][-1])]
    second = await ask(tools=TOOLS, tool_choice=choice, input=answer, previous_response_id=first["id"])
    assert (second["status"], second["error"], seen.calls) == ("completed", None, 1)


async def test_a_call_waits_through_another_turn(echoes: Echoes, seen: Seen) -> None:
    ask = echoes(ECHO, ANSWER, ANSWER)
    first = await ask(tools=TOOLS)
    second = await ask(tools=TOOLS, input="Why do you need that?", previous_response_id=first["id"])
    answer = [approval_of(first["output"][-1])]
    third = await ask(tools=TOOLS, input=answer, previous_response_id=second["id"])
    assert third["output"][0]["approval_request_id"] == first["output"][-1]["id"]
    assert seen.calls == 1
    with pytest.raises(InvalidRequest, match="waits for approval"):
        await ask(tools=TOOLS, input=answer, previous_response_id=third["id"])


async def test_a_conversation_accepts_a_history_with_an_approved_call(echoes: Echoes, seen: Seen) -> None:
    ask = echoes(ECHO, ANSWER, ANSWER)
    first = await ask(tools=TOOLS)
    answer = [approval_of(first["output"][-1])]
    second = await ask(tools=TOOLS, input=answer, previous_response_id=first["id"])
    history = [QUESTION, *first["output"], *answer]
    with pytest.raises(InvalidRequest, match="with its mcp_call"):
        await conversations_of(ask.service).create({"items": history})
    made = await conversations_of(ask.service).create({"items": [*history, *second["output"]]})
    response = await ask(tools=TOOLS, input="And now?", conversation=made["id"])
    assert (response["status"], seen.calls) == ("completed", 1)


async def test_stopped_approved_calls_keep_their_results_so_far(echoes: Echoes, seen: Seen) -> None:
    sent = [*approval(1, text="the first result"), *approval(2, "slow", seconds=60)]
    service = echoes(ANSWER).service
    run = await service.start(LOCAL, {"input": sent, "tools": TOOLS, "background": True})
    await service.run_in_background(run)
    await until(seen.started.is_set)
    stopped = await service.stored(LOCAL).cancel(run.id)
    prompt = await service.render(LOCAL, {"input": "Well?", "previous_response_id": run.id})
    assert [item["status"] for item in stopped["output"][1:]] == ["completed", "failed"]
    assert "<|message|>the first result<|end|>" in prompt.text
