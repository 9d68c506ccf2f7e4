"""The code of docs/extending.md, in a copy of the server, passes `extending/` and the rules of the house."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
COPIED = ("gpt_oss_server", "inference", "tools", "tests", "docs", "examples")
RULES = (
    "imports_go_one_way_and_modules_open_with_a_docstring",
    "imports_make_no_circle",
    "no_folder_holds_more_than_20_files_of_its_own",
)
PASSED = [f"tests/meta/extending/{part}.py" for part in ("hosted_tool", "store", "engine")]
PASSED += [f"tests/meta/test_house.py::test_{rule}" for rule in RULES]
BLOCK = re.compile(r"^```(python|diff)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(PAGE) if kind == language]


@pytest.fixture
def extended(tmp_path: Path) -> Path:
    copy = tmp_path / "extended"
    for name in COPIED:
        # With what is compiled: files keep their times, so Python compiles only what the page changes.
        left_out = shutil.ignore_patterns("*.safetensors", "snapshots", "published", "images")
        shutil.copytree(ROOT / name, copy / name, ignore=left_out)
    shutil.copy(ROOT / "pyproject.toml", copy / "pyproject.toml")
    for head, _, code in (text.partition("\n") for text in blocks("python")):
        path = head.removeprefix("# ")
        assert not (copy / path).exists(), f"{path} is there already"
        (copy / path).write_text(code, encoding="utf-8")
    for patch in blocks("diff"):
        subprocess.run(["git", "apply", "-"], input=patch, text=True, cwd=copy, check=True)
    return copy


def test_what_the_page_adds_works(extended: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PASSED]
    environment = {**os.environ, "PYTHONPATH": str(extended)}
    done = subprocess.run(command, cwd=extended, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_is_short_and_linked() -> None:
    assert len(PAGE.splitlines()) <= 220
    assert "extending.md" in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
