"""The pages and their files, without a browser: complete, small, as published, with no hole for scripts."""

import gzip
import hashlib
import json
import posixpath
import re
from collections.abc import Iterator
from html.parser import HTMLParser

import httpx
import pytest

from gpt_oss_server.playground.files import STATIC, SWAGGER, static_files
from gpt_oss_server.settings import Settings
from tests.doubles.serving import HELLO, scripted, serving

MOST_BYTES = 400_000  # of the playground as it is sent, without what it loads on demand
ON_DEMAND = ("vendor/katex/", "vendor/mermaid/")
MOST_OF_A_FILE = 1_000_000  # in the repository
MOST_LINES = 300
MODULES = sorted(name for name in static_files() if name.endswith(".js") and not name.startswith("vendor/"))
_IMPORT = re.compile(r'^(?:import|export)\b[^"\n]*"(\.[^"]+)";|^} from "(\.[^"]+)";', re.MULTILINE)


def served(settings: Settings) -> Iterator[httpx.Client]:
    with (
        serving(scripted(HELLO), settings) as url,
        httpx.Client(base_url=url.removesuffix("/v1"), timeout=60) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    yield from served(Settings())


@pytest.fixture(scope="module")
def without() -> Iterator[httpx.Client]:
    yield from served(Settings(web="off"))


class _Links(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.inline_scripts = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.links += [value for name in ("src", "href") if (value := values.get(name))]
        self.inline_scripts += tag == "script" and "src" not in values


def test_all_files_together_are_small() -> None:
    files = {name: file for name, file in static_files().items() if not name.startswith(ON_DEMAND)}
    assert sum(len(file.packed) for file in files.values()) <= MOST_BYTES
    assert all(path.stat().st_size < MOST_OF_A_FILE for path in STATIC.rglob("*"))


def imports(name: str) -> list[str]:
    found = [one or other for one, other in _IMPORT.findall(static_files()[name].plain.decode())]
    return [posixpath.normpath(posixpath.join(posixpath.dirname(name), relative)) for relative in found]


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_short_and_import_each_other_only(name: str) -> None:
    text = static_files()[name].plain.decode()
    assert text.count("\n") <= MOST_LINES
    assert "http" not in "".join(re.findall(r"\bimport\b.*|\bfrom \".*", text))
    assert text.startswith("// "), "it does not state what it is"
    assert set(imports(name)) <= set(static_files())


def test_every_module_is_used() -> None:
    reached, waiting = set(), ["main.js", "diagram/frame.js"]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += imports(name)
    assert set(MODULES) <= reached


def test_vendored_files_are_those_that_were_published() -> None:
    listed = json.loads((STATIC / "vendor/vendored.json").read_text())
    vendored = {name.removeprefix("vendor/") for name in static_files() if name.startswith("vendor/")}
    assert {row["file"] for row in listed} == vendored
    for row in listed:
        content = static_files()[f"vendor/{row['file']}"].plain
        assert hashlib.sha256(content).hexdigest() == row["sha256"], row["file"]
        assert all(row[key] for key in ("package", "version", "license"))
        assert all((STATIC / "vendor" / name).is_file() for name in row["license_files"])


def test_the_page_has_no_inline_script_and_a_strict_policy(client: httpx.Client) -> None:
    answer = client.get("/")
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert not re.search(r"<script(?![^>]*\bsrc=)|\bon\w+=|style=", answer.text)
    deeper = client.get("/c/anything")
    assert deeper.headers["content-security-policy"] == answer.headers["content-security-policy"]
    for place, page in (("/", answer), ("/c/anything", deeper)):
        for link in _Links(page.text).links:
            assert not link.startswith(("/", "http")), "links are relative, for a path prefix"
            assert client.get(str(httpx.URL(f"http://x{place}").join(link).path)).status_code == 200, link


def test_diagrams_have_a_frame_that_may_do_nothing_else(client: httpx.Client) -> None:
    answer = client.get("/web/diagram/frame.html")
    policy = answer.headers["content-security-policy"]
    nonce = re.findall(r"default-src 'none'; script-src 'nonce-([\w-]{20,})'; style-src", policy)[0]
    assert answer.text.count(f'<script nonce="{nonce}" src=') == answer.text.count("<script") == 2
    assert "connect-src" not in policy
    assert _Links(answer.text).inline_scripts == 0
    for link in _Links(answer.text).links:
        assert client.get(str(httpx.URL("http://x/web/diagram/").join(link).path)).status_code == 200


def test_files_are_compressed_and_requested_again_by_their_tag(client: httpx.Client) -> None:
    plain = client.get("/web/main.js", headers={"accept-encoding": "identity"})
    packed = client.get("/web/main.js", headers={"accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert plain.content == packed.content == (STATIC / "main.js").read_bytes()
    assert plain.headers["etag"] != packed.headers["etag"]
    again = client.get("/web/main.js", headers={"if-none-match": packed.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_other_files_are_not_served(client: httpx.Client) -> None:
    web = ("", "vendor/vendored.json", "vendor/htm.LICENSE", "../files.py", "%2e%2e/files.py")
    docs = ("LICENSE", "vendored.json", "..%2frouter.py", "swagger-ui-bundle.js.gz")
    for path in (*(f"/web/{name}" for name in web), *(f"/docs/{name}" for name in docs)):
        assert client.get(path).status_code == 404, path


def test_web_off_removes_the_playground_and_the_first_page_is_the_reference(without: httpx.Client) -> None:
    for path in ("web/main.js", "web/css/base.css"):
        answer = without.get(f"/{path}")
        assert (answer.status_code, answer.json()["error"]["type"]) == (404, "invalid_request_error")
    answer = without.get("/")
    assert (answer.status_code, answer.headers["location"]) == (307, "/docs")


def test_the_reference_loads_nothing_from_elsewhere(without: httpx.Client) -> None:
    answer = without.get("/docs")
    page = _Links(answer.text)
    assert page.inline_scripts == 0
    for link in page.links:
        if link != "data:,":
            target = httpx.URL(str(without.base_url)).join(link)
            assert target.host == httpx.URL(str(without.base_url)).host
            assert without.get(target).status_code in (200, 503), link
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "http" not in policy


def test_the_reference_describes_this_server_s_own_document(client: httpx.Client) -> None:
    path = re.findall(r'data-document="([^"]+)"', client.get("/docs").text)[0]
    assert "/v1/responses" in client.get(path).json()["paths"]


def test_the_reference_s_files_are_those_that_were_published(client: httpx.Client) -> None:
    vendored = json.loads((SWAGGER / "vendored.json").read_text())
    assert (vendored["package"], vendored["license"]) == ("swagger-ui-dist", "Apache-2.0")
    assert (SWAGGER / "LICENSE").is_file()
    assert set(vendored["sha256"]) == {"swagger-ui-bundle.js", "swagger-ui.css"}
    for name, sha256 in vendored["sha256"].items():
        stored = (SWAGGER / f"{name}.gz").read_bytes()
        assert len(stored) < MOST_OF_A_FILE
        assert hashlib.sha256(gzip.decompress(stored)).hexdigest() == sha256
        packed = client.get(f"/docs/{name}")  # httpx accepts gzip, and unpacks
        plain = client.get(f"/docs/{name}", headers={"accept-encoding": "identity"})
        assert packed.headers["content-encoding"] == "gzip"
        assert "content-encoding" not in plain.headers
        assert packed.content == plain.content == gzip.decompress(stored)
