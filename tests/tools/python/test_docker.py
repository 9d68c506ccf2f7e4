"""Specifics of the docker sandbox, on a running engine; skipped without an engine or the image.

The image is that of GPT_OSS_SERVER_PYTHON_IMAGE, or the default one. A conversation in it: test_session.py.
"""

import asyncio
import subprocess
from typing import Any

import pytest

from tests.doubles.tools.calling import call, descriptors, failure, output_of, processes, what_gets_through
from tests.tools.python.conftest import MakeTool, docker, killed_server
from tools.python import PythonSession, Sandbox
from tools.python.sandboxes.docker import owner_mark

# What an engine shows in every container by design; the names are those of attempts.py.
SHOWN = {
    # the image's own files, and those that the engine creates for the container
    *("reads /etc/hostname", "reads /etc/resolv.conf", "reads /etc/fstab", "has the host's passwd"),
    *("reads /var/log/dpkg.log", "reads /var/lib/dpkg/status", "reads /etc/environment"),
    *("reads /root/.bashrc", "reads /root/.profile", "reads /home", "reads /boot"),
    "reads /etc/ssl/certs/ca-certificates.crt",
    "reads /sys/class/net",  # its own loopback, and tunnels of the kernel that are down
    "finds a network interface",
    # of the whole machine, without the addresses, which only root sees
    *("reads /proc/kallsyms", "reads /proc/cmdline", "reads /proc/iomem", "reads /proc/vmallocinfo"),
    # /proc is writable, but without capabilities these have no effect, or only make the writer's own end
    # likelier
    *("opens /proc/self/oom_score_adj for writing", "opens /proc/1/oom_score_adj for writing"),
    *("opens /proc/self/uid_map for writing", "opens /proc/self/gid_map for writing"),
    "opens /proc/1/mem for writing",  # the launcher, which has the same user and the same filters
    "makes a file in /dev/mqueue",  # of a few bytes: the filter denies the calls that would fill one
}


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    return docker()


def containers(owner: str = "") -> list[str]:
    listed = ["docker", "ps", "--all", "--filter", f"name=gpt-oss-python-{owner}", "--format", "{{.Names}}"]
    return subprocess.run(listed, stdout=subprocess.PIPE, text=True, check=True).stdout.split()


async def test_no_attempt_to_escape_succeeds(make_tool: MakeTool, known: dict[str, Any]) -> None:
    tool = make_tool(timeout=120.0)
    other = tool.open()
    await other.write("other-session", b"x")
    through = await what_gets_through(tool, known)
    assert {name: source for name, source in through.items() if name not in SHOWN} == {}
    assert await output_of(other, "1") == "1"


LIMITED = """
import os, time
def full(folder):
    try:
        for number in range(100):
            with open(f"{folder}/{number}", "wb") as file: file.write(bytes(1 << 20))
    except OSError as error:
        return error.errno, sum(entry.stat().st_size for entry in os.scandir(folder)) >> 20
made = 0
try:
    for _ in range(200):
        if os.fork() == 0:
            time.sleep(3); os._exit(0)
        made += 1
except OSError:
    pass
print(full("/mnt/data"), full("/tmp"), full("/run/kernel")[0], made < 40)
"""


async def test_files_and_processes_are_limited_by_the_kernel(session: PythonSession) -> None:
    text = await output_of(session, LIMITED)
    assert text.startswith("(28, 20) (28, ")
    assert text.endswith("28 True")


MEMORY = """
import mmap
kept = mmap.mmap(-1, 400 << 20)
for at in range(0, 400 << 20, 4096):
    kept[at] = 1
"""


async def test_memory_is_limited_and_the_model_learns_why(make_tool: MakeTool) -> None:
    session = make_tool(timeout=60.0).open()
    await session.write("kept", b"x")
    assert "it used more than 256 MiB of memory" in await failure(session, MEMORY)
    assert await output_of(session, "import os; print(os.listdir('.'))") == "['kept']"


async def test_after_close_no_container_process_or_descriptor_is_left(make_tool: MakeTool) -> None:
    session = make_tool().open()
    await call(session, "1")
    await session.close()
    before, opened = processes(), descriptors()
    idle, dead = make_tool(), make_tool()
    await call(idle.open(), "import subprocess; subprocess.Popen(['sleep', '600'])")
    await call(dead.open(), "import os; os._exit(1)")
    assert len(containers(owner_mark())) >= 1
    await idle.close()
    await dead.close()
    assert containers(owner_mark()) == []
    assert processes() == before
    assert len(descriptors()) <= len(opened)


# No thread is left that would notice the server's end.
STAYS = "import os; os.execv('/bin/sleep', ['sleep', '600'])"


async def test_what_a_killed_server_leaves_ends_by_itself_or_at_the_next_start(sandbox: Sandbox) -> None:
    stays = f"import threading; threading.Timer(0.1, lambda: exec({STAYS!r})).start()"
    _, _, owner = await killed_server("docker", "1", stays)
    for _ in range(300):
        if len(containers(owner)) <= 1:
            break
        await asyncio.sleep(0.1)
    assert len(containers(owner)) <= 1
    await asyncio.to_thread(docker)  # the next start
    assert containers(owner) == []


async def test_a_call_cancelled_while_its_container_starts_leaves_no_container(make_tool: MakeTool) -> None:
    tool = make_tool()
    session = tool.open()
    for pause in (0.0, 0.05, 0.3):
        running = asyncio.create_task(call(session, "1"))
        await asyncio.sleep(pause)
        running.cancel()
        await asyncio.wait({running})
        await session.retire("the test wants a start")
    await tool.close()
    assert containers(owner_mark()) == []


async def test_an_uploaded_file_belongs_to_the_code(session: PythonSession) -> None:
    await session.write("folder/data.csv", b"a,b\n")
    append = "import os; open('folder/data.csv', 'a').write('1,2'); open('folder/new', 'w').close(); "
    assert await output_of(session, append + "print(os.getuid() > 0)") == "True"
    assert await session.read("folder/data.csv") == b"a,b\n1,2"
