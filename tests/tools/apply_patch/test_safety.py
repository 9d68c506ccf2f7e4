"""A patch stays in its folder, and is applied whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.doubles.tools.patching import files, patch
from tools.apply_patch import FileChange, PatchError, apply, parse, plan

ESCAPES = [
    *("/etc/passwd", "//etc/passwd", "../outside", "inside/../../outside", "..", ".", "~/outside"),
    *("C:\\outside", "\\outside", "inside\\..\\..\\outside", ".git/hooks/pre-commit", "inside/.GIT/config"),
    *("a\0b", "link", "linked/n", "dangling"),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").write_text("secret\n")
    root = tmp_path / "root"
    (root / "inside").mkdir(parents=True)
    (root / "f").write_text("a\n")
    (root / "g").write_text("g\n")
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "linked").symlink_to(tmp_path)
    (root / "dangling").symlink_to(tmp_path / "nowhere")
    return root


@pytest.mark.parametrize("path", ESCAPES)
def test_no_part_of_a_patch_leaves_the_folder(root: Path, path: str) -> None:
    before = files(root.parent)
    for lines in (
        (f"*** Add File: {path}", "+owned"),
        (f"*** Delete File: {path}",),
        (f"*** Update File: {path}", "-secret", "+owned"),
        ("*** Update File: f", f"*** Move to: {path}", "-a", "+owned"),
    ):
        with pytest.raises(PatchError):
            apply(plan(parse(patch(*lines)), root), root)
    assert files(root.parent) == before
    assert not (root.parent / "nowhere").exists()


def test_a_pipe_is_not_a_file(root: Path) -> None:
    os.mkfifo(root / "pipe")
    with pytest.raises(PatchError, match="not a file"):
        plan(parse(patch("*** Delete File: pipe")), root)


def planned(root: Path) -> list[FileChange]:
    lines = ["*** Add File: new/n", "+n", "*** Update File: f", "-a", "+b", "*** Delete File: g"]
    moved = ["*** Update File: h", "*** Move to: moved/h", "-h", "+i"]
    (root / "h").write_text("h\n")
    return plan(parse(patch(*lines, *moved)), root)


def fail_at(monkeypatch: pytest.MonkeyPatch, renames: range) -> list[Any]:
    """Lets these renames fail; the list has all of them."""
    replace, calls = os.replace, list[Any]()

    def fails(source: Any, target: Any) -> None:
        calls.append(target)
        if len(calls) in renames:
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fails)
    return calls


@pytest.mark.parametrize("nth", range(1, 6))
def test_a_failed_rename_undoes_earlier_ones(root: Path, nth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = planned(root)
    before, contents = sorted(root.rglob("*")), files(root)
    calls = fail_at(monkeypatch, range(nth, nth + 1))
    with pytest.raises(PatchError, match=r"No space left on device\. Nothing was changed"):
        apply(changes, root)
    assert len(calls) >= nth
    assert files(root) == contents
    assert sorted(root.rglob("*")) == before


def test_a_change_that_cannot_be_undone_keeps_its_copy(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = plan(parse(patch("*** Delete File: g", "*** Delete File: f")), root)
    fail_at(monkeypatch, range(2, 9))
    with pytest.raises(PatchError, match=r"could not be undone in g \(kept as (\S+)\)"):
        apply(changes, root)
    assert [p.read_text() for p in root.glob(".*.patch")] == ["g\n"]


def test_a_folder_that_cannot_be_written_leaves_everything_unchanged(root: Path) -> None:
    changes = planned(root)
    contents = files(root)
    (root / "new").write_text("a file where a folder is to be\n")
    with pytest.raises(PatchError):
        apply(changes, root)
    (root / "new").unlink()
    assert files(root) == contents


def test_a_file_that_changed_since_it_was_shown_is_not_overwritten(root: Path) -> None:
    changes = planned(root)
    (root / "f").write_text("mine\n")
    contents = files(root)
    with pytest.raises(PatchError, match="changed by someone else"):
        apply(changes, root)
    assert files(root) == contents


def test_a_link_created_since_is_not_followed(root: Path) -> None:
    changes = planned(root)
    (root / "new").symlink_to(root.parent)
    with pytest.raises(PatchError, match="link"):
        apply(changes, root)
    assert not (root.parent / "n").exists()


def test_no_temporary_files_remain(root: Path) -> None:
    apply(planned(root), root)
    left = {name for name in files(root) if "link" not in name}
    assert left == {"f", "new/n", "moved/h"}
