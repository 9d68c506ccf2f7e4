"""The host's view of a folder that hostile code writes."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tools.python.sandboxes.folder import FileRefused, Folder


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("secret")
    path = tmp_path / "data"
    path.mkdir()
    return path


@pytest.fixture
def folder(inside: Path) -> Iterator[Folder]:
    with closing(Folder.at(inside)) as opened:
        yield opened


def refused(folder: Folder, *paths: str) -> None:
    for path in paths:
        with pytest.raises(FileRefused):
            folder.read(path, 100)
        with pytest.raises(FileRefused):
            folder.remove(path)


def test_a_written_file_is_listed_and_read(folder: Folder) -> None:
    folder.write("/mnt/data/a/b.txt", b"one")
    folder.write("c.bin", bytes(range(256)))
    with pytest.raises(FileRefused, match="larger than 255 bytes"):
        folder.read("c.bin", 255)
    folder.write("c.bin", b"two")
    assert [(info.path, info.size) for info in folder.files()] == [("a/b.txt", 3), ("c.bin", 3)]
    assert folder.read("a/b.txt", 3) == b"one"
    assert folder.read("/mnt/data/c.bin", 10) == b"two"


@pytest.mark.parametrize(
    "path",
    [
        *("", ".", "/", "..", "../secret", "a/../../secret", "/etc/passwd", "/mnt/database/x", "/mnt/data/"),
        *("/mnt/data/../secret", "a\0b", "x" * 300, "x/" * 50 + "y", "a" * 2000, "\ud800", "//etc/passwd"),
    ],
)
def test_names_that_lead_elsewhere_are_refused(folder: Folder, path: str) -> None:
    refused(folder, path)
    with pytest.raises(FileRefused):
        folder.write(path, b"x")


def test_a_removed_file_is_gone_and_the_rest_stays(folder: Folder) -> None:
    for path in ("a/b.txt", "a/c.txt", "d.txt"):
        folder.write(path, b"x")
    folder.remove("/mnt/data/a/b.txt")
    folder.remove("d.txt")
    assert [info.path for info in folder.files()] == ["a/c.txt"]
    with pytest.raises(FileRefused, match=r"There is no file 'd\.txt'"):
        folder.remove("d.txt")


def test_links_are_neither_followed_nor_listed(folder: Folder, inside: Path) -> None:
    for name, target in {"link": "../secret", "absolute": "/etc/passwd", "up": "..", "loop": "loop"}.items():
        (inside / name).symlink_to(target)
    assert folder.files() == []
    refused(folder, "link", "absolute", "up/secret", "loop")
    assert (inside.parent / "secret").read_text() == "secret"
    assert (inside / "link").is_symlink()
    with pytest.raises(FileRefused):
        folder.write("up/new", b"x")
    assert not (inside.parent / "new").exists()


def test_a_link_at_the_target_is_replaced_and_not_followed(folder: Folder, inside: Path) -> None:
    (inside / "link").symlink_to("../secret")
    folder.write("link", b"mine")
    assert (inside.parent / "secret").read_text() == "secret"
    assert folder.read("link", 10) == b"mine"


def test_pipes_and_the_like_are_no_files(
    folder: Folder, inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(inside / "pipe")
    (inside / "folder").mkdir()
    monkeypatch.chdir(inside)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        assert folder.files() == []
        refused(folder, "pipe", "folder", "socket", "missing")
    assert sorted(os.listdir(inside)) == ["folder", "pipe", "socket"]


def test_deep_and_wide_trees_are_bounded(folder: Folder, inside: Path) -> None:
    deep = inside
    for _ in range(60):
        deep = deep / "d"
    deep.mkdir(parents=True)
    (deep / "file").write_text("x")
    assert folder.files() == []
    assert folder.usage(10)[1] == 11


def test_names_that_are_not_utf8_are_left_out(folder: Folder, inside: Path) -> None:
    (inside / os.fsdecode(b"\xff\xfe")).write_text("x")
    (inside / "ü").write_text("x")
    assert [info.path for info in folder.files()] == ["ü"]


def test_a_copy_takes_files_and_leaves_links(folder: Folder, inside: Path, tmp_path: Path) -> None:
    folder.write("a/b", b"1")
    (inside / "link").symlink_to("../secret")
    (tmp_path / "other").mkdir()
    with closing(Folder.at(tmp_path / "other")) as other:
        assert folder.copy_to(other, 100) == []
        assert [info.path for info in other.files()] == ["a/b"]
        folder.write("big", b"x" * 1000)
        assert folder.copy_to(other, 100) == ["big"]


def test_a_folder_that_turns_into_a_link_while_read_is_harmless(folder: Folder, inside: Path) -> None:
    (inside.parent / "outside").mkdir()
    (inside.parent / "outside" / "file").write_text("outside")
    (inside / "real").mkdir()
    (inside / "real" / "file").write_text("inside")
    os.symlink("../outside", inside / "fake")
    done = threading.Event()

    def turn() -> None:
        while not done.is_set():
            os.rename(inside / "real", inside / "keep")
            os.rename(inside / "fake", inside / "real")
            os.rename(inside / "real", inside / "fake")
            os.rename(inside / "keep", inside / "real")

    turning = threading.Thread(target=turn)
    turning.start()
    seen: set[bytes] = set()
    for _ in range(2000):
        try:
            seen.add(folder.read("real/file", 100))
        except FileRefused:
            continue
    done.set()
    turning.join()
    assert seen <= {b"inside"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can write for another user")
def test_files_that_root_writes_belong_to_the_folders_owner(tmp_path: Path) -> None:
    os.chown(tmp_path, 1000, 1000)
    with closing(Folder.at(tmp_path)) as folder:
        folder.write("sub/a.txt", b"a")
    for path in (tmp_path / "sub", tmp_path / "sub" / "a.txt"):
        assert (path.stat().st_uid, path.stat().st_gid) == (1000, 1000)
