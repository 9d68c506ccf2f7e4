"""Programs of the model that call the client's functions, through the official SDK."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
import pytest

from gpt_oss_server.settings import Settings
from tests.doubles.lints import check_stream
from tests.doubles.server_process import serving as process_of
from tests.doubles.serving import scripted, serving
from tests.tools.python.conftest import needs_bubblewrap

ANSWER = "<|channel|>final<|message|>Done.<|return|>"
STOCK: dict[str, Any] = {
    "type": "function",
    "name": "stock",
    "description": "How many there are.",
    "parameters": {"type": "object", "properties": {"sku": {"type": "string"}}, "required": ["sku"]},
    "allowed_callers": ["programmatic"],
    "output_schema": {"type": "object", "properties": {"left": {"type": "integer"}}},
}
TOOLS: list[Any] = [STOCK, {"type": "programmatic_tool_calling"}]
SETTINGS = Settings(python="bubblewrap", browser="off")
FEW = """
names = ["a", "b", "c"]
print("starting")
found = await asyncio.gather(*(functions.stock(sku=name) for name in names))
low = [name for name, each in zip(names, found) if each["left"] < 3]
more = [await functions.stock(sku=name + "-ordered") for name in low]
print(low, sum(more))
"""


def program(code: str) -> str:
    body = json.dumps({"code": code})
    return f"<|channel|>commentary to=program.run <|constrain|>json<|message|>{body}<|call|>"


def left(sku: str) -> str:
    return "40" if sku.endswith("-ordered") else json.dumps({"left": {"a": 1, "b": 2, "c": 3}[sku]})


@pytest.fixture
def serve() -> Iterator[Callable[..., openai.OpenAI]]:
    needs_bubblewrap()
    with ExitStack() as stack:

        def served(*turns: object, settings: Settings = SETTINGS) -> openai.OpenAI:
            url = stack.enter_context(serving(scripted(*turns), settings))
            return stack.enter_context(openai.OpenAI(base_url=url, api_key="any", max_retries=0))

        yield served


def outputs_of(items: list[dict[str, Any]]) -> list[Any]:
    """What a client answers: the output of each call, with its caller."""
    calls = [item for item in items if item["type"] == "function_call"]
    return [
        {
            "type": "function_call_output",
            "call_id": call["call_id"],
            "output": left(json.loads(call["arguments"])["sku"]),
            "caller": call["caller"],
        }
        for call in calls
    ]


def create(client: openai.OpenAI, given: Any, **more: Any) -> dict[str, Any]:
    """A response, after a check of every event."""
    stream = client.responses.create(input=given, tools=TOOLS, stream=True, **more)
    return check_stream([event.model_dump(by_alias=True, exclude_unset=True) for event in stream])


def kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


@pytest.mark.parametrize("stored", [True, False])
def test_a_program_waits_for_each_batch_of_its_calls(serve: Any, stored: bool) -> None:
    client = serve(program(FEW), ANSWER)
    user = {"role": "user", "content": "What is low?"}
    history: list[Any] = [user]
    response = create(client, history, store=stored)
    assert kinds(response) == ["program", "function_call", "function_call", "function_call"]
    made, *calls = response["output"]
    assert made["code"] == FEW
    assert [json.loads(call["arguments"]) for call in calls] == [{"sku": name} for name in "abc"]
    assert {call["caller"]["caller_id"] for call in calls} == {made["call_id"]}
    batches = [3]
    while "message" not in kinds(response):
        answers = outputs_of(response["output"])
        if stored:
            response = create(client, answers, previous_response_id=response["id"])
        else:
            history += [*response["output"], *answers]
            response = create(client, history, store=False)
        batches.append(kinds(response).count("function_call"))
        if batches[-1]:
            assert response["usage"]["input_tokens"] == 0  # the engine was asked nothing
    assert batches == [3, 1, 1, 0]
    printed = response["output"][0]
    assert (printed["type"], printed["status"]) == ("program_output", "completed")
    assert printed["result"] == "starting\n['a', 'b'] 80"
    assert printed["call_id"] == made["call_id"]
    bodies: list[Any] = [{"input": [*history, *response["output"], user]}]
    if stored:
        bodies = [{"previous_response_id": response["id"], "input": "On."}]
    for body in bodies:
        prompt = client.post("/../render", body={**body, "tools": TOOLS}, cast_to=dict)["text"]
        assert "['a', 'b'] 80<|end|>" in prompt
        assert "-ordered" not in prompt.replace('name + \\"-ordered\\"', "")  # the model reads no call of it


def test_a_conversation_and_the_background_wait_too(serve: Any) -> None:
    client = serve(program("print(await functions.stock(sku='a'))"), ANSWER)
    conversation = client.conversations.create().id
    made = client.responses.create(input="Go.", tools=TOOLS, conversation=conversation, background=True)
    while made.status in ("queued", "in_progress"):
        made = client.responses.retrieve(made.id)
    answers = outputs_of(made.model_dump()["output"])
    done = client.responses.create(input=answers, tools=TOOLS, conversation=conversation)
    assert [item.type for item in done.output] == ["program_output", "message"]
    listed = [item.type for item in client.conversations.items.list(conversation, order="asc")]
    assert listed == [
        "message",
        "program",
        "function_call",
        "function_call_output",
        "program_output",
        "message",
    ]


def test_the_prompt_lists_what_programs_call(serve: Any) -> None:
    client = serve(ANSWER)
    both = {**STOCK, "name": "both", "allowed_callers": ["direct", "programmatic"]}
    tools = [*TOOLS, both]
    prompt = client.post("/../render", body={"input": "Go.", "tools": tools}, cast_to=dict)["text"]
    of_programs, of_model = prompt.split("## program")[1], prompt.split("## program")[0]
    assert "stock" in of_programs
    assert "both" in of_programs
    assert 'Returns JSON of the schema {"type":"object","properties":{"left"' in of_programs
    assert re.search(r"type both", of_model + of_programs.split("} // namespace program")[1])
    assert "type stock" not in of_model
    echo = client.responses.create(input="Go.", tools=tools).tools
    assert [tool.type for tool in echo] == ["function", "programmatic_tool_calling", "function"]
    assert (echo[0].allowed_callers, echo[0].output_schema) == (["programmatic"], STOCK["output_schema"])


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("await functions.stoc(sku='a')", "There are: stock"),
        ("await functions.stock('a')", "with keywords"),
        ("print(1", "SyntaxError"),
        ("pass", "printed nothing"),
        ("print('x' * 30_000)", "the rest was cut"),
        ("import time\nwhile True: time.sleep(0.1)", "Timed out"),
        ("await asyncio.sleep(60)", "Timed out"),
    ],
)
def test_a_program_that_fails_says_why(serve: Any, code: str, words: str) -> None:
    client = serve(
        program(code), ANSWER, settings=Settings(python="bubblewrap", browser="off", python_timeout=2)
    )
    response = create(client, "Go.")
    assert kinds(response) == ["program", "program_output", "message"]
    assert words in response["output"][1]["result"]


def test_calls_that_the_model_writes_itself_do_no_harm(serve: Any) -> None:
    body = {"code": "print(await functions.stock(sku='a'))", "calls": [1, {"name": "stock"}, {"output": 2}]}
    client = serve(program("").replace(json.dumps({"code": ""}), json.dumps(body)), ANSWER)
    made = create(client, "Go.")
    assert kinds(made) == ["program", "function_call"]
    done = create(client, outputs_of(made["output"]), previous_response_id=made["id"])
    assert done["output"][0]["result"] == "{'left': 1}"


def test_programs_do_not_share_a_space_but_the_files(serve: Any) -> None:
    write = program(
        "x = 1\nopen('n', 'w').write('7')\nprint('functions' in globals(), await functions.stock(sku='a'))"
    )
    read = program("print('x' in globals(), open('n').read())")
    client = serve(write, read, ANSWER)
    first = create(client, "Go.")
    done = create(client, outputs_of(first["output"]), previous_response_id=first["id"])
    assert kinds(done) == ["program_output", "program", "program_output", "message"]
    assert done["output"][0]["result"] == "True {'left': 1}"
    assert done["output"][2]["result"] == "False 7"


def test_a_wrong_request_is_named(serve: Any) -> None:
    client = serve(program("print(await functions.stock(sku='a'), await functions.stock(sku='b'))"), ANSWER)
    made = create(client, "Go.")
    told, call = made["output"]
    stranger = {"type": "function_call_output", "call_id": "call_0", "output": "1"}
    user = {"role": "user", "content": "Go."}
    for given, more, words in (
        ("And now?", {"previous_response_id": made["id"]}, call["call_id"]),
        ([stranger], {"previous_response_id": made["id"]}, "call_0"),
        ([user, {**told, "code": "print(2)"}], {}, "fingerprint"),
        ([user, call, *outputs_of([call])], {}, "no program"),
        ([user, {"type": "program_output", "call_id": "call_1", "result": "x"}], {}, "no program"),
    ):
        with pytest.raises(openai.BadRequestError, match=words):
            client.responses.create(input=given, tools=TOOLS, **more)
    for tools, words in (
        ([STOCK], "programmatic_tool_calling"),
        ([{"type": "web_search", "allowed_callers": ["programmatic"]}], "programs call functions"),
        ([{**STOCK, "allowed_callers": ["nobody"]}], "must be a list of"),
    ):
        with pytest.raises(openai.BadRequestError, match=words):
            client.responses.create(input="Go.", tools=tools)
    chat = {"type": "function", "function": {"name": "f"}}
    with pytest.raises(openai.BadRequestError, match="Responses API"):
        client.chat.completions.create(
            model="scripted", messages=[user], tools=[chat, {"type": "programmatic_tool_calling"}]
        )


def test_twenty_calls_cost_fewer_tokens_than_twenty_turns(serve: Any) -> None:
    skus = [f"sku-{number}" for number in range(20)]
    code = f"print(sum(await asyncio.gather(*(functions.stock(sku=each) for each in {skus!r}))))"
    call = '<|channel|>commentary to=functions.stock <|constrain|>json<|message|>{"sku":"%s"}<|call|>'
    direct = [{**STOCK, "allowed_callers": ["direct"]}]
    spent = {}
    for name, turns, tools in (
        ("program", [program(code)], TOOLS),
        ("turns", [call % sku for sku in skus], direct),
    ):
        client = serve(*turns, ANSWER)
        response = client.responses.create(input="How many are there in all?", tools=tools)
        spent[name] = response.usage.input_tokens
        while calls := [item for item in response.output if item.type == "function_call"]:
            outputs: Any = [
                {"type": "function_call_output", "call_id": each.call_id, "output": "7"} for each in calls
            ]
            response = client.responses.create(input=outputs, tools=tools, previous_response_id=response.id)
            spent[name] += response.usage.input_tokens
        assert response.output_text == "Done."
    assert spent["program"] * 5 < spent["turns"], spent


def test_a_program_that_waits_survives_a_kill(tmp_path: Path) -> None:
    needs_bubblewrap()
    script = tmp_path / "script.json"
    code = "print(sum(await asyncio.gather(*(functions.stock(sku=name + '-ordered') for name in 'ab'))))"
    turns = [{"when": "40|80", "text": ANSWER}, program(code)]
    script.write_text(json.dumps({"turns": turns}))
    flags = ("--model", f"scripted:{script}", "--store", f"sqlite:{tmp_path}/store", "--python", "bubblewrap")
    with process_of(*flags, "--browser", "off") as served:
        with openai.OpenAI(base_url=served.api, api_key="any") as client:
            made = create(client, "Go.")
        served.process.kill()
        served.process.wait()
    with (
        process_of(*flags, "--browser", "off") as served,
        openai.OpenAI(base_url=served.api, api_key="any") as client,
    ):
        done = create(client, outputs_of(made["output"]), previous_response_id=made["id"])
    assert kinds(done) == ["program_output", "message"]
    assert done["output"][0]["result"] == "80"
