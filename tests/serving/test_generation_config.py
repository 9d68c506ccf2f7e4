"""`generation_config`, the JSON text of transformers' clients: its values reach the request."""

import json
from typing import Any

import pytest

from gpt_oss_server.apis.chat.request import parse_request as parse_chat
from gpt_oss_server.apis.completions.request import parse_request as parse_completion
from gpt_oss_server.apis.responses.request import parse_request as parse_response
from gpt_oss_server.errors import UnsupportedField
from tests.doubles.apis.chat_asking import HI

SAMPLING = {"temperature": 0.7, "top_k": 40, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.2}
WITHOUT_EFFECT = {"num_beams": 1, "pad_token_id": 199999, "transformers_version": "5.0.0", "typical_p": None}
CONFIG: dict[str, Any] = {
    "max_new_tokens": 20,
    "min_new_tokens": 3,
    "do_sample": True,
    "eos_token_id": [200002, 199999],
    **SAMPLING,
    **WITHOUT_EFFECT,
}


@pytest.mark.parametrize("config", [json.dumps(CONFIG), CONFIG], ids=["text", "object"])
def test_every_api_takes_its_values(config: Any) -> None:
    given = {"generation_config": config}
    chat, plain = parse_chat({**HI, **given}), parse_completion({"prompt": "hi", **given})
    response = parse_response({"input": "hi", **given})
    assert (chat.limit, plain.max_tokens, response.max_output_tokens) == (20, 20, 20)
    for request in (chat, plain, response):
        assert {name: getattr(request, name) for name in SAMPLING} == SAMPLING
        assert (request.min_tokens, request.stop_token_ids) == (3, [200002, 199999])


def test_a_field_of_the_request_wins_and_no_sampling_is_a_temperature_of_zero() -> None:
    chat = parse_chat({**HI, "max_tokens": 5, "temperature": 1, "generation_config": CONFIG})
    assert (chat.limit, chat.temperature, chat.top_p) == (5, 1.0, 0.9)
    config = {"do_sample": False, "temperature": 0.7, "stop_strings": ["\n"], "num_return_sequences": 2}
    chat = parse_chat({**HI, "generation_config": config})
    assert (chat.temperature, chat.stops, chat.n) == (0.0, ("\n",), 2)


def test_a_value_that_this_api_has_no_field_for_is_refused() -> None:
    with pytest.raises(UnsupportedField) as refused:
        parse_response({"input": "hi", "generation_config": {"stop_strings": ["x"]}})
    assert refused.value.param == "generation_config.stop_strings"
