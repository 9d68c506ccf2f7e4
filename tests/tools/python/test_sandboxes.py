"""Which sandbox is chosen, the error if there is none, and the two that are not the default."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.doubles.tools.calling import call, output_of, processes
from tests.doubles.waiting import until
from tools.python import PythonTool, choose_sandbox
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
    argv = Docker(SandboxLimits(), image="image").command_line("name")
    text = " ".join(argv)
    for needed in (
        *("--network none", "--read-only", "--cap-drop ALL", "--security-opt no-new-privileges"),
        *("--pids-limit 64", "--memory ", "--memory-swap ", "--rm", "--tmpfs /tmp:", "size=134217728"),
        *("--tmpfs /mnt/data:", "size=268435456", "--tmpfs /run/kernel:", "size=65536", "nr_inodes=10000"),
        *("--log-driver none", "--no-healthcheck", "--pull never", "--dns 127.0.0.1", "--entrypoint python3"),
    ):
        assert needed in text
    user = argv[argv.index("--user") + 1]
    assert not user.startswith("0:")
    assert argv.index("image") < argv.index("-c")
    assert not {"--privileged", "--volume", "-v", "--mount"} & set(argv)


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
