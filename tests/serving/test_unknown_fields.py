"""Fields that the server does not know: a header and a log line, a 400, or nothing; `generation_config`."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from gpt_oss_server.apis.chat.request import CreateChatCompletion
from gpt_oss_server.apis.chat.request import parse_request as parse_chat
from gpt_oss_server.apis.completions.request import parse_request as parse_completion
from gpt_oss_server.apis.responses.request import parse_request as parse_response
from gpt_oss_server.errors import UnsupportedField
from gpt_oss_server.http import unknown_fields
from gpt_oss_server.http.unknown_fields import HEADER
from gpt_oss_server.http.unserved import WITHOUT_EFFECT
from gpt_oss_server.settings import Settings
from tests.doubles.apis.chat_asking import HI
from tests.doubles.serving import scripted, serving

ANSWER = "<|channel|>final<|message|>Hello!<|return|>"
APIS: list[tuple[str, dict[str, Any]]] = [
    ("chat/completions", HI),
    ("completions", {"prompt": "hi"}),
    ("responses", {"input": "hi"}),
    ("responses/compact", {"model": None, "input": "hi"}),
]
EVERY_API = pytest.mark.parametrize(("path", "body"), APIS, ids=[path for path, _ in APIS])


@pytest.fixture(autouse=True)
def _no_name_was_logged_before() -> None:
    unknown_fields._warn.cache_clear()


@contextmanager
def served(treatment: str) -> Iterator[str]:
    with serving(scripted(ANSWER, loop=True), Settings(unknown_fields=treatment)) as url:
        yield url


@pytest.fixture(scope="module")
def warning() -> Iterator[str]:
    with served("warn") as url:
        yield url


@EVERY_API
def test_a_header_names_them(warning: str, path: str, body: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, unknown_fields.__name__)
    for streams in (False, True):
        sent = {**body, "tmperature": 1, "zzz": 2, "stream": streams}
        answer = httpx.post(f"{warning}/{path}", json=sent)
        assert answer.status_code == 200
        assert answer.headers[HEADER] == "tmperature (did you mean temperature?), zzz"
    first, second = (record.getMessage() for record in caplog.records)  # each name once
    assert first.startswith("A request has the unknown field tmperature (did you mean temperature?). It has")
    assert "unknown field zzz." in second


@EVERY_API
def test_known_fields_are_not_named(warning: str, path: str, body: dict[str, Any]) -> None:
    harmless = {**dict.fromkeys(WITHOUT_EFFECT, "x"), "temperature": 1, "xtc_probability": 0}
    answer = httpx.post(f"{warning}/{path}", json={**body, **harmless})
    assert answer.status_code == 200, answer.text
    assert HEADER not in answer.headers


NESTED = [
    ("responses", "reasoning", "mode"),
    ("responses", "text", "verbose"),
    ("responses", "stream_options", "usage"),
    ("chat/completions", "reasoning", "mode"),
    ("chat/completions", "thinking", "depth"),
    ("chat/completions", "stream_options", "usage"),
    ("completions", "stream_options", "usage"),
]


@pytest.mark.parametrize(("path", "field", "name"), NESTED)
def test_fields_within_fields_are_checked_too(warning: str, path: str, field: str, name: str) -> None:
    needed = {"thinking": {"type": "enabled"}}.get(field, {})
    sent = {**dict(APIS)[path], "stream": True, field: {**needed, name: True}}
    answer = httpx.post(f"{warning}/{path}", json=sent)
    assert answer.headers[HEADER].startswith(f"{field}.{name}"), answer.text


OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("conversations", {}),
    ("conversations/{conversation}", {"metadata": {}}),
    ("conversations/{conversation}/items", {"items": [{"role": "user", "content": "hi"}]}),
    ("chat/completions/{completion}", {"metadata": {}}),
    ("responses/input_tokens", {"input": "hi"}),
    ("../render", {"input": "hi"}),
]


@pytest.mark.parametrize("treatment", ["warn", "reject"])
def test_requests_that_generate_nothing_are_checked_too(treatment: str) -> None:
    with served(treatment) as url, httpx.Client(base_url=url) as client:
        ids = {
            "conversation": client.post("conversations", json={}).json()["id"],
            "completion": client.post("chat/completions", json={**APIS[0][1], "store": True}).json()["id"],
        }
        for path, body in OTHERS:
            answer = client.post(path.format(**ids), json={**body, "zzz": 1})
            if treatment == "warn":
                assert (answer.status_code, answer.headers[HEADER]) == (200, "zzz"), path
            else:
                assert answer.json()["error"]["code"] == "unknown_parameter", path


@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses"])
def test_a_request_to_read_the_prompt_alone_generates_no_answer(warning: str, path: str) -> None:
    for prewarm, status in ((True, 400), (False, 200)):
        options = {"prompt_cache_options": {"prewarm": prewarm, "mode": "implicit"}}
        assert httpx.post(f"{warning}/{path}", json={**dict(APIS)[path], **options}).status_code == status


def test_entries_of_lists_and_options_of_the_template_and_of_the_form_are_checked_too(warning: str) -> None:
    entries = [{"type": "compaction"}, {"type": "compaction", "mode": 1}]
    answer = httpx.post(f"{warning}/responses", json={"input": "hi", "context_management": entries})
    assert answer.headers[HEADER] == "context_management[1].mode"
    options = {"chat_template_kwargs": {"reasoning_efort": "low", "enable_thinking": True}}
    body = {**HI, **options, "structured_outputs": {"choise": []}}
    assert httpx.post(f"{warning}/chat/completions", json=body).headers[HEADER] == (
        "structured_outputs.choise (did you mean structured_outputs.choice?), "
        "chat_template_kwargs.reasoning_efort (did you mean chat_template_kwargs.reasoning_effort?)"
    )


def test_a_hostile_name_cannot_break_the_header(warning: str) -> None:
    path, body = APIS[1]
    hostile = {"a\r\nx-evil: 1": 1, "🧠" * 500: 1, **{f"f{at:04}": 1 for at in range(150)}}
    answer = httpx.post(f"{warning}/{path}", json={**body, **hostile})
    assert "x-evil" not in answer.headers
    named = answer.headers[HEADER]
    assert named.startswith(r"a\r\nx-evil: 1, \U0001f9e0")
    assert named.endswith("142 more")
    assert len(named) < 2_000


@EVERY_API
def test_the_operator_can_refuse_them(path: str, body: dict[str, Any]) -> None:
    with served("reject") as url:
        refused = httpx.post(f"{url}/{path}", json={**body, "tmperature": 1})
        known = httpx.post(f"{url}/{path}", json={**body, "temperature": 1, "request_id": "1"})
    assert (refused.status_code, known.status_code) == (400, 200)
    assert refused.json()["error"] == {
        "message": "The field `tmperature` is unknown. Did you mean `temperature`?",
        "type": "invalid_request_error",
        "param": "tmperature",
        "code": "unknown_parameter",
    }


def test_the_operator_can_ignore_them(caplog: pytest.LogCaptureFixture) -> None:
    path, body = APIS[0]
    with served("ignore") as url:
        answer = httpx.post(f"{url}/{path}", json={**body, "tmperature": 1})
    assert answer.status_code == 200
    assert HEADER not in answer.headers
    assert not caplog.records


def test_a_websocket_refuses_them_too() -> None:
    with served("reject") as url, connect(f"{url.replace('http', 'ws', 1)}/responses") as socket:
        socket.send(json.dumps({"type": "response.create", "input": "hi", "tmperature": 1}))
        assert json.loads(socket.recv(20))["error"]["code"] == "unknown_parameter"
        socket.send(json.dumps({"type": "response.create", "input": "hi"}))
        assert json.loads(socket.recv(20))["type"] == "response.created"


def test_no_field_is_both_served_and_without_effect() -> None:
    served = {*CreateChatCompletion.model_fields, *WITHOUT_EFFECT}
    assert not served & set(CreateChatCompletion.not_served)


SAMPLING = {"temperature": 0.7, "top_k": 40, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.2}
CONFIG: dict[str, Any] = {
    **SAMPLING, "max_new_tokens": 20, "min_new_tokens": 3, "do_sample": True,
    "eos_token_id": [200002, 199999], "num_beams": 1, "pad_token_id": 199999, "transformers_version": "5.0.0",
    "typical_p": None,
}  # fmt: skip


@pytest.mark.parametrize("config", [json.dumps(CONFIG), CONFIG], ids=["text", "object"])
def test_every_api_takes_the_values_of_a_generation_config(config: Any) -> None:
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


def test_a_value_of_it_that_this_api_has_no_field_for_is_refused() -> None:
    with pytest.raises(UnsupportedField) as refused:
        parse_response({"input": "hi", "generation_config": {"stop_strings": ["x"]}})
    assert refused.value.param == "generation_config.stop_strings"
