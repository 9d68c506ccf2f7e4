"""A conversation that the client sends back reaches the model as it was, and each call needs an output."""

from typing import Any

import pytest

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from tests.doubles.apis.asking import NEXT, Asking, browsing_service, call, conversations_of
from tests.doubles.apis.mcp_asking import ANSWER, tool
from tests.doubles.apis.mcp_asking import call as mcp_call
from tests.doubles.serving import scripted
from tests.responses.conftest import Echoes, Make

WEATHER: dict[str, Any] = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}}
PARIS, ROME = '{"city":"Paris"}', '{"city":"Rome"}'
SEARCH = '<|channel|>analysis to=browser.search code<|message|>{"query":"fjord"}<|call|>'


def called(call_id: str, arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "get_weather", "arguments": arguments}


def output(call_id: str, text: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


async def rendered(*items: Any, **body: Any) -> str:
    return await Asking(ANSWER).prompt(input=["Weather?", *items], tools=[WEATHER], **body)


async def test_results_follow_the_order_of_their_calls() -> None:
    calls = [called("a", PARIS), called("b", ROME)]
    in_order = await rendered(*calls, output("a", "grey"), output("b", "blue"))
    assert in_order.index("grey") < in_order.index("blue")
    assert await rendered(*calls, output("b", "blue"), output("a", "grey")) == in_order
    # A later round may reuse the same ids in the opposite order.
    again = [called("b", ROME), called("a", PARIS)]
    first = (*calls, output("a", "1"), output("b", "2"))
    wanted = await rendered(*first, *again, output("b", "3"), output("a", "4"))
    assert await rendered(*first, *again, output("a", "4"), output("b", "3")) == wanted


async def test_an_outputs_error_names_the_clients_index() -> None:
    with pytest.raises(InvalidRequest) as refused:
        await rendered(called("a", PARIS), output("unknown", "?"), output("a", "grey"))
    assert refused.value.param == "input[2]"


@pytest.mark.parametrize("between", [[], [{"role": "assistant", "content": "And now."}]])
async def test_text_before_a_call_is_a_preamble_even_without_a_phase(between: list[Any]) -> None:
    thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    preamble = {"role": "assistant", "content": "Let me look."}
    prompt = await rendered(thought, preamble, *between, called("a", PARIS), output("a", "grey"))
    assert "<|channel|>commentary<|message|>Let me look.<|end|>" in prompt
    assert "<|channel|>analysis<|message|>Hm.<|end|>" in prompt, "reasoning of a tool loop stays"
    assert "<|channel|>final" not in prompt
    answered = await rendered(preamble, "And tomorrow?", called("a", PARIS), output("a", "grey"))
    assert "<|channel|>final<|message|>Let me look.<|end|>" in answered
    phased = await rendered({**preamble, "phase": "final_answer"}, called("a", PARIS), output("a", "grey"))
    assert "<|channel|>final<|message|>Let me look.<|end|>" in phased, "an explicit phase is kept"


async def test_a_search_with_only_queries_keeps_its_first_query() -> None:
    search = {"type": "web_search_call", "action": {"type": "search", "queries": ["fjords", "depth"]}}
    assert '{"query":"fjords"}' in await rendered(search)


async def test_a_resent_mcp_call_keeps_its_channel(echoes: Echoes, url: str) -> None:
    ask = echoes(mcp_call("echo", text="a"), ANSWER, allow_private_hosts=True)
    more: dict[str, Any] = {"tools": [tool(url)]}
    response = await ask(**more)
    by_id = await ask.service.render(LOCAL, {"input": "More", "previous_response_id": response["id"], **more})
    items = ["Say hi.", *response["output"], "More"]
    assert (await ask.service.render(LOCAL, {"input": items, **more})).text == by_id.text


async def test_a_reference_to_a_hosted_call_has_its_result(encoding: Encoding, tmp_path: Any) -> None:
    service = browsing_service(tmp_path, scripted(SEARCH, ANSWER), encoding=encoding)
    web: dict[str, Any] = {"tools": [{"type": "web_search"}]}
    response = await (await service.start(LOCAL, {"input": "How deep?", **web})).wait()
    references = [{"type": "item_reference", "id": item["id"]} for item in response["output"]]
    by_reference = (await service.render(LOCAL, {"input": ["How deep?", *references, "Go on"], **web})).text
    assert "not kept" not in by_reference
    by_id = await service.render(LOCAL, {"input": "Go on", "previous_response_id": response["id"], **web})
    assert by_reference == by_id.text
    await service.close()


@pytest.mark.parametrize("ends", [True, False])
async def test_a_call_that_was_cut_off_is_done_once_unless_the_operator_withholds_it(ends: bool) -> None:
    custom = {"type": "custom", "name": "edit"}
    text = '<|channel|>commentary to=functions.edit code<|message|>rm("build")\nrm("tmp/cache")<|call|>'
    ask = Asking(text, settings=Settings(end_cut_calls=ends))
    response = await ask(tools=[custom], max_output_tokens=14)
    (item,) = response["output"]
    assert (response["status"], item["status"]) == ("incomplete", "incomplete")
    assert item["input"].startswith("rm(")
    done = [event["type"] for event in ask.events if event["type"].endswith(".done")]
    kinds = ["response.custom_tool_call_input.done", "response.output_item.done"]
    assert done == (kinds if ends else [])
    added = [event for event in ask.events if event["type"] == "response.output_item.added"]
    assert len(added) == 1


async def test_allowed_tools_may_name_an_unavailable_search() -> None:
    search = {"type": "web_search", "external_web_access": True}
    only = {"type": "allowed_tools", "tools": [search, {"type": "function", "name": "get_weather"}]}
    body = {"input": "Hi", "tools": [search, WEATHER], "tool_choice": only}
    assert (await (await Asking(ANSWER).service.start(LOCAL, body)).wait())["status"] == "completed"


async def test_deleting_an_item_keeps_each_result_with_its_call() -> None:
    ask = Asking(ANSWER)
    conversations = conversations_of(ask.service)
    made = await conversations.create({"items": [called("a", PARIS), called("b", ROME)]})
    await conversations.add_items(made["id"], {"items": [output("b", "blue")]})
    later = {"role": "user", "content": "And?"}
    added = await conversations.add_items(made["id"], {"items": [output("a", "grey"), later]})
    await conversations.delete_item(made["id"], added["data"][-1]["id"])
    prompt = await ask.prompt(conversation=made["id"], tools=[WEATHER])
    assert (prompt.count("grey"), prompt.count("blue")) == (1, 1)


async def test_items_are_listed_as_they_were_sent() -> None:
    ask = Asking(ANSWER)
    items = ["Hi", called("a", PARIS), called("b", ROME), output("b", "blue"), output("a", "grey")]
    response = await ask(input=items, tools=[WEATHER])
    listed = (await ask.service.stored(LOCAL).retrieve(response["id"])).input_items
    assert [item.get("output") for item in listed[3:]] == ["blue", "grey"]


async def test_items_with_the_same_id_are_each_listed_once_and_paging_ends(api: Make) -> None:
    here = api(scripted(ANSWER))
    sent = [{"type": "message", "role": "user", "content": str(n), "id": f"msg_{n % 3}"} for n in range(6)]
    path = f"/responses/{(await here.create(input=sent))['id']}/input_items"
    pages = [await here.get(path, order="asc", limit=2)]
    while pages[-1]["has_more"]:
        assert len(pages) < 3
        pages.append(await here.get(path, order="asc", limit=2, after=pages[-1]["last_id"]))
    listed = [item for page in pages for item in page["data"]]
    assert [item["content"][0]["text"] for item in listed] == list("012345")
    assert [item["id"] for item in listed[:3]] == ["msg_0", "msg_1", "msg_2"]
    assert len({item["id"] for item in listed}) == 6


async def test_messages_of_other_agents_show_their_names() -> None:
    sealed = {"type": "encrypted_content", "encrypted_content": "gAAAA"}
    parts = [{"type": "input_text", "text": "The tests pass."}, sealed]
    message = {"type": "agent_message", "author": "/root/reviewer", "recipient": "/root", "content": parts}
    prompt = await rendered(message)
    assert "<|start|>user<|message|>Message from agent /root/reviewer to /root:\nThe tests pass.\n[" in prompt
    assert "cannot be read here" in prompt
    assert "gAAAA" not in prompt
    with pytest.raises(InvalidRequest, match=r"input\[1\].author"):
        await rendered({**message, "author": None})


async def test_the_reasoning_effort_can_change_between_items() -> None:
    def updated(effort: Any) -> dict[str, Any]:
        return {"type": "configuration_update", "reasoning": {"effort": effort}}

    changed = await rendered(updated("low"), updated("high"), reasoning={"effort": "medium"})
    assert "Reasoning: high" in changed
    assert "Reasoning: low" in await rendered({"type": "configuration_update"}, reasoning={"effort": "low"})
    assert (await Asking(ANSWER)(input=[updated("low"), "Hi"]))["reasoning"]["effort"] == "low"
    with pytest.raises(InvalidRequest, match=r"input\[1\].reasoning.effort"):
        await rendered(updated("much"))
    with pytest.raises(UnsupportedField, match=r"input\[1\].text"):
        await rendered({**updated("low"), "text": {"format": {"type": "json_object"}}})


async def test_a_past_image_becomes_a_note_and_an_unsealed_compaction_nothing() -> None:
    image = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "iVBORw0"}
    assert "An image was made here" in await rendered(image)
    assert await rendered({"type": "context_compaction"}) == await rendered()
    with pytest.raises(InvalidRequest, match="this server did not seal this compaction"):
        await rendered({"type": "context_compaction", "encrypted_content": "x"})


CUT_OFF = "functions.f to=assistant<|channel|>commentary<|message|>This call was cut off"
NOT_AWAITED = "functions.f to=assistant<|channel|>commentary<|message|>The response ended before"
TOOL: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}


def made(call_id: str, **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}", **more}


@pytest.mark.parametrize(
    "items",
    [
        [made("a")],
        [made("a"), "And?"],
        [made("a"), made("b"), output("a", "1")],
        [made("a"), output("a", "1"), made("b")],
        [{"type": "custom_tool_call", "call_id": "a", "name": "g", "input": "x"}, "And?"],
    ],
    ids=range(5),
)
async def test_a_call_without_an_output_is_refused_as_at_openai(items: list[Any]) -> None:
    with pytest.raises(InvalidRequest, match=r"No tool output found for function call [ab]") as raised:
        await Asking(ANSWER).prompt(input=["Hi", *items])
    assert raised.value.status == 400


async def test_a_call_that_was_cut_off_is_noted_unless_it_has_an_output() -> None:
    cut = made("a", status="incomplete", arguments='{"x')
    prompt = await Asking(ANSWER).prompt(input=["Hi", cut, "And?"])
    assert prompt.index('{"x<|call|>') < prompt.index(CUT_OFF) < prompt.index("And?")
    answered = await Asking(ANSWER).prompt(input=["Hi", cut, output("a", "It ran.")])
    assert "It ran." in answered
    assert "cut off" not in answered


async def test_of_two_outputs_the_last_counts_and_an_id_may_return() -> None:
    first = [made("a"), output("a", "one"), output("a", "two")]
    again = [made("a"), output("a", "three"), "And?"]
    prompt = await Asking(ANSWER).prompt(input=["Hi", *first, *again])
    assert [text in prompt for text in ("one", "two", "three")] == [False, True, True]


async def test_arguments_may_be_an_object() -> None:
    ask = Asking(ANSWER)
    body = {"input": ["Hi", made("a", arguments={"city": "Zürich", "n": [1, None]}), output("a", "x")]}
    response = await ask(**body, tools=[TOOL])
    listed = (await ask.service.stored(LOCAL).retrieve(response["id"])).input_items
    assert listed[1]["arguments"] == '{"city":"Zürich","n":[1,null]}'
    assert '<|message|>{"city":"Zürich","n":[1,null]}<|call|>' in await ask.prompt(**body)


@pytest.mark.parametrize("limit", [12, 13])
async def test_the_turn_after_a_cut_call_reads_why_it_has_no_result(limit: int) -> None:
    ask = Asking(call("functions.f", '{"city": "Oslo"}'))
    cut = await ask(tools=[TOOL], max_output_tokens=limit)
    assert cut["output"][0]["status"] == "incomplete"
    prompt = await ask.prompt(input="And?", previous_response_id=cut["id"], tools=[TOOL])
    assert prompt.index(CUT_OFF) < prompt.index("And?")
    items = await ask.prompt(input=["Hi", *cut["output"], "And?"], tools=[TOOL])
    assert CUT_OFF in items
    late = [output(cut["output"][0]["call_id"], "It ran after all."), "And?"]
    answered = await ask.prompt(input=late, previous_response_id=cut["id"], tools=[TOOL])
    assert "It ran after all." in answered
    assert "cut off" not in answered


async def test_the_turn_after_a_whole_call_needs_its_output() -> None:
    ask = Asking(call("functions.f", "{}") + NEXT + call("functions.f", '{"n":2}'), ANSWER)
    response = await ask(tools=[TOOL], parallel_tool_calls=True)
    first, second = (item["call_id"] for item in response["output"])
    more: dict[str, Any] = {"previous_response_id": response["id"], "tools": [TOOL]}
    with pytest.raises(InvalidRequest, match="No tool output found"):
        await ask.prompt(input="And?", **more)
    with pytest.raises(InvalidRequest, match=f"No tool output found for function call {second}"):
        await ask.prompt(input=[output(first, "1"), "And?"], **more)
    prompt = await ask.prompt(input=[output(second, "2"), output(first, "1"), "And?"], **more)
    assert prompt.index("<|message|>1<|end|>") < prompt.index("<|message|>2<|end|>")


async def test_the_turn_after_a_cancelled_response_reads_that_its_calls_have_no_results() -> None:
    long = f"<|channel|>final<|message|>{'word ' * 4_000}<|return|>"
    engine = scripted(call("functions.f", "{}") + NEXT + long, tokens_per_second=200)
    ask = Asking(engine=engine)
    run = await ask.service.start(
        LOCAL, {"input": "Hi", "tools": [TOOL], "background": True, "parallel_tool_calls": True}
    )
    log = await ask.service.run_in_background(run)
    async for batch in log.read():
        if any(b"output_item.done" in event for event in batch):
            break
    cancelled = await ask.service.stored(LOCAL).cancel(run.id)
    assert cancelled["output"][0]["type"] == "function_call"
    prompt = await ask.prompt(input="And?", previous_response_id=run.id, tools=[TOOL])
    assert NOT_AWAITED in prompt or CUT_OFF in prompt
    await ask.service.close()


async def test_a_conversation_may_get_a_call_and_its_output_one_after_the_other() -> None:
    ask = Asking(ANSWER)
    here = conversations_of(ask.service)
    conversation = (await here.create({"items": [{"role": "user", "content": "Hi"}, made("a")]}))["id"]
    with pytest.raises(InvalidRequest, match="No tool output found for function call a"):
        await ask(conversation=conversation, input="And?")
    await here.add_items(conversation, {"items": [output("a", "1")]})
    assert (await ask(conversation=conversation, input="And?"))["status"] == "completed"
