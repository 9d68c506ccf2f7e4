"""Whether the owner in a name is a process that is certainly gone."""

from __future__ import annotations

import os
import subprocess

from tools.python.sandboxes.docker import owner_is_gone as gone
from tools.python.sandboxes.docker import owner_mark as mark


def test_a_living_owner_is_not_gone() -> None:
    assert not gone(mark())


def test_an_ended_owner_is_gone_even_if_its_number_was_reused() -> None:
    numbering, _, started = mark().split(".")
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert gone(f"{numbering}.{ended.pid}.{started}")
    assert gone(f"{numbering}.{os.getpid()}.{int(started) - 1}")


def test_an_invisible_owner_may_be_alive() -> None:
    _, pid, started = mark().split(".")
    assert not gone(f"00000000.{pid}.{int(started) - 1}")
    for other in ("", "mine", "../..", f"0.{pid}.1", f"00000000.{pid}"):
        assert not gone(other)
