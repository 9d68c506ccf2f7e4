"""Conversations: each response adds its input and output, and the next one continues token for token."""

from typing import Any

import pytest
from openai.types.conversations import Conversation, ConversationItem, ConversationItemList
from pydantic import TypeAdapter

from gpt_oss_server.harmony.encoding import Encoding
from tests.doubles.apis.api_client import Api
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.serving import scripted
from tests.responses.conftest import Make

ANSWER = "<|channel|>final<|message|>{}<|return|>"
HELLO = ANSWER.format("Hello!")
CALL = (
    "<|channel|>analysis<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
    '<|constrain|>json<|message|>{"a": 1}<|call|>'
)
TOOL: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
ORPHAN = {"type": "function_call_output", "call_id": "x", "output": ""}
_item: TypeAdapter[Any] = TypeAdapter(ConversationItem)


@pytest.fixture
def here(api: Make) -> Api:
    return api(scripted(HELLO))


def texts(items: list[dict[str, Any]]) -> list[str]:
    return [item["content"][0]["text"] if "content" in item else item["type"] for item in items]


async def items_of(here: Api, conversation: dict[str, Any]) -> list[dict[str, Any]]:
    listed = await here.get(f"/conversations/{conversation['id']}/items", order="asc", limit=100)
    if listed["data"]:  # an empty list has no first id
        ConversationItemList.model_validate(listed)
    for item in listed["data"]:
        _item.validate_python(item)
    return list(listed["data"])


async def test_it_is_created_read_updated_and_deleted(here: Api) -> None:
    made = await here.post("/conversations", metadata={"topic": "demo"})
    Conversation.model_validate(made)
    assert made["metadata"] == {"topic": "demo"}
    path = f"/conversations/{made['id']}"
    assert await here.get(path) == made
    changed = await here.post(path, metadata={"topic": "other"})
    assert changed == {**made, "metadata": {"topic": "other"}}
    assert (await here.post(path, metadata=None))["metadata"] == {}
    gone = await here.delete(path)
    assert gone == {"id": made["id"], "object": "conversation.deleted", "deleted": True}
    for method, where in (("GET", path), ("DELETE", path), ("GET", f"{path}/items"), ("POST", path)):
        error = await here.refused(where, method=method, metadata={})
        assert (error["status"], error["code"]) == (404, "conversation_not_found")


async def test_items_are_added_listed_found_and_deleted(api: Make, encoding: Encoding) -> None:
    engine = ReplayEngine(encoding.encode_special(HELLO))
    here = api(engine)
    made = await here.post("/conversations", items=[{"role": "user", "content": "one"}])
    path = f"/conversations/{made['id']}/items"
    more = [{"role": "assistant", "content": "two"}, {"role": "developer", "content": "three"}]
    added = await here.post(path, items=more)
    ConversationItemList.model_validate(added)
    assert texts(added["data"]) == ["two", "three"]
    assert (added["first_id"], added["has_more"]) == (added["data"][0]["id"], False)
    assert texts(await items_of(here, made)) == ["one", "two", "three"]
    newest = await here.get(path, limit=2)
    assert (texts(newest["data"]), newest["has_more"]) == (["three", "two"], True)
    (one,) = (await here.get(path, after=newest["last_id"]))["data"]
    assert texts([one]) == ["one"]
    assert await here.get(f"{path}/{one['id']}") == one
    assert await here.delete(f"{path}/{one['id']}") == made
    assert texts(await items_of(here, made)) == ["two", "three"]
    for method in ("GET", "DELETE"):
        error = await here.refused(f"{path}/{one['id']}", method=method)
        assert (error["status"], error["code"]) == (404, "item_not_found")
    await here.create(conversation=made["id"])
    prompt = encoding.decode(engine.prompts[0])
    assert [f">{text}<" in prompt for text in ("one", "two")] == [False, True]


async def test_a_response_continues_it_and_adds_to_it(api: Make, encoding: Encoding) -> None:
    engine = ReplayEngine(encoding.encode_special(HELLO))
    here = api(engine)
    made = await here.post("/conversations", items=[{"role": "user", "content": "My name is Ada."}])
    for number, name in enumerate((made["id"], {"id": made["id"]})):
        response = await here.create(input=f"Question {number}", conversation=name)
        assert response["conversation"] == {"id": made["id"]}
        assert response["previous_response_id"] is None
    listed = texts(await items_of(here, made))
    assert listed == ["My name is Ada.", "Question 0", "Hello!", "Question 1", "Hello!"]
    # The second prompt is the first, its sampled tokens and the new input: nothing is rendered again.
    first, second = engine.prompts
    begun = first + encoding.encode_special(HELLO.replace("<|return|>", "<|end|>"))
    assert second[: len(begun)] == begun
    rest = "<|start|>user<|message|>Question 1<|end|><|start|>assistant"
    assert encoding.decode(second[len(begun) :]) == rest


async def test_a_call_and_its_result_may_be_in_two_responses(api: Make) -> None:
    here = api(scripted(CALL, HELLO, loop=False))
    made = await here.post("/conversations")
    first = await here.create(conversation=made["id"], tools=[TOOL])
    result = {**ORPHAN, "call_id": first["output"][-1]["call_id"]}
    second = await here.create(conversation=made["id"], tools=[TOOL], input=[result])
    assert second["status"] == "completed"
    kinds = [item["type"] for item in await items_of(here, made)]
    assert kinds == ["message", "reasoning", "function_call", "function_call_output", "message"]


async def test_resent_items_get_unique_ids(here: Api) -> None:
    made = await here.post("/conversations")
    item = {"type": "message", "id": "msg_mine", "role": "user", "content": "Hi"}
    for _ in range(2):
        await here.create(conversation=made["id"], input=[item])
    ids = [item["id"] for item in await items_of(here, made)]
    assert len(set(ids)) == len(ids) == 4
    assert ids[0] == "msg_mine"


async def test_unstored_and_background_responses_add_to_it_too_unless_cancelled(api: Make) -> None:
    here = api(scripted(HELLO, HELLO, ANSWER.format("word " * 1_000), tokens_per_second=500))
    made = await here.post("/conversations")
    await here.create(conversation=made["id"], store=False)
    await here.ended((await here.create(conversation=made["id"], background=True))["id"])
    response = await here.create(conversation=made["id"], background=True)
    await here.post(f"/responses/{response['id']}/cancel")
    assert texts(await items_of(here, made)) == ["Hi", "Hello!", "Hi", "Hello!"]


async def test_a_conversation_deleted_during_a_response_stays_deleted(api: Make) -> None:
    here = api(scripted(HELLO, tokens_per_second=100))
    path = f"/conversations/{(await here.post('/conversations'))['id']}"
    response = await here.create(conversation=path.rpartition("/")[2], background=True)
    await here.delete(path)
    assert (await here.ended(response["id"]))["status"] == "completed"
    assert (await here.refused(path, method="GET"))["status"] == 404


REFERENCE = {"type": "item_reference", "id": "msg_none"}


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"conversation": "conv_none"}, 404, "conversation"),
        ({"conversation": {"id": "conv_none"}}, 404, "conversation"),
        ({"conversation": {}}, 400, "conversation.id"),
        ({"conversation": {"id": 5}}, 400, "conversation.id"),
        *(({"conversation": name}, 400, "conversation") for name in (5, "abc", "", "resp_1", {"id": "abc"})),
        ({"conversation": "conv_1", "previous_response_id": "resp_1"}, 400, "conversation"),
        ({"input": [REFERENCE]}, 404, "input[0]"),
        ({"input": [{"type": "item_reference"}]}, 400, "input[0].id"),
        ({"input": [{**REFERENCE, "id": ["x"]}]}, 400, "input[0].id"),
        ({"input": ["Hi", {"id": "msg_none"}]}, 404, "input[1]"),
    ],
)
async def test_wrong_references_are_refused(api: Make, body: dict[str, Any], status: int, param: str) -> None:
    error = await api(scripted(ANSWER)).refused("/responses", **{"input": "Hi", **body})
    assert (error["status"], error["param"]) == (status, param)


APPROVAL = {"type": "mcp_approval_response", "approve": True}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("", {"items": "no"}, "items"),
        ("", {"items": [5]}, "items[0]"),
        ("", {"items": [REFERENCE]}, "items[0].type"),
        ("", {"items": [{"type": "no_such_item"}]}, "items[0].type"),
        ("", {"metadata": {"a": 5}}, "metadata.a"),
        ("/{}", {}, "metadata"),
        ("/{}/items", {}, "items"),
        ("/{}/items", {"items": [ORPHAN]}, "items[0]"),
        ("/{}/items", {"items": [APPROVAL]}, "items[0].approval_request_id"),
    ],
)
async def test_invalid_bodies_are_refused(api: Make, path: str, body: dict[str, Any], param: str) -> None:
    here = api(scripted(ANSWER))
    made = await here.post("/conversations")
    error = await here.refused(f"/conversations{path.format(made['id'])}", **body)
    assert (error["status"], error["param"]) == (400, param)


async def test_an_item_can_be_referenced_by_its_id_alone(api: Make, encoding: Encoding) -> None:
    engine = ReplayEngine(encoding.encode_special(CALL))
    here = api(engine)
    first = await here.create(input="Look, please.", tools=[TOOL])
    question = (await here.get(f"/responses/{first['id']}/input_items"))["data"][0]
    items = [question, *first["output"]]
    references = [{**REFERENCE, "id": item["id"]} for item in items]
    references[0].pop("type")
    references[1]["type"] = None
    result = {**ORPHAN, "call_id": first["output"][-1]["call_id"]}
    second = await here.create(input=[*references, result], tools=[TOOL])
    await here.create(input=[*items, result], tools=[TOOL])
    assert engine.prompts[1] == engine.prompts[2]
    listed = (await here.get(f"/responses/{second['id']}/input_items", order="asc"))["data"]
    kinds = ["message", "reasoning", "function_call", "function_call_output"]
    assert [item["type"] for item in listed] == kinds
    assert listed[0] == question


@pytest.mark.parametrize("approve", [True, False])
async def test_a_call_that_added_items_answer_no_longer_waits(here: Api, approve: bool) -> None:
    call = {"server_label": "s", "name": "f", "arguments": "{}"}
    request = {"type": "mcp_approval_request", "id": "mcpr_1", **call}
    made = await here.post("/conversations", items=[{"role": "user", "content": "?"}, request])
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": approve}
    done = {"type": "mcp_call", "id": "mcp_1", **call, "output": "1", "approval_request_id": "mcpr_1"}
    await here.post(f"/conversations/{made['id']}/items", items=[answer, done] if approve else [answer])
    error = await here.refused("/responses", input=[{**answer, "approve": True}], conversation=made["id"])
    assert (error["status"], error["param"]) == (400, "input[0].approval_request_id")
