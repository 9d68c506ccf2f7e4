"""MCP in the response: servers listed, tools called, consent asked for, and nothing secret kept."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.responses.service import ResponsesService
from gpt_oss_server.settings import Settings
from gpt_oss_server.toolset import ToolsetMaker
from tests.lints import check_stream
from tests.serving import scripted
from tests.tools.mcp.echo_server import Seen, serving

CALL = "<|channel|>commentary to=echoes.{} <|constrain|>json<|message|>{}<|call|>"
ANSWER = "<|channel|>final<|message|>Done.<|return|>"
SECRETS = ("tok_5f2d8a11c0ffee", "key_77aa88bb99cc")


def call(name: str, **arguments: Any) -> str:
    return CALL.replace("{}", name, 1).replace("{}", json.dumps(arguments), 1)


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[str, Seen]]:
    seen = Seen()
    with serving(seen) as url:
        yield url, seen


@pytest.fixture
def url(place: tuple[str, Seen]) -> str:
    return place[0]


class Asking:
    """A service with scripted turns; `events` and `response` are those of the last request."""

    def __init__(self, encoding: Encoding, *turns: str, **settings: Any) -> None:
        given = Settings(python="off", browser="off", **settings)
        self.service = ResponsesService(scripted(*turns), given, encoding=encoding, tools=ToolsetMaker(given))

    async def __call__(self, **body: Any) -> dict[str, Any]:
        run = await self.service.start({"input": "Say hi.", **body})
        self.events = [event async for batch in run for event in batch]
        return check_stream(self.events)

    def kinds(self, index: int) -> list[str]:
        of_item = [e for e in self.events if e.get("output_index") == index]
        return list(dict.fromkeys(e["type"].removeprefix("response.") for e in of_item))

    async def __aenter__(self) -> Asking:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.service.close()


def tool(url: str | None = None, **more: Any) -> dict[str, Any]:
    place = {"server_url": url} if url else {}
    return {"type": "mcp", "server_label": "echoes", "require_approval": "never", **place, **more}


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


async def test_a_clients_server_is_reached_where_private_hosts_are_allowed(
    encoding: Encoding, url: str
) -> None:
    async with Asking(encoding, call("echo", text="hi"), ANSWER, allow_private_hosts=True) as ask:
        response = await ask(tools=[tool(url)])
    assert [item["type"] for item in response["output"]] == ["mcp_list_tools", "mcp_call", "message"]
    assert response["output"][1]["output"] == "hi"


async def test_elsewhere_a_private_host_is_a_listing_that_failed(encoding: Encoding, url: str) -> None:
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


@pytest.mark.parametrize("by_items", [False, True], ids=["previous_response_id", "items"])
@pytest.mark.parametrize("approve", [True, False])
async def test_a_call_waits_for_consent(
    encoding: Encoding, place: tuple[str, Seen], approve: bool, by_items: bool
) -> None:
    url, seen = place
    tools = [tool(require_approval="always")]
    async with Asking(encoding, call("echo", text="hi"), ANSWER, mcp=(f"echoes={url}",)) as ask:
        before = seen.calls
        first = await ask(tools=tools)
        request = first["output"][-1]
        assert request["type"] == "mcp_approval_request"
        assert (request["server_label"], request["name"], request["arguments"]) == (
            "echoes",
            "echo",
            '{"text": "hi"}',
        )
        assert seen.calls == before
        consent = {
            "type": "mcp_approval_response",
            "approval_request_id": request["id"],
            "approve": approve,
        }
        if by_items:
            sent = [{"role": "user", "content": "Say hi."}, *first["output"], consent]
            second = await ask(tools=tools, input=sent)
        else:
            second = await ask(tools=tools, input=[consent], previous_response_id=first["id"])
    kinds = [item["type"] for item in second["output"]]
    assert seen.calls == before + approve
    if approve:
        assert kinds == ["mcp_list_tools", "mcp_call", "message"]
        assert second["output"][1]["approval_request_id"] == request["id"]
        assert second["output"][1]["output"] == "hi"
        assert "mcp_call_arguments.delta" in ask.kinds(1)
    else:
        assert kinds == ["mcp_list_tools", "message"]


async def test_a_call_that_was_cut_off_asks_for_no_consent(encoding: Encoding, url: str) -> None:
    made = call("echo", text="hi there, all of you")
    begun = len(encoding.encode_special(made[: made.index("{")]))
    for limit in range(begun, len(encoding.encode_special(made)) + 1):
        async with Asking(encoding, made, mcp=(f"echoes={url}",)) as ask:
            response = await ask(tools=[tool(require_approval="always")], max_output_tokens=limit)
        kinds = [item["type"] for item in response["output"][1:]]
        if response["status"] == "completed":
            assert kinds == ["mcp_approval_request"]
        else:
            assert kinds in ([], ["mcp_call"])
            assert all(item["status"] == "incomplete" for item in response["output"][1:])
    assert response["status"] == "completed", "the last limit was none"


@pytest.mark.parametrize("by_request", [False, True], ids=["the operator's", "the request's"])
async def test_a_call_that_takes_too_long_is_told_to_the_model(
    encoding: Encoding, url: str, by_request: bool
) -> None:
    settings: dict[str, Any] = {"allow_private_hosts": True} if by_request else {"mcp": (f"echoes={url}",)}
    async with Asking(encoding, call("slow", seconds=30), ANSWER, mcp_timeout=0.5, **settings) as ask:
        response = await ask(tools=[tool(url if by_request else None)])
    made = response["output"][1]
    assert made["status"] == "failed"
    assert "within 0.5 seconds" in made["error"]["content"][0]["text"]
    assert response["status"] == "completed"


async def test_the_model_reads_that_it_was_refused_and_why(encoding: Encoding, url: str) -> None:
    tools = [tool(require_approval="always")]
    async with Asking(encoding, call("echo", text="hi"), ANSWER, mcp=(f"echoes={url}",)) as ask:
        first = await ask(tools=tools)
        refusal = {"type": "mcp_approval_response", "approve": False, "reason": "Not on Sundays."}
        refusal["approval_request_id"] = first["output"][-1]["id"]
        second = await ask(
            tools=tools, input=[refusal], previous_response_id=first["id"], metadata={"__debug": True}
        )
    assert "Not on Sundays." in second["metadata"]["__debug_input"]


async def test_consent_to_nothing_is_a_400(encoding: Encoding, url: str) -> None:
    async with Asking(encoding, ANSWER, mcp=(f"echoes={url}",)) as ask:
        consent = {"type": "mcp_approval_response", "approval_request_id": "mcpr_none", "approve": True}
        with pytest.raises(InvalidRequest, match="mcpr_none"):
            await ask(tools=[tool()], input=[consent])


def approval(
    number: int, name: str = "echo", label: str = "echoes", **arguments: Any
) -> list[dict[str, Any]]:
    """A request for consent and the consent, as a client sends them back."""
    request = {"type": "mcp_approval_request", "id": f"mcpr_{number}", "server_label": label, "name": name}
    consent = {"type": "mcp_approval_response", "approval_request_id": f"mcpr_{number}", "approve": True}
    return [{**request, "arguments": json.dumps(arguments)}, consent]


async def test_two_calls_of_one_tool_are_made_when_both_were_approved(encoding: Encoding, url: str) -> None:
    sent = [*approval(1, text="one"), *approval(2, text="two")]
    async with Asking(encoding, ANSWER, mcp=(f"echoes={url}",)) as ask:
        response = await ask(tools=[tool(require_approval="always")], input=sent)
    made = [item for item in response["output"] if item["type"] == "mcp_call"]
    assert [(item["output"], item["approval_request_id"]) for item in made] == [
        ("one", "mcpr_1"),
        ("two", "mcpr_2"),
    ]


async def test_what_was_approved_runs_only_with_a_tool_of_the_request(
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
        response = await ask(tools=[tool(require_approval="always")], input=sent)
    made = response["output"][1]
    assert (made["name"], made.get("output")) == ("has a space.and dot", "found")


FAILURES = {
    "an error of the tool": call("fail", why="It rained."),
    "not JSON": CALL.replace("{}", "echo", 1).replace("{}", "not json", 1),
    "nothing": CALL.replace("{}", "echo", 1).replace("{}", "", 1),
    "missing arguments": call("echo"),
    "no such tool": call("fly"),
    "no function": "<|channel|>commentary to=echoes <|constrain|>json<|message|>{}<|call|>",
}


@pytest.mark.parametrize("turn", FAILURES.values(), ids=FAILURES)
async def test_a_call_that_fails_is_told_and_the_turn_goes_on(
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
    assert response["output"][1]["status"] == "completed"
    assert response["usage"]["input_tokens"] < 60_000, "what the model reads is bounded"


async def test_a_server_that_dies_in_a_call_is_told(encoding: Encoding) -> None:
    import sys

    from tests.tools.mcp import echo_server

    command = f"echoes={sys.executable} {echo_server.__file__} stdio"
    async with Asking(encoding, call("die"), ANSWER, mcp=(command,)) as ask:
        response = await ask(tools=[tool()])
    assert [item.get("status") for item in response["output"][1:]] == ["failed", "completed"]


async def test_secrets_go_to_the_server_and_nowhere_else(
    encoding: Encoding, place: tuple[str, Seen], caplog: pytest.LogCaptureFixture
) -> None:
    url, seen = place
    caplog.set_level(logging.DEBUG)
    turns = (call("headers"), ANSWER)
    secret = tool(url, authorization=SECRETS[0], headers={"X-Api-Key": SECRETS[1]})
    async with Asking(encoding, *turns, allow_private_hosts=True, log_prompts=True) as ask:
        response = await ask(tools=[secret], metadata={"__debug": True})
        stored = await ask.service.retrieve(response["id"])
    assert seen.headers[-1]["authorization"] == f"Bearer {SECRETS[0]}"
    assert seen.headers[-1]["x-api-key"] == SECRETS[1]
    ours = [
        r.getMessage() for r in caplog.records if r.name.startswith(("gpt_oss_server", "tools", "inference"))
    ]
    told = (
        json.dumps(ask.events)
        + repr(stored)
        + "".join(ours)
        + encoding.decode([token for segment in stored.history for token in segment.tokens])
    )
    for word in SECRETS:
        assert word not in told
    assert response["tools"] == [tool(url)]


async def test_the_servers_conversations_end_with_a_request_that_is_not_stored(
    encoding: Encoding, url: str
) -> None:
    turns = (call("echo", text="hi"), ANSWER)
    async with Asking(encoding, *turns, mcp=(f"echoes={url}",), allow_private_hosts=True) as ask:
        other = {"type": "mcp", "server_label": "other", "server_url": url, "require_approval": "never"}
        response = await ask(tools=[tool(), other], store=False)
        assert response["output"][2]["output"] == "hi"
        tools = ask.service._tools
        assert tools is not None
        assert not any((await tools.ready()).toolbox.sessions.values())


class Counted:
    """How many calls the server has had since it was made."""

    def __init__(self, seen: Seen) -> None:
        self._seen, self._before = seen, seen.calls

    @property
    def calls(self) -> int:
        return self._seen.calls - self._before


def consent_to(request: dict[str, Any], approve: bool = True) -> dict[str, Any]:
    return {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve}


ASKS = [tool(require_approval="always")]


@pytest.mark.parametrize("keeps_calls", [True, False], ids=["with its mcp_call", "without"])
async def test_an_approved_call_in_the_history_is_not_made_again(
    encoding: Encoding, place: tuple[str, Seen], keeps_calls: bool
) -> None:
    url, seen = place
    async with Asking(encoding, call("echo", text="hi"), ANSWER, ANSWER, mcp=(f"echoes={url}",)) as ask:
        counted = Counted(seen)
        history: list[Any] = [{"role": "user", "content": "Say hi."}]
        first = await ask(tools=ASKS, input=history, store=False)
        history += [*first["output"], consent_to(first["output"][-1])]
        second = await ask(tools=ASKS, input=history, store=False)
        assert counted.calls == 1
        history += [item for item in second["output"] if keeps_calls or item["type"] != "mcp_call"]
        history.append({"role": "user", "content": "Thanks."})
        third = await ask(tools=ASKS, input=history, store=False, metadata={"__debug": True})
        assert counted.calls == 1
    assert [item["type"] for item in third["output"]] == ["mcp_list_tools", "message"]
    prompt = third["metadata"]["__debug_input"]
    assert prompt.count("to=echoes.echo") == 1
    result = "hi" if keeps_calls else "The user approved this call and it was made."
    assert f"<|start|>echoes.echo to=assistant<|channel|>commentary<|message|>{result}" in prompt


@pytest.mark.parametrize("choice", ["required", {"type": "mcp", "server_label": "echoes"}])
async def test_an_approved_call_is_the_one_that_was_required(
    encoding: Encoding, place: tuple[str, Seen], choice: Any
) -> None:
    url, seen = place
    async with Asking(encoding, call("echo", text="hi"), ANSWER, mcp=(f"echoes={url}",)) as ask:
        counted = Counted(seen)
        first = await ask(tools=ASKS, tool_choice=choice)
        given = [consent_to(first["output"][-1])]
        second = await ask(tools=ASKS, tool_choice=choice, input=given, previous_response_id=first["id"])
    assert (second["status"], second["error"], counted.calls) == ("completed", None, 1)


async def test_a_call_waits_while_something_else_is_said(encoding: Encoding, place: tuple[str, Seen]) -> None:
    url, seen = place
    async with Asking(encoding, call("echo", text="hi"), ANSWER, ANSWER, mcp=(f"echoes={url}",)) as ask:
        counted = Counted(seen)
        first = await ask(tools=ASKS)
        second = await ask(tools=ASKS, input="Why do you need that?", previous_response_id=first["id"])
        given = [consent_to(first["output"][-1])]
        third = await ask(tools=ASKS, input=given, previous_response_id=second["id"])
        assert counted.calls == 1
        with pytest.raises(InvalidRequest, match="waits for approval"):
            await ask(tools=ASKS, input=given, previous_response_id=third["id"])
    assert third["output"][1]["approval_request_id"] == first["output"][-1]["id"]


async def test_a_conversation_takes_in_a_history_with_an_approved_call(
    encoding: Encoding, place: tuple[str, Seen]
) -> None:
    url, seen = place
    async with Asking(encoding, call("echo", text="hi"), ANSWER, ANSWER, mcp=(f"echoes={url}",)) as ask:
        counted = Counted(seen)
        first = await ask(tools=ASKS)
        given = [consent_to(first["output"][-1])]
        second = await ask(tools=ASKS, input=given, previous_response_id=first["id"])
        history = [{"role": "user", "content": "Say hi."}, *first["output"], *given]
        with pytest.raises(InvalidRequest, match="with its mcp_call"):
            await ask.service.conversations.create({"items": history})
        made = await ask.service.conversations.create({"items": [*history, *second["output"]]})
        response = await ask(tools=ASKS, input="And now?", conversation=made["id"])
    assert (response["status"], counted.calls) == ("completed", 1)


async def test_what_is_deleted_of_a_conversation_takes_nothing_else_along(
    encoding: Encoding, url: str
) -> None:
    turns = (ANSWER, call("echo", text="what the tool said"), ANSWER)
    async with Asking(encoding, *turns, mcp=(f"echoes={url}",)) as ask:
        here = ask.service.conversations
        made = await here.create({})
        await ask(input="Hello!", conversation=made["id"])
        await ask(tools=[tool()], conversation=made["id"])

        async def prompt() -> str:
            return (await ask.service.render({"input": "And now?", "conversation": made["id"]})).text

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
        await delete(2)  # the answer: what came together with it is rendered from its items
        assert "what the tool said" in await prompt()
        assert "Done." not in await prompt()
