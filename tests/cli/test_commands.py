"""The commands as a user sees them: their output, and their errors."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from gpt_oss_server.cli.parser import COMMANDS
from tests.doubles.commands import ANSWER, run, script


def test_version_shows_the_versions_and_which_harmony_library() -> None:
    done = run("version", fresh=True)
    assert done.returncode == 0
    versions = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert {"gpt-oss-server", "python", "torch", "harmony"} <= set(versions)
    assert "harmony" in versions["harmony"]
    assert "unknown" not in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(command: str) -> None:
    done = run(command, "--help", fresh=True)
    assert done.returncode == 0
    assert (
        f"examples:\n  gpt-oss-server {command}" in done.stdout
        or f"| gpt-oss-server {command}" in done.stdout
    )


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ([], 2, "A command is missing, such as serve or chat. See `gpt-oss-server --help`."),
        (["swerve"], 2, "Did you mean `serve`?\nTry: gpt-oss-server serve\n"),
        (["conjure"], 2, "There is no command `conjure`. Commands: serve, chat,"),
        (["serve", "--prot", "1"], 2, "Did you mean --port?\nTry: gpt-oss-server serve --port 1\n"),
        (
            ["serve", "--xyz"],
            2,
            "`serve` has no flag --xyz. `gpt-oss-server serve --help-all` lists all flags.",
        ),
        (["serve", "tiny", "-m", "random:20b"], 2, "Two models are named, tiny and random:20b."),
        (["rm", "gpt-oss:20b"], 2, "Models are folders, which `gpt-oss-server list` names"),
        (["serve", "--port", "x"], 2, "--port must be a whole number from 0 to 65535, not 'x'."),
        (["serve", "--model", "./no/such/folder", "--port", "0"], 1, "no/such/folder"),
        (["serve", "--model", "scripted:no-such-file.json", "--port", "0"], 1, "no-such-file.json"),
        (["serve", "--host", "no.such.host.invalid", "--port", "0"], 1, "no.such.host.invalid"),
        (["chat", "--model", "scripted:no-such-file.json"], 1, "no-such-file.json"),
        (["render", "no-such-file.json"], 1, "Cannot read no-such-file.json"),
        (["bench", "--prompt", "many"], 1, "--prompt must be lengths such as 128"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_an_error_is_a_sentence(words: list[str], code: int, sentence: str) -> None:
    done = run(*words)
    assert done.returncode == code
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_port_in_use_is_named_before_the_model_is_loaded() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("serve", "--port", str(port), "--model", "./never/looked/at")
    assert done.returncode == 1
    assert done.stderr == (
        f"Port {port} on 127.0.0.1 is in use. Choose another with --port, or --port 0 for a free one.\n"
    )


def test_a_misspelt_variable_is_reported() -> None:
    done = run("version", env={"GPT_OSS_SERVER_MODLE": "x"})
    assert "GPT_OSS_SERVER_MODLE is not a setting. Did you mean GPT_OSS_SERVER_MODEL?" in done.stderr


def test_render_shows_the_exact_prompt(tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    request.write_text(json.dumps({"model": "any-name", "input": "Hello", "instructions": "Be brief."}))
    done = run("render", str(request), fresh=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("<|start|>system<|message|>")
    assert "Be brief." in done.stdout
    assert done.stdout.endswith("<|start|>user<|message|>Hello<|end|><|start|>assistant\n")
    assert done.stderr.endswith(" tokens\n")


def test_render_gives_tokens_and_json_and_reads_standard_input() -> None:
    body = json.dumps({"input": "Hello"})
    as_json = json.loads(run("render", "-", "--json", stdin=body).stdout)
    lines = run("render", "-", "--tokens", stdin=body).stdout.splitlines()
    assert [int(line.split()[0]) for line in lines] == as_json["tokens"]
    texts = [line[8:] for line in lines]
    assert "".join(json.loads(text) if text.startswith('"') else text for text in texts) == as_json["text"]
    assert texts[0] == "<|start|>", "a special token is bare"
    assert '" Chat"' in texts, "the space of a token is visible"


def test_render_takes_the_body_of_a_chat_completion() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say <|end|>"}]
    done = run("render", "-", stdin=json.dumps({"model": "any", "messages": messages}))
    assert done.returncode == 0, done.stderr
    assert "# Instructions\n\nBe brief." in done.stdout
    assert done.stdout.endswith("<|start|>user<|message|>Say <|end|><|end|><|start|>assistant\n")
    lines = run("render", "-", "--tokens", stdin=json.dumps({"messages": messages})).stdout.splitlines()
    assert [line[8:] for line in lines][-3:] == ["<|end|>", "<|start|>", '"assistant"']
    assert any(line.endswith(('" <"', '" <|"')) for line in lines), "the user's text is quoted"


def test_render_reports_what_is_wrong_with_a_chat_completion() -> None:
    done = run("render", "-", stdin='{"messages": [{"role": "nobody"}]}')
    assert (done.returncode, "nobody" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("{", "not valid JSON"),
        ("[]", "must hold a JSON object"),
        ('{"input": 5}', "input"),
        ("[" * 100_000 + "]" * 100_000, "nested"),
        ('{"input": NaN}', "NaN"),
    ],
    ids=lambda value: value[:20],
)
def test_render_reports_what_is_wrong_with_a_request(body: str, sentence: str) -> None:
    done = run("render", "-", stdin=body)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_render_declares_the_built_in_tools_without_running_them() -> None:
    tools = [{"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}]
    done = run("render", "-", stdin=json.dumps({"input": "x", "tools": tools}), env={"EXA_API_KEY": ""})
    assert done.returncode == 0, done.stderr
    assert "## browser" in done.stdout
    assert "## python" in done.stdout


@pytest.mark.parametrize(
    "words", [["serve", "--help-all"], ["render", "--help-all"], ["render", "-"]], ids=" ".join
)
@pytest.mark.parametrize("encoding", ["ascii", pytest.param("latin-1", marks=pytest.mark.proof)])
def test_a_terminal_that_is_not_utf_8_loses_only_characters(words: list[str], encoding: str) -> None:
    env = {"PYTHONIOENCODING": encoding}
    done = run(*words, stdin='{"input": "a → b"}', env=env, encoding="utf-8")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert "?" in done.stdout


def test_render_reads_a_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    request.write_text('{"input": "Hello"}', encoding="utf-8-sig")
    done = run("render", str(request))
    assert (done.returncode, "Hello" in done.stdout) == (0, True)


def test_bench_prints_a_table_and_json(tmp_path: Path) -> None:
    model = script(tmp_path, {"tokens": [13] * 64})
    words = ["bench", "--model", model, "--prompt", "16,64", "--output", "32", "--repeat", "2"]
    table = run(*words, fresh=True)
    assert table.returncode == 0, table.stderr
    assert "prefill" in table.stdout
    report = json.loads(run(*words, "--json").stdout)
    assert [row["prompt_tokens"] for row in report["rows"]] == [16, 64]
    assert all(row["prefill_tokens_per_s"] > 0 for row in report["rows"])


def test_bench_refuses_lengths_that_exceed_the_context(tmp_path: Path) -> None:
    done = run("bench", "--model", script(tmp_path, ANSWER), "--prompt", "200000")
    assert done.returncode == 1
    assert "exceed the context of 131072" in done.stderr
