"""Every example runs against a real server and stays short enough to read."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.doubles.commands import run_script
from tests.doubles.server_process import Served, serving
from tests.tools.python.conftest import needs_bubblewrap

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SERVERS = ("own_model.py", "mcp_server.py", "tour.py", "demo.py", "ray_serve.py")
TOURS = ("browser_citations.py", "python_plot.py", "mcp_tools.py")  # too hard for the embedded model
CLIENTS = sorted(path.name for path in EXAMPLES.glob("*.py") if path.name not in SERVERS)
TOOLS: tuple[str, ...] = ("--python", "auto", "--browser", f"local:{EXAMPLES / 'documents'}")
TOOLS += ("--mcp", f"units={sys.executable} {EXAMPLES / 'mcp_server.py'}")

PRINTED = {
    "quickstart.py": ["Reasoning: A greeting.", "Answer: Hello! I am a script"],
    "streaming.py": ["[reasoning] A greeting.", "[message] Hello!", "completed: "],
    "function_calling.py": ['get_weather({"city": "Oslo"}) -> {"city": "Oslo"', "Answer: It is 18 °C"],
    "chat_completions.py": [
        "thinks: A",
        'get_weather({"city": "Oslo"})',
        "stop: It is 18 °C and sunny in Oslo.",
    ],
    "conversation.py": ["1: Nice to meet you, Ada!", "2: Your name is Ada.", "Stored: completed"],
    "browser_citations.py": [
        "Searched for 'lighthouse height metres': local:///lighthouse.md",
        "Opened local:///lighthouse.md",
        "Looked for 'metres high' in local:///lighthouse.md",
        "Answer: The tower is 31 metres high, and its light is 44 metres above the sea ([",
        "Cited: The lighthouse of Skarvik at local:///lighthouse.md",
    ],
    "python_plot.py": [
        "Drew plot.png, ",
        "Answer: Their sum is 385.",
        "/mnt/data/squares.csv: b'1,4,9,16,25,36,",
    ],
    "mcp_tools.py": [
        *("Offered: convert", 'Approved: convert({"amount": 44000,', "-> 23.76 nautical mile"),
        "Answer: 44 kilometres are 23.76 nautical miles.",
    ],
    "background.py": [
        "The run continues: resp_",
        "[Resumed after event 8, up to event ",
        "Status: completed",
    ],
    "debug_mode.py": ["Prompt: <|start|>system", "Completion: <|channel|>analysis", "kept: 42"],
}


@pytest.fixture(scope="module")
def scripted() -> Iterator[Served]:
    with serving("--model", f"scripted:{EXAMPLES / 'script.json'}", *TOOLS) as served:
        yield served


@pytest.fixture(scope="module")
def tiny() -> Iterator[Served]:
    # The test does not check the default model's text; the limit keeps it short.
    with serving("--default-max-output-tokens", "48", *TOOLS) as served:
        yield served


def run_example(name: str, served: Served, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    if name == "python_plot.py":
        needs_bubblewrap()
    env = {"OPENAI_BASE_URL": served.api, **env}
    return run_script(EXAMPLES / name, env=env, cwd=folder)


@pytest.mark.parametrize("name", CLIENTS)
def test_example_prints_the_scripted_answers(name: str, scripted: Served, tmp_path: Path) -> None:
    done = run_example(name, scripted, tmp_path)
    assert done.returncode == 0, done.stderr
    assert [part for part in PRINTED[name] if part not in done.stdout] == []


@pytest.mark.parametrize("name", CLIENTS)
def test_example_runs_on_the_embedded_model(
    name: str, tiny: Served, scripted: Served, tmp_path: Path
) -> None:
    """Where the model is not able to, the example says so and takes the script: one starts its own server."""
    given = {} if name == TOURS[0] else {"TOUR_BASE_URL": scripted.api}
    done = run_example(name, tiny, tmp_path, **given)
    assert done.returncode == 0, done.stderr
    assert ("The embedded model is too small" in done.stdout) == (name in TOURS)
    assert [part for part in PRINTED[name] if name in TOURS and part not in done.stdout] == []


def test_without_a_sandbox_the_plot_states_what_is_missing(tmp_path: Path) -> None:
    with serving("--model", f"scripted:{EXAMPLES / 'script.json'}", "--python", "off") as served:
        done = run_example("python_plot.py", served, tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "--python" in done.stderr


@pytest.mark.slow
def test_the_demo_shows_all_its_parts(tmp_path: Path) -> None:
    needs_bubblewrap()
    command, env = [sys.executable, str(EXAMPLES / "demo.py")], {"PYTHONPATH": str(EXAMPLES.parent)}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=400, cwd=tmp_path, env={**os.environ, **env}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    parts = ("Reasoning:", "get_weather(", "Cited:", "Drew plot.png", "-> 23.76 nautical", "Resumed after")
    assert [part for part in parts if part not in done.stdout] == []
    assert (tmp_path / "demo-plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= (90 if path.name == "ray_serve.py" else 60)
