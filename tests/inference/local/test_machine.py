"""The memory for keys and values: a share of what is free, within the container's limit."""

from pathlib import Path

import pytest

from inference.local import machine

GIB = 1 << 30
# By version of control groups: their folder, and the files of a group with a limit.
VERSIONS = {
    "0::": ("", "memory.max", "memory.current", "inactive_file"),
    "4:memory:": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kernel's files of a machine with 64 GiB free."""
    monkeypatch.setattr(machine, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(machine, "_GROUPS", tmp_path / "groups")
    write(tmp_path / "proc/meminfo", f"MemTotal: {96 * GIB >> 10} kB\nMemAvailable: {64 * GIB >> 10} kB\n")
    return tmp_path


def write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="ascii")


def limited(files: Path, version: str, group: str, most: object, used: int, evictable: int = 0) -> None:
    where, limit, usage, inactive = VERSIONS[version]
    folder = files / "groups" / where / group
    write(folder / limit, f"{most}\n")
    write(folder / usage, f"{used}\n")
    write(folder / "memory.stat", f"anon 5\n{inactive} {evictable}\nempty\n")


def test_without_limits_it_is_a_share_of_the_free_memory(files: Path) -> None:
    assert machine.machine_memory() == 16 * GIB
    write(files / "proc/self/cgroup", "0::/user.slice\n")
    limited(files, "0::", "user.slice", "max", GIB)
    assert machine.machine_memory() == 16 * GIB


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("group", ["", "pod/box"])
def test_a_container_can_take_the_rest_of_its_limit(files: Path, version: str, group: str) -> None:
    write(files / "proc/self/cgroup", f"9:cpu:/x\n{version}/{group}\n")
    limited(files, version, group, 8 * GIB, used=5 * GIB, evictable=GIB)
    assert machine.machine_memory() == GIB


def test_the_tightest_parent_group_counts(files: Path) -> None:
    write(files / "proc/self/cgroup", "0::/pod/box\n")
    limited(files, "0::", "pod/box", 8 * GIB, used=0)
    limited(files, "0::", "pod", 6 * GIB, used=2 * GIB)
    assert machine.machine_memory() == GIB


@pytest.mark.parametrize("path", ["/docker/1234", "/../../outside"])
def test_a_path_of_the_host_resolves_to_the_mounted_root(files: Path, path: str) -> None:
    write(files / "proc/self/cgroup", f"4:memory:{path}\n")
    limited(files, "4:memory:", "", 4 * GIB, used=0)
    assert machine.machine_memory() == GIB


def test_a_full_container_leaves_nothing(files: Path) -> None:
    write(files / "proc/self/cgroup", "0::/\n")
    limited(files, "0::", "", GIB, used=2 * GIB)
    assert machine.machine_memory() == 0


def test_other_systems_use_half_of_the_physical_memory(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (files / "proc/meminfo").unlink()
    monkeypatch.setattr(machine, "_physical_memory", lambda: 8 * GIB)
    assert machine.machine_memory() == GIB


def test_the_share_of_all_memory_does_not_vary_with_what_is_free(files: Path) -> None:
    assert machine.machine_share() == 24 * GIB
    write(files / "proc/meminfo", f"MemTotal: {96 * GIB >> 10} kB\nMemAvailable: 5 kB\n")
    assert machine.machine_share() == 24 * GIB
    write(files / "proc/self/cgroup", "0::/pod/box\n")
    limited(files, "0::", "pod/box", 8 * GIB, used=7 * GIB)
    assert machine.machine_share() == 2 * GIB
