"""Backends by name: a valid name creates its backend, and an unusable one is explained."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools.browser import default_backend, parse_backend
from tools.browser.backends.exa import ExaBackend
from tools.browser.backends.local import LocalBackend
from tools.browser.backends.searxng import SearxngBackend
from tools.tool import ToolUnavailable

KEY = {"EXA_API_KEY": "a-key"}


def test_each_name_gives_its_backend(tmp_path: Path) -> None:
    assert isinstance(parse_backend("exa", KEY), ExaBackend)
    assert isinstance(parse_backend("exa:http://127.0.0.1:9/", KEY), ExaBackend)
    assert isinstance(parse_backend(f"local:{tmp_path}", {}), LocalBackend)
    assert isinstance(parse_backend("searxng:http://127.0.0.1:8080", {}), SearxngBackend)
    assert parse_backend(" off ", {}) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *(("exa", "set EXA_API_KEY"), ("google", "must be exa, exa:URL, local:DIR, searxng:URL or off")),
        *(("", "must be exa"), ("off:x", "must be exa"), ("local:", "needs a folder")),
        *(
            (f"local:{folder}", "a folder that exists")
            for folder in ("~nobody-of-this-name/docs", "/nowhere")
        ),
        *((f"searxng:{address}", "needs an address") for address in ("", "example.com", "http://")),
    ],
)
def test_an_unusable_backend_is_explained(text: str, words: str) -> None:
    with pytest.raises(ToolUnavailable, match=words):
        parse_backend(text, {})


def test_exa_is_the_default_where_its_key_is_set() -> None:
    assert default_backend(KEY) == "exa"
    assert default_backend({"EXA_API_KEY": ""}) == default_backend({}) == "off"


def test_the_browser_imports_neither_the_server_nor_heavy_packages() -> None:
    heavy = "gpt_oss_server inference torch fastapi openai_harmony exa_py pypdf selectolax.parser"
    code = f"import sys, tools.browser; sys.exit(' '.join(set('{heavy}'.split()) & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
