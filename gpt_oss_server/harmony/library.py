"""Which Harmony library is installed. Loads none of it."""

import importlib.util
from functools import cache
from importlib import metadata
from pathlib import Path


@cache
def harmony_library() -> str:
    """Which of the two distributions named `openai_harmony` is imported: oss-harmony or openai-harmony."""
    spec = importlib.util.find_spec("openai_harmony")
    if spec is None or spec.origin is None:
        return "not installed"
    imported = Path(spec.origin).resolve()
    for name in ("oss-harmony", "openai-harmony"):
        for package in metadata.distributions(name=name):
            if Path(str(package.locate_file("openai_harmony/__init__.py"))).resolve() == imported:
                return f"{name} {package.version}"
    return f"unknown, at {imported}"
