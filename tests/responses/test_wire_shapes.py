"""What clients rely on beyond the published schemas: statuses, codes, keys that are absent, and bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpt_oss_server.errors import InvalidOutput, every_error
from tests.doubles.apis.api_client import Api
from tests.doubles.apis.asking import FINAL, NEXT, Asking, call
from tests.doubles.serving import scripted

Make = Callable[..., Api]
ANSWER = FINAL.format("Hello!")
TOOL: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}


async def test_an_unknown_previous_response_is_an_invalid_request_as_at_openai(api: Make) -> None:
    error = await api(scripted(ANSWER)).refused("/responses", input="Hi", previous_response_id="resp_none")
    assert (error["status"], error["code"]) == (400, "previous_response_not_found")
    assert error["param"] == "previous_response_id"


async def test_the_user_is_absent_unless_given(api: Make) -> None:
    here = api(scripted(ANSWER))
    assert "user" not in await here.create()
    assert (await here.create(user="me"))["user"] == "me"
    assert (await api(scripted(ANSWER), event_names="open-responses").create())["user"] is None


@pytest.mark.parametrize("kind", every_error())
def test_the_error_of_a_response_has_a_code_that_sdks_know(kind: Any) -> None:
    if kind.__init__ is not every_error()[0].__init__ and kind.__name__ == "MethodNotAllowed":
        return  # it is about a path, never about a response
    error = kind("It broke.").of_response()
    known = {"server_error", "rate_limit_exceeded", "invalid_prompt"}
    assert error["code"] in known | {"context_length_exceeded", "server_is_overloaded"}
    assert kind.code in (error["code"], error["message"].rpartition("Code: ")[2].rstrip(".)"))


async def test_a_code_of_this_server_is_in_the_message_of_a_failed_response() -> None:
    ask = Asking(ANSWER)
    response = await ask(tools=[TOOL], tool_choice="required")
    assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
    assert "called none" in response["error"]["message"]
    assert "invalid_output" in response["error"]["message"]


async def test_an_answer_of_the_wrong_form_is_not_retried(api: Make) -> None:
    here = api(scripted(ANSWER))
    body = {"messages": [{"role": "user", "content": "Hi"}], "response_format": {"type": "json_object"}}
    answer = await here.client.post("/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, InvalidOutput.code)
    assert answer.headers["x-should-retry"] == "false"


async def test_the_requests_of_smg_are_served(api: Make) -> None:
    body = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "priority": 0, "top_p": 1.0}
    assert (await api(scripted(ANSWER)).create(**body))["status"] == "completed"


@pytest.mark.parametrize("streams", [None, False])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/responses", {"input": "Hi", "stream_options": {"include_obfuscation": False}}),
        ("/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "stream_options": {}}),
        ("/completions", {"prompt": "Hi", "stream_options": {"include_usage": True}}),
    ],
)
async def test_stream_options_need_a_stream(
    api: Make, path: str, body: dict[str, Any], streams: bool | None
) -> None:
    error = await api(scripted(ANSWER)).refused(path, **body, stream=streams)
    assert (error["status"], error["param"]) == (400, "stream_options")
    whole = await api(scripted(ANSWER)).client.post(f"{path}", json={**body, "stream": True})
    assert whole.status_code == 200


CHAT_FORMS: list[tuple[dict[str, Any], str]] = [
    ({"type": "function", "function": {"name": "f"}}, "tool_choice.name"),
    ({"type": "custom", "custom": {"name": "f"}}, "tool_choice.name"),
    (
        {"type": "allowed_tools", "tools": [{"type": "function", "function": {"name": "f"}}]},
        "tool_choice.tools[0].name",
    ),
    (
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [TOOL]}},
        "tool_choice.tools",
    ),
]


@pytest.mark.parametrize(("choice", "param"), CHAT_FORMS, ids=lambda value: str(value)[:60])
async def test_the_chat_form_of_tool_choice_is_named_as_such(
    api: Make, choice: dict[str, Any], param: str
) -> None:
    error = await api(scripted(ANSWER)).refused("/responses", input="Hi", tools=[TOOL], tool_choice=choice)
    assert (error["status"], error["param"]) == (400, param)
    assert "Chat Completions form" in error["message"]


@pytest.mark.parametrize("conversation", ["abc", "", "resp_1", {"id": "abc"}])
async def test_what_is_no_id_of_a_conversation_is_an_invalid_request(api: Make, conversation: Any) -> None:
    error = await api(scripted(ANSWER)).refused("/responses", input="Hi", conversation=conversation)
    assert (error["status"], error["param"]) == (400, "conversation")
    assert "begin with 'conv_'" in error["message"]


METADATA: list[tuple[dict[str, Any], str]] = [
    ({str(number): "x" for number in range(17)}, "metadata"),
    ({"k" * 65: "x"}, f"metadata.{'k' * 64}"),
    ({"a": "x" * 513}, "metadata.a"),
]


@pytest.mark.parametrize(("metadata", "param"), METADATA, ids=["keys", "key", "value"])
@pytest.mark.parametrize("path", ["/responses", "/chat/completions", "/conversations"])
async def test_metadata_has_openais_bounds(api: Make, path: str, metadata: Any, param: str) -> None:
    body = {"/responses": {"input": "Hi"}, "/conversations": {}}
    given = body.get(path, {"messages": [{"role": "user", "content": "Hi"}]})
    error = await api(scripted(ANSWER)).refused(path, **given, metadata=metadata)
    assert (error["status"], error["param"]) == (400, param)


async def test_metadata_within_the_bounds_is_kept(api: Make) -> None:
    largest = {f"{number:064}": "x" * 512 for number in range(16)}
    response = await api(scripted(ANSWER)).create(metadata={**largest, "__debug": True})
    assert {key: response["metadata"][key] for key in largest} == largest


async def test_a_stream_cannot_continue_after_an_event_that_never_was(api: Make) -> None:
    here = api(scripted(ANSWER))
    response = await here.create(background=True)
    await here.ended(response["id"])
    last = (await here.replayed(response["id"]))[-1]["sequence_number"]
    assert await here.replayed(response["id"], last) == []
    for after in (last + 1, last + 1000):
        refused = await here.client.get(
            f"/responses/{response['id']}", params={"stream": "true", "starting_after": after}
        )
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "starting_after")


async def test_a_running_stream_that_ends_before_the_wanted_event_says_so(api: Make) -> None:
    here = api(scripted(ANSWER, tokens_per_second=50))
    response = await here.create(background=True)
    (error,) = await here.replayed(response["id"], 1000)
    assert (error["type"], error["param"]) == ("error", "starting_after")
    assert error["sequence_number"] == 1001


async def test_usage_counts_the_results_of_tools_that_ran_here() -> None:
    ask = Asking(call("functions.f", "{}"), ANSWER)
    usage = (await ask(tools=[TOOL]))["usage"]
    assert usage["output_tokens_details"]["tool_output_tokens"] == 0, "the client runs its functions itself"


@pytest.mark.parametrize("limit", range(11, 16))
@pytest.mark.parametrize("more", [{}, {"parallel_tool_calls": True}], ids=["one call", "parallel calls"])
async def test_every_item_that_was_added_is_done_once(limit: int, more: dict[str, Any]) -> None:
    calls = NEXT.join([call("functions.f", '{"a": 1}')] * 2)
    ask = Asking(calls)
    response = await ask(tools=[TOOL], max_output_tokens=limit, **more)  # the lint compares them
    assert response["output"][-1]["status"] in ("incomplete", "completed")
    added = [e["item"]["id"] for e in ask.events if e["type"] == "response.output_item.added"]
    done = [e["item"]["id"] for e in ask.events if e["type"] == "response.output_item.done"]
    assert added == done
    assert done
