"""Which sandbox is chosen, the error if there is none, and the two that are not the default."""

import asyncio
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.tools.calling import call, descriptors, failure, output_of, processes, what_gets_through
from tests.doubles.waiting import until, wait_until
from tests.tools.python.conftest import MakeTool, docker, killed_server
from tools.python import PythonSession, PythonTool, Sandbox, choose_sandbox
from tools.python.sandboxes.bounds.limits import SandboxLimits
from tools.python.sandboxes.bubblewrap import refusal
from tools.python.sandboxes.docker import Docker, owner_is_gone, owner_mark
from tools.python.sandboxes.interpreter import examine
from tools.tool import ToolUnavailable


async def test_off_is_no_sandbox_and_an_unknown_name_is_refused() -> None:
    assert await choose_sandbox("off") is None
    with pytest.raises(ToolUnavailable, match="choose one of auto, bubblewrap, docker, unsafe-local, off"):
        await choose_sandbox("chroot")


async def test_without_any_sandbox_the_error_states_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ToolUnavailable) as refused:
        await choose_sandbox("auto")
    assert "apt-get install bubblewrap" in str(refused.value)
    assert "needs the `docker` command" in str(refused.value)


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ("No permissions to creating new namespace, likely because", "kernel.unprivileged_userns_clone=1"),
        ("Creating new namespace failed: No space left on device", "user.max_user_namespaces"),
        ("setting up uid map: Permission denied", "apparmor_restrict_unprivileged_userns=0"),
        ("loopback: Failed RTM_NEWADDR: Operation not permitted", "apparmor_restrict_unprivileged_userns"),
        ("Can't mount proc on /newroot/proc: Operation not permitted", "systempaths=unconfined"),
        ("something else", "choose --python docker or --python off"),
    ],
)
def test_bubblewraps_message_becomes_advice(words: str, advice: str) -> None:
    assert advice in refusal(words)
    assert words in refusal(words)


async def test_an_interpreter_that_cannot_run_kernels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ToolUnavailable, match="cannot run"):
        await examine(str(tmp_path / "python"))
    with pytest.raises(ToolUnavailable, match="ended with 1"):
        await examine("/bin/false")


async def test_an_interpreter_shows_its_parts_and_not_its_settings() -> None:
    interpreter = await examine(sys.executable)
    assert Path(sys.prefix, "lib") in interpreter.paths
    for path in interpreter.paths:
        assert path.name not in ("etc", "pip.conf")
        assert path not in (Path("/"), Path.home(), Path(sys.prefix))


async def test_docker_without_an_engine_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolUnavailable, match="needs the `no-such-engine` command"):
        await Docker(SandboxLimits(), command="no-such-engine").check()
    engine = tmp_path / "docker"
    engine.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon at unix:///x.' >&2\nexit 1\n")
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(ToolUnavailable, match=r"running engine.*Cannot connect to the Docker daemon"):
        await choose_sandbox("docker")


def test_the_docker_command_reveals_nothing() -> None:
    argv = Docker(SandboxLimits(), image="image").command_line("name", Path("/some/skills"))
    text = " ".join(argv)
    for needed in (
        *("--network none", "--read-only", "--cap-drop ALL", "--security-opt no-new-privileges"),
        *("--pids-limit 64", "--memory ", "--memory-swap ", "--rm", "--tmpfs /tmp:", "size=134217728"),
        *("--tmpfs /mnt/data:", "size=268435456", "--tmpfs /run/kernel:", "size=65536", "nr_inodes=10000"),
        "--volume /some/skills:/mnt/skills:ro",
        *("--log-driver none", "--no-healthcheck", "--pull never", "--dns 127.0.0.1", "--entrypoint python3"),
    ):
        assert needed in text
    user = argv[argv.index("--user") + 1]
    assert not user.startswith("0:")
    assert argv.index("image") < argv.index("-c")
    assert argv.count("--volume") == 1
    assert not {"--privileged", "-v", "--mount"} & set(argv)


async def test_unsafe_local_works_logs_a_warning_and_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    before = processes()
    sandbox = await choose_sandbox("unsafe-local")
    assert sandbox is not None
    tool = PythonTool(sandbox, timeout=2.0)
    session = tool.open()
    with caplog.at_level(logging.WARNING):
        assert await output_of(session, "x = 1; x") == "1"
    assert "UNSAFE" in caplog.text
    await session.write("a.txt", b"a")
    assert await output_of(session, "open('a.txt').read()") == "'a'"
    await call(session, "import os; os._exit(1)")
    assert await output_of(session, "open('a.txt').read()") == "'a'"
    await call(session, "import subprocess; subprocess.Popen(['sleep', '600'])")
    assert (await call(session, "while True: pass")).failed
    assert "UNKNOWN" in (tool.declaration.description or "")
    await tool.close()
    await until(lambda: processes() <= before)


def test_the_owner_of_a_container_is_gone_only_if_that_is_certain() -> None:
    numbering, pid, started = owner_mark().split(".")
    earlier = int(started) - 1
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert owner_is_gone(f"{numbering}.{ended.pid}.{started}")
    assert owner_is_gone(f"{numbering}.{pid}.{earlier}"), "its number was reused"
    odd = ("", "mine", "../..", f"0.{pid}.1", f"00000000.{pid}")
    assert not any(map(owner_is_gone, (owner_mark(), f"00000000.{pid}.{earlier}", *odd)))


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
    await asyncio.to_thread(wait_until, lambda: len(containers(owner)) <= 1)
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
