"""A process knows which others have certainly ended, and only those."""

from __future__ import annotations

import os
import subprocess
import sys

from gpt_oss_server.stores.sql.replicas import Replica


def test_servers_of_this_process_live_and_earlier_processes_of_its_id_are_dead() -> None:
    here, there = Replica(), Replica()
    assert str(here) != str(there)
    assert not here.knows_dead(str(here))
    assert not here.knows_dead(str(there))
    assert here.knows_dead(f"{here.machine}/{os.getpid()}/earlier")


def test_a_process_of_this_machine_is_dead_once_it_has_ended() -> None:
    here = Replica()
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = f"{here.machine}/{process.pid}/start"
    assert not here.knows_dead(name)
    process.communicate(b"\n")
    assert here.knows_dead(name)


def test_a_process_of_another_machine_may_live() -> None:
    assert not Replica().knows_dead(f"another-{Replica().machine}/{os.getpid()}/start")
