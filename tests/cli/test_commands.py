"""The commands as a user sees them: help, versions, prompts, measurements, models, traces."""

import io
import json
import sys
from pathlib import Path

import httpx
import pytest

from gpt_oss_server.cli.main import main
from gpt_oss_server.cli.parser import COMMANDS
from gpt_oss_server.cli.server.greeting import greeting
from gpt_oss_server.settings import OPTIONS, Settings
from inference.engine import EngineInfo
from tests.doubles.commands import run, script
from tests.doubles.serving import HELLO, scripted, serving
from tests.doubles.tools.web_servers import Answer, serve


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(command: str) -> None:
    done = run(command, "--help", fresh=command == "serve")
    assert done.returncode == 0
    examples = f"examples:\n  gpt-oss-server {command}", f"| gpt-oss-server {command}"
    assert any(example in done.stdout for example in examples)


def test_help_shows_the_common_flags_and_help_all_every_one() -> None:
    short, whole = run("serve", "--help").stdout, run("serve", "--help-all").stdout
    assert sum(option.common for option in OPTIONS) == 11
    for option in OPTIONS:
        assert (f"  {option.flag}" in short or f", {option.flag}" in short) is option.common
        assert option.flag in whole
    assert "--help-all" in short
    assert run("help", "serve").stdout == short


@pytest.mark.parametrize("word", ["--version", "-V"])
def test_the_version_is_shown(word: str) -> None:
    done = run(word)
    assert (done.returncode, done.stderr, done.stdout.split()[0]) == (0, "", "gpt-oss-server")


def test_version_shows_the_versions_and_which_harmony_library() -> None:
    table = run("version", fresh=True)
    versions = json.loads(run("version", "--json").stdout)
    assert table.returncode == 0
    assert all(name in table.stdout and version in table.stdout for name, version in versions.items())
    assert {"gpt-oss-server", "python", "torch", "harmony library"} <= versions.keys()
    assert "harmony" in versions["harmony library"]
    assert "unknown" not in table.stdout


def test_the_embedded_model_and_cached_checkpoints_are_listed(tmp_path: Path) -> None:
    done = run("list", env={"HF_HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    header, tiny = done.stdout.splitlines()
    assert header.split() == ["NAME", "SIZE", "WHERE"]
    assert tiny.startswith("tiny ")
    assert "pull openai/gpt-oss-20b" in done.stderr


def test_render_shows_the_exact_prompt_of_a_file(tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    body = {"model": "any-name", "input": "Hello", "instructions": "Be brief."}
    request.write_text(json.dumps(body), encoding="utf-8-sig")  # with a byte order mark
    done = run("render", str(request), fresh=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("<|start|>system<|message|>")
    assert "Be brief." in done.stdout
    assert done.stdout.endswith("<|start|>user<|message|>Hello<|end|><|start|>assistant\n")
    assert done.stderr.endswith(" tokens\n")


def test_render_takes_the_body_of_a_chat_completion_and_gives_its_tokens() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say <|end|>"}]
    body = json.dumps({"model": "any", "messages": messages})
    as_json = json.loads(run("render", "-", "--json", stdin=body).stdout)
    assert run("render", "-", stdin=body).stdout == as_json["text"] + "\n"
    assert "# Instructions\n\nBe brief." in as_json["text"]
    assert as_json["text"].endswith("<|start|>user<|message|>Say <|end|><|end|><|start|>assistant")
    lines = run("render", "-", "--tokens", stdin=body).stdout.splitlines()
    assert [int(line.split()[0]) for line in lines] == as_json["tokens"]
    texts = [line[8:] for line in lines]
    assert "".join(json.loads(text) if text.startswith('"') else text for text in texts) == as_json["text"]
    assert texts[-3:] == ["<|end|>", "<|start|>", '"assistant"'], "a special token is bare"
    assert '" Chat"' in texts, "the space of a token is visible"
    assert any(text in ('" <"', '" <|"') for text in texts), "the user's text is quoted"


def test_render_declares_the_built_in_tools_without_running_them() -> None:
    tools = [{"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}]
    done = run("render", "-", stdin=json.dumps({"input": "x", "tools": tools}), env={"EXA_API_KEY": ""})
    assert done.returncode == 0, done.stderr
    assert "## browser" in done.stdout
    assert "## python" in done.stdout


@pytest.mark.parametrize("words", ["serve --help-all", "render --help-all", "render -"])
@pytest.mark.parametrize("encoding", ["ascii", pytest.param("latin-1", marks=pytest.mark.proof)])
def test_a_terminal_that_is_not_utf_8_loses_only_characters(words: str, encoding: str) -> None:
    env = {"PYTHONIOENCODING": encoding}
    done = run(*words.split(), stdin='{"input": "a → b"}', env=env, encoding="utf-8")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert "?" in done.stdout


def test_bench_prints_a_table_and_json(tmp_path: Path) -> None:
    model = script(tmp_path, {"tokens": [13] * 64})
    words = ["bench", "--model", model, "--prompt", "16,64", "--output", "32", "--repeat", "2"]
    table = run(*words, fresh=True)
    assert table.returncode == 0, table.stderr
    assert "prefill" in table.stdout
    report = json.loads(run(*words, "--json").stdout)
    assert [row["prompt_tokens"] for row in report["rows"]] == [16, 64]
    assert all(row["prefill_tokens_per_s"] > 0 for row in report["rows"])


ABOUT = "A demo model that knows next to nothing: 7 layers on cpu."
MODEL = EngineInfo(name="tiny", description=ABOUT, context_length=131_072)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [50, 80, 200])
def test_a_greeting_fits_its_terminal_but_for_what_is_copied(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = greeting(Settings(), MODEL, "http://127.0.0.1:8000", exposed=True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stdout", Terminal())
    shown = greeting(Settings(), MODEL, "http://127.0.0.1:8000", exposed=True)
    lines = shown.splitlines()
    assert max(len(line) for line in lines if "curl" not in line) <= columns
    assert shown.split() == whole.split(), "no word is lost or broken"
    below = [line for line in lines if line.startswith(" " * 11) and "-d" not in line]
    assert bool(below) == (columns < 100)


def test_what_is_no_terminal_gets_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    shown = greeting(Settings(), MODEL, "http://127.0.0.1:8000")
    assert "\n  Model    tiny, a demo model that knows next to nothing: 7 layers on cpu\n" in shown


def test_a_trace_is_saved_or_printed_and_an_unknown_one_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.json"
    with serving(scripted(HELLO)) as url:
        response = httpx.post(f"{url}/responses", json={"input": "Hi"}).json()
        assert main(["trace", response["id"], "--url", url, "-o", str(path)]) == 0
        assert str(path) in capsys.readouterr().err
        assert main(["trace", response["id"], "--url", url]) == 0
        printed = json.loads(capsys.readouterr().out)
        assert main(["trace", "resp_unknown", "--url", url]) == 1
        assert "No trace of the response" in capsys.readouterr().err
    assert printed == json.loads(path.read_text())
    assert printed["responses"][0]["response"]["id"] == response["id"]


def test_a_site_that_is_no_api(capsys: pytest.CaptureFixture[str]) -> None:
    with serve(lambda seen: Answer("<html>")) as site:
        assert main(["trace", "resp_1", "--url", site.url.removeprefix("http://")]) == 1
    assert "is not JSON. Is --url the base URL of an API?" in capsys.readouterr().err
