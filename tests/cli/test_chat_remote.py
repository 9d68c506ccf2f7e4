"""The chat with a running server, and its commands that show what happened."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import httpx
import pytest

from gpt_oss_server.cli.chat.remote import base_url
from gpt_oss_server.cli.terminal.console import CommandLineError
from tests.doubles.commands import ANSWER, run, script
from tests.doubles.ops.certificates import write_certificate
from tests.doubles.server_process import serving
from tests.doubles.terminals import await_text, terminal

REMEMBERS = {"when": r"first[\s\S]*second", "text": "<|channel|>final<|message|>I remember.<|return|>"}
CALL = '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 2, "b": 3}<|call|>'
RESULT = {
    "when": r"functions\.add to=assistant[\s\S]*<\|message\|>5<",
    "text": "<|channel|>final<|message|>Five.<|return|>",
}
ADD = {
    "name": "add",
    "description": "Adds.",
    "parameters": {"type": "object", "properties": {"a": {}, "b": {}}},
}


def test_a_conversation_with_a_server(tmp_path: Path) -> None:
    with serving("--model", script(tmp_path, REMEMBERS, ANSWER)) as served:
        talk = run("chat", "--url", served.url, stdin="first\nsecond\n")
        assert (talk.returncode, talk.stdout, talk.stderr) == (0, "| Easy.\nHello!\nI remember.\n", "")
        one = run("chat", "--url", served.api, "--no-reasoning", "first")
        assert (one.returncode, one.stdout) == (0, "Hello!\n")
        wrong = run("chat", "--url", served.url, "-m", "openai/gpt-oss-20b", "first")
        assert wrong.returncode == 1
        assert "The model 'openai/gpt-oss-20b' is not served here. Served: scripted." in wrong.stdout


def test_ctrl_c_stops_the_server_s_answer_and_the_greeting_names_it(tmp_path: Path) -> None:
    slow = {"when": "slow", "text": "<|channel|>final<|message|>" + "word " * 5000 + "<|return|>"}
    with (
        serving("--model", script(tmp_path, slow, ANSWER, tokens_per_second=50)) as served,
        terminal("--url", served.url) as (controller, process),
    ):
        await_text(controller, rf"scripted, replays a script of 2 turn\(s\), at {served.api}\.[\s\S]*> ")
        os.write(controller, b"slow\n")
        await_text(controller, "word word")
        os.write(controller, b"\x03")
        await_text(controller, r"\[stopped\]")
        patience = time.monotonic() + 30
        while httpx.get(f"{served.url}/health").json()["counters"]["cancelled"] == 0:
            assert time.monotonic() < patience, "the server goes on generating"
            time.sleep(0.1)
        os.write(controller, b"and now\n")
        await_text(controller, r"Hello![\s\S]*> ")
        os.write(controller, b"\x04")
        assert process.wait(20) == 0


def test_http_and_https_that_do_not_fit_are_told_apart_from_a_server_that_is_not_there(
    tmp_path: Path,
) -> None:
    certificate, key = write_certificate(tmp_path, "server", hosts=("127.0.0.1",))
    flags = ("--model", script(tmp_path, ANSWER))
    with serving(*flags, "--tls-cert", certificate, "--tls-key", key) as served:
        port = served.url.rpartition(":")[2]
        place = f"https://127.0.0.1:{port}"
        unknown = run("chat", "--url", place, "hi")
        assert unknown.stderr.startswith(f"The certificate of {place}/v1 cannot be verified: ")
        assert "SSL_CERT_FILE" in unknown.stderr
        trusted = run("chat", "--url", place, "hi", env={"SSL_CERT_FILE": certificate})
        assert (trusted.returncode, trusted.stdout) == (0, "| Easy.\nHello!\n")
        plain = run("chat", "--url", f"http://127.0.0.1:{port}", "hi")
        assert plain.stderr.endswith(f"If it speaks HTTPS: --url {place}/v1.\n")
    with serving(*flags) as served:
        secure = run("chat", "--url", served.url.replace("http:", "https:"), "hi")
        assert secure.stderr.endswith(f"does not speak HTTPS. Try --url {served.url}/v1.\n")


def test_a_server_that_ends_or_is_not_there_is_reported_in_a_sentence(tmp_path: Path) -> None:
    with serving("--model", script(tmp_path, ANSWER)) as served:
        pass
    absent = run("chat", "--url", served.url, "hi")
    assert (absent.returncode, absent.stdout) == (1, "")
    assert absent.stderr.startswith(f"No server answers at {served.api}: ")
    assert "gpt-oss-server serve" in absent.stderr
    slow = script(
        tmp_path, "<|channel|>final<|message|>" + "word " * 5000 + "<|return|>", tokens_per_second=50
    )
    with serving("--model", slow) as served, terminal("--url", served.url) as (controller, _):
        await_text(controller, "> ")
        os.write(controller, b"hi\n")
        await_text(controller, "word word")
        served.process.send_signal(signal.SIGKILL)
        await_text(
            controller, r"\[(The server ended the connection|The server at \S+ cannot be reached)[\s\S]*> "
        )


@pytest.mark.parametrize(
    ("given", "api"),
    [
        ("localhost:8000", "http://localhost:8000/v1"),
        ("http://localhost:8000/", "http://localhost:8000/v1"),
        ("https://host/prefix/v1/", "https://host/prefix/v1"),
    ],
)
def test_an_address_is_taken_as_people_write_it(given: str, api: str) -> None:
    assert base_url(given) == api


@pytest.mark.parametrize("given", ["ftp://host", "http://"])
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(CommandLineError, match="is no address of a server"):
        base_url(given)


def test_a_key_without_a_server_is_refused() -> None:
    done = run("chat", "--api-key", "secret", "hi")
    assert (done.returncode, "--url" in done.stderr) == (1, True)


def test_a_file_of_the_user_is_replaced_only_if_the_user_agrees(tmp_path: Path) -> None:
    kept, replaced, own = (tmp_path / name for name in ("kept.md", "replaced.md", "own.md"))
    kept.write_text("mine")
    replaced.write_text("mine")
    lines = f"hi\n/save {kept}\nn\n/save {replaced}\ny\n/save {own}\n/save {own}\n"
    done = run("chat", "-m", script(tmp_path, ANSWER), stdin=lines)
    assert done.returncode == 0, done.stderr
    assert kept.read_text() == "mine"
    assert replaced.read_text() == own.read_text() == "**You:** hi\n\n> Easy.\n\n**Model:** Hello!\n"
    assert "kept.md exists. Replace it? [y/N] \n[not saved]\n" in done.stdout
    assert "own.md exists" not in done.stdout, "it is this chat's own"


def test_what_happened_can_be_shown_and_saved(tmp_path: Path) -> None:
    text, whole = tmp_path / "talk.md", tmp_path / "talk.json"
    commands = (
        f"/stats\n/raw\nhi\n/raw\n/tokens\n/stats\n/tools\n/save {text}\n/save {whole}\n/save\n/save /no/x\n"
    )
    done = run("chat", "-p", "--python", "unsafe-local", "-m", script(tmp_path, ANSWER), stdin=commands)
    assert done.returncode == 0, done.stderr
    output = done.stdout
    assert output.startswith(
        "there is no answer yet\nthere is no answer yet\n| Easy.\nHello!\n<|start|>system"
    )
    assert f"<|start|>user<|message|>hi<|end|><|start|>assistant{ANSWER}\n" in output
    assert "200005  100.00%  <|channel|>\n" in output
    assert '"final"\n' in output
    assert re.search(
        r"\nprompt    \d+ tokens, 0 of them from the cache\noutput    \d+ tokens, [1-9] of them reasoning",
        output,
    )
    assert "code_interpreter\n" in output
    assert "[/save needs the name of a file]" in output
    assert "[not saved: No such file or directory]" in output
    assert text.read_text() == "**You:** hi\n\n> Easy.\n\n**Model:** Hello!\n"
    [turn] = json.loads(whole.read_text())
    assert turn["input"][0]["content"] == "hi"
    assert turn["response"]["metadata"] == {}


@pytest.mark.parametrize("shape", ["responses", "chat"])
def test_a_declared_function_runs_its_command(tmp_path: Path, shape: str) -> None:
    command = ["python3", "-c", "import json, sys; x = json.load(sys.stdin); print(x['a'] + x['b'])"]
    tool = {"type": "function", **ADD} if shape == "responses" else {"type": "function", "function": ADD}
    (tmp_path / "f.json").write_text(json.dumps([{**tool, "command": command}]))
    model = script(tmp_path, RESULT, CALL)
    done = run("chat", "-f", str(tmp_path / "f.json"), "-m", model, "2 + 3?")
    assert done.returncode == 0, done.stderr
    assert done.stdout == 'calls add({"a": 2, "b": 3})\n[gives]\n    5\nFive.\n'


def test_without_a_command_the_user_gives_the_result(tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text(json.dumps({"tools": [ADD]}))
    model = script(tmp_path, RESULT, CALL)
    done = run("chat", "-f", str(tmp_path / "f.json"), "-m", model, stdin="2 + 3?\n5\n/tools\n")
    assert done.stdout == (
        'calls add({"a": 2, "b": 3})\nResult of add: \n[gives]\n    5\nFive.\nadd                  Adds.\n'
    )


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "is not JSON"),
        ("[]", "must hold a list of functions"),
        ("[3]", "number 1: a function has a `name`"),
        ('[{"name": "f", "command": "\'"}]', "number 1: the `command` is not a command"),
        ('[{"name": "f"}, {"name": "f"}]', "declares f twice"),
    ],
)
def test_a_file_of_functions_that_is_wrong_is_explained(tmp_path: Path, content: str, sentence: str) -> None:
    (tmp_path / "f.json").write_text(content)
    done = run("chat", "-f", str(tmp_path / "f.json"), "-m", "./never/looked/at", "hi")
    assert (done.returncode, done.stdout) == (1, "")
    assert sentence in done.stderr


def test_a_demo_model_that_cannot_edit_is_named_at_the_start() -> None:
    done = run("chat", "-a", "--default-max-output-tokens", "1", "Hello")
    assert done.stderr.startswith("-a: the embedded demo model was not trained to edit files")
