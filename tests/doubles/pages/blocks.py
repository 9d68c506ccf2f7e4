"""The code blocks of the documentation, and the commands of those in a shell's language."""

import io
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from openai import OpenAI

from tests.doubles.server_process import Served

ROOT = Path(__file__).resolve().parents[3]
ADDRESS = "http://127.0.0.1:8000"
SHELLS = ("bash", "sh")
# Tests of their own run every block of these pages.
_PAGES = ("tutorial", "structured-output", "python-tool", "background", "mcp", "client-tools")
_TYPED = ("README.md", "docs/index.md", *(f"docs/{page}.md" for page in _PAGES))
RUN_ELSEWHERE = dict.fromkeys(_TYPED, "tests/e2e/test_pages.py")
RUN_ELSEWHERE["docs/extending.md"] = "tests/meta/test_extending.py"
_BLOCK = re.compile(
    r"(?:^ *<!-- not run: (?P<reason>[^\n]+) -->\n\n?)?"
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_COMMENT = re.compile(r"(?<![\w'\"\\])#.*$")


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    code: str
    reason: str | None  # why it is not run

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / ".github").rglob("*.md")]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def blocks() -> Iterator[Block]:
    for page in pages():
        yield from blocks_of(page)


def blocks_of(page: str) -> Iterator[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("language")) + 1
        indent = len(found["indent"])
        code = "".join(row[indent:] for row in found["code"].splitlines(keepends=True))
        yield Block(page, line, found["language"], code, found["reason"])


def with_shown(page: str) -> list[tuple[Block, str | None]]:
    """The blocks that a reader types, each with what the page shows directly after it as its output."""
    found = list(blocks_of(page))
    return [
        (block, after.code if after is not None and after.language == "text" else None)
        for block, after in zip(found, [*found[1:], None], strict=True)
        if block.language != "text"
    ]


def commands(block: Block) -> list[str]:
    """The commands of a block, each on one line, without comments."""
    joined = block.code.replace("\\\n", " ")
    lines = (_COMMENT.sub("", line).strip() for line in joined.splitlines())
    found: list[str] = []
    for line in filter(None, lines):
        if found and _is_open(found[-1]):
            found[-1] += f"\n{line}"
        else:
            found.append(line)
    return found


def _is_open(command: str) -> bool:
    """A quotation of it goes on in the next line."""
    try:
        shlex.split(command)
    except ValueError:
        return True
    return False


def words_of(command: str) -> tuple[dict[str, str], list[str]]:
    """The variables that a command sets for itself, and its words."""
    words = shlex.split(command)
    variables: dict[str, str] = {}
    while words and re.match(r"[A-Z_]+=", words[0]):
        name, _, variables[name] = words.pop(0).partition("=")
    return variables, words


@contextmanager
def shared_names(**given: object) -> Iterator[dict[str, object]]:
    """The names that the Python blocks of a page share; the clients among them are closed at the end."""
    names = dict(given)
    try:
        yield names
    finally:
        for found in names.values():
            if isinstance(found, OpenAI):
                found.close()


def run_python(block: Block, served: Served, names: dict[str, object]) -> str:
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(block.code.replace(ADDRESS, served.url), str(block), "exec"), names)
    return printed.getvalue()


def run_curl(command: str, served: Served) -> str:
    local = command.replace(ADDRESS, served.url)
    done = subprocess.run(["bash", "-c", local], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout
