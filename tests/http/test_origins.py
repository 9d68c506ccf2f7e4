"""Which web pages may use the server, over HTTP and WebSocket: a browser lets any page send."""

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from gpt_oss_server.settings import Settings, SettingsError, read_settings
from tests.doubles.serving import scripted, serving

HELLO = "<|channel|>final<|message|>Hello!<|return|>"
CHAT = "https://chat.example"
BODY = '{"input": "hi"}'


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(scripted(HELLO), Settings(allow_origin=(CHAT, "http://other.example:8080/"))) as base:
        yield base


def post(url: str, origin: str, **headers: str) -> httpx.Response:
    """Posts as a page can without a preflight request: as text."""
    given = {"Origin": origin, "Content-Type": "text/plain", **headers}
    return httpx.post(f"{url}/responses", content=BODY, headers=given)


def socket_status(url: str, origin: str, sock: socket.socket | None = None, **headers: str) -> int:
    place = url.replace("http:", "ws:") + "/responses"
    try:
        with connect(place, sock=sock, origin=origin, additional_headers=headers):  # type: ignore[arg-type]
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


ALLOWED = """
https://chat.example HTTPS://Chat.Example http://other.example:8080 http://localhost:3000 http://127.0.0.1:5173
http://[::1]:5173 http://app.localhost vscode-webview://0a1b2c tauri://localhost file://
"""
REFUSED = """
https://evil.example http://chat.example https://chat.example:8443 https://chat.example.evil.example
http://localhost.evil.example http://127.0.0.1.evil.example https://evil.example/https://chat.example
http://[::1 null
"""


@pytest.mark.parametrize("origin", ALLOWED.split())
def test_allowed_pages_are_answered_and_can_read_the_answer(url: str, origin: str) -> None:
    answer = post(url, origin)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] in (origin, "*")
    assert "x-request-id" in answer.headers["access-control-expose-headers"]
    assert socket_status(url, origin) == 101


@pytest.mark.parametrize("origin", [*REFUSED.split(), ""])
def test_other_pages_are_refused_before_anything_runs(url: str, origin: str) -> None:
    answer = post(url, origin)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "origin_not_allowed")
    assert "--allow-origin" in answer.json()["error"]["message"]
    assert "access-control-allow-origin" not in answer.headers
    if origin:
        assert socket_status(url, origin) == 403


def test_a_preflight_request_is_answered(url: str) -> None:
    asked = {"Method": "POST", "Headers": "authorization,x-own", "Private-Network": "true"}
    preflight = {f"Access-Control-Request-{name}": value for name, value in asked.items()}
    answer = httpx.options(f"{url}/chat/completions", headers={"Origin": CHAT, **preflight})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] in (CHAT, "*")
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "authorization" in answer.headers["access-control-allow-headers"].lower()
    assert answer.headers["access-control-allow-private-network"] == "true", "as Chrome asks"
    evil = {"Origin": "https://evil.example", **preflight}
    refused = httpx.options(f"{url}/chat/completions", headers=evil)
    assert refused.status_code == 403
    assert "access-control-allow-private-network" not in refused.headers


def test_a_stream_and_an_error_can_be_read_by_a_page(url: str) -> None:
    headers = {"Origin": CHAT}
    streamed = httpx.post(f"{url}/responses", json={"input": "hi", "stream": True}, headers=headers)
    assert streamed.text.rstrip().splitlines()[-1].startswith("data: ")
    wrong = httpx.post(f"{url}/responses", json={"input": 5}, headers=headers)
    assert (streamed.status_code, wrong.status_code) == (200, 400)
    for answer in (streamed, wrong):
        assert answer.headers["access-control-allow-origin"] in (CHAT, "*")


def test_a_program_needs_no_origin(url: str) -> None:
    answer = httpx.post(f"{url}/responses", content=BODY)
    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


def test_a_local_server_recognises_its_own_pages_by_address_only(url: str) -> None:
    """A site can resolve its name to 127.0.0.1; then both headers have that name."""
    port = urlsplit(url).port
    rebound = f"http://evil.example:{port}"
    assert post(url, rebound, Host=f"evil.example:{port}").status_code == 403
    assert socket_status(url, rebound) == 403
    assert socket_status(url, rebound, Host=f"evil.example:{port}") == 400, "its handshake has two of them"
    assert post(url, f"http://127.0.0.1:{port}").status_code == 200
    with serving(scripted(HELLO), Settings(host="0.0.0.0")) as everywhere:
        own = f"gpu-box:{port}"
        assert post(everywhere, f"http://{own}", Host=own).status_code == 200
        assert post(everywhere, "http://evil.example", Host=own).status_code == 403


def test_a_star_allows_every_origin() -> None:
    with serving(scripted(HELLO), Settings(allow_origin=("*",))) as url:
        for origin in ("https://evil.example", "null"):
            assert post(url, origin).headers["access-control-allow-origin"] in (origin, "*")
            assert socket_status(url, origin) == 101


@pytest.mark.parametrize("given", ["chat.example", "https://chat.example/path", "https://", "https://u@h"])
def test_an_invalid_origin_is_explained(given: str) -> None:
    with pytest.raises(SettingsError, match=r"--allow-origin .* such as https://chat\.example"):
        read_settings({"allow_origin": [given]}, {})


@pytest.mark.parametrize(
    ("names", "host", "origin", "status"),
    [
        (("llm.example",), "llm.example", "https://llm.example", 200),
        (("llm.example",), "llm.example:8443", "https://llm.example:8443", 200),
        (("llm.example",), "llm.example", "https://evil.example", 403),
        (("llm.example",), "localhost", "https://llm.example", 403),
        (("*",), "evil.example", "http://evil.example", 403),
    ],
)
def test_pages_of_a_name_that_the_operator_gives_are_the_servers_own(
    names: tuple[str, ...], host: str, origin: str, status: int
) -> None:
    """Behind a proxy on this machine; any name, `*`, may be one that a site resolves to this machine."""
    with serving(scripted(HELLO), Settings(allow_host=names)) as base:
        assert post(base, origin, Host=host).status_code == status
        place = urlsplit(base)
        with socket.create_connection((place.hostname, place.port)) as connection:
            found = socket_status(f"http://{host}/v1", origin, sock=connection)
        assert found == (101 if status == 200 else status)


def test_a_refusal_names_the_flag_with_its_value(url: str) -> None:
    message = post(url, "https://evil.example").json()["error"]["message"]
    assert "--allow-origin https://evil.example to" in message
    assert "--allow-origin to" in post(url, "https://x; rm -r .").json()["error"]["message"]
