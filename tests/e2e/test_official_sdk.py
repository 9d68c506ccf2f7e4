"""The unmodified official `openai` SDK against a real server."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI

from tests.doubles.apis import client_tools as kinds
from tests.doubles.apis.api_client import client_of
from tests.doubles.apis.asking import FINAL, NEXT
from tests.doubles.apis.asking import call as called
from tests.doubles.apis.searched_tools import CALLS as ORDERS
from tests.doubles.apis.searched_tools import FINDS, TOOLS
from tests.doubles.lints import check_stream

CALL = (
    "<|channel|>analysis<|message|>I need the weather.<|end|>"
    "<|start|>assistant<|channel|>commentary<|message|>Let me look that up.<|end|>"
    "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
    '{"city":"Paris"}<|call|>'
)
SUNNY = "<|channel|>final<|message|>It is sunny in Paris.<|return|>"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
GET_WEATHER: Any = {"type": "function", "name": "get_weather", "parameters": PARAMETERS}


def create(client: OpenAI, asked: Any = "?", **more: Any) -> Any:
    return client.responses.create(model="scripted", input=asked, tools=[GET_WEATHER], **more)


def result_of(response: Any) -> dict[str, str]:
    return {"type": "function_call_output", "call_id": response.output[-1].call_id, "output": "sunny"}


def test_the_strict_accumulator_agrees_with_the_final_response() -> None:
    with client_of(CALL, loop=True) as client:
        check_stream([event.to_dict() for event in create(client, stream=True)])
        with client.responses.stream(input="?", tools=[GET_WEATHER], model="scripted") as stream:
            events = list(stream)
            final: Any = stream.get_final_response()
    assert (events[0].type, events[-1].type) == ("response.created", "response.completed")
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    _, message, call = final.output
    assert message.phase == "commentary"
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})


@pytest.mark.parametrize("stored", [True, False], ids=["previous_response_id", "items sent back"])
def test_a_tool_loop(stored: bool) -> None:
    with client_of(CALL, SUNNY) as client:
        first = create(client, "Weather in Paris?", store=stored)
        if stored:
            second = create(client, [result_of(first)], previous_response_id=first.id)
        else:
            question = {"role": "user", "content": "Weather in Paris?"}
            second = create(client, [question, *first.output, result_of(first)])
    assert second.output_text == "It is sunny in Paris."


def test_items_sent_back_and_stored_tokens_give_the_same_prompt() -> None:
    with client_of(CALL, loop=True) as client:
        question = {"role": "user", "content": "Weather?"}
        first = create(client, [question])
        output = result_of(first)
        by_id = {"input": [output], "previous_response_id": first.id, "tools": [GET_WEATHER]}
        by_items = {"input": [question, *[i.to_dict() for i in first.output], output], "tools": [GET_WEATHER]}
        url = str(client.base_url).removesuffix("/v1/") + "/render"
        prompts = [client.post(url, body=body, cast_to=object) for body in (by_id, by_items)]
    assert prompts[0] == prompts[1]


def test_the_sdks_own_accumulator_resumes_a_background_stream() -> None:
    with client_of(CALL, tokens_per_second=200) as client:
        response = create(client, background=True)
        assert response.status == "queued"
        with client.responses.stream(response_id=response.id, starting_after=3) as stream:
            assert next(iter(stream)).sequence_number == 4
            final = stream.get_final_response()
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]


TURNS = [
    {"when": "say patch", "text": called("functions.apply_patch", kinds.PATCH, kind=" code")},
    {"when": "say shell", "text": called("functions.shell", kinds.COMMANDS)},
    {"when": "say update", "text": called("functions.apply_patch", kinds.UPDATE)},
    {"when": "say both", "text": kinds.OSLO + NEXT + kinds.PARIS},
    {"when": "functions.tool_search to=assistant", "text": ORDERS},
    {"when": "say search", "text": FINDS},
    FINAL.format("Done."),
]


@pytest.fixture(scope="module")
def client() -> Iterator[OpenAI]:
    with client_of(*TURNS) as client:
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
    first = streamed(client, "patch", tools=[kinds.CUSTOM])
    (item,) = first.output
    assert (item.type, item.input) == ("custom_tool_call", kinds.PATCH)
    output: Any = {"type": "custom_tool_call_output", "call_id": item.call_id, "output": "Done!"}
    tools: Any = [kinds.CUSTOM]
    [again] = client.responses.create(previous_response_id=first.id, input=[output], tools=tools).output
    # The script matches the whole prompt, which still contains the word.
    assert again.type == "custom_tool_call"
    assert again.id != item.id


def test_shells_and_patches(client: OpenAI) -> None:
    (shell,) = streamed(client, "shell", tools=[kinds.SHELL]).output
    assert (shell.type, shell.action.commands) == ("shell_call", ["ls", "pwd"])
    (patch,) = streamed(client, "update", tools=[kinds.EDIT]).output
    assert (patch.type, patch.operation.path) == ("apply_patch_call", "a.py")


def test_parallel_calls(client: OpenAI) -> None:
    calls = streamed(client, "both", tools=[kinds.TOOL], parallel_tool_calls=True).output
    assert [json.loads(item.arguments)["c"] for item in calls] == ["Oslo", "Paris"]
    assert len(streamed(client, "both", tools=[kinds.TOOL], parallel_tool_calls=False).output) == 1


def test_a_search_for_tools(client: OpenAI) -> None:
    search, found, call = streamed(client, "search", tools=TOOLS).output
    assert (search.type, found.type, found.tools[0].name) == ("tool_search_call", "tool_search_output", "crm")
    assert (call.namespace, call.name) == ("crm", "list_orders")


def test_every_kind_of_tool_is_echoed_in_a_form_that_the_sdk_reads(client: OpenAI) -> None:
    tools: Any = [kinds.CUSTOM, kinds.CRM, kinds.LOCAL, kinds.SHELL, kinds.TOOL, {"type": "tool_search"}]
    response = client.responses.create(model="scripted", input="Hello", tools=tools)
    assert [tool.type for tool in response.tools] == [tool["type"] for tool in tools]
