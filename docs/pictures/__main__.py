"""Writes the pictures of docs/images; with --check, fails when one is stale."""

from __future__ import annotations

import sys
from pathlib import Path

from docs.pictures import harmony, steps, ways

FOLDER = Path(__file__).resolve().parents[1] / "images"


def pictures() -> dict[str, str]:
    return harmony.pictures() | {"request": ways.request(), "steps": steps.steps()}


def main() -> int:
    stale = []
    for name, drawn in pictures().items():
        path = FOLDER / f"{name}.svg"
        if not path.exists() or path.read_text(encoding="utf-8") != drawn:
            stale.append(name)
            if "--check" not in sys.argv[1:]:
                path.write_text(drawn, encoding="utf-8")
    if stale and "--check" in sys.argv[1:]:
        sys.stderr.write(f"These pictures are stale, run `python -m docs.pictures`: {', '.join(stale)}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
