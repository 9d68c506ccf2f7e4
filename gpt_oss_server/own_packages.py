"""Checks that Python finds this project's `inference` and `tools`: other projects use these names too.

Python looks in the current folder first when it runs a module, a script or an interpreter there, and would
import a `tools/` of another project. Returns a sentence for the user before anything is imported, or raises
it as the ImportError that it is about to become.
"""

import importlib.util
from pathlib import Path

PACKAGES = ("inference", "tools")


def foreign_packages() -> str | None:
    """A sentence that names the first foreign or missing package; None if there is none."""
    root = Path(__file__).resolve().parents[1]
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None:
            return f"The package `{name}` is missing from {root}: install gpt-oss-server again."
        found = Path(spec.origin).resolve() if spec.origin else None
        if found is None or found != root / name / "__init__.py":
            where = found or next(iter(spec.submodule_search_locations or ["an unknown place"]))
            return f"Python finds another package named `{name}` first, at {where}."
    return None


def require_own_packages() -> None:
    """Raises ImportError with the sentence."""
    if foreign := foreign_packages():
        raise ImportError(
            f"{foreign} gpt-oss-server needs its own: rename yours, start Python in another folder, or put "
            f"{Path(__file__).resolve().parents[1]} first on sys.path."
        )
