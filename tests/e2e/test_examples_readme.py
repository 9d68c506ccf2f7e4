"""The README's quick start, as a reader would type it, except for the port."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from tests.doubles.server_process import Served, serving

ROOT = Path(__file__).resolve().parents[2]


def curl_command(text: str) -> str:
    found = re.search(r"```bash\n(curl .*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


def run_curl(command: str, served: Served) -> str:
    local = command.replace("http://127.0.0.1:8000", served.url)
    done = subprocess.run(["bash", "-c", local], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readme_s_curl_command_shows_the_answer() -> None:
    with serving() as served:
        answer = run_curl(curl_command((ROOT / "README.md").read_text(encoding="utf-8")), served)
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
