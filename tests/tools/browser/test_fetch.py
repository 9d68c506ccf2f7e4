"""The fetcher: names, limits, compressions, what it never sends, and private addresses, never reached."""

import gzip
import ssl
import threading
import zlib
from pathlib import Path

import httpx
import pytest

from tests.doubles.tools.web_servers import Answer, Seen, loopback, serve
from tools.addresses import AddressRefused, resolve_allowed, system_resolver
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


PUBLIC = "93.184.216.34"
NAMES = {
    "localhost": ["127.0.0.1"],
    "sub.localhost": ["127.0.0.1"],
    "metadata.google.internal": ["169.254.169.254"],
    "router.local": ["192.168.0.1"],
    "six.example": ["::1"],
    "mixed.example": [PUBLIC, "10.0.0.7"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "nat64.example": ["64:ff9b::7f00:1"],
    "empty.example": [],
    "127.0.0.1.nip.example": ["127.0.0.1"],
    "xn--lcalhost-n4a.example": ["127.0.0.1"],
}

_REFUSED = """
http://127.0.0.1/ http://127.0.0.1:80/ http://127.1/ http://127.0.1/ http://2130706433/ http://0x7f000001/
http://0x7f.1/ http://0x7f.0x0.0x0.0x1/ http://017700000001/ http://0177.0.0.1/ http://0177.1/ http://127.0.0.1./
http://127.000.000.001/ http://0/ http://0.0.0.0/ http://00000000/ http://[::]/ http://[::1]/ http://[::1]:8080/
http://[0:0:0:0:0:0:0:1]/ http://[::ffff:127.0.0.1]/ http://[::ffff:7f00:1]/ http://[::ffff:10.0.0.1]/
http://[::127.0.0.1]/ http://[2002:7f00:1::]/ http://[2002:a9fe:a9fe::]/ http://[64:ff9b::7f00:1]/
http://[64:ff9b:1::7f00:1]/ http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/ http://[2600::5efe:7f00:1]/
http://[fe80::1]/ http://[fe80::1%25eth0]/ http://[fc00::1]/ http://[fd00:ec2::254]/ http://[fec0::1]/
http://[ff02::1]/ http://[2001:db8::1]/ http://10.0.0.1/ http://10.255.255.255/ http://172.16.0.1/
http://172.31.255.255/ http://192.168.1.1/ http://169.254.169.254/latest/meta-data/ http://169.254.170.2/
http://[::ffff:169.254.169.254]/ http://2852039166/ http://0xa9fea9fe/ http://0251.0376.0251.0376/
http://100.64.0.1/ http://100.100.100.200/ http://192.0.0.192/ http://168.63.129.16/ http://192.0.2.1/
http://198.18.0.1/ http://198.51.100.1/ http://203.0.113.1/ http://224.0.0.1/ http://239.255.255.250/
http://240.0.0.1/ http://255.255.255.255/ http://192.88.99.1/
http://localhost/ http://LOCALHOST/ http://localhost./ http://sub.localhost/ http://metadata.google.internal/
http://router.local/ http://six.example/ http://mixed.example/ http://mapped.example/ http://nat64.example/
http://empty.example/ http://127.0.0.1.nip.example/ http://xn--lcalhost-n4a.example/
http://example.com@127.0.0.1/ http://127.0.0.1@example.com/ http://user:pass@example.com/ http://@127.0.0.1/
http://example.com:80@127.0.0.1/ http://example.com%40127.0.0.1/ http://127.0.0.1%2f@example.com/
http://127.0.0.1%00.example.com/ http://127.0.0.1%23@example.com/ http://example.com\\@127.0.0.1/
http://127。0。0。1/ http://１２７.0.0.1/ http://①②⑦.0.0.1/ http://ⓛocalhost/ http://loc%61lhost/ http://127%2e0.0.1/
http:///127.0.0.1/ http:127.0.0.1 http:/127.0.0.1/ //127.0.0.1/ http://:80/ http://.../ http://example.com:0/
http://example.com:99999/ http://[::1/ http://[127.0.0.1]/ http://[v1.x]/ http://-a-/ http://a..b/
https://127.0.0.1/ https://[::1]/ HTTP://127.0.0.1/
file:///etc/passwd ftp://example.com/ gopher://example.com/ dict://example.com:11211/ data:text/html,x
javascript:alert(1) jar:http://example.com!/ unix:/var/run/docker.sock view-source:http://127.0.0.1/
http://[::ffff:8.8.8.8]/ http://[64:ff9b::808:808]/ http://[100::1]/ http://[3fff::1]/ http://[5f00::1]/
example.com ?
"""
REFUSED = _REFUSED.split()

REDIRECTS = [
    "http://127.0.0.1/", "//127.0.0.1/", "http://2130706433/", "http://localhost/", "http://[::1]/",
    "file:///etc/passwd", "http://169.254.169.254/latest/", "https://mixed.example/",
    "http://user@example.com/", "gopher://example.com/", "http://[::ffff:127.0.0.1]/", "http://0x7f.1/",
    "\\\\127.0.0.1\\x", "http://rebinding.example/",
]  # fmt: skip


class Network(httpx.AsyncBaseTransport):
    def __init__(self, redirect: str | None = None) -> None:
        self.reached: list[str] = []
        self.redirect = redirect

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.reached.append(request.url.host)
        if self.redirect is not None and len(self.reached) == 1:
            return httpx.Response(302, headers={"location": self.redirect})
        return httpx.Response(200, stream=httpx.ByteStream(b"reached"))


class Names:
    """A resolver that changes its answer: `rebinding.example` is public once, and private afterwards."""

    def __init__(self) -> None:
        self.lookups: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.lookups.append(host)
        if host == "rebinding.example":
            return [PUBLIC] if self.lookups.count(host) == 1 else ["127.0.0.1"]
        return NAMES.get(host, [PUBLIC])


@pytest.mark.parametrize("url", REFUSED)
async def test_an_address_that_is_not_plainly_public_is_refused_unconnected(url: str) -> None:
    network = Network()
    with pytest.raises(PageError) as refusal:
        await Fetcher(resolver=Names(), transport=network).get(url)
    assert not network.reached
    assert "127.0.0.1" not in str(refusal.value) or "127.0.0.1" in url


@pytest.mark.parametrize("target", REDIRECTS)
async def test_a_redirect_to_a_private_address_is_not_followed(target: str) -> None:
    network, names = Network(redirect=target), Names()
    first = "http://rebinding.example/" if "rebinding" in target else "http://public.example/"
    with pytest.raises(PageError):
        await Fetcher(resolver=names, transport=network).get(first)
    assert network.reached == [PUBLIC]


async def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    network, names = Network(), Names()
    fetched = await Fetcher(resolver=names, transport=network).get("http://rebinding.example/page")
    assert fetched.data == b"reached"
    assert network.reached == [PUBLIC]
    assert names.lookups == ["rebinding.example"]


async def test_public_addresses_are_fetched_in_every_honest_spelling() -> None:
    spellings = "http://1.1.1.1/ https://[2606:4700:4700::1111]/ http://example.com./x http://Bücher.example/"
    for url in spellings.split():
        network = Network()
        fetched = await Fetcher(resolver=Names(), transport=network).get(url)
        assert fetched.data == b"reached"
        assert len(network.reached) == 1
    assert fetched.url == "http://xn--bcher-kva.example/"


async def test_a_laboratory_may_allow_private_hosts_but_not_odd_spellings() -> None:
    network = Network()
    fetcher = Fetcher(resolver=Names(), transport=network, allow_private_hosts=True)
    for url in ("http://localhost/", "http://10.0.0.1/"):
        assert (await fetcher.get(url)).data == b"reached"
    for url in ("http://2130706433/", "file:///etc/passwd"):
        with pytest.raises(PageError):
            await fetcher.get(url)
    assert network.reached == ["127.0.0.1", "10.0.0.1"]


async def test_a_name_that_does_not_resolve_is_refused_with_a_sentence() -> None:
    async def nowhere(host: str, port: int) -> list[str]:
        if host == "empty.example":
            return []
        raise OSError("no such host")

    for host, words in (("nowhere.example", "could not be resolved"), ("empty.example", "has no address")):
        with pytest.raises(AddressRefused, match=words):
            await resolve_allowed(host, 443, resolver=nowhere)


LOOPBACKS = ("127.0.0.1", "2130706433", "0x7f000001", "127.1", "0177.0.0.1", "::1", "localhost")


@pytest.mark.parametrize("host", [*LOOPBACKS, "a" * 64 + ".example"])
async def test_the_system_resolver_lets_no_spelling_of_loopback_and_no_endless_name_pass(host: str) -> None:
    with pytest.raises(AddressRefused):
        await resolve_allowed(host, 80, resolver=system_resolver)
