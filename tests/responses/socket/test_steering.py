"""`response.steer`: a response ends after the item that it is writing, and another goes on with the input."""

import json
from typing import Any

import pytest

from gpt_oss_server.apis.responses.socket.steering import MOST_WAITING
from tests.doubles.lints import check_stream
from tests.doubles.serving import scripted
from tests.responses.socket.test_websocket import CALL, FINAL, TOOL, Client, Event, connected

THOUGHT = "<|channel|>analysis<|message|>{}<|end|><|start|>assistant"
LONG = THOUGHT.format("word " * 40) + f"{FINAL}{'word ' * 40}<|return|>"
BLUE = {"when": "Blue, please", "text": f"{FINAL}It is blue.<|return|>"}
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


def steer(client: Client, target: str, given: Any = "Blue, please.") -> None:
    client.socket.send(json.dumps({"type": "response.steer", "previous_response_id": target, "input": given}))


def begun(client: Client, **body: Any) -> list[Event]:
    """The events until the model writes."""
    client.ask(**body)
    return client.until("response.output_item.added")


@pytest.mark.parametrize("more", [{}, {"store": False}, {"stream_id": "lane"}])
def test_a_response_ends_after_its_item_and_another_goes_on(more: dict[str, Any]) -> None:
    with connected(scripted(BLUE, LONG, tokens_per_second=60)) as client:
        events = begun(client, instructions="Be brief.", metadata={"a": "b"}, **more)
        target = events[0]["response"]["id"]
        steer(client, target)
        steer(client, target, [{"role": "user", "content": [{"type": "input_text", "text": "And loud."}]}])
        events += client.until(*ENDS)
        told = [event for event in events if event["type"].startswith("response.steer")]
        assert [event["type"] for event in told] == ["response.steer.accepted"] * 2
        assert {event.get("stream_id") for event in told} == {more.get("stream_id")}
        assert len({event["steer"]["id"] for event in told}) == 2
        assert events[-1]["type"] == "response.incomplete"
        first = events[-1]["response"]
        assert first["incomplete_details"]["reason"] == "steered"
        assert first["output"][0]["type"] == "reasoning"
        written = [text for item in first["output"][1:] for text in item["content"]]
        assert all(len(part["text"]) < 60 for part in written)  # a busy machine is a few tokens late
        second = client.until(*ENDS)
        assert second[-1]["type"] == "response.completed"
        after = second[-1]["response"]
        assert (after["previous_response_id"], after["instructions"]) == (target, "Be brief.")
        assert after["metadata"] == {"a": "b"}
        assert after["output"][0]["content"][0]["text"] == "It is blue."
        if not more:
            check_stream(second)


def test_input_that_comes_in_the_last_item_begins_a_response_too() -> None:
    slow = f"{FINAL}{'word ' * 40}<|return|>"
    with connected(scripted(BLUE, slow, tokens_per_second=60)) as client:
        target = begun(client)[0]["response"]["id"]
        steer(client, target)
        assert client.until(*ENDS)[-1]["type"] == "response.completed"
        assert client.until(*ENDS)[-1]["response"]["previous_response_id"] == target


def test_input_waits_where_the_client_must_answer_a_call() -> None:
    slow = CALL.replace('{"a":1}', json.dumps({"a": "word " * 40}))
    answer = {"when": "the result(.|\n)*Blue", "text": f"{FINAL}Ok.<|return|>"}
    with connected(scripted(answer, slow, tokens_per_second=60)) as client:
        target = begun(client, tools=[TOOL])[0]["response"]["id"]
        steer(client, target)
        *_, done, pending = client.until("response.steer.pending", "response.incomplete")
        [call] = done["response"]["output"]
        assert pending["required_input"] == [
            {"type": "function_call_output", "call_id": call["call_id"], "name": "f"}
        ]
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": "the result"}
        client.ask(input=output, previous_response_id=target, tools=[TOOL])
        assert client.until(*ENDS)[-1]["response"]["output"][0]["content"][0]["text"] == "Ok."


def test_what_cannot_be_steered_gives_the_input_back() -> None:
    with connected(scripted(BLUE, LONG, tokens_per_second=60)) as client:

        def code(target: str, given: Any = "Blue, please.") -> str:
            steer(client, target, given)
            event: Event = {"type": ""}
            while not event["type"].startswith("response.steer"):
                event = json.loads(client.socket.recv(timeout=20))
            assert event["steer"].get("input", given) == given
            return str(event.get("error", {}).get("code"))

        assert code("resp_0") == "response_not_found"
        target = begun(client)[0]["response"]["id"]
        for wrong in (
            "",
            [],
            [{"role": "developer", "content": "x"}],
            [{"role": "user", "content": ""}],
            [{"role": "user", "content": "x", "id": "msg_1"}],
            [{"role": "user", "content": [{"type": "output_text", "text": "x"}]}],
            [{"role": "user", "content": [{"type": []}]}],
            [{"role": "user", "content": 5}],
            [{"type": "function_call_output", "call_id": "call_1", "output": "x"}],
        ):
            assert code(target, wrong) == "invalid_input"
        assert [code(target) for _ in range(MOST_WAITING + 1)][-1] == "too_many_pending_steers"
        client.until("response.completed")
        assert code(target) == "response_already_completed"
        compacts = [{"type": "compaction"}]
        target = begun(client, context_management=compacts)[0]["response"]["id"]
        assert code(target) == "steering_not_supported"
