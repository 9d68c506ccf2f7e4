"""Patches parsed, planned for a folder, and applied: whole or not at all, and never outside of it."""

import os
from pathlib import Path
from typing import Any

import pytest

from tools.apply_patch import FileChange, PatchError, apply, parse, plan, read_patch, unified_diff


def patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def files(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def put(root: Path, *lines: str) -> str:
    return apply(plan(parse(patch(*lines)), root), root)


def updated(root: Path, before: bytes, *lines: str) -> bytes:
    (root / "f").write_bytes(before)
    put(root, "*** Update File: f", *lines)
    return (root / "f").read_bytes()


def test_files_are_added_updated_moved_and_deleted_together(tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("one\ntwo\nthree\n")
    (tmp_path / "gone.txt").write_bytes(b"\xff\x00")
    (tmp_path / "here.txt").write_text("a\n")
    summary = put(
        tmp_path,
        *("*** Add File: deep/down/new.txt", "+first", "+", "+third", ""),
        *("*** Update File: old.py", "*** Move to: moved/new.py", "@@", " one", "-two", "+2"),
        *("*** Delete File: gone.txt", "*** Update File: here.txt", "-a", "+b"),
    )
    assert files(tmp_path) == {
        "deep/down/new.txt": b"first\n\nthird\n",
        "moved/new.py": b"one\n2\nthree\n",
        "here.txt": b"b\n",
    }
    moved = "Moved old.py to moved/new.py"
    assert summary == f"Added deep/down/new.txt. {moved}. Deleted gone.txt. Updated here.txt."


def test_a_move_alone_keeps_the_bytes_and_an_update_the_mode_too(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_bytes(b"#!/bin/sh\r\n")
    (tmp_path / "run.sh").chmod(0o750)
    put(tmp_path, "*** Update File: run.sh", "*** Move to: bin/run")
    assert files(tmp_path) == {"bin/run": b"#!/bin/sh\r\n"}
    put(tmp_path, "*** Update File: bin/run", "-#!/bin/sh", "+#!/bin/bash")
    assert (tmp_path / "bin/run").stat().st_mode & 0o777 == 0o750


def test_headers_show_where_to_look(tmp_path: Path) -> None:
    before = b"class A:\n    def f(self):\n        x\nclass B:\n    def f(self):\n        x\n    y\n"
    after = before[: before.rindex(b"x")] + b"z" + before[before.rindex(b"x") + 1 :]
    change = ["@@ class B:", "@@     def f(self):", "-        x", "+        z"]
    assert updated(tmp_path, before, *change) == after
    assert updated(tmp_path, before, "@@ class B:", "+    w") == before.replace(b"B:\n", b"B:\n    w\n")
    below = [*change, "@@ class B:", "-    y"]
    assert updated(tmp_path, before, *below) == after.replace(b"    y\n", b"")


def test_several_changes_follow_the_files_order(tmp_path: Path) -> None:
    before = b"a\nx\nb\nx\nc\nx\n"
    changes = ["@@", " b", "-x", "+1", "@@", "-x", "+2"]
    assert updated(tmp_path, before, *changes) == b"a\nx\nb\n1\nc\n2\n"
    with pytest.raises(PatchError, match="order"):
        updated(tmp_path, before, "@@", " c", "-x", "+1", "@@", "-b")


TEXT = "a\x0cb\u2028c\nd\n".encode()  # a form feed and a separator are not line ends


@pytest.mark.parametrize(
    ("before", "lines", "after"),
    [
        (b"a\nb\n", ["@@ -1,2 +1,2 @@ def f", " a", "-b", "+c"], b"a\nc\n"),
        (b"a  \nb\na\nb\n", [" a", "-b", "+c"], b"a  \nb\na\nc\n"),  # exact lines win over similar ones
        (b"a  \nb\t\nz\n", [" a", "-b", "+c", " z "], b"a  \nc\nz\n"),
        (b"a\r\nb\r\nc\r\n", [" a", "-b", "+x", "+y", " c"], b"a\r\nx\r\ny\r\nc\r\n"),
        (b"a\r\nb\nc\r\n", [" b", "-c", "+d"], b"a\r\nb\nd\r\n"),
        (b"a\nb\n", [" a\r", "-b\r", "+c\r"], b"a\nc\n"),
        (b"a\nb", ["-b", "+c"], b"a\nc"),
        (b"a\nb", [" b", "+c", "*** End of File"], b"a\nb\nc"),
        (b"a\nb\n", [" b", "+c", "*** End of File"], b"a\nb\nc\n"),
        (b"a\nb\na\n", ["-a", "+z", "*** End of File"], b"a\nb\nz\n"),  # the last of equal lines
        (b"a\n", ["+z", "*** End of File"], b"a\nz\n"),
        (TEXT, [" a\x0cb\u2028c", "-d", "+e"], TEXT.replace(b"d", b"e")),
        (b"\xef\xbb\xbfa\n", ["-a", "+b"], b"\xef\xbb\xbfb\n"),  # a byte order mark stays
        (b"", ["+a"], b"a\n"),
        (b"a\n", ["-a"], b""),
    ],
)
def test_lines_change_the_file(tmp_path: Path, before: bytes, lines: list[str], after: bytes) -> None:
    assert updated(tmp_path, before, *lines) == after


WRONG = {
    "no begin": ("*** Update File: f", "begin"),
    "no end": ("*** Begin Patch\n*** Delete File: f", "end"),
    "nothing": (patch(), "changes no file"),
    "no characters": (patch("*** Add File: n", "+\ud800"), "surrogates"),
    "no sign": (patch("*** Update File: f", "@@", "oops"), "Line 4"),
    "no plus": (patch("*** Add File: n", "oops"), "Line 3"),
    "unknown part": (patch("*** Rename File: f"), "Line 2"),
    "lines of a deletion": (patch("*** Delete File: f", "-a"), "takes no lines"),
    "no changes": (patch("*** Update File: f"), "no changes"),
    "only context": (patch("*** Update File: f", " a"), "'\\+' or '-'"),
    "wrong context": (patch("*** Update File: f", " q", "-b", "+c"), "not in the file:\nq\nb"),
    "other spaces": (patch("*** Update File: f", "-  a", "+b"), "not in the file"),
    "wrong header": (patch("*** Update File: f", "@@ def q():", "-b"), "no line 'def q\\(\\):'"),
    "nowhere": (patch("*** Update File: f", "+c"), "does not show where"),
    "exists": (patch("*** Add File: f", "+c"), "exists already"),
    "missing": (patch("*** Update File: n", "-b", "+c"), "no file n here"),
    "missing to delete": (patch("*** Delete File: n"), "no file n here"),
    "twice": (patch("*** Delete File: f", "*** Delete File: ./f"), "twice"),
    "move onto a file": (patch("*** Update File: f", "*** Move to: g"), "exists already"),
    "not text": (patch("*** Update File: binary", "-b"), "UTF-8"),
    "a folder": (patch("*** Delete File: folder"), "not a file"),
    "under a file": (patch("*** Add File: f/n", "+a"), "not a folder"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_an_error_is_reported_and_nothing_is_changed(tmp_path: Path, wrong: str) -> None:
    text, sentence = WRONG[wrong]
    (tmp_path / "f").write_text("a\nb\n")
    (tmp_path / "g").write_text("g\n")
    (tmp_path / "binary").write_bytes(b"\xff\n")
    (tmp_path / "folder").mkdir()
    before = files(tmp_path)
    with pytest.raises(PatchError, match=sentence):
        apply(plan(parse(text), tmp_path), tmp_path)
    assert files(tmp_path) == before


def test_one_wrong_part_leaves_the_right_ones_undone(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\n")
    with pytest.raises(PatchError):
        put(tmp_path, "*** Update File: f", "-a", "+b", "*** Add File: n", "+n", "*** Delete File: missing")
    assert files(tmp_path) == {"f": b"a\n"}


def test_the_patch_is_found_in_any_wrapping() -> None:
    bare = patch("*** Delete File: f")
    as_json = '"' + bare.replace("\n", "\\n") + '"'
    for wrapped in (bare, f"\n{bare}\n", as_json, f'{{"patch": {as_json}}}', f'{{"input": "{bare}"}}'):
        assert [part.path for part in parse(read_patch(wrapped))] == ["f"]
    assert [part.path for part in parse(f"```diff\n{bare}\n```")] == ["f"]
    for wrong in ('{"patch": ', '{"patch": 1}', "{}"):
        with pytest.raises(PatchError, match="patch"):
            read_patch(wrong)


def test_the_diff_is_a_unified_diff(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb")
    (tmp_path / "g").write_text("g\n")
    parts = ["*** Update File: f", "-b", "+c", "*** Add File: n", "+n", "*** Delete File: g"]
    assert list(unified_diff(plan(parse(patch(*parts)), tmp_path))) == [
        *["--- a/f", "+++ b/f", "@@ -1,2 +1,2 @@", " a", "-b", "\\ No newline at end of file"],
        *["+c", "\\ No newline at end of file"],
        *["--- /dev/null", "+++ b/n", "@@ -0,0 +1 @@", "+n"],
        *["--- a/g", "+++ /dev/null", "@@ -1 +0,0 @@", "-g"],
    ]


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
