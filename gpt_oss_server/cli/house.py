"""Checks that Python finds this project's `inference` and `tools`: other projects use these names too.

`python -m gpt_oss_server` puts the current folder first on Python's path, and would import a `tools/` of
another project from there. Returns an error message for the user before anything is imported.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

PACKAGES = ("inference", "tools")


def foreign_packages() -> str | None:
    """A sentence that names the first foreign or missing package; None if there is none."""
    root = Path(__file__).resolve().parents[2]
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None:
            return f"The package `{name}` is missing from {root}: install gpt-oss-server again."
        found = Path(spec.origin).resolve() if spec.origin else None
        if found is None or found != root / name / "__init__.py":
            where = found or next(iter(spec.submodule_search_locations or ["an unknown place"]))
            return (
                f"Python finds another package named `{name}` first, at {where}. Start from another folder, "
                "or with the command `gpt-oss-server`, which does not look in the current one."
            )
    return None
