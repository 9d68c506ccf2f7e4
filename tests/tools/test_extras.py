"""A core install: it serves, and what needs an extra names it."""

import re
import subprocess
import sys
import tomllib
import venv
from importlib import metadata
from pathlib import Path

import pytest

from tools.extras import EXTRAS, how_to_install
from tools.python.sandboxes.interpreter import examine
from tools.tool import ToolUnavailable

ROOT = Path(__file__).resolve().parents[2]
# A finder that hides the packages of all extras, as if they were not installed.
HIDE = f"""
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if any(f"{{name}}.".startswith(f"{{known}}.") for known in {sorted(EXTRAS)!r}):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
"""
CORE = """
from gpt_oss_server.app import create_app
from gpt_oss_server.observe.telemetry.telemetry import telemetry_of
from gpt_oss_server.settings import Settings, SettingsError
from inference.backends.script_file import parse_script
from inference.backends.scripted import ScriptedEngine
def app(**settings):
    text = "<|channel|>final<|message|>Hello!<|return|>"
    engine = ScriptedEngine(parse_script({"turns": [text], "loop": True}, 201088))
    return create_app(engine, Settings(**settings))
"""


def run(program: str) -> str:
    words = [sys.executable, "-c", HIDE + CORE + program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


ASK = """
import asyncio, json
def ask(body, **settings):
    async def run():
        application, sent = app(**settings), []
        scope = {"type": "http", "method": "POST", "path": "/v1/responses", "raw_path": b"/v1/responses",
                 "query_string": b"", "scheme": "http",
                 "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")],
                 "root_path": "", "server": ("127.0.0.1", 1), "client": ("127.0.0.1", 2),
                 "http_version": "1.1", "asgi": {"version": "3.0"}}
        messages = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
        async def receive():
            return messages.pop() if messages else await asyncio.Event().wait()
        async def send(message):
            sent.append(message.get("body", b""))
        async with application.router.lifespan_context(application):
            await application(scope, receive, send)
        return json.loads(b"".join(sent))
    return asyncio.run(run())
"""


def test_a_core_install_answers() -> None:
    printed = run(ASK + "print(ask({'input': 'Hi'})['output'][0]['content'][0]['text'])")
    assert printed.strip() == "Hello!"


def test_a_request_that_needs_an_extra_is_told_which() -> None:
    tool = {"type": "mcp", "server_label": "a", "server_url": "http://127.0.0.1:9/mcp"}
    printed = run(ASK + f"print(ask({{'input': 'Hi', 'tools': [{tool!r}]}})['error']['message'])")
    assert "pip install 'gpt-oss-server[mcp]'" in printed


@pytest.mark.parametrize("is_own", [True, False])
async def test_a_python_without_a_kernel_names_what_to_install(
    is_own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path, symlinks=True)
    executable = str(tmp_path / "bin" / "python")
    if is_own:  # the server's own environment: an extra of this project
        monkeypatch.setattr(sys, "executable", executable)
    advice = "gpt-oss-server[python]" if is_own else f"`{executable} -m pip install ipykernel`"
    with pytest.raises(ToolUnavailable, match=re.escape(advice)):
        await examine(executable)


@pytest.mark.parametrize(
    ("made", "extra"),
    [
        ("app(browser='local:docs')", "browser"),
        ("app(mcp=('a=http://127.0.0.1:9/mcp',))", "mcp"),
        ("telemetry_of(Settings(otel_endpoint='http://127.0.0.1:4318'))", "otel"),
    ],
)
def test_a_setting_that_needs_an_extra_is_told_which(made: str, extra: str) -> None:
    printed = run(f"try:\n    {made}\nexcept SettingsError as error:\n    print(error)")
    assert f"pip install 'gpt-oss-server[{extra}]'" in printed


def test_each_package_of_an_extra_is_known() -> None:
    """`how_to_install` knows the import names of all packages that the extras of pyproject.toml add."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    imports = metadata.packages_distributions()
    for extra in ("browser", "exa", "python", "mcp", "gpu"):
        for requirement in project["optional-dependencies"][extra]:
            name = requirement.partition(">")[0].partition(";")[0].strip()
            if name.startswith("gpt-oss-server") or name == "matplotlib":  # only the model's code imports it
                continue
            known = {module for module, names in imports.items() if name in map(str.lower, names)}
            assert extra in {EXTRAS.get(module) for module in known} or not known, name


def test_an_unknown_package_names_them_all() -> None:
    assert "gpt-oss-server[all]" in how_to_install(ImportError("cannot import x", name="strange"))
