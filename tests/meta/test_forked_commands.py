"""A forked command is to a test what one in a Python of its own is."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.commands import ANSWER, run, script
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
