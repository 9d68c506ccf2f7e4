"""Conversations that the client carries: their prompts have the tokens that the model sampled."""

import json
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from gpt_oss_server.apis.chat.service import ChatService
from gpt_oss_server.caller.access import Access
from gpt_oss_server.caller.caller import LOCAL, Caller
from gpt_oss_server.errors import ApiError
from gpt_oss_server.harmony.encoding import Encoding
from tests.doubles.apis.asking import CLOCK, responses_service
from tests.doubles.apis.chat_asking import service_of
from tests.doubles.apis.messages_asking import HI, THINKING, TOOL, Block, blocks, message_of, messages_service
from tests.doubles.engines.replay import TurnsEngine

NEXT = "<|end|><|start|>assistant"
THOUGHT = "<|channel|>analysis<|message|>I th¦ink about it." + NEXT
PREAMBLE = "<|channel|>commentary<|message|>Let me lo¦ok." + NEXT
CALL = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"
ANSWER = "<|channel|>final<|message|>It is su¦nny, 20 ¦°C.<|return|>"
TURNS = (
    THOUGHT + CALL.replace("{}", '{"city": ¦"Os¦lo"}'),
    THOUGHT + PREAMBLE + CALL.replace("{}", '{\n "city":"Paris",\n "n": 1.0}'),
    THOUGHT + ANSWER,
    CALL.replace("{}", "{}"),
    ANSWER,
)


class Spelled(TurnsEngine):
    """Samples the parts of each text between the bars apart: other tokens than those of the whole text."""

    def __init__(self, encoding: Encoding, *texts: str) -> None:
        super().__init__(encoding, context=131_072)
        parts = (map(encoding.encode_special, text.split("¦")) for text in texts)
        self._turns = [list(chain.from_iterable(each)) for each in parts]


async def carried(engine: Spelled, turns: int, caller: Caller = LOCAL, **body: Any) -> list[Block]:
    """The messages of a conversation of so many turns, whose calls are answered."""
    service, messages = messages_service(engine), list[Block](HI["messages"])
    for number in range(turns):
        message = await message_of(service, caller, messages=messages, tools=[TOOL], **THINKING, **body)
        # As JSON, and as JavaScript's clients send numbers.
        content = json.loads(json.dumps(message["content"]).replace("1.0", "1"))
        messages = [*messages, {"role": "assistant", "content": content}, _reply(content, number)]
    return messages


def _reply(content: list[Block], number: int) -> Block:
    results = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": f"result {number} " * 9}
        for block in content
        if block["type"] == "tool_use"
    ]
    return {"role": "user", "content": results or f"Question {number}"}


async def stored(engine: Spelled, turns: int) -> None:
    """The same conversation, kept by the server."""
    service = responses_service(engine, clock=lambda: CLOCK)
    tool = {"type": "function", "name": "f", "description": TOOL["description"]}
    body: Block = {"input": "hi", "tools": [{**tool, "parameters": TOOL["input_schema"]}]}
    for number in range(turns):
        response = await (await service.start(LOCAL, {**body, "parallel_tool_calls": True})).wait()
        results: Any = [
            {"type": "function_call_output", "call_id": item["call_id"], "output": f"result {number} " * 9}
            for item in response["output"]
            if item["type"] == "function_call"
        ]
        body |= {"input": results or f"Question {number}", "previous_response_id": response["id"]}


async def test_twenty_turns_have_the_prompts_of_a_stored_conversation(encoding: Encoding) -> None:
    carries, keeps = Spelled(encoding, *TURNS * 4), Spelled(encoding, *TURNS * 4)
    await carried(carries, 20)
    await stored(keeps, 20)
    assert len(carries.prompts) == 20
    assert carries.prompts == keeps.prompts


async def test_chat_and_messages_have_the_same_prompts(encoding: Encoding) -> None:
    texts = [TURNS[at].replace("¦", "").replace('"city": "', '"city":"') for at in (0, 2, 4)]
    engine, other = Spelled(encoding, *texts), Spelled(encoding, *texts)
    await carried(engine, 3, system="Be brief.")
    service: ChatService = service_of(other)
    function = {"name": "f", "description": TOOL["description"], "parameters": TOOL["input_schema"]}
    messages: list[Block] = [{"role": "system", "content": "Be brief."}, *HI["messages"]]
    for number in range(3):
        tools = [{"type": "function", "function": function}]
        run = await service.start(LOCAL, {"messages": messages, "tools": tools, "parallel_tool_calls": True})
        message = (await run.wait())["choices"][0]["message"]
        reply: Block = {"role": "user", "content": f"Question {number}"}
        for call in message.get("tool_calls") or ():
            reply = {"role": "tool", "tool_call_id": call["id"], "content": f"result {number} " * 9}
        messages = [*messages, message, reply]
    assert engine.prompts == other.prompts


async def prompt_of(encoding: Encoding, messages: list[Block], caller: Caller = LOCAL, **body: Any) -> str:
    engine = Spelled(encoding, ANSWER)
    await message_of(messages_service(engine), caller, messages=messages, tools=[TOOL], **THINKING, **body)
    return encoding.decode(engine.prompts[0])


async def test_a_changed_message_is_read_as_it_was_sent(encoding: Encoding) -> None:
    messages = await carried(Spelled(encoding, *TURNS), 2)
    messages[1]["content"][1]["input"]["city"] = "Rome"
    messages[3]["content"][1]["text"] = "I look now."
    prompt = await prompt_of(encoding, messages)
    assert '{"city":"Rome"}' in prompt
    assert "Oslo" not in prompt
    assert "<|channel|>commentary<|message|>I look now.<|end|>" in prompt
    assert '{\n "city":"Paris",\n "n": 1.0}' in prompt  # nothing else changes


async def test_seals_of_another_key_are_read_as_text(encoding: Encoding) -> None:
    mine, other = (replace(LOCAL, access=Access(owner=name)) for name in ("mine", "other"))
    messages = await carried(Spelled(encoding, *TURNS), 1, mine)
    own, others = [await prompt_of(encoding, messages, caller) for caller in (mine, other)]
    assert '{"city": "Oslo"}' in own
    assert '{"city":"Oslo"}' in others
    assert "I think about it." in others
    for block in messages[1]["content"]:
        block |= {key: "forged" for key in ("signature", "data") if key in block}
    assert await prompt_of(encoding, messages, mine) == others


@pytest.mark.parametrize(
    ("keep", "kept"),
    [("all", 3), ({"type": "all"}, 3), ({"type": "thinking_turns", "value": 1}, 1), (None, 0)],
    ids=str,
)
async def test_the_thinking_of_earlier_turns(encoding: Encoding, keep: Any, kept: int) -> None:
    """As the request has it; else as Harmony has it: none that led to an answer."""
    edits: Block = {"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": keep}]}}
    messages = await carried(Spelled(encoding, *TURNS), 3)
    prompt = await prompt_of(encoding, messages, **(edits if keep else {}))
    assert prompt.count("I think about it.") == (3 if kept == 3 else 0)
    if kept == 1:  # the newest turn, and what of it is cleared, are those of before the last question
        service = messages_service(Spelled(encoding, ANSWER))
        message = await message_of(service, messages=messages, tools=[TOOL], **THINKING, **edits)
        [applied] = message["context_management"]["applied_edits"]
        assert applied["cleared_thinking_turns"] == 1
        assert applied["cleared_input_tokens"] > 0


async def test_results_of_older_calls_are_cleared(encoding: Encoding) -> None:
    messages = await carried(Spelled(encoding, *TURNS), 2)
    edit = {"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 1}}
    early = {**edit, "trigger": {"type": "tool_uses", "value": 1}, "clear_tool_inputs": True}
    prompt = await prompt_of(encoding, messages, context_management={"edits": [early]})
    assert "result 0" not in prompt
    assert "This result was cleared" in prompt
    assert "Oslo" not in prompt
    assert "result 1" in prompt
    for other in (edit, {**early, "clear_at_least": {"type": "input_tokens", "value": 1_000}}):
        assert "result 0" in await prompt_of(encoding, messages, context_management={"edits": [other]})
    body = {"messages": messages, "tools": [TOOL], "context_management": {"edits": [early]}}
    counted = await messages_service(Spelled(encoding, ANSWER)).count(LOCAL, body)
    assert counted["input_tokens"] < counted["context_management"]["original_input_tokens"]


async def test_a_compaction_is_a_block_that_stands_for_what_came_before(encoding: Encoding) -> None:
    engine = Spelled(encoding, "<|channel|>final<|message|>A summary.<|return|>", ANSWER.replace("¦", ""))
    edit = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 1_000}}
    long: Block = {"role": "user", "content": "word " * 2_000}
    body: Block = {"context_management": {"edits": [edit]}, "messages": [long]}
    message = await message_of(messages_service(engine), **body)
    assert blocks(message) == ["compaction", "text"]
    messages = [long, {"role": "assistant", "content": message["content"]}, *HI["messages"]]
    prompt = await prompt_of(encoding, messages)
    assert "A summary." in prompt
    assert prompt.count("It is sunny") == 1


@pytest.mark.parametrize(
    "edit",
    [
        {"type": "clear_everything"},
        {"type": "clear_thinking_20251015", "keep": 3},
        {"type": "clear_tool_uses_20250919", "trigger": {"type": "weeks", "value": 3}},
        {"type": "compact_20260112", "instructions": "In verse."},
        {"type": "compact_20260112", "pause_after_compaction": True},
    ],
    ids=str,
)
async def test_an_edit_that_is_not_served_is_refused(encoding: Encoding, edit: Block) -> None:
    with pytest.raises(ApiError, match=r"context_management\.edits\[0\]"):
        await prompt_of(encoding, HI["messages"], context_management={"edits": [edit]})
