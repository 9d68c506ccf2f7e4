"""Attempts to leave the sandbox, in it and in one that an unprivileged user starts."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ipykernel
import pytest

from tests.doubles.tools.attempts import attempts
from tests.doubles.tools.calling import call, failure, output_of, processes, what_gets_through
from tests.tools.python.conftest import MakeTool
from tools.python import PythonSession, Sandbox
from tools.python.sandboxes.bounds.cgroups import Groups


async def test_no_attempt_to_escape_succeeds(make_tool: MakeTool, known: dict[str, Any]) -> None:
    before = processes()
    tool = make_tool(timeout=40.0)
    other = tool.open()
    await other.write("other-session", b"x")
    assert len(attempts()) >= 200
    through = await what_gets_through(tool, known)
    assert not through
    assert await output_of(other, "1") == "1"
    await tool.close()
    assert processes() == before


TOUCH, MKDIR = "open(f'{}/{{i}}', 'w').close()", "os.mkdir(f'{}/{{i}}')"
WRITABLE = {**dict.fromkeys(("/tmp", "/dev/shm", "/run/kernel"), TOUCH), "/mnt/data": MKDIR}
KILLED_FOR = {
    "processes that take memory together": (
        "import os, time\n"
        "for _ in range(4):\n"
        "    if os.fork() == 0:\n"
        "        kept = bytearray(b'x') * (120 << 20); time.sleep(60)\n"
        "time.sleep(8)",
        "memory",
    ),
    "many blocks of memory": ("kept = [b'x' * (1 << 20) + bytes([i % 256]) for i in range(2000)]", "Memory"),
    "shared memory that no process limit counts": (
        "import mmap\nkept = [mmap.mmap(-1, 64 << 20) for _ in range(8)]\n"
        "for block in kept:\n    for at in range(0, 64 << 20, 4096): block[at] = 1\n",
        "memory",
    ),
    **{
        f"many small files in {folder}": (
            f"import os, time\nfor i in range(100_000):\n    {make.format(folder)}\n    time.sleep(0.0001)",
            "more than 2000 files",
        )
        for folder, make in WRITABLE.items()
    },
    "full sockets in many processes": (
        "import os, socket, time\n"
        "def fill():\n"
        "    kept = []\n"
        "    try:\n"
        "        while True:\n"
        "            kept += socket.socketpair()\n"
        "            kept[-1].setblocking(False)\n"
        "            try: kept[-1].send(b'x' * 100_000)\n"
        "            except BlockingIOError: pass\n"
        "    except OSError: pass\n"
        "    time.sleep(30)\n"
        "for _ in range(20):\n"
        "    if os.fork() == 0: fill()\n"
        "time.sleep(8)",
        "more than 512 sockets",
    ),
    "full TCP connections": (
        "import os, socket, time\n"
        "def fill():\n"
        "    kept, door = [], socket.create_server(('127.0.0.1', 0))\n"
        "    for _ in range(25):\n"
        "        one = socket.create_connection(door.getsockname()); kept += [one, door.accept()[0]]\n"
        "        one.setblocking(False)\n"
        "        try:\n"
        "            for _ in range(128): one.send(b'x' * 65_536)\n"
        "        except BlockingIOError: pass\n"
        "    time.sleep(30)\n"
        "for _ in range(8):\n"
        "    if os.fork() == 0: fill()\n"
        "time.sleep(8)",
        "memory",
    ),
    "pipes in many processes": (
        "import os, time\n"
        "for _ in range(20):\n"
        "    if os.fork() == 0:\n"
        "        try: kept = [os.pipe() for _ in range(1000)]\n"
        "        finally: time.sleep(30)\n"
        "time.sleep(8)",
        "more than 2048 open files",
    ),
}


@pytest.fixture(params=["control groups", "the watchdog alone"])
def holder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What enforces the limits of a whole box; control groups are not available everywhere."""
    if request.param == "the watchdog alone":
        monkeypatch.setattr("tools.python.sandboxes.bubblewrap.make_groups", lambda limits: Groups(()))
    return str(request.param)


@pytest.mark.usefixtures("holder")
@pytest.mark.parametrize("name", KILLED_FOR)
async def test_a_box_over_its_limit_ends_and_the_model_learns_why(session: PythonSession, name: str) -> None:
    source, why = KILLED_FOR[name]
    output = await call(session, source)
    assert output.failed or "MemoryError" in output.text
    # If a control group ends just one process, it may be the kernel itself or another one: the words differ.
    assert why.lower() in output.text.lower() or "died" in output.text
    assert await output_of(session, "1 + 1") == "2"


async def test_a_box_of_which_the_kernel_ended_one_process_for_its_memory_is_ended(
    session: PythonSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await output_of(session, "1 + 1") == "2"
    with monkeypatch.context() as patch:
        patch.setattr(Groups, "out_of_memory", lambda groups: True)
        began = time.monotonic()
        assert "memory" in await failure(session, "import time; time.sleep(60)")
        assert time.monotonic() - began < 50
    assert await output_of(session, "1 + 1") == "2"


FORK_BOMB = """
import os, time
made = 0
deadline = time.time() + 3
while time.time() < deadline:
    try:
        if os.fork() == 0:
            while True:
                try: os.fork()
                except OSError: time.sleep(0.05)
        made += 1
    except OSError:
        time.sleep(0.05)
"""

THREAD_BOMB = """
import threading, time
kept = []
while True:
    thread = threading.Thread(target=time.sleep, args=(60,)); thread.start(); kept.append(thread)
"""

ORPHANS = """
import os, time
for _ in range(100):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    os.wait()
"""


@pytest.mark.parametrize("bomb", [FORK_BOMB, THREAD_BOMB, ORPHANS], ids=["forks", "threads", "orphans"])
async def test_a_bomb_stays_small_and_ends_with_its_box(make_tool: MakeTool, bomb: str, holder: str) -> None:
    before = processes()
    tool = make_tool(timeout=4.0, grace=1.0)
    session = tool.open()
    # If the kernel limits a box's process numbers, none of the box's processes can be above the limit.
    bound = min(1000, int(await output_of(session, "print(open('/proc/sys/kernel/pid_max').read())")))
    running = asyncio.create_task(call(session, bomb))
    most = 0
    while not running.done():
        began = time.monotonic()
        await asyncio.sleep(0.05)
        assert time.monotonic() - began < 10  # the host stays responsive
        most = max(most, len(processes() - before))
    assert most < (60 if holder == "control groups" else bound)
    await tool.close()
    assert processes() == before


async def test_code_that_takes_over_the_kernel_is_ended_by_the_time_limit(make_tool: MakeTool) -> None:
    session = make_tool(timeout=2.0, grace=0.5).open()
    await failure(session, "import os; os.execv('/bin/sleep', ['sleep', '600'])")
    assert await output_of(session, "1") == "1"


FORGED = """
import os, threading
from ipykernel.kernelapp import IPKernelApp
app = IPKernelApp.instance()
socket = app.iopub_thread.socket
"""


@pytest.mark.parametrize(
    "flood",
    [
        "app.iopub_thread.schedule(lambda: socket.send(b'x' * (32 << 20)))",
        "app.iopub_thread.schedule("
        "lambda: [socket.send_multipart([b'<IDS|MSG>'] * 6) for _ in range(200_000)])",
        "big = b'x' * (7 << 20); app.iopub_thread.schedule("
        "lambda: socket.send_multipart([b'<IDS|MSG>'] + [big] * 300, copy=False))",
        "app.iopub_thread.schedule(lambda: socket.close(0))",
        "import sys; from jupyter_client.session import Session; Session.send = lambda *a, **k: None",
        "[os.unlink(f'/run/kernel/{n}') or os.symlink('/dev/log', f'/run/kernel/{n}') "
        "for n in os.listdir('/run/kernel')]; app.iopub_thread.schedule(lambda: socket.close(0))",
    ],
    ids=["huge message", "junk messages", "huge frames", "closed channel", "silence", "replaced sockets"],
)
async def test_a_kernel_that_lies_to_the_host_harms_only_itself(make_tool: MakeTool, flood: str) -> None:
    session = make_tool(timeout=2.0, grace=0.5).open()
    output = await call(session, FORGED + flood + "\nimport time; time.sleep(0.5)")
    assert len(output.text) < 25_000
    for _ in range(2):
        answer = await call(session, "1 + 1")
    assert answer.text.strip().endswith("2")


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
