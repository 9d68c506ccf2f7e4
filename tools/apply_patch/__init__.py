"""Patches in the form that gpt-oss was trained to write: parsed, planned, shown as a diff, applied.

Only `apply` writes files, all or none. Every error is a `PatchError` whose message lets the model correct its
patch. It knows neither the server nor its caller.
"""

from tools.apply_patch.apply import apply
from tools.apply_patch.declaration import DECLARATION, NAME, read_patch
from tools.apply_patch.parse import PatchError, parse
from tools.apply_patch.plan import FileChange, plan, unified_diff

__all__ = ["DECLARATION", "NAME", "FileChange", "PatchError"]
__all__ += ["apply", "parse", "plan", "read_patch", "unified_diff"]
