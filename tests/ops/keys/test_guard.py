"""Requests with keys, without, and with guessed ones, as clients send them: HTTP, WebSocket and the SDK."""

import logging
from collections.abc import Iterator

import httpx
import openai
import pytest
from openai import OpenAI
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from gpt_oss_server.caller import guesses as guesses_module
from gpt_oss_server.caller.guesses import Guesses
from gpt_oss_server.caller.key_file import digest_of
from gpt_oss_server.settings import Settings
from tests.doubles.apis.keyed import socket_status
from tests.doubles.observing.figures import scraped_at
from tests.doubles.serving import HELLO, scripted, serving
from tests.doubles.tools.scripted_tool import Clock

KEY, OTHER = "sk-2b7e151628aed2a6", "sk-9f86d081884c7d65"
BODY = {"input": "Hi"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(scripted(HELLO), Settings(api_key=(KEY, "sk-other"))) as base:
        yield base


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
    paths = httpx.get(f"{url.removesuffix('/v1')}/openapi.json").json()["paths"]
    public = {"/health", "/ready", "/live", "/metrics"}
    routes = [(method, path) for path in paths.keys() - public for method in paths[path]]
    assert len(routes) > 20
    for method, path in (*routes, *ODD_PATHS):
        assert httpx.request(method, url.removesuffix("/v1") + path).status_code == 401, (method, path)


@pytest.mark.parametrize(
    "path", ["/", "/web/main.js", "/docs", "/docs/start.js", "/openapi.json", "/health", "/ready"]
)
def test_what_a_probe_or_a_page_needs_is_public(url: str, path: str) -> None:
    assert httpx.get(url.removesuffix("/v1") + path).status_code == 200
    assert httpx.head(url.removesuffix("/v1") + path).status_code in (200, 405)


def test_a_websocket_needs_a_key_too(url: str) -> None:
    given = (bearer(KEY), {"X-Api-Key": KEY}, bearer("wrong"))
    assert [socket_status(url, additional_headers=headers) for headers in given] == [101, 101, 401]
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


def test_a_server_without_keys_takes_any_key_and_none() -> None:
    with serving(scripted(HELLO)) as base:
        assert httpx.post(f"{base}/responses", json=BODY).status_code == 200
        answer = httpx.post(f"{base}/responses", json=BODY, headers=bearer("any"))
        assert answer.status_code == 200
        assert not [name for name in answer.headers if name.startswith("x-ratelimit")]


MOST = 5
FEW = 2  # over HTTP: the next wrong key is looked up half a minute later, after the test


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def guesses(clock: Clock) -> Guesses:
    return Guesses(MOST, clock)


def exhaust(guesses: Guesses, address: str) -> None:
    for _ in range(MOST):
        assert not wait(guesses, address)
        guesses.wrong(address)


def wait(guesses: Guesses, address: str, key: str = "sk-guess") -> float:
    return guesses.seconds_to_wait(address, digest_of(key))


def test_an_address_waits_until_its_allowance_has_grown(guesses: Guesses, clock: Clock) -> None:
    exhaust(guesses, "192.0.2.1")
    assert wait(guesses, "192.0.2.1") == pytest.approx(60 / MOST)
    clock.now += 60 / MOST - 1
    assert wait(guesses, "192.0.2.1") == pytest.approx(1)
    clock.now += 1.001
    assert not wait(guesses, "192.0.2.1")
    guesses.wrong("192.0.2.1")
    assert wait(guesses, "192.0.2.1")
    clock.now += 60
    exhaust(guesses, "192.0.2.1")


def test_other_addresses_and_keys_that_were_right_from_there_do_not_wait(guesses: Guesses) -> None:
    guesses.right("192.0.2.1", digest_of(KEY))
    exhaust(guesses, "192.0.2.1")
    assert not wait(guesses, "192.0.2.2")
    assert not wait(guesses, "192.0.2.1", KEY)
    assert wait(guesses, "192.0.2.1", OTHER)


@pytest.mark.parametrize(
    ("address", "same", "other"),
    [
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", "2001:db8:0:2::1"),
        ("192.0.2.1", "::ffff:192.0.2.1", "::ffff:192.0.2.2"),
        ("fe80::1%eth0", "fe80::2%eth0", "fe81::1"),
        ("", "", "unknown"),
    ],
)
def test_addresses_of_a_client_count_together(guesses: Guesses, address: str, same: str, other: str) -> None:
    exhaust(guesses, address)
    assert wait(guesses, same)
    assert not wait(guesses, other)


def test_memory_is_bounded(guesses: Guesses, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guesses_module, "_MOST", 100)
    for number in range(1000):
        guesses.wrong(f"10.0.{number // 250}.{number % 250}")
        guesses.right("10.9.9.9", digest_of(str(number)))
    assert len(guesses._wrong) == len(guesses._right) == 100
    exhaust(guesses, "192.0.2.1")
    assert wait(guesses, "192.0.2.1"), "the newest stay"


def test_each_burst_of_an_address_is_one_line_of_the_log(
    guesses: Guesses, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(2):
        exhaust(guesses, "192.0.2.1")
        clock.now += 60 / MOST + 0.01
        guesses.wrong("192.0.2.1")
        clock.now += 120
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert "Wrong API keys from 192.0.2.1: 5 within a minute" in lines[0]


# Over HTTP and WebSocket


@pytest.fixture
def limited() -> Iterator[str]:
    settings = Settings(api_key=(KEY, OTHER), wrong_keys_per_minute=FEW)
    with serving(scripted(HELLO, loop=True), settings) as base:
        yield base


def post(url: str, key: str, **headers: str) -> httpx.Response:
    return httpx.post(f"{url}/responses", json=BODY, headers={**bearer(key), **headers})


def test_guesses_get_429_and_the_same_answer_whether_right_or_wrong(limited: str) -> None:
    assert post(limited, KEY).status_code == 200
    statuses = [post(limited, f"sk-guess-{number}").status_code for number in range(FEW + 10)]
    assert statuses[:FEW] == [401] * FEW
    assert statuses[FEW:] == [429] * 10
    assert post(limited, "sk-guess").status_code == 429
    wrong, right = post(limited, "sk-guess"), post(limited, OTHER)
    assert wrong.status_code == right.status_code == 429
    assert wrong.json()["error"]["code"] == "too_many_wrong_keys"
    assert {**wrong.json()["error"], "message": ""} == {**right.json()["error"], "message": ""}
    assert 1 <= int(wrong.headers["retry-after"]) <= 60 / FEW
    assert "x-should-retry" not in wrong.headers
    assert post(limited, KEY).status_code == 200
    assert httpx.post(f"{limited}/responses", json={}).status_code == 401, "no key at all is no guess"
    assert post(limited, OTHER, **{"X-Forwarded-For": "192.0.2.7"}).status_code == 200, "of a proxy's client"
    figures = scraped_at(limited.removesuffix("/v1"))
    assert figures.own("wrong_api_keys_total", outcome="refused") == statuses.count(401)
    assert figures.own("wrong_api_keys_total", outcome="limited") == statuses.count(429) + 3


def test_handshakes_of_websockets_count_too(limited: str) -> None:
    keys = [*(f"sk-guess-{number}" for number in range(FEW)), "sk-guess", OTHER]
    statuses = [socket_status(limited, additional_headers=bearer(key)) for key in keys]
    assert statuses == [401] * FEW + [429] * 2
    assert post(limited, "sk-guess").status_code == 429
