"""The same sandbox started by an unprivileged user, when the tests run as root."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import ipykernel
import pytest

from tools.python import Sandbox

NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
REPOSITORY = Path(__file__).resolve().parents[3]

SCRIPT = """
import asyncio, json, os, sys
from tests.doubles.tools.attempts import groups
from tests.tools.python.conftest import SMALL, facts_of_the_host
from tools.python import PythonTool, choose_sandbox
from tools.python.sandboxes.bounds.usage import measure
from tools.tool import ToolCall

FORKS = '''
import os, time
made = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(60); os._exit(0)
        made += 1
except OSError:
    print(made)
'''

async def main():
    tool = PythonTool(await choose_sandbox("bubblewrap", limits=SMALL), timeout=40)
    through = []
    for group, source in groups({**facts_of_the_host(), "path": "none"}):
        session = tool.open()
        output = await session.run(ToolCall("", source))
        answers = json.loads(output.text.strip().splitlines()[-1])
        through += [name for name in group if answers[name] is None]
        await session.close()
    session = tool.open()
    forks = await session.run(ToolCall("", FORKS))
    await session.write("a", b"host")
    seen = await session.run(ToolCall("", "open('a').read(), os.getuid()"))
    await tool.close()
    left = len(measure(os.getpid(), 1000).ids) - 1
    report = {"uid": os.getuid(), "through": through, "forks": int(forks.text.split()[-1]), "seen": seen.text}
    sys.stdout.write(json.dumps({**report, "left": left}))

asyncio.run(main())
"""


@pytest.fixture
def interpreter() -> Iterator[str]:
    """An interpreter that another user can run, with the packages of this one."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root, with setpriv, can become another user")
    packages = Path(ipykernel.__file__).parents[1]
    if not (_open_to_all(packages) and _open_to_all(REPOSITORY)):
        pytest.skip("the packages or the repository are closed to other users")
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    usable = [path for path in (sys.executable, f"/usr/bin/{name}", f"/usr/local/bin/{name}") if _runs(path)]
    if not usable:
        pytest.skip(f"no {name} that another user could run")
    with tempfile.TemporaryDirectory(prefix="gpt-oss-python-test-") as folder:
        os.chmod(folder, 0o755)
        environment = Path(folder, "env")
        argv = [usable[0], "-m", "venv", "--without-pip", environment]
        subprocess.run(argv, check=True, capture_output=True)
        (environment / "lib" / name / "site-packages" / "others.pth").write_text(f"{packages}\n")
        yield str(environment / "bin" / "python")


def _open_to_all(path: Path) -> bool:
    return all(above.stat().st_mode & 0o5 == 0o5 for above in (path, *path.parents))


def _runs(path: str) -> bool:
    argv = [*AS_NOBODY, path, "-m", "venv", "--help"]
    return (
        os.path.exists(path)
        and _open_to_all(Path(path).resolve().parent)
        and subprocess.run(argv, check=False, capture_output=True).returncode == 0
    )


def test_an_unprivileged_user_has_the_same_protection(sandbox: Sandbox, interpreter: str) -> None:
    del sandbox  # needed for its skip
    clean = ("env", "-i", "PATH=/usr/bin:/bin", f"PYTHONPATH={REPOSITORY}", "PYTHONDONTWRITEBYTECODE=1")
    argv = [*AS_NOBODY, *clean, interpreter, "-c", SCRIPT]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=REPOSITORY, timeout=120)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["uid"], report["through"], report["left"]) == (NOBODY, [], 0)
    assert 5 < report["forks"] <= 40
    assert "('host', 1000)" in report["seen"]
