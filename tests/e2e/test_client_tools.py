"""Tools that the client runs, with the official SDK over HTTP, which accumulates the server's stream."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI

from tests.doubles.apis.asking import FINAL, NEXT, call
from tests.doubles.apis.client_tools import (
    COMMANDS,
    CRM,
    CUSTOM,
    EDIT,
    LOCAL,
    OSLO,
    PARIS,
    PATCH,
    SHELL,
    TOOL,
    UPDATE,
)
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
    sent, made = (
        [item.model_dump(exclude_unset=True, exclude={"parsed_arguments"}) for item in response.output]
        for response in (events[-1].response, final)
    )
    assert made == sent
    return final


def test_a_custom_tool_s_loop(client: OpenAI) -> None:
    first = streamed(client, "patch", tools=[CUSTOM])
    (item,) = first.output
    assert (item.type, item.input) == ("custom_tool_call", PATCH)
    output: Any = {"type": "custom_tool_call_output", "call_id": item.call_id, "output": "Done!"}
    tools: Any = [CUSTOM]
    [again] = client.responses.create(previous_response_id=first.id, input=[output], tools=tools).output
    # The script matches the whole prompt, which still contains the word.
    assert again.type == "custom_tool_call"
    assert again.id != item.id


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
    options: dict[str, Any] = {
        "model": "scripted",
        "messages": [{"role": "user", "content": "Please say patch."}],
    }
    custom: Any = {"type": "custom", "custom": {"name": "apply_patch"}}
    whole: Any = client.chat.completions.create(**options, tools=[custom])
    [call] = whole.choices[0].message.tool_calls
    assert (call.type, call.custom.input) == ("custom", PATCH)
    options["messages"] = [{"role": "user", "content": "Please say both."}]
    function: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    with client.chat.completions.stream(**options, tools=[function], parallel_tool_calls=True) as stream:
        final: Any = stream.get_final_completion()
    calls = final.choices[0].message.tool_calls
    assert [json.loads(each.function.arguments)["c"] for each in calls] == ["Oslo", "Paris"]


def test_every_kind_of_tool_is_echoed_in_a_form_that_the_sdk_reads(client: OpenAI) -> None:
    tools: Any = [CUSTOM, CRM, LOCAL, SHELL, TOOL, {"type": "tool_search"}]
    response = client.responses.create(model="scripted", input="Hello", tools=tools)
    assert [tool.type for tool in response.tools] == [tool["type"] for tool in tools]
