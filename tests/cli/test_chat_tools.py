"""The terminal chat with tools: it shows their work, and applies a patch only after a yes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.doubles.commands import run, script
from tests.doubles.terminals import await_text, done, press_until_heeded, shown, terminal

PATCH = "*** Begin Patch\n*** Update File: f.txt\n@@\n one\n-two\n+2\n*** End Patch"
CALL = "<|channel|>commentary to=functions.apply_patch <|constrain|>json<|message|>{}<|call|>"
DIFF = "--- a/f.txt\n+++ b/f.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\nApply? [y/N] \n"


def final(text: str, when: str | None = None) -> dict[str, str]:
    response = {"text": f"<|channel|>final<|message|>{text}<|return|>"}
    return {**response, "when": when} if when else response


def calls(text: str) -> dict[str, str]:
    return {"text": CALL.replace("{}", text)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "f.txt").write_text("one\ntwo\n")
    return folder


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model that sends a patch, then reports the result that it read."""
    return script(
        tmp_path,
        final("I see, applied.", when=r"The patch was applied\. Updated f\.txt\."),
        final("I see, refused.", when=r"The user did not apply this patch\."),
        final("I see, wrong.", when=r"The patch was not applied\. .*only paths relative"),
        final("No such thing.", when=r"There is no function 'apply_patch' here"),
        {**calls("*** Begin Patch\n*** Delete File: /etc/passwd\n*** End Patch"), "when": "escape"},
        calls(json.dumps({"patch": PATCH})),
    )


def test_a_patch_is_shown_and_applied_after_a_yes(folder: Path, model: str) -> None:
    talk = run("chat", "-a", "--model", model, stdin="patch it\ny\n", cwd=folder)
    assert talk.returncode == 0, talk.stderr
    assert talk.stdout == f"[calls apply_patch]\n{DIFF}[Updated f.txt.]\nI see, applied.\n"
    assert (folder / "f.txt").read_text() == "one\n2\n"


@pytest.mark.parametrize("answer", ["n\n", "\n", "yeah\n", ""])
def test_anything_but_a_yes_changes_nothing_and_the_model_learns_of_it(
    folder: Path, model: str, answer: str
) -> None:
    talk = run("chat", "-a", "--model", model, stdin=f"patch it\n{answer}", cwd=folder)
    assert talk.stdout == f"[calls apply_patch]\n{DIFF}[not applied]\nI see, refused.\n"
    assert (folder / "f.txt").read_text() == "one\ntwo\n"


def test_a_path_outside_is_refused_without_a_question(folder: Path, model: str) -> None:
    talk = run("chat", "-a", "--model", model, stdin="escape\n", cwd=folder)
    assert talk.returncode == 0, talk.stderr
    assert "Apply?" not in talk.stdout
    assert talk.stdout.endswith("only paths relative to the current folder can be patched.]\nI see, wrong.\n")


def test_a_call_of_a_missing_function_gets_an_output(folder: Path, model: str) -> None:
    talk = run("chat", "--model", model, stdin="patch it\n", cwd=folder)
    assert talk.stdout.endswith("No such thing.\n")
    assert (folder / "f.txt").read_text() == "one\ntwo\n"


def test_a_model_that_runs_in_circles_is_stopped(folder: Path, tmp_path: Path) -> None:
    talk = run("chat", "--model", script(tmp_path, calls("{}")), stdin="go\n", cwd=folder)
    assert talk.returncode == 0, talk.stderr
    assert talk.stdout.endswith("[stopped after 100 calls; write anything to continue]\n")


def test_on_a_terminal_the_diff_has_colours_and_escapes_are_shown(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("NO_COLOR", raising=False)
    patch = PATCH.replace("+2", "+2\x1b[2K")
    model = script(tmp_path, final("Applied.", when="The patch was applied"), calls(patch))
    with terminal("-a", "--model", model) as (controller, process):
        await_text(controller, "> ")
        os.write(controller, b"patch it\n")
        seen = await_text(controller, r"Apply\? \[y/N\] ")
        assert "\x1b[31m-two\x1b[0m" in seen
        assert "\x1b[32m+2\\x1b[2K\x1b[0m" in seen
        os.write(controller, b"y\n")
        await_text(controller, r"Applied\.[\s\S]*> ")
        os.write(controller, b"\x04")
        assert process.wait(20) == 0
    assert (folder / "f.txt").read_text() == "one\n2\x1b[2K\n"


def test_ctrl_c_at_the_question_stops_and_the_model_learns_of_it_with_the_next_line(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    heard = final("I heard.", when=r"The user stopped this call[\s\S]*and now")
    with terminal("-a", "--model", script(tmp_path, heard, calls(PATCH))) as (controller, process):
        await_text(controller, "> ")
        os.write(controller, b"patch it\n")
        await_text(controller, r"Apply\? \[y/N\] ")
        press_until_heeded(controller, b"\x03", r"\[stopped\][\s\S]*> ")
        os.write(controller, b"and now\n")
        await_text(controller, r"I heard\.[\s\S]*> ")
        os.write(controller, b"\x04")
        assert process.wait(20) == 0
    assert (folder / "f.txt").read_text() == "one\ntwo\n"


def test_searches_are_shown(tmp_path: Path) -> None:
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "fjord.md").write_text("# The fjord\n\nThe fjord is very deep.\n")
    search = '<|channel|>analysis to=browser.search code<|message|>{"query":"fjord"}<|call|>'
    open_ = '<|channel|>analysis to=browser.open code<|message|>{"cursor":0,"id":0}<|call|>'
    find = '<|channel|>analysis to=browser.find code<|message|>{"pattern":"deep"}<|call|>'
    model = script(tmp_path, search, open_, find, final("Deep."))
    talk = run("chat", "-b", "--browser", f"local:{documents}", "--model", model, stdin="how deep?\n")
    assert talk.returncode == 0, talk.stderr
    searched, opened, found, answer = talk.stdout.splitlines()
    assert searched == "[searches 'fjord']"
    assert opened.startswith("[opens ")
    assert found.startswith("[looks for 'deep' in ")
    assert answer == "Deep."


def test_a_disabled_browser_is_reported_before_any_model_is_loaded() -> None:
    talk = run("chat", "-b", "--model", "./missing", stdin="hi\n", env={"EXA_API_KEY": ""})
    assert talk.returncode == 1
    assert talk.stdout == ""
    assert talk.stderr.startswith("-b is not available: The browser is off. Start with --browser local:DIR")
    wrong = run("chat", "-b", "--browser", "nonsense", stdin="hi\n")
    assert wrong.returncode == 1
    assert "defect" not in wrong.stderr
    off = run("chat", "-p", "--python", "off", stdin="hi\n")
    assert off.stderr == "-p is not available: The python tool is off. Start with --python auto.\n"


def test_code_and_its_output_are_shown_and_the_kernel_ends_with_the_chat(tmp_path: Path) -> None:
    code = "import os; print(40 + 2); print(os.getpid())"
    call = f"<|channel|>analysis to=python code<|message|>{code}<|call|>"
    model = script(tmp_path, call, final("42."))
    talk = run("chat", "-p", "--python", "unsafe-local", "--model", model, stdin="40+2?\n")
    assert talk.returncode == 0, talk.stderr
    lines = talk.stdout.splitlines()
    assert lines[:4] == ["[runs]", f"    {code}", "[gives]", "    42"]
    assert lines[5:] == ["42."]
    with pytest.raises(ProcessLookupError):
        os.kill(int(lines[4]), 0)


def test_long_code_and_output_are_shortened_and_cannot_control_the_terminal() -> None:
    code = {"type": "response.code_interpreter_call_code.done", "code": "x = 1\n\x1b[2J"}
    logs = [{"type": "logs", "logs": "".join(f"{n}\n" for n in range(22))}, {"type": "image", "url": "data:"}]
    output = shown(code, done("code_interpreter_call", status="completed", outputs=logs))
    assert output.startswith("[runs]\n    x = 1\n    \\x1b[2J\n[gives]\n    0\n")
    assert output.endswith("    19\n    … and 3 more lines\n")
    assert shown(done("code_interpreter_call", status="completed", outputs=[])) == ""
    assert "…" in shown({**code, "code": "y" * 600})


def test_a_failed_search_is_shown_as_failed() -> None:
    action = {"type": "search", "query": "fjord"}
    assert shown(done("web_search_call", status="failed", action=action)) == "[searches 'fjord' (failed)]\n"
    assert shown(done("web_search_call", status="completed", action={"type": "open_page"})) == (
        "[opens a page]\n"
    )
