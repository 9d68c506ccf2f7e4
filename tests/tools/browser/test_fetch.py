"""The fetcher against real servers: names, limits, compressions, and what it never sends."""

from __future__ import annotations

import gzip
import ssl
import threading
import zlib
from pathlib import Path

import httpx
import pytest

from tests.doubles.tools.web_servers import Answer, Seen, loopback, serve
from tools.browser.network.fetch import Fetcher
from tools.browser.pages.document import PageError

CERTIFICATE = Path(__file__).with_name("named_example.pem")  # for named.example, valid for a hundred years


def lab_fetcher(**options: object) -> Fetcher:
    return Fetcher(allow_private_hosts=True, resolver=loopback, **options)  # type: ignore[arg-type]


async def test_the_name_stays_in_the_host_header_while_the_connection_goes_to_the_address() -> None:
    with serve(lambda seen: Answer("hello")) as server:
        fetched = await lab_fetcher().get(f"http://named.example:{server.port}/a?b=c#d")
    assert fetched.data == b"hello"
    assert fetched.url == f"http://named.example:{server.port}/a?b=c"
    (seen,) = server.seen
    assert seen.path == "/a?b=c"
    assert seen.headers["host"] == f"named.example:{server.port}"


async def test_tls_requests_and_checks_the_name_and_not_the_address() -> None:
    names: list[str | None] = []
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(CERTIFICATE)
    server_side.sni_callback = lambda _socket, name, _context: names.append(name)
    transport = httpx.AsyncHTTPTransport(verify=ssl.create_default_context(cafile=str(CERTIFICATE)))
    with serve(lambda seen: Answer("secret"), tls=server_side) as server:
        fetcher = lab_fetcher(transport=transport)
        fetched = await fetcher.get(f"https://named.example:{server.port}/")
        with pytest.raises(PageError, match="TLS"):
            await fetcher.get(f"https://other.example:{server.port}/")
        await fetcher.close()
    assert fetched.data == b"secret"
    assert names == ["named.example", "other.example"]


async def test_no_cookie_referrer_credential_or_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    def answer(seen: Seen) -> Answer:
        if seen.path == "/":
            return Answer(status=302, headers={"Location": "/next", "Set-Cookie": "a=b"})
        return Answer("done")

    with serve(answer) as server:
        await lab_fetcher().get(server.url + "/")
    assert [seen.path for seen in server.seen] == ["/", "/next"]
    assert not {"cookie", "authorization", "referer"} & set(server.seen[1].headers)


async def test_five_redirects_are_followed_and_not_more() -> None:
    def answer(seen: Seen) -> Answer:
        left = int(seen.path.strip("/"))
        return Answer("end") if left == 0 else Answer(status=302, headers={"Location": f"/{left - 1}"})

    with serve(answer) as server:
        assert (await lab_fetcher().get(f"{server.url}/5")).data == b"end"
        with pytest.raises(PageError, match="more than 5 times"):
            await lab_fetcher().get(f"{server.url}/6")


async def test_the_domain_filter_applies_to_every_redirect() -> None:
    elsewhere = Answer(status=302, headers={"Location": "http://other.example/"})
    refusal = pytest.raises(PageError, match=r"other\.example is not among")
    with serve(lambda seen: elsewhere) as server, refusal:
        await lab_fetcher().get(f"http://named.example:{server.port}/", lambda url: "named.example" in url)


async def test_a_long_body_is_cut_and_marked() -> None:
    with serve(lambda seen: Answer(b"x" * 100_000)) as server:
        fetched = await lab_fetcher(max_bytes=1_000).get(server.url)
        uncut = await lab_fetcher(max_bytes=100_000).get(server.url)
    assert (len(fetched.data), fetched.cut) == (1_000, True)
    assert (len(uncut.data), uncut.cut) == (100_000, False)


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw deflate"])
async def test_compressed_bodies_are_read_and_a_bomb_stops_at_the_cap(encoding: str) -> None:
    def pack(data: bytes) -> bytes:
        if encoding == "gzip":
            return gzip.compress(data)
        packer = zlib.compressobj(wbits=zlib.MAX_WBITS if encoding == "deflate" else -zlib.MAX_WBITS)
        return packer.compress(data) + packer.flush()

    bodies = {"/small": pack(b"small page"), "/bomb": pack(b"\0" * 30_000_000)}
    headers = {"Content-Encoding": encoding.split()[-1]}
    with serve(lambda seen: Answer(bodies[seen.path], headers=headers)) as server:
        small = await lab_fetcher().get(f"{server.url}/small")
        bomb = await lab_fetcher(max_bytes=50_000).get(f"{server.url}/bomb")
    assert small.data == b"small page"
    assert (len(bomb.data), bomb.cut) == (50_000, True)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer("gone", status=404), "404 Not Found"),
        (Answer("odd", status=599), "599"),
        (Answer(status=304), "304"),
        (Answer(b"??", headers={"Content-Encoding": "br"}), "br"),
        (Answer(b"not gzip at all", headers={"Content-Encoding": "gzip"}), "damaged"),
        (Answer(status=302, headers={"Location": "http://[broken/"}), "not valid"),
    ],
)
async def test_a_response_that_is_not_a_page_is_explained(answer: Answer, words: str) -> None:
    with serve(lambda seen: answer) as server, pytest.raises(PageError, match=words):
        await lab_fetcher().get(server.url)


async def test_a_server_that_goes_silent_costs_only_the_time_limit() -> None:
    release = threading.Event()
    with serve(lambda seen: Answer("late" if release.wait(10) else "later")) as server:
        try:
            with pytest.raises(PageError, match=r"within 0\.2 seconds"):
                await lab_fetcher(timeout=0.2).get(server.url)
        finally:
            release.set()
    with pytest.raises(PageError, match="no connection") as refusal:  # it has ended
        await lab_fetcher().get(f"http://named.example:{server.port}/")
    assert "127.0.0.1" not in str(refusal.value)


async def test_the_next_address_is_tried_where_the_first_does_not_answer() -> None:
    async def two(host: str, port: int) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]

    with serve(lambda seen: Answer("second")) as server:
        fetcher = Fetcher(allow_private_hosts=True, resolver=two)
        assert (await fetcher.get(f"http://two.example:{server.port}/")).data == b"second"


@pytest.mark.parametrize("host", ["xn--localhost-", "xn--a", "xn--", "xn--zzzz.example"])
async def test_a_malformed_international_name_is_a_sentence(host: str) -> None:
    with pytest.raises(PageError, match="international host name is malformed"):
        await Fetcher().get(f"http://{host}:1/")
