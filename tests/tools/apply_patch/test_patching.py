"""Patches parsed, planned for a folder, and applied: the model's text, and the resulting files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.tools.patching import files, patch
from tools.apply_patch import PatchError, apply, parse, plan, read_patch, unified_diff


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
    changes = (
        "Added deep/down/new.txt",
        "Moved old.py to moved/new.py",
        "Deleted gone.txt",
        "Updated here.txt",
    )
    assert summary == ". ".join(changes) + "."


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
