"""Calls of MCP tools that wait for the client's approval: one request, one call."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.encoding import Encoding
from tests.doubles.apis.mcp_asking import ANSWER, Asking, call, tool
from tests.doubles.apis.services import conversations_of
from tests.doubles.tools.echo_server import Seen
from tests.doubles.tools.plain_server import ONE_TOOL, PlainServer, plain_server, text
from tests.doubles.waiting import until

NEEDS_APPROVAL = [tool(require_approval="always")]


def approval_of(request: dict[str, Any], approve: bool = True) -> dict[str, Any]:
    return {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve}


def approval(number: int, name: str = "echo", **arguments: Any) -> list[dict[str, Any]]:
    """A request for approval and the approval, as a client sends them back."""
    kind = {"type": "mcp_approval_request", "id": f"mcpr_{number}", "server_label": "echoes"}
    request = {**kind, "name": name, "arguments": json.dumps(arguments)}
    return [request, approval_of(request)]


@pytest.mark.parametrize("by_items", [False, True], ids=["previous_response_id", "items"])
@pytest.mark.parametrize("approve", [True, False])
async def test_a_call_waits_for_approval(
    encoding: Encoding, place: tuple[str, Seen], approve: bool, by_items: bool
) -> None:
    url, seen = place
    tools = NEEDS_APPROVAL
    async with Asking(encoding, call("echo", text="hi"), ANSWER, mcp=(f"echoes={url}",)) as ask:
        before = seen.calls
        first = await ask(tools=tools)
        request = first["output"][-1]
        assert request["type"] == "mcp_approval_request"
        called = request["server_label"], request["name"], request["arguments"]
        assert called == ("echoes", "echo", '{"text": "hi"}')
        assert seen.calls == before
        answer = approval_of(request, approve)
        if by_items:
            sent = [{"role": "user", "content": "Say hi."}, *first["output"], answer]
            second = await ask(tools=tools, input=sent)
        else:
            second = await ask(tools=tools, input=[answer], previous_response_id=first["id"])
    kinds = [item["type"] for item in second["output"]]
    assert seen.calls == before + approve
    if approve:
        assert kinds == ["mcp_call", "message"]
        assert second["output"][0]["approval_request_id"] == request["id"]
        assert second["output"][0]["output"] == "hi"
        assert "mcp_call_arguments.delta" in ask.kinds(0)
    else:
        assert kinds == ["message"]


async def test_a_call_that_was_cut_off_requests_no_approval(encoding: Encoding, url: str) -> None:
    made = call("echo", text="hi there, all of you")
    begun = len(encoding.encode_special(made[: made.index("{")]))
    for limit in range(begun, len(encoding.encode_special(made)) + 1):
        async with Asking(encoding, made, mcp=(f"echoes={url}",)) as ask:
            response = await ask(tools=NEEDS_APPROVAL, max_output_tokens=limit)
        kinds = [item["type"] for item in response["output"][1:]]
        if response["status"] == "completed":
            assert kinds == ["mcp_approval_request"]
        else:
            assert kinds in ([], ["mcp_call"])
            assert all(item["status"] == "incomplete" for item in response["output"][1:])
    assert response["status"] == "completed", "the last limit cuts nothing"


async def test_the_model_reads_the_refusal_and_its_reason(encoding: Encoding, url: str) -> None:
    async with Asking(encoding, call("echo", text="hi"), ANSWER, mcp=(f"echoes={url}",)) as ask:
        first = await ask(tools=NEEDS_APPROVAL)
        refusal = {**approval_of(first["output"][-1], False), "reason": "Not on Sundays."}
        more = {"previous_response_id": first["id"], "metadata": {"__debug": True}}
        second = await ask(tools=NEEDS_APPROVAL, input=[refusal], **more)
    assert "Not on Sundays." in second["metadata"]["__debug_input"]


async def test_approval_of_an_unknown_call_is_a_400(encoding: Encoding, url: str) -> None:
    async with Asking(encoding, ANSWER, mcp=(f"echoes={url}",)) as ask:
        answer = approval_of({"id": "mcpr_none"})
        with pytest.raises(InvalidRequest, match="mcpr_none"):
            await ask(tools=[tool()], input=[answer])


async def test_two_approved_calls_of_one_tool_both_run(encoding: Encoding, url: str) -> None:
    sent = [*approval(1, text="one"), *approval(2, text="two")]
    async with Asking(encoding, ANSWER, mcp=(f"echoes={url}",)) as ask:
        response = await ask(tools=NEEDS_APPROVAL, input=sent)
    made = [item for item in response["output"] if item["type"] == "mcp_call"]
    assert [(item["output"], item["approval_request_id"]) for item in made] == [
        ("one", "mcpr_1"),
        ("two", "mcpr_2"),
    ]


async def test_an_approved_call_needs_its_tool_in_the_request(
    encoding: Encoding, place: tuple[str, Seen]
) -> None:
    url, seen = place
    async with Asking(encoding, ANSWER, mcp=(f"echoes={url}",)) as ask:
        before = seen.calls
        response = await ask(input=approval(1, text="one"))
        assert seen.calls == before
    made = response["output"][0]
    assert (made["type"], made["status"]) == ("mcp_call", "failed")


async def test_a_tool_with_an_awkward_name_is_approved_by_items(encoding: Encoding, url: str) -> None:
    sent = approval(1, name="has a space.and dot")
    async with Asking(encoding, ANSWER, mcp=(f"echoes={url}",)) as ask:
        response = await ask(tools=NEEDS_APPROVAL, input=sent)
    made = response["output"][1]
    assert (made["name"], made.get("output")) == ("has a space.and dot", "found")


async def test_of_two_names_with_the_same_safe_name_the_approved_one_is_called(encoding: Encoding) -> None:
    tools = [{**ONE_TOOL, "name": name} for name in ("get_user", "get.user")]
    server = PlainServer(tools, lambda call: text(f"{call['name']} ran"))
    async with (
        plain_server(server) as url,
        Asking(encoding, call("get_user_2"), ANSWER, ANSWER, mcp=(f"echoes={url}",)) as ask,
    ):
        first = await ask(tools=NEEDS_APPROVAL, store=False)
        request = first["output"][-1]
        history = [{"role": "user", "content": "Say hi."}, *first["output"], approval_of(request)]
        second = await ask(tools=NEEDS_APPROVAL, store=False, input=history)
        history += [*second["output"], {"role": "user", "content": "Thanks."}]
        third = await ask(tools=NEEDS_APPROVAL, store=False, input=history, metadata={"__debug": True})
    made = second["output"][0]
    assert (request["name"], made["name"], made["output"]) == ("get.user", "get.user", "get.user ran")
    assert "to=echoes.get_user_2" in third["metadata"]["__debug_input"]


async def test_a_tool_that_the_server_dropped_is_not_mistaken_for_another(encoding: Encoding) -> None:
    server = PlainServer([{**ONE_TOOL, "name": "get_user"}])
    async with (
        plain_server(server) as url,
        Asking(encoding, ANSWER, mcp=(f"echoes={url}",)) as ask,
    ):
        response = await ask(tools=NEEDS_APPROVAL, input=approval(1, name="get.user"))
    assert response["output"][1]["status"] == "failed"
    assert "tools/call" not in server.methods


@pytest.mark.parametrize("approve", [None, "true", 1])
async def test_approval_that_is_not_a_boolean_is_refused(encoding: Encoding, url: str, approve: Any) -> None:
    request, answer = approval(1, text="one")
    async with Asking(encoding, ANSWER, mcp=(f"echoes={url}",)) as ask:
        with pytest.raises(InvalidRequest, match="must be true or false") as refused:
            await ask(tools=NEEDS_APPROVAL, input=[request, {**answer, "approve": approve}])
    assert refused.value.param == "input[1].approve"


@pytest.mark.parametrize("keeps_calls", [True, False], ids=["with its mcp_call", "without"])
async def test_an_approved_call_in_the_history_does_not_run_again(
    encoding: Encoding, place: tuple[str, Seen], keeps_calls: bool
) -> None:
    url, seen = place
    async with Asking(encoding, call("echo", text="hi"), ANSWER, ANSWER, mcp=(f"echoes={url}",)) as ask:
        before = seen.calls
        history: list[Any] = [{"role": "user", "content": "Say hi."}]
        first = await ask(tools=NEEDS_APPROVAL, input=history, store=False)
        history += [*first["output"], approval_of(first["output"][-1])]
        second = await ask(tools=NEEDS_APPROVAL, input=history, store=False)
        assert seen.calls == before + 1
        history += [item for item in second["output"] if keeps_calls or item["type"] != "mcp_call"]
        history.append({"role": "user", "content": "Thanks."})
        third = await ask(tools=NEEDS_APPROVAL, input=history, store=False, metadata={"__debug": True})
        assert seen.calls == before + 1
    assert [item["type"] for item in third["output"]] == ["message"]
    prompt = third["metadata"]["__debug_input"]
    assert prompt.count("to=echoes.echo") == 1
    result = "hi" if keeps_calls else "The user approved this call and it was made."
    assert f"<|start|>echoes.echo to=assistant<|channel|>commentary<|message|>{result}" in prompt


@pytest.mark.parametrize("choice", ["required", {"type": "mcp", "server_label": "echoes"}])
async def test_an_approved_call_satisfies_tool_choice(
    encoding: Encoding, place: tuple[str, Seen], choice: Any
) -> None:
    url, seen = place
    async with Asking(encoding, call("echo", text="hi"), ANSWER, mcp=(f"echoes={url}",)) as ask:
        before = seen.calls
        first = await ask(tools=NEEDS_APPROVAL, tool_choice=choice)
        given = [approval_of(first["output"][-1])]
        second = await ask(
            tools=NEEDS_APPROVAL, tool_choice=choice, input=given, previous_response_id=first["id"]
        )
    assert (second["status"], second["error"], seen.calls) == ("completed", None, before + 1)


async def test_a_call_waits_through_another_turn(encoding: Encoding, place: tuple[str, Seen]) -> None:
    url, seen = place
    async with Asking(encoding, call("echo", text="hi"), ANSWER, ANSWER, mcp=(f"echoes={url}",)) as ask:
        before = seen.calls
        first = await ask(tools=NEEDS_APPROVAL)
        second = await ask(
            tools=NEEDS_APPROVAL, input="Why do you need that?", previous_response_id=first["id"]
        )
        given = [approval_of(first["output"][-1])]
        third = await ask(tools=NEEDS_APPROVAL, input=given, previous_response_id=second["id"])
        assert seen.calls == before + 1
        with pytest.raises(InvalidRequest, match="waits for approval"):
            await ask(tools=NEEDS_APPROVAL, input=given, previous_response_id=third["id"])
    assert third["output"][0]["approval_request_id"] == first["output"][-1]["id"]


async def test_a_conversation_accepts_a_history_with_an_approved_call(
    encoding: Encoding, place: tuple[str, Seen]
) -> None:
    url, seen = place
    async with Asking(encoding, call("echo", text="hi"), ANSWER, ANSWER, mcp=(f"echoes={url}",)) as ask:
        before = seen.calls
        first = await ask(tools=NEEDS_APPROVAL)
        given = [approval_of(first["output"][-1])]
        second = await ask(tools=NEEDS_APPROVAL, input=given, previous_response_id=first["id"])
        history = [{"role": "user", "content": "Say hi."}, *first["output"], *given]
        with pytest.raises(InvalidRequest, match="with its mcp_call"):
            await conversations_of(ask.service).create({"items": history})
        made = await conversations_of(ask.service).create({"items": [*history, *second["output"]]})
        response = await ask(tools=NEEDS_APPROVAL, input="And now?", conversation=made["id"])
    assert (response["status"], seen.calls) == ("completed", before + 1)


async def test_stopped_approved_calls_keep_their_results_so_far(
    encoding: Encoding, place: tuple[str, Seen]
) -> None:
    url, seen = place
    seen.started.clear()
    sent = [*approval(1, text="the first result"), *approval(2, "slow", seconds=60)]
    async with Asking(encoding, ANSWER, mcp=(f"echoes={url}",)) as ask:
        run = await ask.service.start(LOCAL, {"input": sent, "tools": NEEDS_APPROVAL, "background": True})
        await ask.service.run_in_background(run)
        await until(seen.started.is_set)
        stopped = await ask.service.stored(LOCAL).cancel(run.id)
        prompt = await ask.service.render(LOCAL, {"input": "Well?", "previous_response_id": run.id})
    assert [item["status"] for item in stopped["output"][1:]] == ["completed", "failed"]
    assert "<|message|>the first result<|end|>" in prompt.text
