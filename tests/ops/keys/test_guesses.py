"""Wrong keys by address: a guesser is slowed and learns nothing, and its neighbours are served."""

import logging
from collections.abc import Iterator

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from gpt_oss_server.caller import guesses as guesses_module
from gpt_oss_server.caller.guesses import Guesses
from gpt_oss_server.caller.key_file import digest_of
from gpt_oss_server.settings import Settings
from tests.doubles.observing.figures import scraped_at
from tests.doubles.serving import scripted, serving
from tests.doubles.tools.scripted_tool import Clock

HELLO = "<|channel|>final<|message|>Hello!<|return|>"
KEY, OTHER = "sk-2b7e151628aed2a6", "sk-9f86d081884c7d65"
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


def test_switched_off_nothing_is_counted(clock: Clock) -> None:
    guesses = Guesses(None, clock)
    for _ in range(1000):
        guesses.wrong("192.0.2.1")
        guesses.right("192.0.2.1", digest_of(KEY))
    assert not wait(guesses, "192.0.2.1")
    assert not guesses._wrong
    assert not guesses._right


# Over HTTP and WebSocket


@pytest.fixture
def url() -> Iterator[str]:
    settings = Settings(api_key=(KEY, OTHER), wrong_keys_per_minute=FEW)
    with serving(scripted(HELLO, loop=True), settings) as base:
        yield base


def post(url: str, key: str, **headers: str) -> httpx.Response:
    sent = {"Authorization": f"Bearer {key}", **headers}
    return httpx.post(f"{url}/responses", json={"input": "Hi"}, headers=sent)


def handshake(url: str, key: str) -> int:
    socket = url.replace("http:", "ws:") + "/responses"
    try:
        with connect(socket, additional_headers={"Authorization": f"Bearer {key}"}):
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


def test_guesses_get_429_and_the_same_answer_whether_right_or_wrong(url: str) -> None:
    assert post(url, KEY).status_code == 200
    statuses = [post(url, f"sk-guess-{number}").status_code for number in range(FEW + 10)]
    assert statuses[:FEW] == [401] * FEW
    assert statuses[FEW:] == [429] * 10
    assert post(url, "sk-guess").status_code == 429
    wrong, right = post(url, "sk-guess"), post(url, OTHER)
    assert wrong.status_code == right.status_code == 429
    assert wrong.json()["error"]["code"] == "too_many_wrong_keys"
    assert {**wrong.json()["error"], "message": ""} == {**right.json()["error"], "message": ""}
    assert 1 <= int(wrong.headers["retry-after"]) <= 60 / FEW
    assert "x-should-retry" not in wrong.headers
    assert post(url, KEY).status_code == 200
    assert httpx.post(f"{url}/responses", json={}).status_code == 401, "no key at all is no guess"
    assert post(url, OTHER, **{"X-Forwarded-For": "192.0.2.7"}).status_code == 200, "of a proxy's client"
    figures = scraped_at(url.removesuffix("/v1"))
    assert figures.own("wrong_api_keys_total", outcome="refused") == statuses.count(401)
    assert figures.own("wrong_api_keys_total", outcome="limited") == statuses.count(429) + 3


def test_handshakes_of_websockets_count_too(url: str) -> None:
    statuses = [handshake(url, f"sk-guess-{number}") for number in range(FEW)]
    assert statuses == [401] * FEW
    assert handshake(url, "sk-guess") == 429
    assert post(url, "sk-guess").status_code == 429
    assert handshake(url, OTHER) == 429
