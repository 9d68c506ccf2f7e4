"""Runs the command, or a script, as a user does: in its own process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.doubles.processes.forked import COMMAND as COMMAND
from tests.doubles.processes.forked import Command

_PIPES: dict[str, Any] = {**dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE), "text": True}


def run(
    *words: str, stdin: str = "", env: dict[str, str] | None = None, timeout: float = 90, **options: Any
) -> subprocess.CompletedProcess[str]:
    """With `fresh`, in a Python of its own, as a user's."""
    with Command[str](words, env={**os.environ, **(env or {})}, **_PIPES, **options) as process:
        try:
            output, errors = process.communicate(stdin, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, output, errors)


def refused(*words: str, code: int = 1, **options: Any) -> str:
    """Runs a command that must fail with a sentence alone, on standard error, and returns that."""
    done = run(*words, **options)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def run_script(path: Path, *, env: dict[str, str], **options: Any) -> subprocess.CompletedProcess[str]:
    command, environment = [sys.executable, str(path)], {**os.environ, **env}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, **options)


def script(folder: Path, *turns: str | dict[str, Any], tokens_per_second: float = 0) -> str:
    """Writes a script with these turns and returns its model name."""
    path = folder / "script.json"
    path.write_text(json.dumps({"turns": turns, "loop": True, "tokens_per_second": tokens_per_second}))
    return f"scripted:{path}"


def final(text: str, when: str | None = None) -> dict[str, str]:
    """A turn that answers with this text, where its prompt matches `when`."""
    turn = {"text": f"<|channel|>final<|message|>{text}<|return|>"}
    return turn if when is None else {**turn, "when": when}


ANSWER = f"<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant{final('Hello!')['text']}"
