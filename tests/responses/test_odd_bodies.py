"""Odd values at every place of a body, of any API: an answer or a 4xx error, never a defect.
The limits of a response: tool calls, room for the answer, approvals, and how a stopped call ends.
"""

import json
from collections.abc import Awaitable, Iterator
from typing import Any

import pytest

from gpt_oss_server.apis.completions.api import start
from gpt_oss_server.apis.completions.tokenizer import detokenize, tokenize
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.errors import ApiError, InvalidRequest
from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.json_values import without_lone_surrogates
from gpt_oss_server.models.limits import least_context
from gpt_oss_server.settings import Settings
from inference.backends.script_file import parse_script
from inference.backends.scripted import ScriptedEngine
from tests.doubles.apis.api_client import Api, events_in
from tests.doubles.apis.asking import FINAL, Asking, conversations_of
from tests.doubles.apis.chat_asking import TOOL, replaying, service_of
from tests.doubles.apis.client_tools import CRM, DIGITS, EDIT, ITEMS
from tests.doubles.apis.client_tools import LOCAL as LOCAL_SHELL
from tests.doubles.apis.mcp_asking import ANSWER, call, tool
from tests.doubles.engines.replay import TurnsEngine
from tests.doubles.lints import check_stream
from tests.doubles.random_tests.seeds import seeds
from tests.doubles.serving import VOCABULARY
from tests.responses.conftest import Echoes

HELLO = FINAL.format("Hello!")
EMPTY: tuple[Any, ...] = (None, 0, "", [], {})
ODD = (*EMPTY, True, -1, 1.5, "x", [None], [{}], {"a": 1}, "\ud800", {"type": []})
EVERY_VALUE = pytest.mark.parametrize("odd", range(len(ODD)), ids=lambda odd: str(ODD[odd]))


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield place
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield from places(value[key], (*place, key))


def with_odd(body: Any, place: tuple[Any, ...], odd: Any) -> Any:
    if not place:
        return odd
    copy = inner = json.loads(json.dumps(body))
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = odd
    return copy


async def check(request: Awaitable[Any], body: Any, *statuses: int) -> None:
    """An answer, or an error with one of these statuses; a defect raises."""
    try:
        answer, status = await request, None
    except ApiError as error:
        answer, status = None, error.status
    assert answer or status in statuses, body


TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True},
    DIGITS,
    CRM,
    LOCAL_SHELL,
    {"type": "shell", "environment": {"type": "local"}},
    EDIT,
    {"type": "tool_search", "execution": "client", "description": "x", "parameters": {"type": "object"}},
]
TEXTS = [{"type": "input_text", "text": "x"}]
OF_AGENTS: list[dict[str, Any]] = [  # the SDK does not know these
    {"type": "agent_message", "author": "a", "recipient": "b", "content": TEXTS},
    {"type": "configuration_update", "reasoning": {"effort": "low"}},
]
CHOICES = ({"type": "custom", "name": "dial"}, {"type": "function", "name": "find", "namespace": "crm"})
WHOLE = ({"tools": TOOLS}, {"input": [*ITEMS, *OF_AGENTS]}, *({"tool_choice": choice} for choice in CHOICES))
PLACES = [(whole, place) for whole in WHOLE for place in places(whole) if place]


@pytest.mark.parametrize("rest", seeds(1, proofs=4))
@EVERY_VALUE
async def test_a_response(odd: int, rest: int) -> None:
    """Each value in a quarter of the places, and a quarter of the values in each; the others are proofs."""
    for whole, place in PLACES[(odd + rest) % 4 :: 4]:
        body = without_lone_surrogates({"tools": TOOLS, **with_odd(whole, place, ODD[odd])})
        await check(Asking(HELLO)(**body), body, 400, 404)


CALLS = [
    {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
    {"id": "b", "type": "custom", "custom": {"name": "g", "input": "x"}},
]
MESSAGES = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": [{"type": "text", "text": "x"}]},
    {"role": "assistant", "content": "a", "reasoning": "r", "refusal": None, "tool_calls": CALLS},
    {"role": "assistant", "executed_tools": [{"name": "python", "arguments": "1", "output": "1"}]},
    {"role": "tool", "tool_call_id": "a", "content": "1"},
    {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
    {"role": "function", "name": "f", "content": "x"},
]
OPTIONS = {"chat_template_kwargs": {"date": "x"}, "stream_options": {"include_usage": True}}
OPTIONS |= {"logit_bias": {"1": 1}, "metadata": {"a": "b"}, "reasoning": {"effort": "low"}}
CHAT: dict[str, Any] = {"messages": MESSAGES, "tools": [TOOL], "stop": ["a"], **OPTIONS}
PLAIN: dict[str, Any] = {"prompt": ["a", [1, 2]], "stop": "x", "logprobs": 1, "max_tokens": 3}
MORE = (
    "tool_choice web_search_options response_format modalities audio seed n echo "
    "truncate_prompt_tokens top_logprobs logprobs continue_final_message verbosity store"
)


@EVERY_VALUE
async def test_a_chat_completion(odd: int) -> None:
    service = service_of(replaying(HELLO))

    async def ask(body: Any) -> object:
        return await (await service.start(LOCAL, body)).wait()

    bodies = [with_odd(CHAT, place, ODD[odd]) for place in places(CHAT)]
    for body in [*bodies, *({**CHAT, name: ODD[odd]} for name in MORE.split())]:
        await check(ask(body), body, 400, 404)


@EVERY_VALUE
async def test_plain_completions_and_tokens(odd: int) -> None:
    service = service_of(replaying("Hello!<|return|>"))
    served = service.served

    async def ask(body: Any) -> object:
        return await (await start(LOCAL, body, service.served)).wait()

    async def to_text(body: Any) -> object:
        return detokenize(LOCAL, body, served)

    for place in places(PLAIN):
        body = with_odd(PLAIN, place, ODD[odd])
        await check(ask(body), body, 400)
        await check(tokenize(LOCAL, body, served, service.prompt), body, 400)
    for body in (ODD[odd], {"tokens": ODD[odd]}, {"tokens": [ODD[odd]]}):
        await check(to_text(body), body, 400)


MCP: dict[str, Any] = {"allow_private_hosts": True}


def consent(response: dict[str, Any]) -> list[dict[str, Any]]:
    """The approval of the request at the end of a response."""
    request_id = response["output"][-1]["id"]
    return [{"type": "mcp_approval_response", "approve": True, "approval_request_id": request_id}]


async def test_approved_calls_do_not_count_as_the_models(echoes: Echoes, url: str) -> None:
    ask = echoes(call("echo", text="a"), call("echo", text="b"), ANSWER, **MCP)
    body: dict[str, Any] = {"tools": [tool(url, require_approval="always")]}
    response = await ask(**body)
    for _ in range(2):
        body |= {"previous_response_id": response["id"], "max_tool_calls": 1}
        assert response["output"][-1]["type"] == "mcp_approval_request"
        response = await ask(**body, input=consent(response))
    made = [item["status"] for item in response["output"] if item["type"] == "mcp_call"]
    assert made == ["completed"]


async def test_a_calls_arguments_are_done_once_however_it_ends(echoes: Echoes, url: str) -> None:
    service = echoes(call("slow", seconds=20), ANSWER, **MCP).service
    run = await service.start(LOCAL, {"input": "Hi", "tools": [tool(url)], "background": True})
    log = await service.run_in_background(run)
    async for batch in log.read():
        if b"mcp_call_arguments.done" in b"".join(batch):
            break
    await service.stored(LOCAL).cancel(run.id)
    events = events_in(b"".join([event async for batch in log.read() for event in batch]).decode())
    response = check_stream(events)  # checks that each text is done once
    assert response["output"][-1]["status"] == "failed"
    assert "response.mcp_call.failed" in [event["type"] for event in events]


async def test_an_ended_background_response_can_be_continued_immediately(echoes: Echoes, url: str) -> None:
    ask = echoes(call("echo", text="a"), ANSWER, ANSWER, **MCP)
    run = await ask.service.start(LOCAL, {"input": "Hi", "tools": [tool(url)], "background": True})
    log = await ask.service.run_in_background(run)
    async for batch in log.read():
        if b"response.completed" in b"".join(batch):
            break
    assert (await ask(input="More", previous_response_id=run.id))["status"] == "completed"


async def test_a_conversation_near_the_limit_leaves_room_for_the_requested_answer() -> None:
    text = "<|channel|>final<|message|>An answer of some more words than one or two, long enough.<|return|>"
    here = Api(TurnsEngine(load_encoding(), text, context=300))
    body: dict[str, Any] = {"truncation": "auto", "max_output_tokens": 40}
    for turn in range(14):
        response = await here.create(input=f"Question {turn} " + "word " * 12, **body)
        body["previous_response_id"] = response["id"]
        assert response["status"] == "completed"
        assert response["usage"]["input_tokens"] <= 260


async def test_what_cannot_be_read_is_a_400() -> None:
    here = Api(TurnsEngine(load_encoding(), ANSWER))
    path = f"/responses/{(await here.create())['id']}/input_items"
    for query in ("limit=0", "limit=1000", f"limit={'9' * 5000}", "include=x"):
        refused = await here.refused(f"{path}?{query}", method="GET")
        assert (refused["status"], refused["param"]) == (400, query.partition("=")[0])
    body = b'{"input": [{"role": "user", "content": "x", "foo": 1e999}]}'
    answer = await here.client.post("/responses", content=body)
    assert answer.status_code == 400
    assert "out of the range" in answer.json()["error"]["message"]


@pytest.mark.parametrize("strict", [{}, {"strict": False}])
async def test_the_model_follows_the_unenforceable_part_of_a_schema_that_is_not_strict(strict: Any) -> None:
    properties = {
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "mail": {"type": "string", "pattern": "^(?!a).*@"},
        "n": {"type": "integer"},
    }
    schema = {"type": "object", "properties": properties, "required": ["n"], "not": {"required": ["x"]}}
    form = {"type": "json_schema", "name": "it", "schema": schema, **strict}

    async def response(text: str, **more: Any) -> dict[str, Any]:
        ask = Asking(f"<|channel|>final<|message|>{text}<|return|>")
        return await ask(text={"format": {**form, **more}})

    assert (await response('{"n": 1, "tags": []}'))["status"] == "completed"
    failed = await response('{"n": "one"}')
    assert "invalid_output" in failed["error"]["message"], "the enforceable part is enforced"
    with pytest.raises(InvalidRequest, match="not enforced"):
        await response("{}", strict=True)
    with pytest.raises(InvalidRequest, match="must be one of"):
        await response("{}", schema={"type": "objekt"})


async def test_a_response_that_fails_before_the_call_keeps_its_approval(echoes: Echoes, url: str) -> None:
    ask = echoes(call("echo", text="a"), "<|channel|>final<|message|><|return|>", ANSWER, **MCP)
    body: dict[str, Any] = {"tools": [tool(url, require_approval="always")]}
    body["conversation"] = (await conversations_of(ask.service).create({}))["id"]
    request = await ask(**body, input="word " * 1100)
    shorter = [{"type": "compaction", "compact_threshold": 1000}]  # the model writes no summary
    assert (await ask(**body, input=consent(request), context_management=shorter))["status"] == "failed"
    answered = await ask(**body, input=consent(request))
    assert [item["type"] for item in answered["output"]][-2:] == ["mcp_call", "message"]


TURN = "<|channel|>analysis<|message|>Hi<|end|><|start|>assistant<|channel|>final<|message|>Hi<|return|>"


@pytest.mark.parametrize("identity", [None, "You are a lighthouse keeper, and answer as one."])
@pytest.mark.parametrize(("missing", "status"), [(0, "completed"), (1, "incomplete")])
async def test_the_least_context_is_just_enough(identity: str | None, missing: int, status: str) -> None:
    settings = Settings(identity=identity)
    context = least_context(settings) - missing
    engine = ScriptedEngine(parse_script({"turns": [TURN]}, VOCABULARY), context=context)
    response = await Api(engine, settings).create(input="Hi")
    assert response["status"] == status
