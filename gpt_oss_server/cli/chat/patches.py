"""The chat's side of `apply_patch`: files change only under `root`, after the user saw how and wrote yes."""

from __future__ import annotations

from pathlib import Path

from gpt_oss_server.cli.chat.reader import Reader
from gpt_oss_server.cli.terminal.console import BOLD, CYAN, GREEN, RED, visible
from gpt_oss_server.cli.terminal.response_view import Terminal
from tools.apply_patch import DECLARATION, PatchError, apply, parse, plan, read_patch, unified_diff

__all__ = ["DECLARATION", "PATCH", "apply_if_confirmed"]

PATCH = str(DECLARATION["name"])


def apply_if_confirmed(arguments: str, root: Path, terminal: Terminal, reader: Reader) -> str:
    try:
        changes = plan(parse(read_patch(arguments)), root)
        for line in unified_diff(changes):
            # Escaped, because a diff that moves the cursor could hide what the user agrees to.
            terminal.line(visible(line), _style(line))
        if not reader.confirms("Apply? [y/N] "):
            terminal.note("not applied")
            return "The user did not apply this patch. Nothing was changed."
        done = apply(changes, root)
    except PatchError as error:
        terminal.note(f"no patch: {visible(str(error))}")
        return f"The patch was not applied. {error}"
    terminal.note(visible(done))
    return f"The patch was applied. {done}"


def _style(line: str) -> str:
    if line.startswith(("--- ", "+++ ", "rename ")):
        return BOLD
    return {"+": GREEN, "-": RED, "@": CYAN}.get(line[:1], "")
