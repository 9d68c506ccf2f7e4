"""The measurement of a draft head runs whole; what a card alone can tell it leaves out here."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_program_measures_texts_that_are_right(tmp_path: Path) -> None:
    target = tmp_path / "draft.json"
    arguments = ["--device", "cpu", "--shape", "tiny", "--tokens", "12", "--json", str(target)]
    program = [sys.executable, str(ROOT / "tests/gpu/draft_figures.py"), *arguments]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    found = json.loads(target.read_text("utf-8"))
    figures = {**found["with a head"], **found["without"]}
    assert all(each["wrong tokens"] == 0 and each["tokens/s"] > 0 for each in figures.values())
    assert figures["head, right 80%, 1"]["accepted"] > 0 == figures["head, right 0%, 1"]["accepted"]
    assert set(figures) == {
        *(f"head, right {share}%, {batch}" for share in (0, 60, 80) for batch in (1, 4, 16)),
        *(f"no head, {batch}" for batch in (1, 4, 16)),
    }
