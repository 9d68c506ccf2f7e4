"""The README's quick start, as a reader would type it, except for the port."""

from __future__ import annotations

import json
import re

from tests.doubles.pages.blocks import ROOT, blocks_of
from tests.doubles.pages.typed import run_curl
from tests.doubles.server_process import serving


def test_the_readme_s_curl_command_shows_the_answer() -> None:
    codes = [block.code for block in blocks_of("README.md") if block.language == "bash"]
    with serving() as served:
        answer = run_curl(next(code for code in codes if code.startswith("curl ")), served)
    assert "gpt-oss" in answer
    assert not answer.startswith("{")


def test_the_greeting_s_curl_command_is_answered() -> None:
    with serving("--model", f"scripted:{ROOT / 'examples' / 'script.json'}") as served:
        command = served.greeting.partition("Try ")[2].partition("\n\n")[0]
        response = json.loads(run_curl(command, served))
    assert response["status"] == "completed"


def test_the_readme_uses_a_command_that_the_makefile_has() -> None:
    assert "```bash\nmake serve\n```" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(r"^serve:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
