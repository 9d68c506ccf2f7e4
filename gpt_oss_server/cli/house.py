"""Are `inference` and `tools` ours? Both are names that other people's folders have too.

`python -m gpt_oss_server` puts the current folder first on Python's path: started beside a `tools/` of
somebody else's it would import that. Out comes a sentence for the user, before anything is imported.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

PACKAGES = ("inference", "tools")


def foreign_packages() -> str | None:
    """A sentence that names the first package that is not ours; None when all are."""
    ours = Path(__file__).resolve().parents[2]
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None:
            return f"The package `{name}` is missing from {ours}: install gpt-oss-server again."
        found = Path(spec.origin).resolve() if spec.origin else None
        if found is None or found != ours / name / "__init__.py":
            where = found or next(iter(spec.submodule_search_locations or ["an unknown place"]))
            return (
                f"Python finds another package named `{name}` first, at {where}. Start from another folder, "
                "or with the command `gpt-oss-server`, which does not look in the current one."
            )
    return None
