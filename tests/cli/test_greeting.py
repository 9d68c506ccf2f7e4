"""How a greeting introduces a model, and how it fits a terminal."""

import io
import sys

import pytest

from gpt_oss_server.cli.server.greeting import greeting
from gpt_oss_server.cli.terminal.console import introduction
from gpt_oss_server.settings import Settings
from inference.engine import EngineInfo

ABOUT = "A demo model that knows next to nothing: 7 layers on cpu."
MODEL = EngineInfo(name="tiny", description=ABOUT, context_length=131_072)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_name_keeps_its_capitals() -> None:
    assert introduction("tiny", "A 16M-parameter demo model.") == "tiny, a 16M-parameter demo model"
    for name in ("SGLang", "vLLM"):
        assert introduction("tiny", f"{name} at http://gpu:1") == f"tiny, {name} at http://gpu:1"
    assert introduction("tiny", "") == "tiny"


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
