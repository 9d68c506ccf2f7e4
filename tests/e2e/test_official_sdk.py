"""The unmodified official `openai` SDK against a real server."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from gpt_oss_server.settings import Settings
from tests.doubles.apis.sdk import client_of
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
TOOL: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def test_create_gives_reasoning_and_an_answer() -> None:
    with client_of(HELLO) as client:
        response = client.responses.create(model="scripted", input="Hi")
    assert response.output_text == "Hello!"
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.status == "completed"
    assert response.usage is not None
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert response.usage.output_tokens_details.reasoning_tokens == 7


def test_the_strict_accumulator_agrees_with_the_final_response() -> None:
    with (
        client_of(CALL) as client,
        client.responses.stream(input="?", tools=[TOOL], model="scripted") as stream,
    ):
        events = list(stream)
        final = stream.get_final_response()
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    message = final.output[1]
    assert message.type == "message"
    assert message.phase == "commentary"
    call = final.output[2]
    assert call.type == "function_call"
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Paris"})


def test_the_raw_stream_is_well_formed() -> None:
    with client_of(CALL) as client:
        raw = client.responses.create(model="scripted", input="?", tools=[TOOL], stream=True)
        response = check_stream([event.to_dict() for event in raw])
    assert response["status"] == "completed"


@pytest.mark.parametrize("stored", [True, False], ids=["previous_response_id", "items sent back"])
def test_a_tool_loop(stored: bool) -> None:
    with client_of(CALL, SUNNY) as client:
        first = client.responses.create(
            model="scripted", input="Weather in Paris?", tools=[TOOL], store=stored
        )
        call = first.output[-1]
        assert call.type == "function_call"
        output: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        if stored:
            second = client.responses.create(
                model="scripted", input=[output], previous_response_id=first.id, tools=[TOOL]
            )
        else:
            items: Any = [{"role": "user", "content": "Weather in Paris?"}, *first.output, output]
            second = client.responses.create(model="scripted", input=items, tools=[TOOL])
    assert second.output_text == "It is sunny in Paris."


def test_items_sent_back_and_stored_tokens_give_the_same_prompt() -> None:
    with client_of(CALL, loop=True) as client:
        question: Any = {"role": "user", "content": "Weather?"}
        first = client.responses.create(model="scripted", input=[question], tools=[TOOL])
        output: Any = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "sunny"}  # type: ignore[union-attr]
        by_id = {"input": [output], "previous_response_id": first.id, "tools": [TOOL]}
        by_items = {"input": [question, *[i.to_dict() for i in first.output], output], "tools": [TOOL]}
        url = str(client.base_url).removesuffix("/v1/") + "/render"
        prompts = [client.post(url, body=body, cast_to=object) for body in (by_id, by_items)]
    assert prompts[0] == prompts[1]


def test_an_answered_turn_drops_its_reasoning_from_the_next_prompt() -> None:
    with client_of(HELLO, {"when": "Again", "text": SUNNY}) as client:
        first = client.responses.create(model="scripted", input="Hi")
        second = client.responses.create(
            model="scripted",
            input="Again",
            previous_response_id=first.id,
            metadata={"__debug": "1", "mine": "x"},
        )
    assert second.metadata is not None
    prompt = second.metadata["__debug_input"]
    assert "A greeting." not in prompt
    assert "<|start|>assistant<|channel|>final<|message|>Hello!<|end|><|start|>user<|message|>Again" in prompt
    assert prompt.endswith("<|start|>assistant")
    assert second.metadata["__debug"] == prompt + second.metadata["__debug_output"]
    assert second.metadata["mine"] == "x"
    assert json.loads(second.metadata["__debug_warnings"]) == []


def test_debug_mode_reports_the_decoders_repairs() -> None:
    with client_of("Sorry, I can't help with that.<|return|>") as client:
        response = client.responses.create(model="scripted", input="Hi", metadata={"__debug": "1"})
    assert response.output_text == "Sorry, I can't help with that."
    assert response.metadata is not None
    assert json.loads(response.metadata["__debug_warnings"])


def test_truncation_at_every_token() -> None:
    with client_of(CALL, loop=True) as client:
        whole = client.responses.create(model="scripted", input="?", tools=[TOOL])
        assert whole.usage is not None
        for limit in range(1, whole.usage.output_tokens + 1):
            response = client.responses.create(
                model="scripted", input="?", tools=[TOOL], max_output_tokens=limit
            )
            cut = limit < whole.usage.output_tokens
            assert response.status == ("incomplete" if cut else "completed")
            assert response.usage is not None
            assert response.usage.output_tokens == limit
            with client.responses.stream(
                model="scripted", input="?", tools=[TOOL], max_output_tokens=limit
            ) as stream:
                kinds = [event.type for event in stream]
            assert kinds[-1] == ("response.incomplete" if cut else "response.completed")


def test_retrieve_delete_and_unknown_ids() -> None:
    with client_of(HELLO) as client:
        response = client.responses.create(model="scripted", input="Hi")
        assert client.responses.retrieve(response.id).to_dict() == response.to_dict()
        items = client.responses.input_items.list(response.id).data
        assert [item.type for item in items] == ["message"]
        client.responses.delete(response.id)
        with pytest.raises(openai.NotFoundError) as missing:
            client.responses.retrieve(response.id)
        assert missing.value.code == "response_not_found"
        with pytest.raises(openai.BadRequestError) as unknown:
            client.responses.create(model="scripted", input="Hi", previous_response_id=response.id)
        assert unknown.value.code == "previous_response_not_found"


def test_a_response_without_store_is_not_found() -> None:
    with client_of(HELLO) as client:
        response = client.responses.create(model="scripted", input="Hi", store=False)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(response.id)


def test_models_and_an_unknown_name() -> None:
    with client_of(HELLO, settings=Settings(served_model_name=("gpt-oss-20b",))) as client:
        assert [model.id for model in client.models.list()] == ["scripted", "gpt-oss-20b"]
        assert client.models.retrieve("gpt-oss-20b").id == "gpt-oss-20b"
        assert client.responses.create(model="gpt-oss-20b", input="Hi").model == "gpt-oss-20b"
        with pytest.raises(openai.NotFoundError) as unknown:
            client.responses.create(model="gpt-5", input="Hi")
        assert unknown.value.code == "model_not_found"
        assert "gpt-oss-20b" in unknown.value.message


def test_an_input_that_is_too_long_fails_before_generation() -> None:
    with client_of(HELLO) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            client.responses.create(model="scripted", input="hello " * 140_000)
        assert refused.value.code == "context_length_exceeded"
        events = list(client.responses.create(model="scripted", input="hello " * 140_000, stream=True))
    assert events[-1].type == "response.failed"
    assert events[-1].response.error is not None
    assert str(events[-1].response.error.code) == "context_length_exceeded"


def test_truncation_auto_drops_the_oldest_turns() -> None:
    with client_of(HELLO) as client:
        items: Any = [
            {"role": "developer", "content": "Be kind."},
            {"role": "user", "content": "old " * 140_000},
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": "new"},
        ]
        response = client.responses.create(
            model="scripted", input=items, truncation="auto", metadata={"__debug": "1"}
        )
    assert response.metadata is not None
    prompt = response.metadata["__debug_input"]
    assert "Be kind." in prompt
    assert "old" not in prompt
    assert "new" in prompt


def test_a_broken_background_stream_is_resumed() -> None:
    with client_of(CALL, tokens_per_second=100) as client:
        stream = client.responses.create(
            model="scripted", input="?", tools=[TOOL], background=True, stream=True
        )
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
        response = client.responses.create(model="scripted", input="?", tools=[TOOL], background=True)
        assert response.status == "queued"
        with client.responses.stream(response_id=response.id, starting_after=3) as stream:
            events = list(stream)
            final = stream.get_final_response()
    assert events[0].sequence_number == 4
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]


def test_a_background_response_is_cancelled() -> None:
    with client_of(HELLO, tokens_per_second=1) as client:
        response = client.responses.create(model="scripted", input="Hi", background=True)
        cancelled = client.responses.cancel(response.id)
        assert cancelled.status == "cancelled"
        assert client.responses.cancel(response.id).status == "cancelled"
        events = list(client.responses.retrieve(response.id, stream=True))
        assert events[-1].type == "response.incomplete"
        assert events[-1].response.status == "cancelled"
        client.responses.delete(response.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(response.id)


def test_conversations_and_their_items() -> None:
    with client_of(CALL, SUNNY) as client:
        conversation = client.conversations.create(
            items=[{"type": "message", "role": "user", "content": "I live in Paris."}], metadata={"a": "b"}
        )
        assert client.conversations.retrieve(conversation.id) == conversation
        first = client.responses.create(
            model="scripted", input="Weather?", tools=[TOOL], conversation=conversation.id, store=False
        )
        call = first.output[-1]
        assert call.type == "function_call"
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        second = client.responses.create(
            model="scripted", input=[result], tools=[TOOL], conversation={"id": conversation.id}
        )
        assert second.conversation is not None
        assert second.conversation.id == conversation.id
        items = list(client.conversations.items.list(conversation.id, order="asc", limit=2))
        kinds = ["message", "message", "reasoning", "message", "function_call", "function_call_output"]
        assert [item.type for item in items] == [*kinds, "message"]
        added = client.conversations.items.create(
            conversation.id, items=[{"role": "user", "content": "Thanks."}]
        )
        last = added.data[0]
        assert client.conversations.items.retrieve(last.id, conversation_id=conversation.id) == last
        assert (
            client.conversations.items.delete(last.id, conversation_id=conversation.id).id == conversation.id
        )
        changed = client.conversations.update(conversation.id, metadata={"a": "c"})
        assert changed.metadata == {"a": "c"}
        assert client.conversations.delete(conversation.id).deleted is True
        with pytest.raises(openai.NotFoundError):
            client.conversations.retrieve(conversation.id)


def test_input_tokens_are_counted_and_a_conversation_is_compacted() -> None:
    summary = "<|channel|>final<|message|>They greeted each other.<|return|>"
    with client_of(HELLO, summary, HELLO, loop=False) as client:
        counted = client.responses.input_tokens.count(model="scripted", input="Hi", tools=[TOOL])
        response = client.responses.create(model="scripted", input="Hi", tools=[TOOL])
        assert response.usage is not None
        assert counted.input_tokens == response.usage.input_tokens
        compacted = client.responses.compact(model="scripted", previous_response_id=response.id)
        assert compacted.object == "response.compaction"
        assert compacted.output[-1].type == "compaction"
        assert compacted.usage.output_tokens > 0
        # The SDK's output type lacks the user's message, which the API's schema allows there.
        window = [item.to_dict(warnings=False) for item in compacted.output]
        followed = client.responses.create(
            model="scripted", input=[*window, {"role": "user", "content": "Again"}]
        )
        assert followed.output_text == "Hello!"
