"""The unmodified official `openai` SDK against a real server."""

import json
from typing import Any

import openai
import pytest
from openai import OpenAI

from gpt_oss_server.settings import Settings
from tests.doubles.apis.api_client import client_of
from tests.doubles.lints import check_stream

HELLO = (
    "<|channel|>analysis<|message|>A greeting.<|end|>"
    "<|start|>assistant<|channel|>final<|message|>Hello!<|return|>"
)
CALL = (
    "<|channel|>analysis<|message|>I need the weather.<|end|>"
    "<|start|>assistant<|channel|>commentary<|message|>Let me look that up.<|end|>"
    "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
    '{"city":"Paris"}<|call|>'
)
SUNNY = "<|channel|>final<|message|>It is sunny in Paris.<|return|>"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL: Any = {"type": "function", "name": "get_weather", "parameters": PARAMETERS}


def create(client: OpenAI, given: Any = "?", **more: Any) -> Any:
    return client.responses.create(model="scripted", input=given, tools=[TOOL], **more)


def result_of(response: Any) -> dict[str, str]:
    return {"type": "function_call_output", "call_id": response.output[-1].call_id, "output": "sunny"}


def test_create_gives_reasoning_and_an_answer() -> None:
    with client_of(HELLO) as client:
        response = create(client)
    assert response.output_text == "Hello!"
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.status == "completed"
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert response.usage.output_tokens_details.reasoning_tokens == 7


def test_the_strict_accumulator_agrees_with_the_final_response() -> None:
    with client_of(CALL, loop=True) as client:
        check_stream([event.to_dict() for event in create(client, stream=True)])
        with client.responses.stream(input="?", tools=[TOOL], model="scripted") as stream:
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
        by_id = {"input": [output], "previous_response_id": first.id, "tools": [TOOL]}
        by_items = {"input": [question, *[i.to_dict() for i in first.output], output], "tools": [TOOL]}
        url = str(client.base_url).removesuffix("/v1/") + "/render"
        prompts = [client.post(url, body=body, cast_to=object) for body in (by_id, by_items)]
    assert prompts[0] == prompts[1]


def test_retrieve_delete_and_unknown_ids() -> None:
    with client_of(HELLO) as client:
        response = create(client)
        assert client.responses.retrieve(response.id).to_dict() == response.to_dict()
        assert [item.type for item in client.responses.input_items.list(response.id).data] == ["message"]
        client.responses.delete(response.id)
        for gone in (response, create(client, store=False)):
            with pytest.raises(openai.NotFoundError) as missing:
                client.responses.retrieve(gone.id)
            assert missing.value.code == "response_not_found"
        with pytest.raises(openai.BadRequestError) as unknown:
            create(client, previous_response_id=response.id)
        assert unknown.value.code == "previous_response_not_found"


def test_models_and_an_unknown_name() -> None:
    with client_of(HELLO, settings=Settings(served_model_name=("gpt-oss-20b",))) as client:
        assert [model.id for model in client.models.list()] == ["scripted", "gpt-oss-20b"]
        assert client.models.retrieve("gpt-oss-20b").id == "gpt-oss-20b"
        assert client.responses.create(model="gpt-oss-20b", input="Hi").model == "gpt-oss-20b"
        with pytest.raises(openai.NotFoundError) as unknown:
            client.responses.create(model="gpt-5", input="Hi")
        assert unknown.value.code == "model_not_found"
        assert "gpt-oss-20b" in unknown.value.message


def test_a_broken_background_stream_is_resumed() -> None:
    with client_of(CALL, tokens_per_second=100) as client:
        stream = create(client, background=True, stream=True)
        first = [next(stream).to_dict() for _ in range(6)]
        stream.close()
        response_id, after = first[0]["response"]["id"], first[-1]["sequence_number"]
        assert client.responses.retrieve(response_id).status == "in_progress"
        rest = client.responses.retrieve(response_id, stream=True, starting_after=after)
        done = check_stream([*first, *(event.to_dict() for event in rest)])
        assert client.responses.retrieve(response_id).to_dict() == done
    assert done["status"] == "completed"


def test_the_sdks_own_accumulator_resumes_a_background_stream() -> None:
    with client_of(CALL, tokens_per_second=200) as client:
        response = create(client, background=True)
        assert response.status == "queued"
        with client.responses.stream(response_id=response.id, starting_after=3) as stream:
            assert next(iter(stream)).sequence_number == 4
            final = stream.get_final_response()
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]


def test_conversations_and_their_items() -> None:
    with client_of(CALL, SUNNY) as client:
        conversations = client.conversations
        made = conversations.create(
            items=[{"type": "message", "role": "user", "content": "I live in Paris."}], metadata={"a": "b"}
        )
        assert conversations.retrieve(made.id) == made
        first = create(client, "Weather?", conversation=made.id, store=False)
        second = create(client, [result_of(first)], conversation={"id": made.id})
        assert second.conversation.id == made.id
        items = list(conversations.items.list(made.id, order="asc", limit=2))
        kinds = ["message", "message", "reasoning", "message", "function_call", "function_call_output"]
        assert [item.type for item in items] == [*kinds, "message"]
        [last] = conversations.items.create(made.id, items=[{"role": "user", "content": "Thanks."}]).data
        assert conversations.items.retrieve(last.id, conversation_id=made.id) == last
        assert conversations.items.delete(last.id, conversation_id=made.id).id == made.id
        assert conversations.update(made.id, metadata={"a": "c"}).metadata == {"a": "c"}
        assert conversations.delete(made.id).deleted is True
        with pytest.raises(openai.NotFoundError):
            conversations.retrieve(made.id)


def test_input_tokens_are_counted_and_a_conversation_is_compacted() -> None:
    summary = "<|channel|>final<|message|>They greeted each other.<|return|>"
    with client_of(HELLO, summary, HELLO, loop=False) as client:
        counted = client.responses.input_tokens.count(model="scripted", input="Hi", tools=[TOOL])
        response = create(client, "Hi")
        assert counted.input_tokens == response.usage.input_tokens
        compacted = client.responses.compact(model="scripted", previous_response_id=response.id)
        assert compacted.object == "response.compaction"
        assert compacted.output[-1].type == "compaction"
        assert compacted.usage.output_tokens > 0
        # The SDK's output type lacks the user's message, which the API's schema allows there.
        window = [item.to_dict(warnings=False) for item in compacted.output]
        assert create(client, [*window, {"role": "user", "content": "Again"}]).output_text == "Hello!"
