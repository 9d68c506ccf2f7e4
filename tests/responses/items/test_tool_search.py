"""Tools loaded later: found by a search that the server or the client runs, or added by an item."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpt_oss_server.errors import ApiError
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.items.table import Kinds
from gpt_oss_server.items.tool_search import hide_deferred, search_here
from tests.doubles.apis.asking import FINAL, Asking, call
from tests.doubles.apis.searched_tools import CALLS, CRM, FINDS, PLAIN, SERVER, TOOLS, WEATHER
from tests.doubles.harmony.sampling import RandomEngine
from tests.doubles.lints import compare

SNAPSHOTS = Path(__file__).parent / "snapshots"

EMPTY = {"description": None, "parameters": None, "strict": None}
FOUND = {**CRM, "tools": [{**EMPTY, **tool} for tool in CRM["tools"]]}
CLIENT: dict[str, Any] = {
    "type": "tool_search",
    "execution": "client",
    "description": "Finds tools.",
    "parameters": {"type": "object", "properties": {"goal": {"type": "string"}}, "required": ["goal"]},
}


def section(prompt: str) -> str:
    """The tools section in the head of a prompt."""
    return prompt.partition("# Tools")[2].partition("<|end|>")[0]


async def test_a_server_search_is_two_items_and_the_turn_continues() -> None:
    ask = Asking(FINDS, CALLS)
    response = await ask(tools=TOOLS, metadata={"__debug": True})
    search, found, made = response["output"]
    assert (search["type"], search["arguments"]) == ("tool_search_call", {"paths": ["crm"]})
    assert (search["execution"], search["call_id"], search["status"]) == ("server", None, "completed")
    assert (found["type"], found["tools"]) == ("tool_search_output", [FOUND])
    called = made["namespace"], made["name"], made["arguments"]
    assert called == ("crm", "list_orders", '{"customer_id":"7"}')
    output = response["metadata"]["__debug_output"]
    result = "<|start|>functions.tool_search to=assistant<|channel|>commentary<|message|># Tools\n\n## crm"
    assert result in output
    assert "type list_orders = (_: {\n" in output
    compare(SNAPSHOTS / "tool_search_server.jsonl", ask.items_events)


async def test_only_the_names_of_deferred_tools_are_shown_until_they_are_found() -> None:
    shown = section(await Asking(FINAL).prompt(tools=TOOLS))
    for text in ("- crm: Customers and their orders.", "- get_weather: Tells the weather of a city."):
        assert text in shown
    assert "type tool_search = (_: {" in shown
    assert "type now = " in shown
    assert "city" not in shown.replace("of a city", "")
    without_search = section(await Asking(FINAL).prompt(tools=[CRM, WEATHER]))
    for text in ("namespace crm", "type list_orders", "type get_weather"):
        assert (text in shown, text in without_search) == (False, True)


SEARCHES: list[tuple[str, list[str]]] = [
    ('{"paths": ["crm"]}', ["list_orders", "profile"]),
    ('{"paths": ["crm.profile", "get_weather"]}', ["profile", "get_weather"]),
    ('{"query": "what is the WEATHER in a city"}', ["get_weather"]),
    ('{"query": "open orders"}', ["list_orders"]),
    ('{"query": "customer_id"}', ["list_orders"]),
    ('{"query": "rockets"}', []),
    ("weather", ["get_weather"]),
    ("[1]", []),
    ('{"paths": "crm.profile", "query": 7}', ["profile"]),
]


@pytest.mark.parametrize(("arguments", "names"), SEARCHES)
def test_a_search_finds_names_and_words(arguments: str, names: list[str]) -> None:
    tools = Kinds.of().read_tools(TOOLS, offered=True)
    hide_deferred(tools)
    search = search_here(tools)
    assert [tool.name for tool in search.find(arguments)] == names


async def test_a_search_without_a_match_returns_no_tools() -> None:
    ask = Asking(call("functions.tool_search", '{"query":"rockets"}'), FINAL.format("None."))
    response = await ask(tools=TOOLS, metadata={"__debug": True})
    assert response["output"][1]["tools"] == []
    assert "<|message|>No tool was found.<|end|>" in response["metadata"]["__debug_output"]


@pytest.mark.parametrize("whole", [True, False], ids=["items sent again", "previous_response_id"])
async def test_a_tool_that_the_clients_search_found_can_be_called(whole: bool) -> None:
    ask = Asking(call("functions.tool_search", '{"goal":"orders"}'), CALLS)
    first = await ask(tools=[CLIENT])
    (search,) = first["output"]
    assert (search["execution"], search["arguments"]) == ("client", {"goal": "orders"})
    assert search["call_id"].startswith("call_")
    found = {"execution": "client", "status": "completed", "tools": [CRM, {"type": "unheard_of"}]}
    output = {"type": "tool_search_output", "call_id": search["call_id"], **found}
    body: dict[str, Any] = {"input": [output], "previous_response_id": first["id"]}
    if whole:
        body = {"input": ["Hi", search, output]}
    prompt = await ask.prompt(tools=[CLIENT], **body)
    assert '<|constrain|>json<|message|>{"goal":"orders"}<|call|>' in prompt
    assert prompt.endswith("} // namespace crm<|end|><|start|>assistant")
    second = await ask(tools=[CLIENT], **body)
    (made,) = second["output"]
    assert (made["namespace"], made["name"]) == ("crm", "list_orders")
    result = {"type": "function_call_output", "call_id": made["call_id"], "output": "[]"}
    third = await ask.prompt(input=[result], tools=[CLIENT], previous_response_id=second["id"])
    assert third.startswith(prompt.removesuffix("<|start|>assistant")), "the earlier prompt does not change"


async def test_tools_at_the_head_of_a_conversation_are_declared_there() -> None:
    item = {"type": "additional_tools", "role": "developer", "tools": [CRM, PLAIN]}
    rest = [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    ask = Asking(call("crm.profile", "{}"))
    prompt = await ask.prompt(input=[item, *rest])
    assert prompt == await ask.prompt(input=rest, tools=[CRM, PLAIN])
    response = await ask(input=[item, *rest])
    (made,) = response["output"]
    assert made["namespace"] == "crm"
    result = {"type": "function_call_output", "call_id": made["call_id"], "output": "{}"}
    again = await ask.prompt(input=[result, "More"], previous_response_id=response["id"])
    assert section(again) == section(prompt), "the tools stay for the conversation"


async def test_later_tools_are_declared_at_their_item_and_may_be_called(encoding: Encoding) -> None:
    items = ["Hi", {"type": "additional_tools", "role": "developer", "tools": [CRM]}]
    ask = Asking(CALLS)
    prompt = await ask.prompt(input=items, tools=[PLAIN])
    assert prompt.endswith("} // namespace crm<|end|><|start|>assistant")
    assert prompt.startswith((await ask.prompt(input="Hi", tools=[PLAIN])).removesuffix("<|start|>assistant"))
    (made,) = (await ask(input=items, tools=[PLAIN]))["output"]
    assert (made["type"], made["name"]) == ("function_call", "list_orders")
    bound = Asking(engine=RandomEngine(encoding))
    response = await bound(input=items, tool_choice="required", max_output_tokens=2_000)
    assert response["output"][-1]["namespace"] == "crm"
    assert isinstance(json.loads(response["output"][-1]["arguments"]), dict)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"tools": [{**SERVER, "execution": "both"}]}, "tools[0].execution"),
    ({"tools": [{**CLIENT, "parameters": []}]}, "tools[0].parameters"),
    ({"tools": [SERVER, SERVER]}, "tools"),
    ({"input": [{"type": "additional_tools"}]}, "input[0].tools"),
    ({"input": [{"type": "tool_search_output", "tools": [7]}]}, "input[0].tools"),
    ({"input": [{"type": "additional_tools", "tools": [{"type": "custom"}]}]}, "input[0].tools[0].name"),
]


@pytest.mark.parametrize(("body", "param"), WRONG)
async def test_an_error_names_the_wrong_field(body: dict[str, Any], param: str) -> None:
    with pytest.raises(ApiError) as refused:
        await Asking(FINAL)(**body)
    assert (refused.value.status, refused.value.param) == (400, param)
