"""The docs match the code: generated pages are current, and settings and errors are documented."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import gpt_oss_server
from gpt_oss_server.errors import every_error
from gpt_oss_server.settings import OPTIONS

ROOT = Path(__file__).resolve().parents[2]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_generated_docs_are_current() -> None:
    command = [sys.executable, "docs/generate.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_every_setting_is_documented_and_read(option: object) -> None:
    name = option.name  # type: ignore[attr-defined]
    assert option.variable in read("docs/settings.md")  # type: ignore[attr-defined]
    readers = [path for room in ("gpt_oss_server", "inference") for path in (ROOT / room).rglob("*.py")]
    reads = re.compile(rf"\bsettings\.{name}\b|\b_?options\.{name}\b|\bself\.{name}\b")
    assert any(reads.search(path.read_text(encoding="utf-8")) for path in readers), "it changes nothing"


@pytest.mark.parametrize("error", every_error(), ids=lambda error: error.__name__)
def test_every_error_code_is_documented(error: object) -> None:
    row = f"| `{error.code}` | {error.status} | `{error.type}` |"  # type: ignore[attr-defined]
    assert row in read("docs/errors.md") or "| `server_error` | 500 |" in row


def test_every_documented_error_code_exists() -> None:
    written = set(re.findall(r"^\| `(\w+)` \|", read("docs/errors.md"), re.MULTILINE))
    assert written == {error.code for error in every_error()}


def test_the_changelog_has_this_version() -> None:
    assert f"## [{gpt_oss_server.__version__}]" in read("CHANGELOG.md")


def test_the_readme_shows_the_tested_quick_start() -> None:
    example = read("examples/quickstart.py").partition('"""\n\n')[2]
    assert f"```python\n{example}```" in read("README.md")


def test_links_between_the_docs_resolve() -> None:
    pages = ("README.md", "CHANGELOG.md", "inference/tiny/README.md")
    for page in [*(ROOT / name for name in pages), *(ROOT / "docs").rglob("*.md")]:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\((?!https?://)([^)#]+)", text):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
