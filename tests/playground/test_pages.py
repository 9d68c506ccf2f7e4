"""The landing page and the API reference: complete, self-contained, and without a hole for scripts."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser

import httpx
import pytest

from gpt_oss_server.playground.files import SWAGGER
from gpt_oss_server.settings import Settings
from tests.doubles.serving import scripted, serving

HELLO = "<|channel|>final<|message|>Hello!<|return|>"
LIMIT = 1_000_000  # bytes of a file in the repository


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    settings = Settings(served_model_name=("<script>alert(1)</script>",), web="off")
    with (
        serving(scripted(HELLO), settings) as url,
        httpx.Client(base_url=url.removesuffix("/v1"), timeout=60) as client,
    ):
        yield client


class _Links(HTMLParser):
    """What a page loads or links to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inline_scripts = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.found += [value for name in ("src", "href") if (value := given.get(name))]
        self.inline_scripts += tag == "script" and "src" not in given


def test_the_landing_page_names_the_model_the_api_and_the_reference(client: httpx.Client) -> None:
    answer = client.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "scripted" in answer.text
    assert f"{client.base_url}/v1" in answer.text
    assert f"{client.base_url}/docs" in _Links(answer.text).found
    assert client.head("/").status_code == 200


def test_names_are_escaped(client: httpx.Client) -> None:
    page = client.get("/").text
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_pages_load_nothing_from_elsewhere(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    links = _Links(answer.text)
    assert links.inline_scripts == 0
    for link in links.found:
        if link != "data:,":
            target = httpx.URL(str(client.base_url)).join(link)
            assert target.host == httpx.URL(str(client.base_url)).host
            assert client.get(target).status_code in (200, 503), link
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "http" not in policy


def test_the_reference_describes_this_server_s_own_document(client: httpx.Client) -> None:
    page = client.get("/docs").text
    path = re.findall(r'data-document="([^"]+)"', page)[0]
    assert "/v1/responses" in client.get(path).json()["paths"]


def test_the_reference_s_files_are_those_that_were_published(client: httpx.Client) -> None:
    vendored = json.loads((SWAGGER / "vendored.json").read_text())
    assert (vendored["package"], vendored["license"]) == ("swagger-ui-dist", "Apache-2.0")
    assert (SWAGGER / "LICENSE").is_file()
    assert set(vendored["sha256"]) == {"swagger-ui-bundle.js", "swagger-ui.css"}
    for name, sha256 in vendored["sha256"].items():
        stored = (SWAGGER / f"{name}.gz").read_bytes()
        assert len(stored) < LIMIT
        assert hashlib.sha256(gzip.decompress(stored)).hexdigest() == sha256
        packed = client.get(f"/docs/{name}")  # httpx accepts gzip, and unpacks
        plain = client.get(f"/docs/{name}", headers={"accept-encoding": "identity"})
        assert packed.headers["content-encoding"] == "gzip"
        assert "content-encoding" not in plain.headers
        assert packed.content == plain.content == gzip.decompress(stored)


def test_other_files_are_not_served(client: httpx.Client) -> None:
    for name in ("LICENSE", "vendored.json", "..%2frouter.py", "swagger-ui-bundle.js.gz"):
        assert client.get(f"/docs/{name}").status_code == 404, name
