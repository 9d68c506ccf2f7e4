"""The official SDK at a limit: it waits for the time that the server names, and goes on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from gpt_oss_server.settings import Settings
from tests.doubles.serving import scripted, serving

HELLO = "<|channel|>final<|message|>Hello!<|return|>"


def settings(folder: Path, line: str) -> Settings:
    (folder / "keys").write_text(line)
    return Settings(api_key_file=str(folder / "keys"), python="off")


def counting(client: OpenAI) -> list[Any]:
    """Every answer that the SDK gets, with the time."""
    answers: list[Any] = []
    client._client.event_hooks["response"].append(lambda answer: answers.append((time.monotonic(), answer)))
    return answers


def test_it_waits_as_long_as_the_server_says_and_goes_on(tmp_path: Path) -> None:
    with (
        serving(scripted(HELLO), settings(tmp_path, "sk-a rpm=6")) as url,
        OpenAI(base_url=url, api_key="sk-a", max_retries=2) as client,
    ):
        answers = counting(client)
        texts = [client.responses.create(model="scripted", input="Hi").output_text for _ in range(7)]
        assert texts == ["Hello!"] * 7
    statuses = [answer.status_code for _, answer in answers]
    assert statuses == [200] * 6 + [429, 200], "one refusal, one wait, one success"
    (refused_at, refused), (served_at, _) = answers[-2:]
    announced = int(refused.headers["retry-after-ms"]) / 1000
    assert 1 < announced <= 10
    assert served_at - refused_at >= 0.99 * announced


def test_it_raises_its_error_when_it_may_not_wait(tmp_path: Path) -> None:
    with (
        serving(scripted(HELLO), settings(tmp_path, "sk-a rpm=1")) as url,
        OpenAI(base_url=url, api_key="sk-a", max_retries=0) as client,
    ):
        raw = client.responses.with_raw_response.create(model="scripted", input="Hi")
        assert raw.headers["x-ratelimit-remaining-requests"] == "0"
        with pytest.raises(openai.RateLimitError) as caught:
            client.responses.create(model="scripted", input="Hi")
        assert caught.value.code == "rate_limit_exceeded"


def test_it_does_not_repeat_what_can_never_fit(tmp_path: Path) -> None:
    with (
        serving(scripted(HELLO), settings(tmp_path, "sk-a tpm=60")) as url,
        OpenAI(base_url=url, api_key="sk-a", max_retries=5) as client,
    ):
        answers = counting(client)
        with pytest.raises(openai.RateLimitError):
            client.responses.create(model="scripted", input="word " * 500)
        assert len(answers) == 1


def test_it_sees_a_tool_that_its_key_may_not_use_as_a_lack_of_permission(tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "keys").write_text("sk-a tools=none")
    given = Settings(api_key_file=str(tmp_path / "keys"), python="off", browser=f"local:{tmp_path / 'pages'}")
    with (
        serving(scripted(HELLO), given) as url,
        OpenAI(base_url=url, api_key="sk-a") as client,
        pytest.raises(openai.PermissionDeniedError),
    ):
        client.responses.create(model="scripted", input="Hi", tools=[{"type": "web_search"}])
