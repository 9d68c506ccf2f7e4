"""The toolbox routes, limits, counts and stops calls; a core install serves, and names its extras."""

import asyncio
import re
import subprocess
import sys
import tomllib
import venv
from importlib import metadata
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doubles.tools.scripted_tool import Scripted, ScriptedSession, echoes, fails_with, sleeps
from tools import extras
from tools import tool as tool_module
from tools.extras import EXTRAS, how_to_install
from tools.python.sandboxes.interpreter import examine
from tools.tool import ToolCall, ToolOutput, ToolUnavailable, bounded, cut
from tools.toolbox import Offer, Toolbox


async def test_a_recipient_reaches_its_function_with_arguments_and_options() -> None:
    box = Toolbox([Offer(Scripted(echoes)), Offer(Scripted(echoes, "python", ()))])
    assert (await box.run("c", "notes.add", "{}", {"a": 1})) == ToolOutput("add({})", details={"a": 1})
    assert (await box.run("c", "python", "1+1")).text == "(1+1)"
    await box.close()


WRONG = ("notes.remove", "notes", "notes.", "notes.add.twice", "notes. add")


@pytest.mark.parametrize(
    ("recipient", "words"),
    [
        *((word, "notes.add, notes.list") for word in WRONG),
        ("python.exec", "bare name"),
        ("browser.search", "no tool called 'browser'"),
    ],
)
async def test_a_wrong_recipient_is_answered_with_the_known_ones(recipient: str, words: str) -> None:
    notes = Scripted(echoes, functions=("add", "list"))
    box = Toolbox([Offer(notes), Offer(Scripted(echoes, "python", ()))])
    output = await box.run("c", recipient, "{}")
    assert (output.failed, words in output.text) == (True, True)
    await box.close()


def notices(stopped: asyncio.Event) -> Scripted:
    async def behaviour(call: ToolCall) -> ToolOutput:
        try:
            return await sleeps(call)
        finally:
            await asyncio.sleep(0.02)
            stopped.set()

    return Scripted(behaviour)


async def test_a_call_that_takes_too_long_is_stopped_and_the_model_learns_of_it() -> None:
    stopped = asyncio.Event()
    box = Toolbox([Offer(notices(stopped), timeout=0.05)])
    output = await box.run("c", "notes.add", "{}")
    assert output.failed
    assert "longer than 0.05 seconds" in output.text
    assert stopped.is_set()
    assert box.counters["notes"].timeouts == 1
    await box.close()


class Shut(Scripted):
    def open(self) -> ScriptedSession:
        raise OSError("secret")


def returns(value: Any) -> Scripted:
    async def behaviour(call: ToolCall) -> Any:
        return value

    return Scripted(behaviour)


ERRORS = (ZeroDivisionError("secret"), TimeoutError(), ExceptionGroup("many", [OSError("secret")]))


@pytest.mark.parametrize(
    "tool",
    [
        *(Scripted(fails_with(error)) for error in (*ERRORS, asyncio.CancelledError())),
        *(returns(None), returns("text"), Shut(echoes)),
    ],
    ids=["an error", "a time-out", "errors", "cancels itself", "nothing", "text", "opens no session"],
)
async def test_what_a_tool_does_wrong_is_a_sentence_for_the_model_and_a_traceback_for_the_log(
    tool: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    box = Toolbox([Offer(tool)])
    output = await box.run("c", "notes.add", "{}")
    assert output.failed
    assert "secret" not in output.text
    assert any(record.exc_info for record in caplog.records)
    assert (box.counters["notes"].failures, box.counters["notes"].timeouts) == (1, 0)
    await box.close()


async def test_cancelling_the_caller_stops_the_work_before_it_returns() -> None:
    stopped = asyncio.Event()
    box = Toolbox([Offer(notices(stopped))])
    with anyio.move_on_after(0.05) as scope:
        await box.run("c", "notes.add", "{}")
    assert scope.cancelled_caught
    assert stopped.is_set()
    assert (box.counters["notes"].cancelled, box.counters["notes"].failures) == (1, 0)
    await box.close()


async def test_work_that_will_not_stop_is_abandoned_with_its_session(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tools.toolbox._STOP_SECONDS", 0.05)
    release = asyncio.Event()

    async def stubborn(call: ToolCall) -> ToolOutput:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return ToolOutput("late")

    tool = Scripted(stubborn)
    box = Toolbox([Offer(tool, timeout=0.05)])
    assert (await box.run("c", "notes.add", "{}")).failed
    assert "did not stop" in caplog.text
    assert box.sessions["notes"] == 0
    release.set()
    await box.close()
    assert tool.closed_sessions == tool.opened == 1


async def test_closing_stops_running_calls_and_refuses_new_ones() -> None:
    tool = Scripted(sleeps)
    box = Toolbox([Offer(tool)])
    running = asyncio.ensure_future(box.run("c", "notes.add", "{}"))
    await asyncio.sleep(0.01)
    async with asyncio.timeout(15):  # the call sleeps for 30 s
        await box.close()
        await box.close()
    assert (await running).failed
    assert (await box.run("c", "notes.add", "{}")).failed
    assert tool.closed_sessions == 1


async def test_a_request_has_tools_of_its_own_before_those_of_the_server() -> None:
    shared, own = Scripted(echoes), Scripted(echoes, "mine")
    server = Toolbox([Offer(shared)])
    request = Toolbox([Offer(own, counted_as="mcp")], parent=server)
    assert [declaration.namespace for declaration in request.declarations] == ["notes", "mine"]
    assert not (await request.run("c", "notes.add", "{}")).failed
    assert not (await request.run("c", "mine.add", "{}")).failed
    await request.close()
    assert (own.closed, shared.closed) == (1, 0)
    await server.run("c", "notes.add", "{}")
    assert shared.opened == 1
    assert {name: counted.calls for name, counted in server.counters.items()} == {"notes": 2, "mcp": 1}
    await server.close()


def test_two_tools_with_the_same_name_are_refused() -> None:
    with pytest.raises(ValueError, match="notes"):
        Toolbox([Offer(Scripted(echoes)), Offer(Scripted(echoes))])


async def test_a_later_tool_replaces_one_with_its_name() -> None:
    old, new = Scripted(echoes), Scripted(echoes)
    box = Toolbox([Offer(old), Offer(Scripted(echoes, "python", ()))])
    await box.run("c", "notes.add", "{}")
    await box.take([Offer(new)])
    assert (old.closed, old.closed_sessions) == (1, 1)
    assert box.conversations("notes") == ()
    assert (await box.run("c", "notes.add", "{}")).text == "add({})"
    assert box.conversations("notes") == ("c",)
    assert not new.closed
    await box.close()
    assert new.closed


@given(st.text(max_size=300), st.integers(min_value=1, max_value=100))
def test_a_cut_text_keeps_both_ends_and_states_how_much_is_missing(text: str, limit: int) -> None:
    shown = cut(text, limit)
    if len(text) <= limit:
        assert shown == text
    else:
        head = limit - limit // 4
        assert shown.startswith(f"{text[:head]}\n[… {len(text) - limit} characters left out …]\n")
        assert shown.endswith(text[len(text) - limit // 4 :])


@given(st.text(alphabet=st.characters(categories=["Cs", "Lu"]), max_size=20))
def test_lone_surrogates_do_not_get_through(text: str) -> None:
    bounded(ToolOutput(text)).text.encode("utf-8")


@pytest.mark.parametrize("details", [{"data": "x" * 100}, {"data": b"bytes"}, {"data": {1, 2}}])
def test_details_that_are_too_large_or_not_json_are_dropped(
    details: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_module, "DETAILS_BYTES", 50)
    assert bounded(ToolOutput("text", details=details)).details == {}


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
from gpt_oss_server.observe.telemetry.telemetry import Telemetry
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
    assert f"pip install -e '{ROOT}[mcp]'" in printed


@pytest.mark.parametrize("is_own", [True, False])
async def test_a_python_without_a_kernel_names_what_to_install(
    is_own: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path, symlinks=True)
    executable = str(tmp_path / "bin" / "python")
    if is_own:  # the server's own environment: an extra of this project
        monkeypatch.setattr(sys, "executable", executable)
    advice = f"pip install -e '{ROOT}[python]'" if is_own else f"`{executable} -m pip install ipykernel`"
    with pytest.raises(ToolUnavailable, match=re.escape(advice)):
        await examine(executable)


@pytest.mark.parametrize(
    ("made", "extra"),
    [
        ("app(browser='local:docs')", "browser"),
        ("app(mcp=('a=http://127.0.0.1:9/mcp',))", "mcp"),
        ("Telemetry(Settings(otel_endpoint='http://127.0.0.1:4318'))", "otel"),
    ],
)
def test_a_setting_that_needs_an_extra_is_told_which(made: str, extra: str) -> None:
    printed = run(f"try:\n    {made}\nexcept SettingsError as error:\n    print(error)")
    assert f"pip install -e '{ROOT}[{extra}]'" in printed


def test_each_package_of_an_extra_is_known() -> None:
    """`how_to_install` knows the import names of all packages that the extras of pyproject.toml add."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    imports = metadata.packages_distributions()
    for extra in ("browser", "exa", "python", "mcp", "gpu", "postgres", "gguf"):
        for requirement in project["optional-dependencies"][extra]:
            name = re.split(r"[\[>;]", requirement)[0].strip()
            if name.startswith("gpt-oss-server") or name == "matplotlib":  # only the model's code imports it
                continue
            known = {module for module, names in imports.items() if name in map(str.lower, names)}
            assert extra in {EXTRAS.get(module) for module in known} or not known, name


@pytest.mark.parametrize(("name", "package"), [("strange", "strange"), ("pkg.x", "pkg"), ("jwt", "PyJWT")])
def test_an_unknown_package_is_installed_again(name: str, package: str) -> None:
    assert how_to_install(ImportError("cannot import x", name=name)).endswith(f"--upgrade {package}")


@pytest.mark.parametrize("extra", ["postgres", "exa", "otel"])
def test_the_command_fits_a_wheel_and_an_image_too(
    extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a wheel needs is named itself, as the wheel may come from anywhere."""
    monkeypatch.setattr(extras, "_ROOT", tmp_path)
    packages = {
        "postgres": "'psycopg[binary]>=3.2'",
        "exa": "'exa-py>=2'",
        "otel": "'opentelemetry-exporter-otlp-proto-http>=1.30' 'opentelemetry-sdk>=1.30'",
    }
    command = f"pip install {packages[extra]}"
    assert extras.install_extra(extra) == f"{sys.executable} -m {command}"
    monkeypatch.setattr(extras, "_IMAGE", tmp_path)
    assert f"`USER root`, `RUN {command}`" in extras.install_extra(extra)
