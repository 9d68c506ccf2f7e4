"""An invalid body gets a clear error; no field that would change the answer is ignored."""

from __future__ import annotations

from typing import Any

import pytest

from gpt_oss_server.apis.responses.request import check_included, parse_request
from gpt_oss_server.errors import ApiError, InvalidRequest
from gpt_oss_server.items.table import Kinds

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
]


@pytest.mark.parametrize(("change", "param", "part"), WRONG, ids=lambda value: str(value)[:30])
def test_an_error_names_the_wrong_field_and_the_expected_value(change: Any, param: str, part: str) -> None:
    with pytest.raises(ApiError) as raised:
        parse_request({"input": "hi", **change})
    assert (raised.value.status, raised.value.param) == (400, param)
    assert part in raised.value.message
    assert set(raised.value.body()["error"]) == {"message", "type", "param", "code"}


def test_an_unknown_value_of_include_is_refused_with_the_known_ones() -> None:
    known = r"does not know 'everything'\. .*web_search_call\.results"
    with pytest.raises(InvalidRequest, match=known) as raised:
        check_included(["everything"], Kinds.of())
    assert raised.value.param == "include"


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
