"""Which web pages may use the server, a browser lets any page send; and under which names (DNS rebinding)."""

import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi.testclient import TestClient

from gpt_oss_server.app import create_app
from gpt_oss_server.errors import ApiError
from gpt_oss_server.http.guards.hosts import Hosts
from gpt_oss_server.settings import Settings, SettingsError, read_configuration
from tests.doubles.apis.keyed import socket_status
from tests.doubles.serving import HELLO, scripted, serving
from tests.doubles.stored import known

CHAT = "https://chat.example"
BODY = '{"input": "hi"}'


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    origins = (CHAT, "http://other.example:8080/")
    with serving(scripted(HELLO), Settings(allow_origin=origins, allow_host=("chat.example",))) as base:
        yield base


def post(url: str, origin: str, **headers: str) -> httpx.Response:
    """Posts as a page can without a preflight request: as text."""
    given = {"Origin": origin, "Content-Type": "text/plain", **headers}
    return httpx.post(f"{url}/responses", content=BODY, headers=given)


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
    assert socket_status(url, origin=origin) == 101


@pytest.mark.parametrize("origin", [*REFUSED.split(), ""])
def test_other_pages_are_refused_before_anything_runs(url: str, origin: str) -> None:
    answer = post(url, origin)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "origin_not_allowed")
    assert "--allow-origin" in answer.json()["error"]["message"]
    assert "access-control-allow-origin" not in answer.headers
    if origin:
        assert socket_status(url, origin=origin) == 403


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


def test_a_local_server_recognises_its_own_pages_by_address_only(url: str) -> None:
    """A site can resolve its name to 127.0.0.1; then both headers have that name."""
    port = urlsplit(url).port
    rebound = f"http://evil.example:{port}"
    assert post(url, rebound, Host=f"evil.example:{port}").status_code == 403
    assert socket_status(url, origin=rebound) == 403
    twice = {"Host": f"evil.example:{port}"}  # in one handshake
    assert socket_status(url, origin=rebound, additional_headers=twice) == 400
    assert post(url, f"http://127.0.0.1:{port}").status_code == 200
    with serving(scripted(HELLO), Settings(host="0.0.0.0")) as everywhere:
        own = f"gpu-box:{port}"
        assert post(everywhere, f"http://{own}", Host=own).status_code == 200
        assert post(everywhere, "http://evil.example", Host=own).status_code == 403


def test_a_star_allows_every_origin() -> None:
    with serving(scripted(HELLO), Settings(allow_origin=("*",))) as url:
        for origin in ("https://evil.example", "null"):
            assert post(url, origin).headers["access-control-allow-origin"] in (origin, "*")
            assert socket_status(url, origin=origin) == 101


@pytest.mark.parametrize("given", ["chat.example", "https://chat.example/path", "https://", "https://u@h"])
def test_an_invalid_origin_is_explained(given: str) -> None:
    with pytest.raises(SettingsError, match=r"--allow-origin .* such as https://chat\.example"):
        read_configuration({"allow_origin": [given]}, {})


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
            found = socket_status(f"http://{host}/v1", origin=origin, sock=connection)
        assert found == (101 if status == 200 else status)


def test_a_refusal_names_the_flag_with_its_value(url: str) -> None:
    message = post(url, "https://evil.example").json()["error"]["message"]
    assert "--allow-origin https://evil.example to" in message
    assert "--allow-origin to" in post(url, "https://x; rm -r .").json()["error"]["message"]


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
    refused = known(refusal(host, allow_host=("chat.example",)))
    assert refused.status == 403
    assert "--allow-host" in refused.message
    assert refusal(host, allow_host=("*",)) is None


@pytest.mark.parametrize("host", NONE)
def test_a_host_that_is_none_is_a_400(host: str | None) -> None:
    refused = known(refusal(host, allow_host=("*",)))
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


def test_a_websocket_is_guarded(url: str) -> None:
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port)) as connection:
        assert socket_status(f"http://evil.example:{place.port}/v1", sock=connection) == 403


@pytest.mark.parametrize("name", ["https://chat.example", "chat.example/path", "a b", ""])
def test_a_setting_that_is_no_host_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match="allow_host must be"):
        Settings(allow_host=(name,))


def test_a_frame_without_an_origin_reads_the_files_of_pages_only() -> None:
    with serving(scripted("<|channel|>final<|message|>.<|return|>")) as url:
        root = url.removesuffix("/v1")
        headers = {"origin": "null"}
        assert httpx.get(f"{root}/web/main.js", headers=headers).status_code == 200
        for path in ("/v1/models", "/", "/web/../v1/models"):
            assert httpx.get(f"{root}{path}", headers=headers).status_code == 403, path
        assert httpx.post(f"{root}/web/main.js", headers=headers).status_code == 403
