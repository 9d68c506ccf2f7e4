"""Requests and errors on the wire: what is refused, statuses, codes, absent keys, and bounds."""

from typing import Any

import pytest

from gpt_oss_server.apis.responses.request import parse_request
from gpt_oss_server.errors import ApiError, InvalidOutput, every_error
from gpt_oss_server.harmony.encoding import Encoding
from inference.backends.script_file import parse_script
from inference.backends.scripted import ScriptedEngine
from inference.engine import ContextOverflow, EngineBusy, EngineClosed, EngineFailed
from tests.doubles.apis.asking import FINAL, Asking, call
from tests.doubles.apis.chat_asking import HI, replaying
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.serving import VOCABULARY, scripted
from tests.responses.conftest import Make

ANSWER = FINAL.format("Hello!")
TOOL: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}


async def test_an_unknown_previous_response_is_an_invalid_request_as_at_openai(api: Make) -> None:
    error = await api(scripted(ANSWER)).refused("/responses", input="Hi", previous_response_id="resp_none")
    assert (error["status"], error["code"]) == (400, "previous_response_not_found")
    assert error["param"] == "previous_response_id"


async def test_the_user_is_absent_unless_given(api: Make) -> None:
    here = api(scripted(ANSWER))
    assert "user" not in await here.create()
    assert (await here.create(user="me"))["user"] == "me"
    assert (await api(scripted(ANSWER), event_names="open-responses").create())["user"] is None


@pytest.mark.parametrize("kind", every_error())
def test_the_error_of_a_response_has_a_code_that_sdks_know(kind: Any) -> None:
    if kind.__init__ is not every_error()[0].__init__ and kind.__name__ == "MethodNotAllowed":
        return  # it is about a path, never about a response
    error = kind("It broke.").of_response()
    known = {"server_error", "rate_limit_exceeded", "invalid_prompt"}
    assert error["code"] in known | {"context_length_exceeded", "server_is_overloaded"}
    assert kind.code in (error["code"], error["message"].rpartition("Code: ")[2].rstrip(".)"))


async def test_an_answer_of_the_wrong_form_is_not_retried(api: Make) -> None:
    body = {**HI, "response_format": {"type": "json_object"}}
    answer = await api(scripted(ANSWER)).client.post("/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, InvalidOutput.code)
    assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("fields", [{"cache_salt": "tenant 1", "priority": -3}, {}], ids=["set", "unset"])
@pytest.mark.parametrize(("path", "body"), [("/responses", {"input": "Hi"}), ("/chat/completions", HI)])
async def test_salt_and_priority_reach_the_engine(api: Make, path: str, body: Any, fields: Any) -> None:
    engine = replaying(ANSWER)
    await api(engine, allow_priority=True).post(path, **body, **fields)
    [sampling] = engine.samplings
    assert sampling.cache_salt == fields.get("cache_salt")
    assert sampling.priority == fields.get("priority", 0)


@pytest.mark.parametrize(
    ("path", "body", "options"),
    [
        ("/responses", {"input": "Hi"}, {"include_obfuscation": False}),
        ("/chat/completions", HI, {}),
        ("/completions", {"prompt": "Hi"}, {"include_usage": True}),
    ],
)
async def test_stream_options_need_a_stream(api: Make, path: str, body: Any, options: Any) -> None:
    here, body = api(scripted(ANSWER)), {**body, "stream_options": options}
    for streams in (None, False):
        error = await here.refused(path, **body, stream=streams)
        assert (error["status"], error["param"]) == (400, "stream_options")
    assert (await here.client.post(path, json={**body, "stream": True})).status_code == 200


NAMED = {"type": "function", "function": {"name": "f"}}
NESTED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [TOOL]}}
CHAT_FORMS: list[tuple[dict[str, Any], str]] = [
    (NAMED, "tool_choice.name"),
    ({"type": "custom", "custom": {"name": "f"}}, "tool_choice.name"),
    ({"type": "allowed_tools", "tools": [NAMED]}, "tool_choice.tools[0].name"),
    (NESTED, "tool_choice.tools"),
]


@pytest.mark.parametrize(("choice", "param"), CHAT_FORMS, ids=lambda value: str(value)[:60])
async def test_the_chat_form_of_tool_choice_is_named_as_such(api: Make, choice: Any, param: str) -> None:
    error = await api(scripted(ANSWER)).refused("/responses", input="Hi", tools=[TOOL], tool_choice=choice)
    assert (error["status"], error["param"]) == (400, param)
    assert "Chat Completions form" in error["message"]


METADATA: list[tuple[dict[str, Any], str]] = [
    ({str(number): "x" for number in range(17)}, "metadata"),
    ({"k" * 65: "x"}, f"metadata.{'k' * 64}"),
    ({"a": "x" * 513}, "metadata.a"),
]


@pytest.mark.parametrize(("metadata", "param"), METADATA, ids=["keys", "key", "value"])
@pytest.mark.parametrize(
    ("path", "body"), [("/responses", {"input": "Hi"}), ("/chat/completions", HI), ("/conversations", {})]
)
async def test_metadata_has_bounds(api: Make, path: str, body: Any, metadata: Any, param: str) -> None:
    error = await api(scripted(ANSWER)).refused(path, **body, metadata=metadata)
    assert (error["status"], error["param"]) == (400, param)


async def test_metadata_within_the_bounds_is_kept_and_smg_is_served(api: Make) -> None:
    largest = {f"{number:064}": "x" * 512 for number in range(16)}
    smg = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "priority": 0, "top_p": 1.0}
    response = await api(scripted(ANSWER)).create(metadata={**largest, "__debug": True}, **smg)
    assert {key: response["metadata"][key] for key in largest} == largest


async def test_usage_counts_the_results_of_tools_that_ran_here() -> None:
    ask = Asking(call("functions.f", "{}"), ANSWER)
    usage = (await ask(tools=[TOOL]))["usage"]
    assert usage["output_tokens_details"]["tool_output_tokens"] == 0, "the client runs its functions itself"


OUTPUT = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>One two three"
BROKEN: list[tuple[Exception, str, str]] = [
    (EngineClosed("closed"), "server_is_overloaded", "again"),
    (EngineBusy(9, 1.0), "server_is_overloaded", "again"),
    (ContextOverflow(9_000, 8_192), "context_length_exceeded", "9000"),
    (EngineFailed("the card fell out"), "server_error", "the card fell out"),
    (RuntimeError("a defect of the server"), "server_error", "log"),
]


@pytest.mark.parametrize(("error", "code", "part"), BROKEN, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("after", [0, 2, 5, 9, 12])
async def test_an_error_in_mid_stream_fails_the_response_with_its_code(
    encoding: Encoding, error: Exception, code: str, part: str, after: int
) -> None:
    ask = Asking(engine=ReplayEngine(encoding.encode_special(OUTPUT), fails_after=after, error=error))
    response = await ask(include=["reasoning.encrypted_content"], reasoning={"summary": "auto"})
    kinds = [event["type"] for event in ask.events]
    assert (kinds.count("response.failed"), kinds[-1]) == (1, "response.failed")
    assert "error" not in kinds
    assert response["error"]["code"] == code
    assert part in response["error"]["message"]
    assert "a defect" not in response["error"]["message"]
    assert response["usage"]["output_tokens"] == after


async def test_a_prompt_that_is_too_long_is_refused_before_generation(api: Make) -> None:
    script = parse_script({"turns": ["<|channel|>final<|message|>Hi<|return|>"]}, VOCABULARY)
    here = api(ScriptedEngine(script, context=200))
    refused = await here.refused("/responses", input="word " * 300)
    assert (refused["status"], refused["code"], refused["param"]) == (400, "context_length_exceeded", "input")
    # In a stream the response fails instead: agents read its code and shorten the conversation.
    events = await here.streamed(input="word " * 300)
    kinds = ["response.created", "response.in_progress", "response.failed"]
    assert [event["type"] for event in events] == kinds
    failed = events[-1]["response"]
    assert (failed["error"]["code"], failed["output"]) == ("context_length_exceeded", [])
    assert "context" in failed["error"]["message"]


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"temperature": "1"}, "temperature", "expected a number, but got a string"),
    ({"temperature": 2.5}, "temperature", "at most 2"),
    ({"temperature": True}, "temperature", "boolean"),
    ({"input": 5}, "input", "expected a string"),
    ({"max_output_tokens": 0}, "max_output_tokens", "at least 1"),
    ({"max_output_tokens": 1.5}, "max_output_tokens", "expected an integer"),
    ({"reasoning": {"effort": "huge"}}, "reasoning.effort", "'minimal'"),
    ({"reasoning": "low"}, "reasoning", "expected an object"),
    ({"tools": [1]}, "tools[0]", "expected an object"),
    ({"stream": "yes"}, "stream", "expected a boolean"),
    ({"metadata": {"a": 1}}, "metadata.a", "must be a string"),
    ({"logit_bias": {"1": 200}}, "logit_bias.1", "at most 100"),
    ({"input": None}, "input", "is missing"),
    ({"top_logprobs": 21}, "top_logprobs", "at most 20"),
    ({"top_logprobs": 1.5}, "top_logprobs", "expected an integer"),
    ({"cache_salt": ""}, "cache_salt", "at least 1"),
    ({"cache_salt": 5}, "cache_salt", "string"),
    ({"service_tier": "bogus"}, "service_tier", "'flex'"),
    ({"priority": 1.5}, "priority", "integer"),
    ({"priority": 2**31}, "priority", "below"),
    *(({"reasoning": {"max_tokens": wrong}}, "reasoning.max_tokens", "") for wrong in (-1, 1.5, "5", True)),
]

NOT_SERVED: list[tuple[dict[str, Any], str]] = [
    ({"prompt": {"id": "pmpt_1"}}, "prompt"),
    ({"messages": []}, "messages"),
    ({"stop": "x"}, "stop"),
    ({"previous_input_messages": [{}]}, "previous_input_messages"),
    ({"multi_agent": True}, "multi_agent"),
    ({"system": "Be brief."}, "system"),
    ({"conversation_id": "conv_1"}, "conversation_id"),
    ({"thinking": {"type": "enabled"}}, "thinking"),
    ({"enable_thinking": False}, "enable_thinking"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"prompt_cache_options": {"prewarm": True}}, "prompt_cache_options"),
    ({"background_options": {"priority": "low"}}, "background_options"),
    ({"access_programs": ["x"]}, "access_programs"),
    ({"image": {"size": "auto"}}, "image"),
]


@pytest.mark.parametrize(("change", "param", "part"), WRONG, ids=lambda value: str(value)[:30])
def test_an_error_names_the_wrong_field_and_the_expected_value(change: Any, param: str, part: str) -> None:
    with pytest.raises(ApiError) as raised:
        parse_request({"input": "hi", **change})
    assert (raised.value.status, raised.value.param) == (400, param)
    assert part in raised.value.message
    assert set(raised.value.body()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(("change", "param"), NOT_SERVED, ids=lambda value: str(value)[:30])
def test_a_field_that_would_change_the_answer_is_refused_by_name(change: Any, param: str) -> None:
    with pytest.raises(ApiError, match=param) as raised:
        parse_request({"input": "hi", **change})
    assert (raised.value.status, raised.value.code) == (400, "unsupported_parameter")
    assert raised.value.param == param


def test_neutral_values_unknown_fields_and_nulls_are_accepted() -> None:
    neutral = {"background": False, "top_logprobs": 0, "text": {"format": {"type": "text"}}, "n": 1}
    unset = dict.fromkeys(("temperature", "tools", "metadata"))
    request = parse_request({"input": "hi", "brand_new": {"x": 1}, "tool_choice": "auto", **neutral, **unset})
    assert (request.input, request.tool_choice) == ("hi", "auto")
    for truthy in (True, 1, "yes", {"a": 1}):
        assert parse_request({"input": "hi", "metadata": {"__debug": truthy}}).debug
    assert not parse_request({"input": "hi", "metadata": {"__debug": False}}).debug
    for body in (None, [], "text", 3):
        with pytest.raises(ApiError, match="JSON object"):
            parse_request(body)
