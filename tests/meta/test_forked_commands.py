"""A forked command or script is to a test what one in a Python of its own is."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.commands import ANSWER, run, run_script, script
from tests.doubles.processes.forked import Command

PIPES: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        (["chat", "--help-all"], ""),
        (["config", "--host", "::1"], ""),
        (["render", "-"], '{"input": "caf\u00e9"}'),
        (["render", "-"], "{"),
        (["store", "stat"], ""),
        (["swerve"], ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_its_output_and_code_are_the_same(words: list[str], stdin: str) -> None:
    one, other = (run(*words, stdin=stdin, fresh=fresh) for fresh in (False, True))
    assert (one.returncode, one.stdout, one.stderr) == (other.returncode, other.stdout, other.stderr)


SCRIPT = """
import os, sys
from pathlib import Path
import neighbour
from openai import OpenAI
print(__name__, __file__, sys.argv, sys.path[0], Path.cwd(), neighbour.NAME, os.environ["OPENAI_BASE_URL"])
print(OpenAI(api_key="any").base_url)
"""


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise SystemExit('Not today.')", "1 / 0"])
def test_a_script_is_the_same(tmp_path: Path, end: str) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "neighbour.py").write_text("NAME = 'next door'\n")
    path = folder / "script.py"
    path.write_text(SCRIPT + end)
    env = {"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
    one, other = (run_script(path, env=env, cwd=tmp_path, fresh=fresh) for fresh in (False, True))
    assert (one.returncode, one.stdout) == (other.returncode, other.stdout)
    assert one.stdout.count("127.0.0.1:1") == 2
    assert one.stderr.splitlines()[-1:] == other.stderr.splitlines()[-1:]


def test_it_has_its_own_variables_folder_and_descriptors(tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text('{"input": "Hello"}')
    before = os.listdir("/proc/self/fd")
    environment = {**os.environ, "GPT_OSS_SERVER_MODLE": "x"}
    for _ in range(3):
        with Command[bytes](["render", "request.json"], env=environment, cwd=tmp_path, **PIPES) as command:
            output, errors = command.communicate()
        assert (b"Hello" in output, b"GPT_OSS_SERVER_MODLE" in errors, command.poll()) == (True, True, 0)
    assert len(os.listdir("/proc/self/fd")) <= len(before) + 1, "the one of the nursery"


def test_a_signal_ends_it_and_nothing_is_left(tmp_path: Path) -> None:
    with Command[bytes](["chat", "--model", script(tmp_path, ANSWER)], **PIPES) as command:
        assert command.stdin is not None
        assert command.stdout is not None
        command.stdin.write(b"hi\n")
        command.stdin.flush()
        assert b"Easy" in command.stdout.readline()
        assert command.poll() is None
        command.kill()
        assert command.wait(20) == -signal.SIGKILL
    assert not Path(f"/proc/{command.pid}").exists()
