"""Names under which a server may be used: a web page cannot read it under its own name (DNS rebinding)."""

import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from gpt_oss_server.app import create_app
from gpt_oss_server.errors import ApiError
from gpt_oss_server.http.guards.hosts import Hosts
from gpt_oss_server.settings import Settings, SettingsError
from tests.doubles.serving import scripted, serving

HELLO = "<|channel|>final<|message|>Hello!<|return|>"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(scripted(HELLO), Settings(allow_host=("chat.example",))) as base:
        yield base


def refusal(name: str | None, http_version: str = "1.1", **settings: Any) -> ApiError | None:
    headers = [] if name is None else [(b"host", each.encode()) for each in name.split("|")]
    return Hosts(Settings(**settings)).refusal(headers, http_version)


SERVED = """
localhost LOCALHOST:8000 app.localhost localhost. 127.0.0.1 127.0.0.1:80 127.9.9.9 [::1]:8000
chat.example Chat.Example:443
"""
OTHERS = """
evil.example evil.example:8000 localhost.evil.example 127.0.0.1.evil.example gpu-box 8.8.8.8
"""
NONE = (None, "", " ", "localhost|localhost", "localhost, evil.example", "a@evil.example", "a b", "[::1")
WITHIN = ("192.168.1.5:8000", "[fe80::1]:8000", "gpu-box", "gpu.local", "api.internal", socket.gethostname())


@pytest.mark.parametrize("host", SERVED.split())
def test_names_of_this_machine_and_allowed_ones_are_served(host: str) -> None:
    assert refusal(host, allow_host=("chat.example",)) is None


@pytest.mark.parametrize("host", OTHERS.split())
def test_other_names_are_refused(host: str) -> None:
    refused = refusal(host, allow_host=("chat.example",))
    assert refused is not None
    assert refused.status == 403
    assert "--allow-host" in refused.message
    assert refusal(host, allow_host=("*",)) is None


@pytest.mark.parametrize("host", NONE)
def test_a_host_that_is_none_is_a_400(host: str | None) -> None:
    refused = refusal(host, allow_host=("*",))
    assert refused is not None
    assert (refused.status, refused.code) == (400, "invalid_http")


def test_http_1_0_has_no_host() -> None:
    assert refusal(None, "1.0") is None
    assert refusal("evil.example", "1.0") is not None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "gpu.corp.example"])
def test_beyond_this_machine_only_names_that_a_site_can_own_are_refused(host: str) -> None:
    for name in WITHIN:
        assert refusal(name, host=host) is None
    for name in ("evil.example", "local.evil.example", "x.internal.evil.example"):
        assert refusal(name, host=host) is not None
    assert refusal(host, host=host) is None or ":" in host


def test_the_address_at_which_a_request_arrives_is_served() -> None:
    """Test clients that call the application without a network name it as they like."""
    with TestClient(create_app(scripted(HELLO))) as client:
        assert client.get("/health").status_code == 200
        assert client.get("/health", headers={"Host": "evil.example"}).status_code == 403


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/v1/responses/resp_x", "/docs", "/nothing"])
def test_every_path_is_guarded(url: str, path: str) -> None:
    place = url.removesuffix("/v1") + path
    answer = httpx.get(place, headers={"Host": "evil.example"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "host_not_allowed")
    assert answer.headers["x-request-id"]
    assert httpx.get(place, headers={"Host": "chat.example"}).status_code in (200, 404)


def test_a_forwarded_host_changes_nothing(url: str) -> None:
    headers = {"Host": "evil.example", "X-Forwarded-Host": "localhost", "Forwarded": "host=localhost"}
    assert httpx.get(f"{url}/models", headers=headers).status_code == 403
    assert httpx.get(f"{url}/models", headers={"X-Forwarded-Host": "evil.example"}).status_code == 200


def test_two_host_headers_are_a_400(url: str) -> None:
    host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")


def test_a_websocket_is_guarded(url: str) -> None:
    host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
    address = f"ws://evil.example:{port}/v1/responses"
    with (
        socket.create_connection((host, int(port)), timeout=20) as connection,
        pytest.raises(InvalidStatus) as refused,
        connect(address, sock=connection),
    ):
        pass
    assert refused.value.response.status_code == 403


@pytest.mark.parametrize("name", ["https://chat.example", "chat.example/path", "a b", ""])
def test_a_setting_that_is_no_host_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="allow_host must be"):
        Settings(allow_host=(name,))
