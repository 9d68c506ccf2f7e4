"""Is this checkout ready to be released: `python tests/meta/release.py python3.11 python3.12 python3.13`.

Builds the source archive, and from it the wheel, as an index would, which each installed Python tries.
"""

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LARGEST = 20 * 1024**2
MUST_HOLD = ("LICENSE", "README.md", "pyproject.toml", "inference/tiny/tiny.safetensors")


def problems(version: str) -> Iterator[str]:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if f"## [{version}]" not in changelog:
        yield f"CHANGELOG.md has no section for {version}."
    if changed := _git("status", "--porcelain"):
        yield f"The checkout has changes that are not committed: {', '.join(changed.split()[1::2])}."
    if _git("tag", "--list", f"v{version}"):
        yield f"The tag v{version} exists: choose another version in gpt_oss_server/__init__.py."


def build(folder: Path) -> tuple[Path, Path]:
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return next(folder.glob("*.tar.gz")), next(folder.glob("*.whl"))


def main(pythons: list[str]) -> int:
    code = (ROOT / "gpt_oss_server" / "__init__.py").read_text(encoding="utf-8")
    version = re.findall(r'__version__ = "(.+)"', code)[0]
    failed = list(problems(version))
    with tempfile.TemporaryDirectory() as scratch:
        archive, wheel = build(Path(scratch))
        with tarfile.open(archive) as files:
            names = {name.partition("/")[2] for name in files.getnames()}
        failed += [f"{archive.name} lacks {name}." for name in MUST_HOLD if name not in names]
        if archive.stat().st_size > LARGEST:
            failed.append(f"{archive.name} has {archive.stat().st_size:,} bytes.")
        for python in pythons:
            if shutil.which(python) is None:
                _say(f"{python} is not installed here: not tried.")
            elif subprocess.run([python, "tests/meta/wheel.py", str(wheel)], cwd=ROOT).returncode:
                failed.append(f"The wheel fails with {python}.")
    for problem in failed:
        _say(problem)
    _say(f"{version} is {'not ' if failed else ''}ready. To release it: git tag v{version}")
    return int(bool(failed))


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def _say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
