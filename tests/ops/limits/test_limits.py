"""Limits of requests, tokens and work, as clients meet them over HTTP and WebSocket."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from gpt_oss_server.settings import Settings
from tests.doubles.apis.api_client import APIS, Api
from tests.doubles.apis.keyed import ask, socket_of, with_keys
from tests.doubles.serving import scripted, serving
from tests.doubles.waiting import until_found

HELLO = "<|channel|>final<|message|>Hello, you there!<|return|>"
SLOW = "<|channel|>final<|message|>" + "word " * 4_000
LIMITS = ("limit", "remaining", "reset")
OWN = {"Authorization": "Bearer sk-a"}
Make = Callable[..., Api]


@pytest.fixture
async def limited(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[Api] = []

    def make(*lines: str, turns: tuple[object, ...] = (HELLO,), speed: float = 0, **settings: Any) -> Api:
        given = with_keys(tmp_path, *lines, **settings) if lines else Settings(python="off", **settings)
        made.append(Api(scripted(*turns, tokens_per_second=speed), given))
        return made[-1]

    yield make
    for api in made:
        await api.client.aclose()
        await api.service.close()


async def post(api: Api, key: str = "", path: str = "/responses", **body: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    given = {name: value for name, value in {"input": "Hi", **body}.items() if value is not None}
    return await api.client.post(path, json=given, headers=headers)


def rates(answer: httpx.Response, kind: str) -> list[str | None]:
    return [answer.headers.get(f"x-ratelimit-{name}-{kind}") for name in LIMITS]


async def test_requests_of_a_key_are_limited_and_those_of_another_are_not(limited: Make) -> None:
    api = limited("sk-a rpm=3", "sk-b rpm=3")
    answers = [await post(api, "sk-a") for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
    assert rates(answers[0], "requests")[:2] == ["3", "2"]
    assert rates(answers[3], "requests")[:2] == ["3", "0"]
    refused = answers[3]
    error = refused.json()["error"]
    assert (error["code"], error["type"], error["param"]) == ("rate_limit_exceeded", "requests", None)
    assert "Please try again in" in error["message"]
    assert 0 < float(refused.headers["retry-after"]) <= 20
    assert 0 < int(refused.headers["retry-after-ms"]) <= 20_000
    assert "x-should-retry" not in refused.headers
    assert (await post(api, "sk-b")).status_code == 200


async def test_reading_deleting_and_cancelling_are_free(limited: Make) -> None:
    api = limited("sk-a rpm=2", turns=(SLOW,), speed=2_000)
    run = (await post(api, "sk-a", background=True)).json()
    await post(api, "sk-a", background=True)
    assert (await post(api, "sk-a")).status_code == 429
    place = f"/responses/{run['id']}"
    for method, path in (("GET", place), ("POST", f"{place}/cancel"), ("DELETE", place)):
        answer = await api.client.request(method, path, headers=OWN)
        assert (answer.status_code, rates(answer, "requests")[:2]) == (200, ["2", "0"])


async def test_tokens_are_reserved_before_and_settled_after(limited: Make) -> None:
    api = limited("sk-a tpm=5000")
    answer = await post(api, "sk-a", max_output_tokens=3000)
    used = answer.json()["usage"]["total_tokens"]
    limit, left, _ = rates(answer, "tokens")
    assert limit == "5000"
    # A JSON answer is sent when the run has ended: what it did not use is there again.
    assert 5000 - used - 1 <= int(left or 0) <= 5000 - used + 20
    streamed = await post(api, "sk-a", max_output_tokens=3000, stream=True)
    before_it_ran = int(rates(streamed, "tokens")[1] or 0)
    assert before_it_ran < 5000 - used - 3000 + 20
    again = await post(api, "sk-a", path="/responses/input_tokens")
    assert int(rates(again, "tokens")[1] or 0) > 5000 - 2 * used - 2, "the stream has settled too"


@pytest.mark.parametrize("path", APIS)
async def test_tokens_that_were_used_are_not_there_for_the_next_request(limited: Make, path: str) -> None:
    api = limited("sk-a tpm=400", turns=("<|channel|>final<|message|>" + "word " * 300 + "<|return|>",))
    body = {**APIS[path], **({"max_tokens": 310} if path == "/completions" else {})}
    first, refused = [await api.client.post(path, json=body, headers=OWN) for _ in range(2)]
    assert first.status_code == 200, first.text
    assert (refused.status_code, refused.json()["error"]["type"]) == (429, "tokens")
    assert "tokens per minute (TPM)" in refused.json()["error"]["message"]
    assert 5 < float(refused.headers["retry-after"]) <= 60


async def test_a_prompt_that_is_larger_than_the_limit_is_not_to_be_sent_again(limited: Make) -> None:
    api = limited("sk-a tpm=50")
    refused = await post(api, "sk-a", input="word " * 200)
    assert refused.status_code == 429
    assert refused.headers["x-should-retry"] == "false"
    assert "retry-after" not in refused.headers
    assert "too large" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "most"), [("/responses", 500), ("/chat/completions", 500), ("/completions", 560)]
)
async def test_a_client_that_leaves_pays_for_what_was_generated(tmp_path: Path, path: str, most: int) -> None:
    name = "max_output_tokens" if path == "/responses" else "max_tokens"
    body = {**APIS[path], name: most, "stream": True}
    with serving(scripted(SLOW, tokens_per_second=200), with_keys(tmp_path, "sk-a tpm=600")) as url:
        async with httpx.AsyncClient(base_url=url, headers=OWN) as client:
            async with client.stream("POST", path, json=body) as answer:
                assert int(answer.headers["x-ratelimit-remaining-tokens"]) < 60
                received = 0
                async for _ in answer.aiter_bytes():
                    received += 1
                    if received == 60:
                        break

            async def left() -> int:
                answer = await client.post("/responses/input_tokens", json={"input": "Hi"})
                return int(rates(answer, "tokens")[1] or 0)

            found = await until_found(left, lambda count: count > 100)
    assert found < 590, "its prompt and what was sampled; a second gives ten tokens back"


async def test_requests_at_work_are_limited(limited: Make) -> None:
    api = limited("sk-a concurrent=2", "sk-b", turns=(SLOW,), speed=1_500)
    running = [asyncio.create_task(post(api, "sk-a", max_output_tokens=1500)) for _ in range(2)]
    await asyncio.sleep(0.3)
    refused = await post(api, "sk-a")
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert "2 requests at work" in refused.json()["error"]["message"]
    assert (await post(api, "sk-b", max_output_tokens=10)).status_code == 200
    assert [answer.status_code for answer in await asyncio.gather(*running)] == [200, 200]
    assert (await post(api, "sk-a", max_output_tokens=10)).status_code == 200


async def test_failures_give_their_place_back(limited: Make) -> None:
    api = limited("sk-a concurrent=1")
    tools = [{"type": "code_interpreter"}]
    for body in ({"input": 5}, {"previous_response_id": "resp_none"}, {"tools": tools}) * 2:
        assert (await post(api, "sk-a", **body)).status_code == 400
    assert (await post(api, "sk-a")).status_code == 200
    assert not api.service.served.limiter._at_work


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory" if request.param == "memory" else f"sqlite:{tmp_path / 'store.sqlite'}"


async def test_background_responses_of_a_key_are_limited(limited: Make, store: str) -> None:
    keys = ("sk-a background=2", "sk-b background=2", "sk-none background=0")
    api = limited(*keys, turns=(SLOW,), speed=2_000, store=store)
    runs = [(await post(api, "sk-a", background=True)).json() for _ in range(2)]
    refused = await post(api, "sk-a", background=True)
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert "2 background responses" in refused.json()["error"]["message"]
    assert (await post(api, "sk-b", background=True)).status_code == 200
    assert (await post(api, "sk-none", background=True)).status_code == 429
    assert (await post(api, "sk-none", max_output_tokens=5)).status_code == 200
    assert (await api.client.post(f"/responses/{runs[0]['id']}/cancel", headers=OWN)).status_code == 200
    assert (await post(api, "sk-a", background=True)).status_code == 200


async def test_stored_bytes_of_a_key_are_limited(limited: Make, store: str) -> None:
    api = limited("sk-a stored=20000", "sk-b stored=20000", store=store)
    first = (await post(api, "sk-a", input="word " * 3_000)).json()
    chat = {**APIS["/chat/completions"], "store": True}
    for path, body in (("/responses", {"input": "Hi"}), ("/chat/completions", chat), ("/conversations", {})):
        refused = await api.client.post(path, json=body, headers=OWN)
        assert refused.status_code == 429, path
        assert "bytes in the store" in refused.json()["error"]["message"]
        assert refused.headers["x-should-retry"] == "false"
    assert (await post(api, "sk-a", store=False)).status_code == 200
    assert (await post(api, "sk-b")).status_code == 200
    assert (await api.client.delete(f"/responses/{first['id']}", headers=OWN)).status_code == 200
    assert (await post(api, "sk-a")).status_code == 200


async def test_all_clients_together_have_a_limit_too(limited: Make) -> None:
    api = limited("sk-a", "sk-b rpm=100", requests_per_minute=3)
    answers = [await post(api, key) for key in ("sk-a", "sk-b", "sk-a", "sk-b")]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert "all clients together" in answers[3].json()["error"]["message"]
    assert rates(answers[1], "requests")[:2] == ["3", "1"], "the one that allows less"


async def test_a_server_without_keys_can_be_limited_as_a_whole(limited: Make) -> None:
    api = limited(requests_per_minute=2)
    answers = [await post(api) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert rates(answers[0], "requests")[0] == "2"


async def test_defaults_are_for_keys_without_their_own(limited: Make) -> None:
    api = limited("sk-a", "sk-b rpm=none", key_requests_per_minute=1)
    assert [(await post(api, "sk-a")).status_code for _ in range(2)] == [200, 429]
    answers = [await post(api, "sk-b") for _ in range(3)]
    assert {answer.status_code for answer in answers} == {200}
    assert not [name for name in answers[0].headers if name.startswith("x-ratelimit")]


async def test_keys_of_one_name_share_their_limits(limited: Make) -> None:
    api = limited("sk-old name=shop rpm=2", "sk-new name=shop rpm=2")
    assert [(await post(api, key)).status_code for key in ("sk-old", "sk-new", "sk-old")] == [200, 200, 429]


async def test_the_time_until_a_limit_is_whole_again_is_spelt_like_openais(limited: Make) -> None:
    api = limited("sk-a rpm=1 tpm=1000000")
    answer = await post(api, "sk-a")
    assert re.fullmatch(r"1m0s|59\.\d+s", rates(answer, "requests")[2] or "")
    assert re.fullmatch(r"\d+ms", rates(answer, "tokens")[2] or "")


def test_requests_over_a_websocket_count_and_are_refused_one_by_one(tmp_path: Path) -> None:
    settings = with_keys(tmp_path, "sk-a rpm=2")
    with serving(scripted(HELLO), settings) as url, socket_of(url, "sk-a") as socket:
        events = [ask(socket) for _ in range(3)]
        assert [event["type"] for event in events] == ["response.completed", "response.completed", "error"]
        assert (events[2]["status"], events[2]["error"]["code"]) == (429, "rate_limit_exceeded")


def test_a_websocket_whose_key_is_removed_answers_no_further_request(tmp_path: Path) -> None:
    settings = with_keys(tmp_path, "sk-a", "sk-b")
    with serving(scripted(HELLO), settings) as url, socket_of(url, "sk-a") as socket:
        assert ask(socket)["type"] == "response.completed"
        (tmp_path / "keys").write_text("sk-b\n")
        until = time.monotonic() + 30  # the file is read again after a second
        while (event := ask(socket))["type"] != "error" and time.monotonic() < until:
            time.sleep(0.05)
        assert (event.get("status"), event.get("error", {}).get("code")) == (401, "invalid_api_key"), event


def test_the_official_sdk_waits_as_long_as_the_server_says_and_goes_on(tmp_path: Path) -> None:
    answers: list[tuple[float, httpx.Response]] = []
    with (
        serving(scripted(HELLO), with_keys(tmp_path, "sk-a rpm=6")) as url,
        OpenAI(base_url=url, api_key="sk-a", max_retries=2) as client,
    ):
        client._client.event_hooks["response"].append(lambda got: answers.append((time.monotonic(), got)))
        for _ in range(7):
            assert client.responses.create(model="scripted", input="Hi").output_text == "Hello, you there!"
    assert [got.status_code for _, got in answers] == [200] * 6 + [429, 200], "one refusal, one wait"
    (refused_at, refused), (served_at, _) = answers[-2:]
    announced = int(refused.headers["retry-after-ms"]) / 1000
    assert 1 < announced <= 10
    assert served_at - refused_at >= 0.99 * announced


async def test_the_python_sessions_of_a_key_are_limited(tmp_path: Path) -> None:
    keys = ("sk-a kernels=2", "sk-none kernels=0", "sk-b")
    api = Api(scripted(HELLO), with_keys(tmp_path, *keys, python="unsafe-local", key_python_sessions=3))
    for key, most in (("sk-a", 2), ("sk-none", 0), ("sk-b", 3)):
        answers = [await post(api, key, path="/containers", input=None) for _ in range(most + 1)]
        assert [answer.status_code for answer in answers] == [200] * most + [429], key
        assert answers[-1].json()["error"]["code"] == "too_many_containers"
    await api.service.close()
