"""The chat in a terminal of its own: keys, pasted lines, the history, colours, Ctrl-C and Ctrl-D."""

import re
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.test_chat import seeing
from tests.doubles.commands import ANSWER, Screen, final, run, script, terminal

SLOW = final("word " * 500, when="slow")
ANY = r"[\s\S]*> "  # up to the next prompt


@contextmanager
def chat(*words: str, fresh: bool = False) -> Iterator[Screen]:
    """A chat that waits for its first message, and that Ctrl-D ends."""
    with terminal(*words, fresh=fresh) as screen:
        screen.shows("> ")
        yield screen
        screen.quit()


def test_a_line_that_wraps_is_edited_where_the_cursor_is(tmp_path: Path) -> None:
    """The colours of "> " take no columns: from the line's end to its start, and two to the right."""
    with terminal("--model", script(tmp_path, ANSWER)) as screen:
        termios.tcsetwinsize(screen.controller, (16, 60))
        screen.shows("> ")
        screen.press("x" * 75)
        screen.shows("x{15}")
        time.sleep(0.3)
        screen.press("\x01")  # Ctrl-A
        moved = screen.shows(r"\x1b\[A") + screen.rest(0.5)
        column = (2 + 75) % 60
        for step in re.findall(r"\r|\x08|\x1b\[\d*C", moved.rpartition("\x1b[A")[2]):
            if step == "\r":
                column = 0
            else:
                column += -1 if step == "\x08" else int(step[2:-1] or 1)
        assert column == 2


def test_the_models_text_cannot_control_the_terminal(tmp_path: Path) -> None:
    evil = final("before\x1b[2J\x1b]0;owned\x07after\r\n👩\u200d🔬", when="hi")
    with chat("--model", script(tmp_path, evil)) as screen:
        seen = screen.enter("hi", f"🔬{ANY}")
    assert "before\\x1b[2J\\x1b]0;owned\\x07after\\r" in seen
    assert "👩\u200d🔬" in seen
    piped = run("chat", "--model", script(tmp_path, evil), stdin="hi\n")
    assert "before\x1b[2J" in piped.stdout, "what is not a terminal gets it as it is"


def test_ctrl_c_stops_the_answer_and_ctrl_d_quits(tmp_path: Path) -> None:
    with chat("--model", script(tmp_path, SLOW, ANSWER, tokens_per_second=50), fresh=True) as screen:
        screen.enter("a slow one", "word word")
        screen.press("\x03")
        screen.shows(r"\[stopped\]")
        assert "\x1b[2mEasy" in screen.enter("and now", f"Hello!{ANY}")
        screen.press("half a line")
        screen.shows("half a line")
        screen.press_until("\x03", r"\n\(Ctrl-D quits\)\r?\n")


def test_nothing_of_the_answer_before_is_shown_for_a_stopped_one(tmp_path: Path) -> None:
    unknown = f"the last answer was stopped or failed; its times are unknown\r\n{ANY}"
    with chat("--model", script(tmp_path, SLOW, ANSWER, tokens_per_second=50)) as screen:
        screen.enter("hi", f"Hello!{ANY}")
        screen.enter("a slow one", "word word")
        screen.press("\x03")
        screen.shows(rf"\[stopped\]{ANY}")
        screen.enter("/stats", unknown)
        screen.enter("/new", f"a new conversation{ANY}")
        screen.enter("/stats", f"there is no answer yet{ANY}")


@pytest.mark.parametrize("paste", ["\x1b[200~one\ntwo\nthree\x1b[201~", "one\ntwo\nthree"])
def test_pasted_lines_are_one_message(tmp_path: Path, paste: str) -> None:
    """As a terminal marks them, and from one that does not."""
    with chat("-m", seeing(tmp_path, "one\ntwo\nthree")) as screen:
        screen.enter(paste, rf"[\r\n]1\r\n{ANY}")
        screen.enter('"""', r"\.\.\. ")
        for line in ("one", "two"):
            screen.enter(line, r"\.\.\. ")
            time.sleep(0.2)
        screen.enter('three"""', rf"[\r\n]1\r\n{ANY}")


def test_keys_typed_during_an_answer_are_ignored(tmp_path: Path) -> None:
    slow = final("word " * 100 + "end.", when=r"slow<\|end\|><\|start\|>assistant$")
    with chat("-m", script(tmp_path, slow, ANSWER, tokens_per_second=50)) as screen:
        screen.enter("slow", "word word")
        assert "xyzzy" not in screen.enter("xyzzy\n/quit", rf"end\.{ANY}")
        assert screen.process.poll() is None
        screen.enter("and now", f"Hello!{ANY}")


def test_messages_are_recalled_in_a_later_chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    model = seeing(tmp_path, "remember me")
    kept = tmp_path / "state" / "gpt-oss-server" / "chat-messages"
    for keys, *flags in (("remember me",), ("\x1b[A",), ("remember me", "--no-history")):
        if flags:
            kept.unlink()
        with chat("-m", model, *flags) as screen:
            screen.enter(keys, rf"[\r\n]1\r\n{ANY}")
        if keys == "\x1b[A":
            assert kept.read_text().splitlines() == ["remember me"] * 2
            assert kept.stat().st_mode & 0o777 == 0o600
    assert not kept.exists()
