"""Runs the command as a user does: in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "gpt_oss_server"]


def run(
    *words: str,
    stdin: str = "",
    env: dict[str, str] | None = None,
    timeout: float = 90,
    encoding: str | None = None,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words],
        input=stdin,
        capture_output=True,
        text=True,
        encoding=encoding,
        timeout=timeout,
        env={**os.environ, **(env or {})},
    )


def script(folder: Path, *turns: str | dict[str, Any], tokens_per_second: float = 0) -> str:
    """Writes a script with these turns and returns its model name."""
    path = folder / "script.json"
    path.write_text(json.dumps({"turns": turns, "loop": True, "tokens_per_second": tokens_per_second}))
    return f"scripted:{path}"


ANSWER = (
    "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>Hello!<|return|>"
)
