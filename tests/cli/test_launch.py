"""`launch`, with programs in the clients' place that show what they were given and ask the server."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpt_oss_server.cli.launch.clients import CLIENTS
from gpt_oss_server.cli.line.flags import flags_in
from gpt_oss_server.cli.parser import build_parser
from gpt_oss_server.settings import read_configuration
from tests.doubles.commands import ANSWER, refused, run, script, terminal
from tests.doubles.server_process import answers, free_port, serving
from tests.doubles.waiting import wait_until

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
# Prints where it was pointed at, its own words, and an answer of the model.
FAKE = """\
#!{python}
import json, os, signal, sys, urllib.request
name, words, env = os.path.basename(sys.argv[0]), sys.argv[1:], os.environ

def seen(name):
    if name == "codex":
        rows = dict(word.split("=", 1) for flag, word in zip(words, words[1:]) if flag == "-c")
        rows = {{key: json.loads(value) for key, value in rows.items()}}
        [model] = json.load(open(rows["model_catalog_json"]))["models"]
        assert model["slug"] == rows["model"] and rows["model_provider"] == "gpt-oss-server"
        provider = {{key.rpartition(".")[2]: value for key, value in rows.items() if "providers" in key}}
        return provider["base_url"], env[provider["env_key"]], model["slug"], model["context_window"]
    if name == "claude":
        file = json.load(open(words[words.index("--settings") + 1]))["env"]
        assert all(env[key] == value for key, value in file.items()) and env["ANTHROPIC_API_KEY"] == ""
        context = int(env["CLAUDE_CODE_AUTO_COMPACT_WINDOW"])
        url = env["ANTHROPIC_BASE_URL"] + "/v1"
        return url, env["ANTHROPIC_AUTH_TOKEN"], env["ANTHROPIC_MODEL"], context
    if name == "opencode":
        settings = json.loads(env["OPENCODE_CONFIG_CONTENT"])
        provider, _, model = settings["model"].partition("/")
        row = settings["provider"][provider]
        return *row["options"].values(), model, row["models"][model]["limit"]["context"]
    url, model = (words[words.index(flag) + 1] for flag in ("--openai-base-url", "--model"))
    return url, env["OPENAI_API_KEY"], model, None

url, key, model, context = seen(name)
stopped = []
signal.signal(signal.SIGINT, lambda *_: stopped.append("interrupted"))

def ask():
    body = json.dumps({{"model": model, "input": "Hi"}}).encode()
    headers = {{"authorization": "Bearer " + key, "content-type": "application/json"}}
    with urllib.request.urlopen(urllib.request.Request(url + "/responses", body, headers)) as reply:
        return json.load(reply)["output"][-1]["content"][0]["text"]

print(json.dumps(dict(url=url, key=key, model=model, context=context, words=words, answer=ask())), flush=True)
if "wait" in words:
    while not stopped:
        signal.pause()
    print(stopped[0], "and then", ask(), flush=True)
if "stop" in words:
    os.kill(os.getpid(), signal.SIGSTOP)
    print("continued", ask(), flush=True)
sys.exit(7)
"""


@pytest.fixture(autouse=True)
def bin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the clients, before others on the path; the port of the settings is a free one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in CLIENTS:
        (folder / name).write_text(FAKE.format(python=sys.executable))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("GPT_OSS_SERVER_PORT", str(free_port()))
    return folder


def report(output: str) -> dict[str, object]:
    return dict(json.loads(next(line for line in output.splitlines() if line.startswith("{"))))


def gone(url: object) -> bool:
    return not answers(str(url) + "/models")


def test_a_client_gets_a_server_of_its_own_which_ends_with_it(tmp_path: Path) -> None:
    words = ("-m", script(tmp_path, ANSWER), "--key", "secret", "--", "--keep", "a b")
    done = run("launch", "qwen", *words, env={"HTTP_PROXY": "http://127.0.0.1:9"})
    assert done.returncode == 7, done.stderr
    seen = report(done.stdout)
    assert (seen["model"], seen["key"], seen["answer"]) == ("scripted", "secret", "Hello!")
    assert str(seen["words"]).endswith("'--keep', 'a b']")
    assert gone(seen["url"])


def test_the_server_that_runs_at_the_configured_port_is_used_with_its_key(tmp_path: Path) -> None:
    model = script(tmp_path, ANSWER)
    with serving("--model", model, "--served-model-name", "mine", "--api-key", "secret") as served:
        port = served.url.rpartition(":")[2]
        assert "Give its key with --api-key." in refused("launch", "codex", "--port", port)
        key = {"GPT_OSS_SERVER_API_KEY": "secret", "GPT_OSS_SERVER_PORT": port}
        for words, name in ((), "scripted"), (("--url", served.url), "scripted"), (("-m", "mine"), "mine"):
            done = run("launch", "codex", *words, env=key)
            seen = report(done.stdout)
            assert (seen["url"], seen["key"], seen["model"]) == (served.api, "secret", name)
            assert done.stderr == ""
        other = refused("launch", "codex", "-m", "other", "--url", served.url, env=key)
        assert other == f"The server at {served.url} serves scripted, mine, not other. Leave --model out.\n"
        done = run("launch", "codex", "-m", model, env=key)
        assert f"serves scripted, mine, not {model}: another is started." in done.stderr
        assert report(done.stdout)["url"] != served.api
        assert answers(f"{served.url}/live")


def test_a_server_that_is_kept_is_found_by_the_next_client(tmp_path: Path) -> None:
    port = os.environ["GPT_OSS_SERVER_PORT"]
    first = run("launch", "codex", "-m", script(tmp_path, ANSWER), "--context", "8192", "--keep")
    process = re.search(r"runs on at (\S+): `kill (\d+)` ends it, and its log is (\S+)\.\n", first.stderr)
    assert process is not None, first.stderr
    try:
        assert process[1] == f"http://127.0.0.1:{port}"
        assert "Hello!" not in Path(process[3]).read_text()
        second = run("launch", "opencode")
        assert report(second.stdout)["url"] == f"{process[1]}/v1"
        few = "The context of scripted is 8,192 tokens, which coding agents fill soon. Start the server with"
        assert f"{few} --context 65536" in first.stderr
        assert second.stderr.startswith(few)
    finally:
        os.kill(int(process[2]), signal.SIGTERM)
    wait_until(lambda: gone(process[1]))


def test_ctrl_c_is_the_clients_alone(tmp_path: Path) -> None:
    with terminal("claude", "-m", script(tmp_path, ANSWER), "--", "wait", command="launch") as screen:
        seen = screen.shows(r"\d s   Waiting for scripted:[\s\S]*Hello!.*\n")
        screen.press("\x03")
        screen.shows("interrupted and then Hello!")
        assert screen.process.wait(60) == 7
    assert gone(json.loads(seen[seen.index("{") :])["url"])


def test_a_late_ctrl_c_leaves_the_exit_code() -> None:
    code = (
        "import os, signal, sys; from gpt_oss_server.cli.launch.process import run_in_terminal\n"
        "code = run_in_terminal(['sh', '-c', 'exit 7'], os.environ); signal.raise_signal(2); sys.exit(code)"
    )
    assert subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE).returncode == 7


def test_a_signal_ends_the_client_and_its_server(tmp_path: Path) -> None:
    with terminal("claude", "-m", script(tmp_path, ANSWER), "--", "wait", command="launch") as screen:
        seen = screen.shows("Hello!.*\n")
        screen.process.send_signal(signal.SIGTERM)
        assert screen.process.wait(60) == 128 + signal.SIGTERM
    assert gone(json.loads(seen[seen.index("{") :])["url"])


@needs_proc
def test_a_client_that_stops_itself_gives_the_terminal_back_until_it_continues(tmp_path: Path) -> None:
    with terminal("claude", "-m", script(tmp_path, ANSWER), "--", "stop", command="launch") as screen:
        screen.shows("Hello!.*\n")
        stat = Path(f"/proc/{screen.process.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(") ")[2][0] == "T")
        screen.process.send_signal(signal.SIGCONT)
        screen.shows("continued Hello!")
        assert screen.process.wait(60) == 7


def test_ctrl_c_while_the_model_loads_ends_the_server(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "script.json")
    model, port = f"scripted:{tmp_path / 'script.json'}", os.environ["GPT_OSS_SERVER_PORT"]
    with terminal("codex", "-m", model, "--keep", command="launch") as screen:
        screen.shows("Waiting for scripted")
        wait_until(lambda: answers(f"http://127.0.0.1:{port}/live"))
        screen.press("\x03")
        assert screen.process.wait(60) == 130
    assert gone(f"http://127.0.0.1:{port}/v1")


def test_a_server_that_is_never_ready_or_ends_is_a_sentence_with_its_last_lines(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "script.json")
    late = refused("launch", "codex", "-m", f"scripted:{tmp_path / 'script.json'}", "--wait", "1")
    assert re.search(r"is not ready after 1 s; --wait SECONDS waits longer\.", late), late
    ends = refused("launch", "codex", "-m", f"scripted:{tmp_path / 'missing.json'}")
    assert "The server ended with exit code 1.\nIts last lines:\n  " in ends
    assert "missing.json" in ends.partition("last lines:")[2]
    unused = refused("launch", "codex", "--url", f"http://127.0.0.1:{free_port()}")
    assert re.search(r"No server answers at \S+: Connection refused\. Start one with", unused), unused


def test_config_prints_a_script_that_runs_the_client_and_starts_nothing(tmp_path: Path) -> None:
    port = os.environ["GPT_OSS_SERVER_PORT"]
    for client in CLIENTS:
        alone = run("launch", client, "--config")
        assert "No server runs at http://127.0.0.1:" in alone.stderr
        assert f"http://127.0.0.1:{port}" in alone.stdout
        assert not (tmp_path / "state").exists()
    assert "--context 65536" in run("launch", "codex", "--context", "8192", "--config").stderr
    with serving("--model", script(tmp_path, ANSWER)) as served:
        for client in CLIENTS:
            printed = run("launch", client, "--url", served.url, "--key", "it's", "--config", "--", "a b")
            assert printed.stderr == ""
            done = subprocess.run(["sh", "-c", printed.stdout], capture_output=True, text=True)
            assert done.returncode == 7, done.stderr
            seen = report(done.stdout)
            assert (seen["url"], seen["key"], seen["answer"]) == (served.api, "it's", "Hello!")
            assert seen["context"] in (131_072, None)
            assert str(seen["words"]).endswith("'a b']")


def test_clients_are_listed_and_a_missing_one_can_be_installed_by_the_command_that_is_shown(
    bin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bin / "claude").unlink()
    monkeypatch.setenv("PATH", str(bin))
    rows = {row.split()[0]: row for row in run("launch").stdout.splitlines()[1:]}
    assert list(rows) == list(CLIENTS)
    assert rows["codex"].endswith(f"  Responses         {bin / 'codex'}")
    install = "npm install -g @anthropic-ai/claude-code"
    assert rows["claude"].endswith(f"no: {install}")
    missing = refused("launch", "claude", code=127)
    assert missing == f"`claude` is not installed. Install it with: {install}\n"
    assert "Did you mean codex?" in refused("launch", "codec", code=2)
    words = refused("launch", "codex", "exec", "a b")
    assert words == "Words for the client come after `--`: -- exec 'a b'\n"


def test_all_flags_of_a_server_reach_the_one_that_is_started(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("one\ntwo\n")
    (tmp_path / "more.toml").write_text("max_concurrent = 3\n")
    flags = ["--no-websocket", "--served-model-name", "a,b", "--served-model-name=c", "--python", "off"]
    flags += ["--speculation", "off", "--api-key-file", str(tmp_path / "keys")]
    flags += ["--config", str(tmp_path / "more.toml")]
    given = vars(build_parser().parse_args(["launch", "codex", *flags]))
    again = vars(build_parser().parse_args(["serve", *flags_in(given)]))
    settings = read_configuration(again, {}).settings
    own = vars(build_parser().parse_args(["serve", *flags]))
    assert settings == read_configuration(own, {}).settings
    assert (settings.websocket, settings.max_concurrent) == (False, 3)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, no process can ask for it")
def test_a_launcher_that_is_killed_takes_its_server_along(tmp_path: Path) -> None:
    with terminal("claude", "-m", script(tmp_path, ANSWER), "--", "wait", command="launch") as screen:
        seen = screen.shows("Hello!.*\n")
        screen.process.kill()
    wait_until(lambda: gone(json.loads(seen[seen.index("{") :])["url"]))


@needs_proc
def test_a_server_that_ends_under_its_client_is_explained(tmp_path: Path) -> None:
    with terminal("claude", "-m", script(tmp_path, ANSWER), "--", "wait", command="launch") as screen:
        screen.shows("Hello!.*\n")
        pid = screen.process.pid
        server, _ = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        os.kill(server, signal.SIGKILL)
        screen.press("\x03")
        screen.shows(r"The server ended with exit code -9\.")
