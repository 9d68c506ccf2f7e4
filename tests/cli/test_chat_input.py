"""How the chat takes messages: as arguments, piped, pasted, in quotes, and from its history."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path

import pytest

from tests.doubles.commands import ANSWER, run, script
from tests.doubles.terminals import await_text, terminal

FINAL = "<|channel|>final<|message|>{}<|return|>"


def seeing(folder: Path, *messages: str) -> str:
    """A model that answers one of these messages with its place in the list, and any other with no."""
    asked = r"<\|start\|>user<\|message\|>%s<\|end\|><\|start\|>assistant$"
    turns = [
        {"when": asked % re.escape(message), "text": FINAL.format(n)} for n, message in enumerate(messages, 1)
    ]
    return script(folder, *turns, FINAL.format("no"))


@pytest.mark.parametrize(
    ("words", "stdin", "answer"),
    [
        (["What is it?"], "", "1"),
        (["What", "is", "it?"], "", "1"),
        (["-"], "What is it?\n", "1"),
        (["-"], "two\nlines\n", "2"),
        (["Read:"], "two\nlines\n", "3"),
    ],
)
def test_a_question_is_answered_and_the_command_ends(
    tmp_path: Path, words: list[str], stdin: str, answer: str
) -> None:
    model = seeing(tmp_path, "What is it?", "two\nlines", "Read:\n\ntwo\nlines")
    done = run("chat", model, *words, stdin=stdin)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{answer}\n", "")


def test_an_empty_question_is_refused(tmp_path: Path) -> None:
    done = run("chat", "-m", script(tmp_path, ANSWER), "-", stdin="\n")
    assert (done.returncode, done.stderr) == (1, "The question is empty.\n")


def test_a_question_that_fails_is_a_failure(tmp_path: Path) -> None:
    model = script(tmp_path, ANSWER)
    done = run("chat", model, "--context", "100", "Hello " * 100)
    assert done.returncode == 1
    assert "context" in done.stdout


def test_a_context_without_room_for_a_conversation_is_refused(tmp_path: Path) -> None:
    done = run("chat", script(tmp_path, ANSWER), "--context", "10", "Hello")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("A context of 10 tokens is too short to answer anything")


@pytest.mark.parametrize("end", ['"""\n', 'c"""\n', ""])
def test_quotes_make_one_message_of_piped_lines(tmp_path: Path, end: str) -> None:
    body = "a\n/new\nb" + ("\nc" if end.startswith("c") else "")
    done = run("chat", "-m", seeing(tmp_path, body), stdin=f'"""\na\n/new\nb\n{end}')
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert run("chat", "-m", seeing(tmp_path, "a b"), stdin='"""a b"""\n').stdout == "1\n"


@pytest.mark.parametrize("paste", [b"\x1b[200~one\ntwo\nthree\x1b[201~\n", b"one\ntwo\nthree\n"])
def test_pasted_lines_are_one_message(tmp_path: Path, paste: bytes) -> None:
    """As a terminal marks them, and from one that does not."""
    with terminal("-m", seeing(tmp_path, "one\ntwo\nthree")) as (controller, process):
        await_text(controller, "> ")
        os.write(controller, paste)
        await_text(controller, r"[\r\n]1\r\n[\s\S]*> ")
        os.write(controller, b'"""\n')
        await_text(controller, r"\.\.\. ")
        os.write(controller, b"one\n")
        await_text(controller, r"\.\.\. ")
        time.sleep(0.2)
        os.write(controller, b"two\n")
        await_text(controller, r"\.\.\. ")
        time.sleep(0.2)
        os.write(controller, b'three"""\n')
        await_text(controller, r"[\r\n]1\r\n[\s\S]*> ")
        os.write(controller, b"\x04")
        assert process.wait(20) == 0


def test_keys_typed_during_an_answer_are_ignored(tmp_path: Path) -> None:
    slow = {"when": r"slow<\|end\|><\|start\|>assistant$", "text": FINAL.format("word " * 100 + "end.")}
    with terminal("-m", script(tmp_path, slow, ANSWER, tokens_per_second=50)) as (controller, process):
        await_text(controller, "> ")
        os.write(controller, b"slow\n")
        await_text(controller, "word word")
        os.write(controller, b"xyzzy\n/quit\n")
        seen = await_text(controller, r"end\.[\s\S]*> ")
        assert "xyzzy" not in seen
        assert process.poll() is None
        os.write(controller, b"and now\n")
        await_text(controller, r"Hello![\s\S]*> ")
        os.write(controller, b"\x04")
        assert process.wait(20) == 0


def test_messages_are_recalled_in_a_later_chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    model = seeing(tmp_path, "remember me")
    for keys in (b"remember me\n", b"\x1b[A\n"):
        with terminal("-m", model) as (controller, process):
            await_text(controller, "> ")
            os.write(controller, keys)
            await_text(controller, r"[\r\n]1\r\n[\s\S]*> ")
            os.write(controller, b"\x04")
            assert process.wait(20) == 0
    kept = tmp_path / "state" / "gpt-oss-server" / "chat-history"
    assert [json.loads(line) for line in kept.read_text().splitlines()] == ["remember me"] * 2
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.unlink()
    with terminal("-m", model, "--no-history") as (controller, process):
        await_text(controller, "> ")
        os.write(controller, b"remember me\n")
        await_text(controller, r"[\r\n]1\r\n[\s\S]*> ")
    assert not kept.exists()
