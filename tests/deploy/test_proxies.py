"""Two servers that share Postgres, behind the real nginx and the real Caddy with the shipped configurations.

`make deploy-test` runs it. Only addresses and certificates of the files are replaced. In the last test one of
the servers is killed.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from tests.doubles.commands import final, script
from tests.doubles.ops.certificates import write_certificate
from tests.doubles.postgres import running_postgres
from tests.doubles.server_process import ServerProcess, await_ready, free_port, started
from tests.doubles.waiting import until_found

pytestmark = pytest.mark.deploy
DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
NAME = "llm.example"  # the name in the shipped files


@dataclass(frozen=True)
class Proxy:
    port: int
    certificate: Path

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}/v1"


def _certificate(folder: Path) -> tuple[Path, Path]:
    certificate, key = write_certificate(folder, "proxy", hosts=("localhost", NAME))
    return Path(certificate), Path(key)


def _with_ports(text: str, ports: Sequence[int]) -> str:
    for shipped, port in zip((8001, 8002), ports, strict=True):
        text = text.replace(f"127.0.0.1:{shipped}", f"127.0.0.1:{port}")
    return text


@contextmanager
def _running(command: Sequence[str], port: int, log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        await_ready(process, lambda: _listens(port), log.read_text)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


def _program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: apt install {name})")
    return found


@contextmanager
def nginx(folder: Path, ports: Sequence[int]) -> Iterator[Proxy]:
    program, (certificate, key) = _program("nginx"), _certificate(folder)
    secure, plain = free_port(), free_port()
    site = _with_ports((DEPLOY / "nginx" / "gpt-oss-server.conf").read_text(encoding="utf-8"), ports)
    site = re.sub(r" *listen \[::\].*\n", "", site)  # not every machine has IPv6
    for given, wanted in (
        ("listen 443 ", f"listen 127.0.0.1:{secure} "),
        ("listen 80;", f"listen 127.0.0.1:{plain};"),
        (f"/etc/nginx/tls/{NAME}.crt", str(certificate)),
        (f"/etc/nginx/tls/{NAME}.key", str(key)),
    ):
        assert given in site, f"the shipped file has no {given!r}"
        site = site.replace(given, wanted)
    (folder / "site.conf").write_text(site, encoding="utf-8")
    names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{name}_temp_path {folder}/{name};" for name in names)
    main = folder / "nginx.conf"
    main.write_text(
        f"daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.log info;"
        "events { worker_connections 512; }"
        f"http {{ access_log off; {places} include {folder}/site.conf; }}",
        encoding="utf-8",
    )
    command = [program, "-c", str(main), "-e", str(folder / "nginx.log")]
    with _running(command, secure, folder / "nginx.out"):
        yield Proxy(secure, certificate)


@contextmanager
def caddy(folder: Path, ports: Sequence[int]) -> Iterator[Proxy]:
    program, (certificate, key) = _program("caddy"), _certificate(folder)
    port = free_port()
    site = _with_ports((DEPLOY / "caddy" / "Caddyfile").read_text(encoding="utf-8"), ports)
    assert f"{NAME} {{" in site
    addresses = f"https://localhost:{port}, https://{NAME}:{port} {{\n\ttls {certificate} {key}\n"
    site = "{\n\tadmin off\n\tauto_https disable_redirects\n}\n" + site.replace(f"{NAME} {{\n", addresses)
    (folder / "Caddyfile").write_text(site, encoding="utf-8")
    command = [program, "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]
    with _running(command, port, folder / "caddy.out"):
        yield Proxy(port, certificate)


RATE = 40  # tokens per second
PACKET = 0.002  # seconds between deltas that arrive together, at most
WORDS = [f"word-{number}" for number in range(60)]
ANSWER = " ".join(WORDS)
LAST = r"((?!<\|start\|>)[\s\S])*<\|start\|>assistant$"  # the prompt's last message begins with …
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
Event = dict[str, Any]


@dataclass
class Setup:
    proxy: Proxy
    servers: list[ServerProcess]
    client: httpx.AsyncClient
    trust: ssl.SSLContext

    async def counters(self) -> list[dict[str, Any]]:
        async with httpx.AsyncClient(timeout=20) as client:
            asked = (client.get(server.url.removesuffix("/v1") + "/health") for server in self.servers)
            return [answer.json()["counters"] for answer in await asyncio.gather(*asked)]

    @asynccontextmanager
    async def directly(self, server: ServerProcess) -> AsyncIterator[Setup]:
        """The same, but its requests go to this server and not to the proxy."""
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            yield replace(self, client=client)

    async def events(self, method: str, path: str, **options: Any) -> AsyncIterator[Event]:
        async with self.client.stream(method, path, **options) as answer:
            assert answer.status_code == 200, (await answer.aread()).decode()
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    yield json.loads(line[6:])

    async def create(self, body: Event) -> Event:
        answer = await self.client.post("/responses", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    with running_postgres() as postgres:
        yield postgres.new_database()


@pytest.fixture(params=[nginx, caddy], ids=["nginx", "caddy"])
async def setup(request: pytest.FixtureRequest, postgres_url: str, tmp_path: Path) -> AsyncIterator[Setup]:
    start: Callable[[Path, Sequence[int]], AbstractContextManager[Proxy]] = request.param
    remembers = r"memorable[\s\S]*<\|start\|>user<\|message\|>Which" + LAST
    turns = (final("The memorable one.", when=remembers), final(ANSWER))
    model = script(tmp_path, *turns, tokens_per_second=RATE)
    flags = ("--model", model, "--store", postgres_url, "--python", "off", "--allow-host", NAME)
    flags += ("--background-lease", "3", "--shutdown-grace", "1")
    servers = [ServerProcess(flags, tmp_path / f"server-{number}.log") for number in range(2)]
    async with started(*servers):
        with start(tmp_path, [server.port for server in servers]) as proxy:
            trust = ssl.create_default_context(cafile=str(proxy.certificate))
            options: dict[str, Any] = {"base_url": proxy.url, "verify": trust, "headers": {"Host": NAME}}
            async with httpx.AsyncClient(timeout=60, **options) as client:
                yield Setup(proxy, servers, client, trust)


async def arrivals(setup: Setup) -> int:
    times = [
        time.monotonic()
        async for event in setup.events("POST", "/responses", json={"input": "Go on", "stream": True})
        if event["type"] == "response.output_text.delta"
    ]
    return sum(later - sooner > PACKET for sooner, later in itertools.pairwise(times))


async def test_tokens_pass_when_they_are_made(setup: Setup) -> None:
    """A proxy that buffers delivers them in a few lumps. A busy machine does so to both of these clients."""
    async with setup.directly(setup.servers[0]) as there:
        await arrivals(there)  # what loads at first use is loaded
        directly, through_the_proxy = await asyncio.gather(arrivals(there), arrivals(setup))
    assert through_the_proxy > directly / 3, (through_the_proxy, directly)


async def test_a_client_that_leaves_ends_its_generation(setup: Setup) -> None:
    async for event in setup.events("POST", "/responses", json={"input": "Go on", "stream": True}):
        if event["type"] == "response.output_text.delta":
            break
    counters = await until_found(setup.counters, lambda found: sum(each["cancelled"] for each in found) == 1)
    assert not any(each["responses"].get("completed") for each in counters)


async def test_a_conversation_moves_between_the_servers(setup: Setup) -> None:
    response = await setup.create({"input": "This is the memorable one."})
    for _ in range(5):
        response = await setup.create({"input": "Go on", "previous_response_id": response["id"]})
    last = await setup.create({"input": "Which one was it?", "previous_response_id": response["id"]})
    assert last["output"][-1]["content"][0]["text"] == "The memorable one."
    served = [each["responses"].get("completed", 0) for each in await setup.counters()]
    assert min(served) >= 2, served  # so that no server remembers the conversation by itself
    assert sum(served) == 7


async def test_a_websocket_passes_and_continues_a_response(setup: Setup) -> None:
    url = f"wss://localhost:{setup.proxy.port}/v1/responses"
    async with connect(url, ssl=setup.trust) as socket:
        ids: list[str] = []
        for text in ("This is the memorable one.", "Which one was it?"):
            body = {"input": text, "previous_response_id": ids[-1] if ids else None}
            await socket.send(json.dumps({"type": "response.create", **body}))
            while (event := json.loads(await socket.recv()))["type"] not in ENDS:
                pass
            assert event["type"] == "response.completed", event
            ids.append(event["response"]["id"])
    assert event["response"]["output"][-1]["content"][0]["text"] == "The memorable one."


async def test_only_pages_of_the_public_name_may_use_the_servers(setup: Setup) -> None:
    statuses = [
        (await setup.client.get("/models", headers={"Origin": origin})).status_code
        for origin in (f"https://{NAME}", "https://evil.example")
    ]
    assert statuses == [200, 403]


@pytest.mark.parametrize("setup", [nginx], ids=["nginx"], indirect=True)
async def test_nginx_refuses_a_body_that_is_too_large_in_the_form_of_the_api(setup: Setup) -> None:
    answer = await setup.client.post("/responses", content=b" " * (18 << 20))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")


async def test_the_proxy_does_not_publish_the_figures(setup: Setup) -> None:
    root = f"https://localhost:{setup.proxy.port}"
    for path in ("/metrics", "/metrics/", "//metrics", "/%6Detrics", "/metrics%2F", "/metrics?a=b"):
        assert (await setup.client.get(root + path)).status_code == 404
    assert (await setup.client.get(f"{root}/health")).status_code == 200


async def test_a_stream_is_resumed_on_the_other_server(setup: Setup) -> None:
    first = await beginning(setup)
    for server in setup.servers:  # one of them runs it, and the other does not
        async with setup.directly(server) as there:
            await assert_resumed(there, first)


async def test_a_background_response_outlives_its_killed_server(setup: Setup) -> None:
    async with setup.directly(setup.servers[0]) as there:
        first = await beginning(there)
    setup.servers[0].kill()
    await assert_resumed(setup, first)
    answer = await setup.client.get(f"/responses/{first[0]['response']['id']}")
    assert answer.json()["status"] == "completed"


async def beginning(setup: Setup) -> list[Event]:
    seen: list[Event] = []
    body = {"input": "Go on", "background": True, "stream": True}
    async for event in setup.events("POST", "/responses", json=body):
        seen.append(event)
        if len(seen) == 12:
            break
    return seen


async def assert_resumed(setup: Setup, first: list[Event]) -> None:
    path = f"/responses/{first[0]['response']['id']}"
    query = {"stream": "true", "starting_after": str(first[-1]["sequence_number"])}
    events = [*first, *[event async for event in setup.events("GET", path, params=query)]]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "response.completed"
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == ANSWER
