"""Requests with and without keys, as clients send them: over HTTP, WebSocket and with the official SDK."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from gpt_oss_server.app import create_app
from gpt_oss_server.http.guards.keys import KeyGuard
from gpt_oss_server.http.guards.limits import LimitGuard
from gpt_oss_server.settings import Settings
from tests.doubles.serving import scripted, serving

HELLO = "<|channel|>final<|message|>Hello!<|return|>"
KEY = "sk-2b7e151628aed2a6"
BODY = {"input": "Hi"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(scripted(HELLO), Settings(api_key=(KEY, "sk-other"))) as base:
        yield base


def root(url: str) -> str:
    return url.removesuffix("/v1")


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    "headers",
    [
        *(bearer(KEY), {"authorization": f"bearer  {KEY}"}, {"X-Api-Key": KEY}),
        *({"X-Api-Key": KEY, "Authorization": "Basic dXNlcjpwYXNz"}, {"X-Api-Key": "wrong", **bearer(KEY)}),
    ],
)
def test_a_right_key_is_served(url: str, headers: dict[str, str]) -> None:
    assert httpx.post(f"{url}/responses", json=BODY, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        *({"Authorization": word} for word in ("", "Bearer", KEY, f"Basic {KEY}", f"Bearer {KEY} {KEY}")),
        *({}, bearer(f"{KEY}x"), bearer(KEY[:-1]), {**bearer("wrong"), "X-Api-Key": KEY}),
        *({"X-Api-Key": KEY.upper()}, {"Cookie": f"key={KEY}"}),
    ],
)
def test_any_other_is_refused_as_sdks_expect_it(url: str, headers: dict[str, str]) -> None:
    answer = httpx.post(f"{url}/responses?api_key={KEY}", json=BODY, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["x-should-retry"] == "false"
    assert "x-request-id" in answer.headers
    error = {"type": "invalid_request_error", "param": None, "code": "invalid_api_key"}
    assert answer.json()["error"].items() >= error.items()
    assert KEY not in answer.text


ODD_PATHS = (
    *(("POST", "/v1/responses/"), ("OPTIONS", "/v1/responses"), ("GET", "/v1//responses/resp_1")),
    *(("GET", "/nothing/here"), ("POST", "/health"), ("POST", "/"), ("GET", "/web"), ("GET", "//health")),
    *(("POST", "/render"), ("GET", "/tokenizer_info")),
)


def test_every_path_needs_a_key_but_those_that_are_public(url: str) -> None:
    paths = httpx.get(f"{root(url)}/openapi.json").json()["paths"]
    public = {"/health", "/ready", "/live", "/metrics"}
    routes = [(method, path) for path in paths.keys() - public for method in paths[path]]
    assert len(routes) > 20
    for method, path in (*routes, *ODD_PATHS):
        assert httpx.request(method, root(url) + path).status_code == 401, (method, path)


@pytest.mark.parametrize(
    "path", ["/", "/web/main.js", "/docs", "/docs/start.js", "/openapi.json", "/health", "/ready"]
)
def test_what_a_probe_or_a_page_needs_is_public(url: str, path: str) -> None:
    assert httpx.get(root(url) + path).status_code == 200
    assert httpx.head(root(url) + path).status_code in (200, 405)


def socket_status(url: str, headers: dict[str, str]) -> int:
    try:
        with connect(url.replace("http:", "ws:") + "/responses", additional_headers=headers):
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


def test_a_websocket_needs_a_key_too(url: str) -> None:
    statuses = [socket_status(url, headers) for headers in (bearer(KEY), {"X-Api-Key": KEY}, bearer("wrong"))]
    assert statuses == [101, 101, 401]
    with pytest.raises(InvalidStatus) as caught, connect(url.replace("http:", "ws:") + "/responses"):
        pass
    assert caught.value.response.headers["www-authenticate"] == "Bearer"
    assert b'"invalid_api_key"' in (caught.value.response.body or b"")


def test_a_page_of_this_machine_can_read_the_refusal_and_ask_before_it_sends_its_key(url: str) -> None:
    page = {"Origin": "http://localhost:3000"}
    refused = httpx.post(f"{url}/responses", json=BODY, headers=page)
    assert refused.status_code == 401
    assert "access-control-allow-origin" in refused.headers
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    assert httpx.options(f"{url}/responses", headers={**page, **asked}).status_code == 200


def test_the_official_sdk_raises_its_error_without_retrying(url: str) -> None:
    with OpenAI(base_url=url, api_key="wrong") as client:
        calls: list[httpx.Request] = []
        client._client.event_hooks["request"].append(calls.append)
        with pytest.raises(openai.AuthenticationError) as caught:
            client.responses.create(model="scripted", input="Hi")
        assert (len(calls), caught.value.code) == (1, "invalid_api_key")
    with OpenAI(base_url=url, api_key=KEY) as client:
        assert client.responses.create(model="scripted", input="Hi").output_text == "Hello!"


def test_no_key_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with serving(scripted(HELLO), Settings(api_key=(KEY,), log_level="debug", access_log=True)) as base:
        for key in (KEY, f"{KEY}-wrong"):
            for headers in (bearer(key), {"X-Api-Key": key}):
                httpx.post(f"{base}/responses", json=BODY, headers=headers)
    assert KEY not in caplog.text


def test_a_server_without_keys_takes_any_key_and_none() -> None:
    with serving(scripted(HELLO)) as base:
        assert httpx.post(f"{base}/responses", json=BODY).status_code == 200
        answer = httpx.post(f"{base}/responses", json=BODY, headers=bearer("any"))
        assert answer.status_code == 200
        assert not [name for name in answer.headers if name.startswith("x-ratelimit")]


def test_a_server_without_keys_and_limits_has_no_layer_for_them() -> None:
    def layers(**settings: Any) -> set[object]:
        return {each.cls for each in create_app(scripted(HELLO), Settings(**settings)).user_middleware}

    assert not layers() & {KeyGuard, LimitGuard}
    assert layers(requests_per_minute=5) & {KeyGuard, LimitGuard} == {LimitGuard}
    assert layers(api_key=(KEY,)) >= {KeyGuard, LimitGuard}
