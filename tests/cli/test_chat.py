"""The terminal chat: with piped lines, and in a terminal of its own."""

from __future__ import annotations

import os
import re
import select
import termios
import time
from pathlib import Path

import pytest

from tests.doubles.commands import ANSWER, run, script
from tests.doubles.terminals import await_text, done, press_until_heeded, shown, terminal


def reasoned(text: str) -> dict[str, object]:
    return {"type": "response.reasoning_text.delta", "delta": text}


def written(text: str) -> dict[str, object]:
    return {"type": "response.output_text.delta", "delta": text}


def test_reasoning_is_quoted_without_colour_and_dimmed_with_it() -> None:
    events = [
        reasoned("One"),
        reasoned(" two.\nThree."),
        done("reasoning"),
        written("Four."),
        done("message"),
    ]
    assert shown(*events) == "| One two.\n| Three.\nFour.\n"
    assert shown(*events, colour=True) == ("\x1b[2mOne\x1b[0m\x1b[2m two.\nThree.\x1b[0m\nFour.\n")
    assert shown(*events, reasoning=False) == "Four.\n"


def test_calls_and_ends_are_shown() -> None:
    call = done("function_call", name="f", arguments='{"a": 1}')
    assert shown(written("Wait."), done("message"), call) == 'Wait.\ncalls f({"a": 1})\n'
    cut = {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}}
    assert shown(written("So"), cut) == "So\n[cut short: max_output_tokens]\n"
    failed = {
        "type": "response.failed",
        "response": {"error": {"code": "server_error", "message": "It broke."}},
    }
    assert shown(failed) == "[failed: It broke.]\n"


def test_piped_lines_are_turns_of_one_conversation(tmp_path: Path) -> None:
    remembers = {
        "when": "first line[\\s\\S]*second line",
        "text": "<|channel|>final<|message|>I remember.<|return|>",
    }
    chat = run(
        "chat", "--model", script(tmp_path, remembers, ANSWER), stdin="first line\nsecond line\n", fresh=True
    )
    assert chat.returncode == 0, chat.stderr
    assert chat.stdout == "| Easy.\nHello!\nI remember.\n"


@pytest.mark.parametrize("reading", ["utf-8:strict", "utf-8:surrogateescape"])
def test_a_byte_that_is_not_utf8_spoils_nothing_else(tmp_path: Path, reading: str) -> None:
    words = ("chat", "--no-reasoning", "--instructions", "caf\udce9", "--model", script(tmp_path, ANSWER))
    strange = {"PYTHONIOENCODING": reading}
    chat = run(*words, stdin="hi\ncafé\nhello\n", env=strange, encoding="latin-1")
    assert (chat.returncode, chat.stderr) == (0, "")
    assert chat.stdout == "Hello!\n" * 3


def test_commands_of_the_chat_are_obeyed(tmp_path: Path) -> None:
    remembers = {
        "when": "first line[\\s\\S]*second line",
        "text": "<|channel|>final<|message|>I remember.<|return|>",
    }
    high = {"when": "Reasoning: high", "text": "<|channel|>final<|message|>High.<|return|>"}
    lines = "first line\n/new\nsecond line\n/effort high\nthird\n/effort huge\n/help\n/quit\nnever written\n"
    chat = run("chat", "--no-reasoning", "--model", script(tmp_path, remembers, high, ANSWER), stdin=lines)
    assert chat.returncode == 0, chat.stderr
    output = chat.stdout
    assert "I remember." not in output
    assert output.startswith(
        "Hello!\n[a new conversation]\nHello!\n[effort: high]\nHigh.\n[/effort takes one of none, minimal"
    )
    assert "/quit, Ctrl-D" in output


def test_a_line_that_wraps_is_edited_where_the_cursor_is(tmp_path: Path) -> None:
    """The colours of "> " take no columns: from the line's end to its start, and two to the right."""
    with terminal("--model", script(tmp_path, ANSWER)) as (controller, _):
        termios.tcsetwinsize(controller, (16, 60))
        await_text(controller, "> ")
        os.write(controller, b"x" * 75)
        await_text(controller, "x{15}")
        time.sleep(0.3)
        os.write(controller, b"\x01")  # Ctrl-A
        moved = await_text(controller, r"\x1b\[A")
        while select.select([controller], [], [], 0.5)[0]:
            moved += os.read(controller, 4096).decode(errors="replace")
        column = (2 + 75) % 60
        for step in re.findall(r"\r|\x08|\x1b\[\d*C", moved.rpartition("\x1b[A")[2]):
            if step == "\r":
                column = 0
            else:
                column += -1 if step == "\x08" else int(step[2:-1] or 1)
        assert column == 2


def test_the_models_text_cannot_control_the_terminal(tmp_path: Path) -> None:
    written = "before\x1b[2J\x1b]0;owned\x07after\r\n👩\u200d🔬"
    evil = {"when": "hi", "text": f"<|channel|>final<|message|>{written}<|return|>"}
    with terminal("--model", script(tmp_path, evil)) as (controller, _):
        await_text(controller, "> ")
        os.write(controller, b"hi\n")
        seen = await_text(controller, "🔬")
    assert "before\\x1b[2J\\x1b]0;owned\\x07after\\r" in seen
    assert "👩\u200d🔬" in seen
    piped = run("chat", "--model", script(tmp_path, evil), stdin="hi\n")
    assert "before\x1b[2J" in piped.stdout, "what is not a terminal gets it as it is"


@pytest.mark.parametrize("columns", ["30", "60"])
def test_the_greeting_ends_its_lines_between_words(
    columns: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    with terminal("--model", script(tmp_path, ANSWER)) as (controller, _):
        seen = await_text(controller, "quits.\r\n").partition("quits.")  # the prompt may be there already
    lines = "".join(seen[:2]).strip().splitlines()
    assert " ".join(lines).endswith("/help lists the commands, Ctrl-D quits.")
    assert len(lines) > 1
    assert max(map(len, lines)) <= int(columns)


def test_ctrl_c_stops_the_answer_and_ctrl_d_quits(tmp_path: Path) -> None:
    slow = {"when": "slow", "text": "<|channel|>final<|message|>" + "word " * 500 + "<|return|>"}
    model = script(tmp_path, slow, ANSWER, tokens_per_second=50)
    with terminal("--model", model, fresh=True) as (controller, process):
        await_text(controller, "> ")
        os.write(controller, b"a slow one\n")
        await_text(controller, "word word")
        os.write(controller, b"\x03")
        await_text(controller, r"\[stopped\]")
        os.write(controller, b"and now\n")
        assert "\x1b[2mEasy" in await_text(controller, r"Hello![\s\S]*> ")
        os.write(controller, b"half a line")
        await_text(controller, "half a line")
        press_until_heeded(controller, b"\x03", r"\n\(Ctrl-D quits\)\r?\n")
        os.write(controller, b"\x04")
        assert process.wait(20) == 0
