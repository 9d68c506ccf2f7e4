"""Webhooks as OpenAI's SDK reads them: what is told to whom, when again, and never to a private address."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import openai
import pytest

from gpt_oss_server.app import create_app
from gpt_oss_server.caller.keyring import Keyring
from gpt_oss_server.runs import webhooks
from gpt_oss_server.runs.webhooks import Webhooks
from gpt_oss_server.settings import Settings, SettingsError
from gpt_oss_server.stores.memory.store import MemoryDatabase
from gpt_oss_server.stores.sql.queues.deliveries import Deliveries
from gpt_oss_server.stores.sql.sweeper import Bounds
from tests.doubles.apis.api_client import client_of
from tests.doubles.apis.keyed import ALICE, MALLORY
from tests.doubles.serving import scripted, serving
from tests.doubles.waiting import waited

ANSWER = "<|channel|>final<|message|>Hello!<|return|>"
SECRET = "whsec_" + base64.b64encode(b"a secret of the operator").decode()


class Receiver:
    """A team's server: what it was told, by path, as the SDK unwraps it. It refuses the first `refusals`."""

    def __init__(self) -> None:
        self.refusals = 0
        self.told: list[tuple[str, str, str]] = []
        self.attempts: list[str] = []
        receiver, client = self, openai.OpenAI(api_key="none", webhook_secret=SECRET)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                event: Any = client.webhooks.unwrap(body, dict(self.headers))
                receiver.attempts.append(event.id)
                refuses = len(receiver.attempts) <= receiver.refusals
                if not refuses:
                    receiver.told.append((self.path, event.type, event.data.id))
                self.send_response(500 if refuses else 204)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def wait_for(self, count: int) -> list[tuple[str, str, str]]:
        return waited(lambda: self.told, lambda told: len(told) >= count)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()


def settings(receiver: Receiver, **more: Any) -> Settings:
    urls = (f"{receiver.url}/all",)
    return Settings(**{"webhook_url": urls, "webhook_secret": SECRET, "webhook_private": True, **more})


def test_the_end_of_a_background_response_and_of_a_batch_is_told(receiver: Receiver) -> None:
    with client_of(ANSWER, settings=settings(receiver)) as client:
        client.responses.create(model="scripted", input="Hi")  # whoever waits is not told
        response = client.responses.create(model="scripted", input="Hi", background=True)
        assert receiver.wait_for(1) == [("/all", "response.completed", response.id)]
        line = {"custom_id": "a", "method": "POST", "url": "/v1/responses", "body": {"input": "Hi"}}
        for content, status in ((json.dumps(line), "completed"), ("{}", "failed")):
            file = client.files.create(file=("a.jsonl", content.encode()), purpose="batch")
            asked: Any = {"endpoint": "/v1/responses", "completion_window": "24h"}
            batch = client.batches.create(input_file_id=file.id, **asked)
            told = receiver.wait_for(2 if status == "completed" else 3)
            assert told[-1] == ("/all", f"batch.{status}", batch.id)
        assert len(receiver.attempts) == 3


def test_an_address_that_refuses_is_told_again(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhooks, "_FIRST_PAUSE", 0.1)
    receiver.refusals = 2
    with client_of(ANSWER, settings=settings(receiver)) as client:
        response = client.responses.create(model="scripted", input="Hi", background=True)
        assert receiver.wait_for(1) == [("/all", "response.completed", response.id)]
    assert len(receiver.attempts) == 3
    assert len(set(receiver.attempts)) == 1


def test_a_key_has_an_address_and_a_secret_of_its_own(receiver: Receiver, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    own = f"webhook={receiver.url}/alice webhook_secret={SECRET}"
    keys.write_text(f"{ALICE} name=alice {own}\n{MALLORY} name=mallory")
    more = {"api_key_file": str(keys), "webhook_url": (), "webhook_secret": f"whsec_{'ab' * 16}"}
    with serving(scripted(ANSWER), settings(receiver, **more)) as url:
        for key in (MALLORY, ALICE):
            with openai.OpenAI(base_url=url, api_key=key, max_retries=0) as client:
                response = client.responses.create(model="scripted", input="Hi", background=True)
        assert receiver.wait_for(1) == [("/alice", "response.completed", response.id)]


async def test_private_addresses_are_refused_unless_allowed(receiver: Receiver) -> None:
    deliveries = Deliveries(MemoryDatabase(Bounds()), enabled=True)
    own = settings(receiver, webhook_private=False)
    sender = Webhooks(own, deliveries, Keyring(own))
    await deliveries.add("response.completed", "resp_1", 0)
    await deliveries.add("response.completed", "resp_1", 1)  # an event has one id
    await sender.send_due()
    await sender.send_due()
    assert receiver.attempts == []
    assert await deliveries.next(1) is None  # it waits for its next try
    await sender.close()


@pytest.mark.parametrize("secret", [None, "short", "whsec_?", "whsec_YQ=="])
def test_a_secret_that_is_none_is_refused_at_the_start(receiver: Receiver, secret: str | None) -> None:
    with pytest.raises(SettingsError, match="openssl rand"):
        create_app(scripted(ANSWER), settings(receiver, webhook_secret=secret))


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ("webhook=https://example.com/hook", "--webhook-secret"),
        ("webhook=example.com", "must be an address"),
        ("webhook_secret=whsec_YQ==", "line 1: webhook_secret must be"),
    ],
)
def test_a_key_with_an_address_needs_a_secret(tmp_path: Path, fields: str, why: str) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"{ALICE} name=alice {fields}")
    with pytest.raises(SettingsError, match=why):
        create_app(scripted(ANSWER), Settings(api_key_file=str(keys)))
