"""Tools that the client runs, with the official SDK over HTTP, which accumulates the server's stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI

from tests.doubles.apis.asking import FINAL, NEXT, call
from tests.doubles.apis.client_tools import COMMANDS, CRM, CUSTOM, EDIT, LOCAL, PATCH, SHELL, UPDATE
from tests.doubles.apis.parallel_calls import OSLO, PARIS, TOOL
from tests.doubles.apis.searched_tools import CALLS as ORDERS
from tests.doubles.apis.searched_tools import FINDS, TOOLS
from tests.doubles.serving import scripted, serving

TURNS = [
    {"when": "say patch", "text": call("functions.apply_patch", PATCH, kind=" code")},
    {"when": "say shell", "text": call("functions.shell", COMMANDS)},
    {"when": "say update", "text": call("functions.apply_patch", UPDATE)},
    {"when": "say both", "text": OSLO + NEXT + PARIS},
    {"when": "functions.tool_search to=assistant", "text": ORDERS},
    {"when": "say search", "text": FINDS},
    FINAL.format("Done."),
]


@pytest.fixture(scope="module")
def client() -> Iterator[OpenAI]:
    with serving(scripted(*TURNS)) as url, OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def streamed(client: OpenAI, word: str, **body: Any) -> Any:
    """The response that the SDK accumulates from the stream, which must equal the server's final one."""
    with client.responses.stream(model="scripted", input=f"Please say {word}.", **body) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert events[-1].type == "response.completed"
    sent = [item.model_dump(exclude_unset=True) for item in events[-1].response.output]
    assert [item.model_dump(exclude_unset=True, exclude={"parsed_arguments"}) for item in final.output] == [
        {key: value for key, value in item.items() if key != "parsed_arguments"} for item in sent
    ]
    return final


def test_a_custom_tool_s_loop(client: OpenAI) -> None:
    first = streamed(client, "patch", tools=[CUSTOM])
    (item,) = first.output
    assert (item.type, item.input) == ("custom_tool_call", PATCH)
    output = {"type": "custom_tool_call_output", "call_id": item.call_id, "output": "Done!"}
    second = client.responses.create(
        model="scripted",
        previous_response_id=first.id,
        input=[output],
        tools=[CUSTOM],  # type: ignore[list-item]
    )
    # The script matches the whole prompt, which still contains the word.
    assert second.output[0].type == "custom_tool_call"
    assert second.output[0].id != item.id


def test_shells_and_patches(client: OpenAI) -> None:
    (shell,) = streamed(client, "shell", tools=[SHELL]).output
    assert (shell.type, shell.action.commands) == ("shell_call", ["ls", "pwd"])
    (patch,) = streamed(client, "update", tools=[EDIT]).output
    assert (patch.type, patch.operation.path) == ("apply_patch_call", "a.py")


def test_parallel_calls(client: OpenAI) -> None:
    calls = streamed(client, "both", tools=[TOOL], parallel_tool_calls=True).output
    assert [json.loads(item.arguments)["c"] for item in calls] == ["Oslo", "Paris"]
    assert len(streamed(client, "both", tools=[TOOL], parallel_tool_calls=False).output) == 1


def test_a_search_for_tools(client: OpenAI) -> None:
    search, found, call = streamed(client, "search", tools=TOOLS).output
    assert (search.type, found.type, found.tools[0].name) == ("tool_search_call", "tool_search_output", "crm")
    assert (call.namespace, call.name) == ("crm", "list_orders")


def test_calls_of_a_chat_completion(client: OpenAI) -> None:
    chat: dict[str, Any] = {"type": "custom", "custom": {"name": "apply_patch"}}
    messages: Any = [{"role": "user", "content": "Please say patch."}]
    whole = client.chat.completions.create(model="scripted", messages=messages, tools=[chat])
    calls = whole.choices[0].message.tool_calls
    assert calls is not None
    assert calls[0].type == "custom"
    assert calls[0].custom.input == PATCH
    function: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    with client.chat.completions.stream(
        model="scripted",
        messages=[{"role": "user", "content": "Please say both."}],
        tools=[function],
        parallel_tool_calls=True,
    ) as stream:
        parallel = stream.get_final_completion().choices[0].message.tool_calls
    assert parallel is not None
    assert [json.loads(each.function.arguments)["c"] for each in parallel] == ["Oslo", "Paris"]


def test_every_kind_of_tool_is_echoed_in_a_form_that_the_sdk_reads(client: OpenAI) -> None:
    tools: Any = [CUSTOM, CRM, LOCAL, SHELL, TOOL, {"type": "tool_search"}]
    response = client.responses.create(model="scripted", input="Hello", tools=tools)
    assert [tool.type for tool in response.tools] == [tool["type"] for tool in tools]
