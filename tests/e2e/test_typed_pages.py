"""The pages that a reader types from the top: each block, but for the address, prints what is shown.

README.md's quick start, tutorial.md, and the Python of structured-output.md, python-tool.md, background.md.
"""

import json
import re
from collections.abc import Iterator
from datetime import date

import pytest

from tests.doubles.commands import run_script
from tests.doubles.pages.blocks import ROOT, Block, blocks_of, run_curl, run_python, shared_names, with_shown
from tests.doubles.server_process import Served, serving
from tests.tools.python.conftest import needs_bubblewrap

_DATE = re.compile(r"(?<=Current date: )\S+")
SCRIPTED = f"scripted:{ROOT / 'examples' / 'script.json'}"


def run_example(path: str, served: Served) -> str:
    """With the scripted server that it would start."""
    browser = f"local:{ROOT / 'examples' / 'documents'}"
    with serving("--model", SCRIPTED, "--browser", browser) as scripted:
        env = {"OPENAI_BASE_URL": served.api, "TOUR_BASE_URL": scripted.api}
        done = run_script(ROOT / path, env=env, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def typed(block: Block, served: Served, names: dict[str, object]) -> str | None:
    """What a block prints; None for one that starts the server."""
    if block.language == "python":
        return run_python(block, served, names)
    if block.code.startswith("curl"):
        return run_curl(block.code, served)
    if block.code.startswith(".venv/bin/python"):
        return run_example(block.code.split()[1], served)
    return None


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving("--python", "auto") as served:
        yield served


@pytest.mark.parametrize(
    ("page", "checked"),
    [
        pytest.param("tutorial", 9, marks=pytest.mark.slow),
        *(("structured-output", 3), ("python-tool", 1), ("background", 2)),
    ],
)
def test_each_block_prints_what_its_page_shows(served: Served, page: str, checked: int) -> None:
    if page in ("tutorial", "python-tool"):
        needs_bubblewrap()
    with shared_names() as names:
        for block, shown in with_shown(f"docs/{page}.md"):
            if page != "tutorial" and block.language != "python":
                continue
            printed = typed(block, served, names)
            if printed is not None and shown is not None:
                assert printed.split() == _DATE.sub(date.today().isoformat(), shown).split()
                checked -= 1
    assert checked == 0


def test_the_commands_of_readme_and_greeting_are_answered() -> None:
    codes = [block.code for block in blocks_of("README.md") if block.language == "bash"]
    with serving("--model", SCRIPTED) as served:
        answer = run_curl(next(code for code in codes if code.startswith("curl ")), served)
        assert answer
        assert not answer.startswith("{")
        command = served.greeting.partition("Try ")[2].partition("\n\n")[0]
        assert json.loads(run_curl(command, served))["status"] == "completed"


def test_the_readme_uses_a_command_that_the_makefile_has() -> None:
    assert "```bash\nmake serve\n```" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(r"^serve:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
