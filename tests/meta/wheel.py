"""Tries a built wheel as a new user would: `python tests/meta/wheel.py dist/*.whl`.

In an empty environment with the versions of constraints.txt, and with the standard library alone.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.request
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"gpt_oss_server", "inference", "tools"}
MUST_HOLD = {f"{package}/py.typed" for package in PACKAGES}
# The wheel contains the embedded model's weights and the code that loads them, nothing else.
_FILES = ("__init__.py", "expand.py", "config.json", "generation_config.json", "tiny.safetensors")
TINY = {f"inference/tiny/{name}" for name in _FILES}
NOT_INSTALLED = {"inference/tiny/README.md"}
LARGEST = 17 * 1024**2


def check_contents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == PACKAGES, f"the wheel holds {sorted(tops)}"
    assert names >= MUST_HOLD, f"the wheel lacks {sorted(MUST_HOLD - names)}"
    of_tiny = {name for name in names if name.startswith("inference/tiny/")}
    assert of_tiny == TINY, f"the wheel holds {sorted(of_tiny ^ TINY)}"
    assert any(name.endswith("/licenses/LICENSE") for name in names), "the wheel lacks its licence"
    assert wheel.stat().st_size <= LARGEST, f"the wheel has {wheel.stat().st_size:,} bytes"
    if (ROOT / ".git").exists():
        listing = subprocess.run(["git", "ls-files", *PACKAGES], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        missing = set(listing.stdout.split()) - names - NOT_INSTALLED
        assert not missing, f"the wheel lacks {sorted(missing)}"


def install(wheel: Path, folder: Path) -> Path:
    """Installs the wheel and its requirements in a new environment; returns the folder of its commands."""
    venv.create(folder, with_pip=True)
    commands = folder / ("Scripts" if os.name == "nt" else "bin")
    pip = [str(commands / "python"), "-m", "pip", "--disable-pip-version-check", "-qq"]
    constraints = str(ROOT / "constraints.txt")
    subprocess.run([*pip, "install", "--no-compile", "--constraint", constraints, str(wheel)], check=True)
    subprocess.run([*pip, "check"], check=True)
    return commands


def serve_and_request(commands: Path, folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(commands / "gpt-oss-server"), "serve", "--port", "0", "--default-max-output-tokens", "16"]
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        output = ""
        for line in process.stdout:
            output += line
            if "Ctrl-C" in line:
                break
        found = re.search(r"API +(http://\S+)/v1", output)
        assert found, f"the server did not start: {output}"
        return request_status(found[1])
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def request_status(url: str) -> str:
    request = urllib.request.Request(
        f"{url}/v1/responses", json.dumps({"input": "Hello"}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        status: str = json.load(answer)["status"]
        return status


def main() -> None:
    wheel = Path(sys.argv[1]).resolve()
    check_contents(wheel)
    with tempfile.TemporaryDirectory() as scratch:
        commands = install(wheel, Path(scratch) / "venv")
        (Path(scratch) / "empty").mkdir()
        status = serve_and_request(commands, Path(scratch) / "empty")
    assert status in ("completed", "incomplete"), status
    size = f"{wheel.stat().st_size:,} bytes"
    sys.stdout.write(f"{wheel.name}: {size}, installs alone, serves, answers ({status}).\n")


if __name__ == "__main__":
    main()
