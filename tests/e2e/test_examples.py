"""Every example runs, against a real server, and stays short enough to read."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server_process import Served, serving

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CLIENTS = sorted(path.name for path in EXAMPLES.glob("*.py") if path.name != "own_model.py")

SAYS = {
    "quickstart.py": ["Reasoning: A greeting.", "Answer: Hello! I am a script"],
    "streaming.py": ["[reasoning] A greeting.", "[message] Hello!", "completed: "],
    "function_calling.py": ['get_weather({"city": "Oslo"}) -> {"city": "Oslo"', "Answer: It is 18 °C"],
    "conversation.py": ["1: Nice to meet you, Ada!", "2: Your name is Ada.", "Stored: completed"],
    "debug_mode.py": ["Prompt: <|start|>system", "Completion: <|channel|>analysis", "kept: 42"],
}


@pytest.fixture(scope="module")
def scripted() -> Iterator[Served]:
    with serving("--model", f"scripted:{EXAMPLES / 'script.json'}") as served:
        yield served


@pytest.fixture(scope="module")
def tiny() -> Iterator[Served]:
    # The default model's text is its own affair; the limit keeps the test short whatever it says.
    with serving("--default-max-output-tokens", "48") as served:
        yield served


def run_example(name: str, served: Served) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        env={**os.environ, "OPENAI_BASE_URL": served.api},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("name", CLIENTS)
def test_example_says_what_its_script_answers(name: str, scripted: Served) -> None:
    done = run_example(name, scripted)
    assert done.returncode == 0, done.stderr
    for expected in SAYS[name]:
        assert expected in done.stdout


@pytest.mark.parametrize("name", CLIENTS)
def test_example_runs_on_the_embedded_model(name: str, tiny: Served) -> None:
    done = run_example(name, tiny)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_example_has_at_most_60_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 60
