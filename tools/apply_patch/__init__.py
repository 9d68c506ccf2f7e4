"""Patches in the form that gpt-oss was trained to write: parsed, planned, shown as a diff, applied.

    parse(text) → changes wanted;  plan(wanted, root) → what each file was and will be;  apply(planned, root)

Nothing is written before `apply`, which does all or nothing. Whatever is wrong is a `PatchError` whose text
the model can act on. It knows neither the server nor who asks.
"""

from tools.apply_patch.apply import apply
from tools.apply_patch.declaration import DECLARATION, NAME, patch_of
from tools.apply_patch.diff import unified_diff
from tools.apply_patch.errors import PatchError
from tools.apply_patch.parse import parse
from tools.apply_patch.plan import FileChange, plan

__all__ = [
    "DECLARATION",
    "NAME",
    "FileChange",
    "PatchError",
    "apply",
    "parse",
    "patch_of",
    "plan",
    "unified_diff",
]
