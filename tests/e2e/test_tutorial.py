"""The tutorial, typed as it stands, except for the port: each block prints what the page shows."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest

from tests.doubles.pages.names import shared_names
from tests.doubles.server_process import Served, serving
from tests.e2e.test_examples_readme import run_curl
from tests.tools.python.conftest import bubblewrap

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
ADDRESS = "http://127.0.0.1:8000"
_BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
_DATE = re.compile(r"(?<=Current date: )\S+")


@dataclass(frozen=True)
class Block:
    language: str
    code: str
    shown: str | None  # what the page says that it prints


def blocks(page: Path = PAGE) -> list[Block]:
    found = [
        (language, textwrap.dedent(code))
        for _, language, code in _BLOCK.findall(page.read_text(encoding="utf-8"))
    ]
    following = [*found[1:], ("", "")]
    return [
        Block(language, code, text if kind == "text" else None)
        for (language, code), (kind, text) in zip(found, following, strict=True)
        if language != "text"
    ]


def run_example(path: str, served: Served) -> str:
    environment = os.environ | {"OPENAI_BASE_URL": served.api, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, path]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as served:
        yield served


def test_every_block_prints_what_the_page_shows(served: Served) -> None:
    bubblewrap()
    checked = 0
    with shared_names() as names:
        for block in blocks():
            if block.language == "python":
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(block.code.replace(ADDRESS, served.url), names)
                found = printed.getvalue()
            elif block.code.startswith("curl"):
                found = run_curl(block.code, served)
            elif block.code.startswith(".venv/bin/python"):
                found = run_example(block.code.split()[1], served)
            else:
                continue  # starts the server
            if block.shown is not None:
                shown = _DATE.sub(date.today().isoformat(), block.shown)
                assert found.rstrip() == shown.rstrip()
                checked += 1
    assert checked == 9
