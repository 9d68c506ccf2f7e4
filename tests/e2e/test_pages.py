"""The pages' blocks that need a server, typed as they stand, and every example.

README.md's quick start, tutorial.md, and the Python of structured-output.md, python-tool.md, background.md,
mcp.md and client-tools.md are typed from the top: each block prints what is shown.
"""

import importlib
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from tests.doubles.commands import run, run_script
from tests.doubles.pages import blocks as pages
from tests.doubles.pages.blocks import ROOT, Block, commands, run_curl, run_python, words_of
from tests.doubles.server_process import Served, serving
from tests.tools.python.conftest import needs_bubblewrap

RUN = [each for each in pages.blocks() if each.page not in pages.RUN_ELSEWHERE and each.reason is None]
PYTHON = [each for each in RUN if each.language == "python" and not each.page.startswith("docs/clients/")]
OF_THE_SDK = [each for each in RUN if str(each).startswith("docs/clients/openai-sdk.md")]
CALLS = ("curl ", "gpt-oss-server trace ", "gpt-oss-server config")
ID = "resp_123"  # as the pages write it
EXAMPLES = ROOT / "examples"
MCP = ("--mcp", f"units={sys.executable} {EXAMPLES / 'mcp_server.py'}")
TOOLS: tuple[str, ...] = ("--python", "auto", "--browser", f"local:{EXAMPLES / 'documents'}", *MCP)


@pytest.fixture(scope="module")
def talking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """It follows a script with a long answer."""
    script = tmp_path_factory.mktemp("script") / "script.json"
    text = "<|channel|>final<|message|>" + "So long. " * 40 + "<|return|>"
    script.write_text(json.dumps({"turns": [text]}), encoding="utf-8")
    with serving("--model", f"scripted:{script}", "--served-model-name", "tiny", "--python", "off") as served:
        yield served


@pytest.fixture(scope="module")
def response_id(talking: Served) -> str:
    body = {"input": "Hi", "background": True}
    created: dict[str, Any] = httpx.post(f"{talking.api}/responses", json=body, timeout=60).json()
    with httpx.stream("GET", f"{talking.api}/responses/{created['id']}?stream=true", timeout=60) as events:
        assert "response.completed" in events.read().decode()
    return str(created["id"])


COMMANDS = [
    (block, command)
    for block in RUN
    if block.language in pages.SHELLS
    for command in commands(block)
    if command.startswith(CALLS) and "https" not in command
]


@pytest.mark.parametrize(("block", "command"), COMMANDS, ids=str)
def test_the_command_succeeds(
    block: Block, command: str, talking: Served, response_id: str, tmp_path: Path
) -> None:
    _, words = words_of(command.replace(pages.ADDRESS, talking.url).replace(ID, response_id))
    if words[:2] == ["gpt-oss-server", "trace"] and words[2] != "show":
        words += ["--url", talking.url]
    made = tmp_path / "trace.json"
    if "trace.json" in words and "-o" not in words:
        made.write_bytes(httpx.get(f"{talking.api}/responses/{response_id}/trace", timeout=60).content)
    if words[0] == "curl":
        words.insert(1, "--fail-with-body")
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    else:
        done = run(*words[1:], cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("block", [*PYTHON, *(b for b in OF_THE_SDK if b.language == "python")], ids=str)
def test_the_python_runs(block: Block, talking: Served, response_id: str) -> None:
    if "server.crt" in block.code:
        pytest.skip("test_the_page_on_certificates runs it")
    client = OpenAI(base_url=talking.api, api_key="any")
    with pages.shared_names(client=client, response_id=response_id) as names, client:
        printed = run_python(block, talking, names)
    if block.page == "docs/reference/python-api.md":
        shown = re.search(r"^# prints: (.*)\Z", block.code.rstrip(), re.MULTILINE | re.DOTALL)
        assert shown is not None, "the example has no line that states what it prints"
        assert printed.strip() == shown[1]


def test_the_page_on_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate is made, served and trusted by curl and by the SDK."""
    monkeypatch.chdir(tmp_path)
    [shell] = [each for each in RUN if each.code.startswith("openssl req")]
    [trusting] = [each for each in PYTHON if "server.crt" in each.code]
    make, serve, ask = commands(shell)
    subprocess.run(["bash", "-c", make], check=True, capture_output=True)
    with serving(*words_of(serve)[1][2:], "--python", "off") as served:
        local = ask.replace("https://127.0.0.1:8000", served.url).replace("curl", "curl --fail", 1)
        subprocess.run(["bash", "-c", local], check=True, capture_output=True)
        names: dict[str, Any] = {}
        exec(trusting.code.replace("https://127.0.0.1:8000", served.url), names)
        with names["client"] as client:
            assert [model.id for model in client.models.list()] == ["tiny"]


_DATE = re.compile(r"(?<=Current date: )\S+")


def typed(block: Block, served: Served, scripted: Served, names: dict[str, object]) -> str | None:
    """What a block prints; None for one that starts the server."""
    if block.language == "python":
        return run_python(block, served, names)
    if block.code.startswith("curl"):
        return run_curl(block.code, served)
    if block.code.startswith(".venv/bin/python"):
        name = Path(block.code.split()[1]).name
        done = run_example(name, served, ROOT, TOUR_BASE_URL=scripted.api)
        assert done.returncode == 0, done.stderr
        return done.stdout
    return None


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(*TOOLS) as served:
        yield served


@pytest.mark.parametrize(
    ("page", "checked"),
    [
        ("tutorial", 9),
        *(("structured-output", 3), ("python-tool", 1), ("background", 2), ("mcp", 1), ("client-tools", 1)),
    ],
)
def test_each_block_prints_what_its_page_shows(
    served: Served, scripted: Served, page: str, checked: int
) -> None:
    if page in ("tutorial", "python-tool"):
        needs_bubblewrap()
    with pages.shared_names() as names:
        for block, shown in pages.with_shown(f"docs/{page}.md"):
            if page != "tutorial" and block.language != "python":
                continue
            printed = typed(block, served, scripted, names)
            if printed is not None and shown is not None:
                assert printed.split() == _DATE.sub(date.today().isoformat(), shown).split()
                checked -= 1
    assert checked == 0


def test_the_commands_of_readme_and_greeting_are_answered(scripted: Served) -> None:
    codes = [block.code for block in pages.blocks_of("README.md") if block.language == "bash"]
    answer = run_curl(next(code for code in codes if code.startswith("curl ")), scripted)
    assert answer
    assert not answer.startswith("{")
    command = scripted.greeting.partition("Try ")[2].partition("\n\n")[0]
    assert json.loads(run_curl(command, scripted))["status"] == "completed"


def test_the_front_pages_use_a_command_that_the_makefile_has() -> None:
    for page in ("README.md", "docs/index.md"):
        assert "```bash\nmake serve\n```" in (ROOT / page).read_text(encoding="utf-8")
    assert re.search(r"^serve:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


SERVERS = ("own_model.py", "mcp_server.py", "tour.py", "demo.py")
TOURS = ("browser_citations.py", "python_plot.py", "file_search.py")  # too hard for the embedded model
ON_TINY = ("quickstart.py", *TOURS)
CLIENTS = sorted(path.name for path in EXAMPLES.glob("*.py") if path.name not in SERVERS)
OTHERS = [name for name in CLIENTS if name not in ON_TINY]

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
    "file_search.py": [
        "Found with ['opening hours museum']: opening-hours.txt",
        "Answer: In July the museum is open every day from 11:00 to 16:00",
        "Cited: opening-hours.txt",
        "Cited: ferry.html",
        "Cited: lighthouse.md",
    ],
    "python_plot.py": [
        "Drew plot.png, ",
        "Answer: Their sum is 385.",
        "/mnt/data/squares.csv: b'1,4,9,16,25,36,",
    ],
    "mcp_tools.py": [
        *("Offered: nautical_miles", 'Approved: nautical_miles({"kilometres": 44})', "-> 23.76 "),
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


def run_example(name: str, served: Served, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    if name == "python_plot.py":
        needs_bubblewrap()
    env = {"OPENAI_BASE_URL": served.api, **env}
    return run_script(EXAMPLES / name, env=env, cwd=folder)


@pytest.mark.parametrize("name", CLIENTS)
def test_an_example_without_a_server_says_how_to_start_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    with pytest.raises(SystemExit, match=r"^No server answers at .* make serve$"):
        runpy.run_path(str(EXAMPLES / name))


@pytest.mark.parametrize("name", CLIENTS)
def test_example_prints_the_scripted_answers(name: str, scripted: Served, tmp_path: Path) -> None:
    done = run_example(name, scripted, tmp_path)
    assert done.returncode == 0, done.stderr
    assert [part for part in PRINTED[name] if part not in done.stdout] == []


@pytest.mark.parametrize(
    "name", [*ON_TINY, *(pytest.param(name, marks=pytest.mark.proof) for name in OTHERS)]
)
def test_example_runs_on_the_embedded_model(
    name: str, served: Served, scripted: Served, tmp_path: Path
) -> None:
    """Where the model is not able to, the example says so and takes the script: one starts its own server."""
    env = {} if name == TOURS[0] else {"TOUR_BASE_URL": scripted.api}
    done = run_example(name, served, tmp_path, **env)
    assert done.returncode == 0, done.stderr
    assert ("The embedded model is too small" in done.stdout) == (name in TOURS)
    assert [part for part in PRINTED[name] if name in TOURS and part not in done.stdout] == []


def test_without_a_sandbox_the_plot_states_what_is_missing(tmp_path: Path) -> None:
    with serving("--model", f"scripted:{EXAMPLES / 'script.json'}", "--python", "off") as served:
        done = run_example("python_plot.py", served, tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "--python" in done.stderr


def test_the_demo_runs_examples_and_reports_one_that_fails(
    served: Served, scripted: Served, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    demo = importlib.import_module("demo")
    monkeypatch.setattr(demo.tour, "serve", lambda *flags: (served if "tiny" in flags else scripted).api)
    monkeypatch.setattr(demo, "PARTS", (("An answer", "quickstart.py"), ("No example", "none.py")))
    for name in ("OPENAI_BASE_URL", "TOUR_BASE_URL"):
        monkeypatch.setenv(name, "")  # which the demo sets
    assert demo.main() == 1
    printed = capsys.readouterr()
    assert "--- 1. An answer (examples/quickstart.py)" in printed.out
    assert "Reasoning:" in printed.out
    assert "did not run to their end, for the reasons above: none.py" in printed.out
    assert "none.py" in printed.err


@pytest.mark.proof
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
