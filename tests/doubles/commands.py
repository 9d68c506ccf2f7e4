"""Runs the command, or a script, as a user does: in its own process."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.doubles.processes.forked import COMMAND as COMMAND
from tests.doubles.processes.forked import Command, Script

PIPES: dict[str, Any] = {
    "stdin": subprocess.PIPE,
    "stdout": subprocess.PIPE,
    "stderr": subprocess.PIPE,
    "text": True,
}


def run(
    *words: str,
    stdin: str = "",
    env: dict[str, str] | None = None,
    timeout: float = 90,
    encoding: str | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """With `fresh`, in a Python of its own, as a user's."""
    command = Command[str](words, env={**os.environ, **(env or {})}, encoding=encoding, **PIPES, **options)
    return _ended(words, command, stdin, timeout)


def refused(*words: str, code: int = 1, **options: Any) -> str:
    """Runs a command that must fail with a sentence alone, on standard error, and returns that."""
    done = run(*words, **options)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def run_script(path: Path, *, env: dict[str, str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs it as `python PATH` does."""
    script = Script[str](path, env={**os.environ, **env}, **PIPES, **options)
    return _ended([str(path)], script, "", 120)


def _ended(
    words: Sequence[str], process: subprocess.Popen[str], stdin: str, timeout: float
) -> subprocess.CompletedProcess[str]:
    with process:
        try:
            output, errors = process.communicate(stdin, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, output, errors)


def script(folder: Path, *turns: str | dict[str, Any], tokens_per_second: float = 0) -> str:
    """Writes a script with these turns and returns its model name."""
    path = folder / "script.json"
    path.write_text(json.dumps({"turns": turns, "loop": True, "tokens_per_second": tokens_per_second}))
    return f"scripted:{path}"


def final(text: str, when: str | None = None) -> dict[str, str]:
    """A turn that answers with this text, where its prompt matches `when`."""
    turn = {"text": f"<|channel|>final<|message|>{text}<|return|>"}
    return turn if when is None else {**turn, "when": when}


ANSWER = (
    "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>Hello!<|return|>"
)
