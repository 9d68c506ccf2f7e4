"""Runs real clients; `make clients` installs them to .venv/clients.

Takes a client's script or command. Returns its output. Tests of missing clients are skipped with a reason.
Clients see neither this repository's packages nor the user's own configuration.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDER = Path(os.environ.get("CLIENTS_FOLDER", ROOT / ".venv" / "clients"))
SCRIPTS = ROOT / "tests" / "clients" / "scripts"
SECONDS = 300  # generous: clients are large, and the machine may be busy

THINK = "<|channel|>analysis<|message|>Let me think.<|end|><|start|>assistant"
HELLO = f"{THINK}<|channel|>final<|message|>Hello!<|return|>"
SUNNY = f"{THINK}<|channel|>final<|message|>It is sunny in Paris.<|return|>"
PLACE = f'{THINK}<|channel|>final<|message|>{{"city":"Paris"}}<|return|>'


def call(function: str, arguments: object) -> str:
    """A turn that ends with a call."""
    text = json.dumps(arguments)
    return f"{THINK}<|channel|>commentary to=functions.{function} <|constrain|>json<|message|>{text}<|call|>"


WEATHER = call("get_weather", {"city": "Paris"})


def command(name: str) -> str:
    """The path of an installed client."""
    for folder in (FOLDER / "node_modules" / ".bin", FOLDER / "python" / "bin"):
        if (folder / name).exists():
            return str(folder / name)
    pytest.skip(f"{name} is not installed in {FOLDER}: make clients")


def run(
    arguments: Sequence[str], folder: Path, *, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a client to its end, in a folder that is also its home."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        arguments,
        cwd=folder,
        env={**clean, "HOME": str(folder), "PWD": str(folder), "NO_COLOR": "1", **(env or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def run_script(name: str, folder: Path, url: str) -> Any:
    """Runs a script of `scripts/` and returns the JSON of its last line of output."""
    (folder / name).write_text((SCRIPTS / name).read_text(encoding="utf-8"), encoding="utf-8")
    done = run([*_interpreter(name, folder), str(folder / name)], folder, env={"BASE_URL": url})
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return json.loads(done.stdout.splitlines()[-1])


def _interpreter(name: str, folder: Path) -> list[str]:
    if name.endswith(".py"):
        return [command("python")]
    node = shutil.which("node")
    if node is None or not (FOLDER / "node_modules").exists():
        pytest.skip(f"Node.js or its packages are not installed in {FOLDER}: make clients")
    (folder / "node_modules").symlink_to(FOLDER / "node_modules")
    return [node]
