"""`make gpu`: every test that needs a card, then the bench, in one table and one JSON file.

Needs torch, triton, numpy, safetensors and pytest, but nothing of the server. Without a card it stops with a
message.
"""

import importlib.util
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("torch", "triton", "numpy", "safetensors", "pytest")
SECONDS_FOR_ALL = 470
SECONDS_FOR_TESTS = 260
TESTS = ("tests/gpu", "tests/inference/ops")
BENCH = ("--shape", "20b", "--random")


def main() -> int:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        return report(f"{sys.executable} lacks {', '.join(missing)}, which this measurement needs.")
    import torch

    if not torch.cuda.is_available():
        return report(
            f"No CUDA device is visible to torch {torch.__version__}: nothing was run. `make test` runs the "
            "tests that need none."
        )
    began = time.monotonic()
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "gpu.json").resolve()
    failed = run(
        ["-m", "pytest", "-c", "tests/gpu/pytest.ini", "--rootdir=.", "--confcutdir=tests/gpu", *TESTS],
        SECONDS_FOR_TESTS,
    )
    left = SECONDS_FOR_ALL - (time.monotonic() - began)
    failed |= run(["-m", "inference.bench", *BENCH, "--json", str(target)], left)
    report(f"Tests and bench took {time.monotonic() - began:.0f} s; the figures are in {target}.")
    return int(failed)


def run(arguments: list[str], limit: float) -> bool:
    """Runs Python with the arguments; returns whether it failed."""
    try:
        return subprocess.run([sys.executable, *arguments], cwd=ROOT, timeout=limit).returncode != 0
    except subprocess.TimeoutExpired:
        report(f"{' '.join(arguments[:2])} was stopped after {limit:.0f} s.")
        return True


def report(sentence: str) -> int:
    sys.stderr.write(sentence + "\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
