"""The docs match the code: generated pages, settings, errors, clients, the way of a token, pictures."""

import json
import re
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import gpt_oss_server
from docs.pictures.__main__ import FOLDER as IMAGES
from docs.pictures.__main__ import pictures
from gpt_oss_server.errors import every_error
from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.harmony.events import SlipKind
from gpt_oss_server.settings import OPTIONS
from inference.engine import Sampling, Step
from tests.doubles.apis.api_client import Api
from tests.doubles.engines.replay import ReplayEngine

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


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


PARENTS = (
    "",
    "gpt_oss_server",
    "gpt_oss_server/apis",
    "inference",
    "inference/local",
    "inference/ops",
    "tools",
)
NO_FILES = {"http/protobuf", "tests/mutations"}  # a protocol, and a folder of an earlier commit


def test_files_and_modules_that_pages_name_exist() -> None:
    folders = [ROOT / parent for parent in (*PARENTS, "tools/python")]
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS.rglob("*.md")]:
        named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)+(?:\.py)?/?)`", page.read_text(encoding="utf-8")))
        for name in sorted(named - NO_FILES):
            near = [folder for folder in folders if (folder / name.partition("/")[0]).is_dir()]
            found = [
                path for folder in near for path in (folder / name, folder / f"{name}.py") if path.exists()
            ]
            assert found or not near, f"{page.name} names {name}, which is not there"


CLIENTS = ROOT / "tests" / "clients"
PAGES = DOCS / "clients"
HELPERS = {"node", "ws", "zod", "moto[s3,server]"}  # what clients and tests need, and no client


def installed() -> list[str]:
    """The clients as the commands of the pages name them, with their versions."""
    files = sorted((CLIENTS / "environments").glob("*.txt"))
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    package = json.loads((CLIENTS / "package.json").read_text(encoding="utf-8"))
    node = {name: version for name, version in package["dependencies"].items() if name not in HELPERS}
    python = [line for line in lines if "==" in line and line.partition("==")[0] not in HELPERS]
    return python + [f"{name}@{version}" for name, version in node.items()]


def test_the_pages_of_clients_state_the_versions_that_make_clients_installs() -> None:
    pages = {path.name: path.read_text(encoding="utf-8") for path in PAGES.glob("*.md")}
    assert [client for client in installed() if client not in "\n".join(pages.values())] == []
    table = pages.pop("README.md")
    # The providers of the AI SDK have numbers of their own, which only its page states.
    clients = [client for client in installed() if not client.startswith("@ai-sdk/")]
    assert sorted(client for client in clients if re.split("==|@", client)[-1] not in table) == []
    assert sorted(name for name in pages if f"({name}" not in table) == []


TURN = ["Generation.events", "Turn.events"]


class Watched(ReplayEngine):
    """Keeps the server's functions that wait for a token, from the engine outwards."""

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        async for step in super().generate(tokens, sampling):
            self.way: list[str] = []
            frame = sys._getframe().f_back
            while frame is not None:
                if Path(frame.f_code.co_filename).is_relative_to(ROOT / "gpt_oss_server"):
                    self.way.append(frame.f_code.co_qualname)
                frame = frame.f_back
            yield step

    async def check(self) -> None:
        """As the project's engines have it; the server counts the failures of others itself."""


@pytest.mark.parametrize(
    ("path", "body", "way"),
    [
        ("/responses", {"input": "Hi"}, [*TURN, "Run.events"]),
        (
            "/chat/completions",
            {"messages": [{"role": "user", "content": "Hi"}]},
            [*TURN, "ChatRun._generate", "ChatRun.chunks"],
        ),
        ("/completions", {"prompt": "Hi"}, ["CompletionRun._generate", "CompletionRun.chunks"]),
    ],
)
async def test_a_streamed_token_passes_few_stages(path: str, body: dict[str, Any], way: list[str]) -> None:
    engine = Watched(load_encoding().encode_special("<|channel|>final<|message|>Hello<|return|>"))
    answer = await Api(engine).client.post(path, json={**body, "stream": True})
    assert answer.status_code == 200
    assert engine.way[: engine.way.index("pump")] == way


def test_the_architecture_names_each_stage() -> None:
    page = read("docs/architecture.md")
    assert [stage for stage in (*TURN, "Run.events") if f"`{stage}`" not in page] == []


MOST_BYTES = 40_000


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    return pictures()


def test_each_picture_shows_what_the_server_does_now(drawn: dict[str, str]) -> None:
    stored = {path.stem: path.read_text(encoding="utf-8") for path in IMAGES.glob("*.svg")}
    assert stored == drawn, "run `python -m docs.pictures`"


def test_each_picture_is_small_has_words_for_it_and_stands_on_a_page(drawn: dict[str, str]) -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in DOCS.glob("*.md"))
    for name, svg in drawn.items():
        root = ElementTree.fromstring(svg)
        assert len(svg.encode()) < MOST_BYTES
        assert [child.tag.partition("}")[2] for child in root[:2]] == ["title", "desc"]
        assert "prefers-color-scheme:dark" in svg
        assert f"](images/{name}.svg)" in pages


def test_the_page_on_slips_has_every_kind() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", read("docs/slips.md"), re.MULTILINE)
    written = [name for row in rows for name in re.findall(r"`(\w+)`", row) if name != "metadata"]
    assert sorted(written) == sorted(str(kind) for kind in SlipKind)
