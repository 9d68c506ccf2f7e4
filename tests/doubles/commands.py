"""Runs the command as a user does: in its own process."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests.doubles.processes.forked import COMMAND as COMMAND
from tests.doubles.processes.forked import Command


def run(
    *words: str,
    stdin: str = "",
    env: dict[str, str] | None = None,
    timeout: float = 90,
    encoding: str | None = None,
    fresh: bool = False,
) -> subprocess.CompletedProcess[str]:
    """With `fresh`, in a Python of its own, as a user's."""
    environment = {**os.environ, **(env or {})}
    pipe = subprocess.PIPE
    with Command[str](
        words,
        env=environment,
        fresh=fresh,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
        encoding=encoding,
    ) as process:
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


ANSWER = (
    "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>Hello!<|return|>"
)
