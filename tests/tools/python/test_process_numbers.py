"""The kernel's limit on a box's processes without control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.doubles.tools.calling import output_of
from tests.tools.python.conftest import SMALL, MakeTool
from tools.python.sandboxes.bounds.cgroups import Groups
from tools.python.sandboxes.bounds.process_numbers import can_bound, highest_number

SETTING = Path("/proc/sys/kernel/pid_max")


def of_the_host() -> str:
    return SETTING.read_text()


@pytest.mark.parametrize("release", ["6.13.9", "5.15.0-91-generic", "4.18.0", "unknown", ""])
def test_the_setting_of_a_whole_host_is_never_touched(release: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", str)
    assert not can_bound(release)
    assert can_bound("6.14.0-rc1")
    assert can_bound("7.0")


@pytest.mark.skipif(
    not can_bound() or not os.access(SETTING, os.W_OK),
    reason="process numbers are bounded by root, since Linux 6.14, where /proc/sys can be written",
)
async def test_a_box_without_control_groups_has_few_numbers_and_never_runs_out_of_them(
    make_tool: MakeTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tools.python.sandboxes.bubblewrap.make_groups", lambda limits: Groups(()))
    before = of_the_host()
    tool = make_tool(timeout=60.0)
    session = tool.open()
    assert int(await output_of(session, f"print(open('{SETTING}').read())")) == highest_number(
        SMALL.processes
    )
    # First more processes than there are numbers, one after another; then some simultaneously, as before.
    source = """
        import os, subprocess, time
        for _ in range(500):
            child = os.posix_spawn("/bin/true", ["true"], {})
            os.waitpid(child, 0)
        print(len([subprocess.Popen(["sleep", "0.1"]) for _ in range(5)]))
    """
    assert await output_of(session, source) == "5"
    await tool.close()
    assert of_the_host() == before
