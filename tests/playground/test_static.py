"""The playground's files, without a browser: complete, small, vendored as published, and removable."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

import httpx
import pytest

from gpt_oss_server.playground.files import STATIC, static_files
from gpt_oss_server.settings import Settings
from tests.doubles.serving import scripted, serving

HELLO = "<|channel|>final<|message|>Hello!<|return|>"
MOST_BYTES = 400_000
MOST_LINES = 300
MODULES = sorted(name for name in static_files() if name.endswith(".js") and not name.startswith("vendor/"))
_IMPORT = re.compile(r'^(?:import|export)\b[^"\n]*"(\.[^"]+)";|^} from "(\.[^"]+)";', re.MULTILINE)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with serving(scripted(HELLO)) as url, httpx.Client(base_url=url.removesuffix("/v1")) as client:
        yield client


def test_all_files_together_are_small() -> None:
    assert sum(len(file.plain) for file in static_files().values()) <= MOST_BYTES


def test_modules_are_short_and_import_each_other_only() -> None:
    for name in MODULES:
        text = (STATIC / name).read_text(encoding="utf-8")
        assert text.count("\n") <= MOST_LINES, name
        assert "http" not in "".join(re.findall(r"\bimport\b.*|\bfrom \".*", text)), name
        assert text.startswith("// "), f"{name} does not say what it is"
        for found in _IMPORT.findall(text):
            target = _joined(name, found[0] or found[1])
            assert target in static_files(), f"{name} imports {target}"


def _joined(name: str, relative: str) -> str:
    parts: list[str] = []
    for part in [*PurePosixPath(name).parent.parts, *relative.split("/")]:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def test_every_module_is_used() -> None:
    reached, waiting = set(), ["main.js"]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            text = (STATIC / name).read_text(encoding="utf-8")
            waiting += [_joined(name, found[0] or found[1]) for found in _IMPORT.findall(text)]
    assert set(MODULES) <= reached


def test_vendored_files_are_those_that_were_published() -> None:
    listed = json.loads((STATIC / "vendor/vendored.json").read_text())
    vendored = {path.relative_to(STATIC / "vendor").as_posix() for path in STATIC.glob("vendor/**/*.js")}
    assert {row["file"] for row in listed} == vendored
    for row in listed:
        content = (STATIC / "vendor" / row["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == row["sha256"], row["file"]
        assert row["package"]
        assert row["version"]
        assert row["license"]
        assert all((STATIC / "vendor" / name).is_file() for name in row["license_files"])


def test_the_page_has_no_inline_script_and_a_strict_policy(client: httpx.Client) -> None:
    answer = client.get("/")
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert not re.search(r"<script(?![^>]*\bsrc=)|\bon\w+=|style=", answer.text)
    for link in re.findall(r'(?:src|href)="([^"]+)"', answer.text):
        assert not link.startswith(("/", "http")), "links are relative, for a path prefix"
        assert client.get(f"/{link}").status_code == 200, link


def test_files_are_compressed_and_asked_for_again_by_their_tag(client: httpx.Client) -> None:
    plain = client.get("/web/main.js", headers={"accept-encoding": "identity"})
    packed = client.get("/web/main.js", headers={"accept-encoding": "gzip"})
    assert packed.headers["content-encoding"] == "gzip"
    assert plain.content == packed.content == (STATIC / "main.js").read_bytes()
    assert plain.headers["etag"] != packed.headers["etag"]
    again = client.get("/web/main.js", headers={"if-none-match": packed.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert gzip.decompress(static_files()["main.js"].packed or b"") == plain.content


@pytest.mark.parametrize(
    "path", ["vendor/vendored.json", "../files.py", "%2e%2e/files.py", "vendor/htm.LICENSE", ""]
)
def test_other_files_are_not_served(client: httpx.Client, path: str) -> None:
    assert client.get(f"/web/{path}").status_code == 404


def test_web_off_removes_it_all() -> None:
    with serving(scripted(HELLO), Settings(web="off")) as url:
        base = url.removesuffix("/v1")
        assert "From a terminal" in httpx.get(f"{base}/").text
        for path in ("web/main.js", "web/css/base.css"):
            answer = httpx.get(f"{base}/{path}")
            assert (answer.status_code, answer.json()["error"]["type"]) == (404, "invalid_request_error")
