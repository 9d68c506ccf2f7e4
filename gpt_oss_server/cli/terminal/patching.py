"""The terminal's side of `apply_patch`: shows what a patch would change, asks the user, and applies it.

Takes the arguments of the model's call. Returns the result for the model. Files change only under `root`, and
only after a yes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from gpt_oss_server.cli.terminal.console import BOLD, CYAN, GREEN, RED, styled, visible
from tools.apply_patch import FileChange, PatchError, apply, parse, plan, read_patch, unified_diff

Ask = Callable[[str], str | None]  # None: there is no answer
QUESTION = "Apply? [y/N] "
REFUSED = "The user did not apply this patch. Nothing was changed."


class Patcher:
    def __init__(
        self, root: Path, *, write: Callable[[str], None], note: Callable[[str], None], ask: Ask, colour: bool
    ) -> None:
        self._root = root
        self._write = write
        self._note = note
        self._ask = ask
        self._colour = colour

    def call(self, arguments: str) -> str:
        try:
            changes = plan(parse(read_patch(arguments)), self._root)
            self._show(changes)
            if not self._agreed():
                self._note("not applied")
                return REFUSED
            done = apply(changes, self._root)
        except PatchError as error:
            self._note(f"no patch: {visible(str(error))}")
            return f"The patch was not applied. {error}"
        self._note(visible(done))
        return f"The patch was applied. {done}"

    def _agreed(self) -> bool:
        answer = self._ask(QUESTION)
        return answer is not None and answer.strip().lower() in ("y", "yes")

    def _show(self, changes: Sequence[FileChange]) -> None:
        for line in unified_diff(changes):
            # Escaped, because a diff that moves the cursor could hide what the user agrees to.
            self._write(styled(visible(line), _style(line), on=self._colour and _style(line) != "") + "\n")


def _style(line: str) -> str:
    if line.startswith(("--- ", "+++ ", "rename ")):
        return BOLD
    return {"+": GREEN, "-": RED, "@": CYAN}.get(line[:1], "")
