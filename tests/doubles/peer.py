"""The public reference server, downloaded from the package index once, with a model that replays tokens.

Its metadata requires Python 3.12, which the server itself does not need. The repository contains no part of
it.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.doubles.server_process import free_port

PEER = "gpt-oss==0.0.9"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gpt-oss-server" / "benchmarks"


def fetch_peer() -> Path:
    """The folder with its package. Raises CalledProcessError if the index cannot be reached."""
    folder = CACHE / PEER.replace("==", "-")
    if not (folder / "gpt_oss").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--ignore-requires-python",
        ]
        # The tests have taken the public certificates away, which newer versions of pip read from here.
        environment = {name: value for name, value in os.environ.items() if name != "SSL_CERT_DIR"}
        subprocess.run([*command, "--dest", str(folder), PEER], check=True, env=environment)
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
            wheel.extractall(folder)
    return folder


@contextmanager
def peer_serving(folder: Path, completion: Sequence[int], scratch: Path) -> Iterator[tuple[str, int]]:
    """Runs the server and yields its host and port."""
    tokens = scratch / "completion.json"
    tokens.write_text(json.dumps(list(completion)))
    port = free_port()
    launcher = Path(__file__).with_name("reference_server.py")
    with (scratch / "peer.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(launcher), str(folder), str(port), str(tokens)], stdout=log, stderr=log
        )
        try:
            _await_port(port, process, scratch / "peer.log")
            yield "127.0.0.1", port
        finally:
            process.kill()  # it needs no clean-up
            process.wait()


def _await_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        if process.poll() is not None:
            raise RuntimeError(f"The reference server did not start:\n{log.read_text(errors='replace')}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError("The reference server did not start within a minute.")
