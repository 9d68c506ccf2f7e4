"""The scripts of `completion`, run in their shells: what Tab offers at the end of a line."""

import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpt_oss_server.cli.commands.completion import SCRIPTS
from gpt_oss_server.cli.line.words import command_words
from gpt_oss_server.cli.parser import COMMANDS, build_parser
from tests.doubles.commands import run

WORDS = command_words(build_parser().subcommands, COMMANDS)


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with one file, and the script of each shell next to it."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "request.json").write_text("{}")
    for shell, script in SCRIPTS.items():
        (tmp_path / f"script.{shell}").write_text(script("gpt-oss-server", WORDS))
    return tmp_path


def output_of(place: Path, *words: str) -> str:
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 60}
    done = subprocess.run(words, cwd=place / "here", env={**os.environ, "HOME": str(place)}, **options)
    assert (done.returncode, done.stderr) == (0, "")
    return str(done.stdout)


def in_bash(place: Path, line: str) -> set[str]:
    arrays = 'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))'
    program = f'source "$0"; {arrays}; _gpt_oss_server; printf "%s\n" "${{COMPREPLY[@]}}"'
    words = [f"{place}/script.bash", "gpt-oss-server", *line.split(" ")]
    return set(output_of(place, "bash", "--norc", "-c", program, *words).split())


def in_fish(place: Path, line: str) -> set[str]:
    program = f"source {place}/script.fish; complete -C 'gpt-oss-server {line}'"
    rows = output_of(place, "fish", "--no-config", "-c", program).splitlines()
    offered = {row.split("\t")[0] for row in rows}
    typed = line.rpartition(" ")[2]
    return {word for word in offered if word.startswith(typed)}  # fish also offers words that contain it


LINES = [
    ("st", {"store"}),
    ("help st", {"store"}),
    ("serve --dev", {"--device"}),
    ("serve --device ", {"auto", "cpu", "cuda"}),
    ("serve --max-body-b", {"--max-body-bytes"}),
    ("serve ti", {"tiny"}),
    ("serve --port ", set[str]()),
    ("serve --config re", {"request.json"}),
    ("render re", {"request.json"}),
    ("store ", {"stat", "vacuum", "export", "import", "delete"}),
    ("store import re", {"request.json"}),
    ("chat --effort h", {"high"}),
    ("completion ", {"bash", "zsh", "fish"}),
]


@pytest.mark.parametrize(("line", "offered"), LINES)
@pytest.mark.parametrize(
    "complete", [pytest.param(in_bash, marks=needs("bash")), pytest.param(in_fish, marks=needs("fish"))]
)
def test_a_shell_completes_the_last_word(
    complete: Callable[[Path, str], set[str]], place: Path, line: str, offered: set[str]
) -> None:
    assert complete(place, line) == offered


@needs("zsh")
@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("serve --dev", "serve --device"),
        ("serve --device cu", "serve --device cuda"),
        ("render re", "render request.json"),
        ("store vac", "store vacuum"),
        ("store import re", "store import request.json"),
        ("vers", "version"),
    ],
)
def test_zsh_completes_the_last_word(place: Path, line: str, completed: str) -> None:
    import pty  # not on Windows

    child, terminal = pty.fork()
    if child == 0:
        os.chdir(place / "here")
        environment = {**os.environ, "HOME": str(place), "TERM": "dumb", "PS1": "% "}
        os.execvpe("zsh", ["zsh", "-f"], environment)
    try:
        echo = "gpt-oss-server() { echo \"<$*>\" }; echo r''eady"
        os.write(terminal, f"autoload -U compinit; compinit -u -D; . {place}/script.zsh; {echo}\n".encode())
        assert "ready" in seen(terminal, "ready")
        os.write(terminal, f"gpt-oss-server {line}\t\n".encode())
        assert f"<{completed}>" in seen(terminal, f"<{completed}>")
    finally:
        os.close(terminal)
        os.waitpid(child, 0)


def seen(terminal: int, expected: str) -> str:
    """What the terminal shows up to `expected`, or in a minute."""
    text, until = "", time.monotonic() + 60
    while expected not in text.replace("\r", "") and time.monotonic() < until:
        if select.select([terminal], [], [], 1)[0]:
            text += os.read(terminal, 4096).decode(errors="replace")
    return text


def test_every_shown_flag_is_in_every_script() -> None:
    scripts = [script("gpt-oss-server", WORDS) for script in SCRIPTS.values()]
    for command in WORDS:
        for name in [name for flag in command.flags for name in flag.names if name.startswith("--")]:
            assert all(name[2:] in script for script in scripts), (command.name, name)


def test_the_command_prints_the_script_of_a_shell() -> None:
    done = run("completion", "bash", fresh=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("complete -F _gpt_oss_server gpt-oss-server\n")
