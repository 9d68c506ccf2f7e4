"""What real engines have in common: a process that is ready when its address says so."""

from __future__ import annotations

import subprocess
import time
import urllib.error
import urllib.request


def await_health(url: str, process: subprocess.Popen[bytes], seconds: float) -> None:
    for _ in range(int(seconds * 10)):
        assert process.poll() is None, f"{process.args!r} ended with {process.returncode}"
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise AssertionError(f"{process.args!r} was not ready within {seconds:g} s")
