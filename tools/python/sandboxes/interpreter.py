"""The Python that kernels run with, and its files, so that a box can show only these."""

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from tools import child
from tools.extras import how_to_install
from tools.tool import ToolUnavailable

_QUERY = """
import importlib.util, json, sys
print(json.dumps({
    "executable": sys.executable,
    "prefixes": [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix],
    "path": sys.path,
    "kernel": importlib.util.find_spec("ipykernel") is not None,
}))
"""

# Only the parts of a prefix that a program reads: not etc/ or pip.conf, which may hold credentials.
_PARTS = ("bin", "lib", "lib32", "lib64", "libexec", "share", "pyvenv.cfg")
_PACKAGE_FOLDERS = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python with ipykernel. `paths` are all the files that a box needs to see."""

    executable: Path
    paths: tuple[Path, ...]


async def examine(executable: str) -> Interpreter:
    """Examines an interpreter; raises ToolUnavailable if it cannot run a kernel."""
    try:
        status, answer = await child.run(executable, "-I", "-c", _QUERY, errors=asyncio.subprocess.DEVNULL)
    except OSError as error:
        raise ToolUnavailable(f"The python tool cannot run {executable}: {error.strerror}.") from error
    if status != 0:
        raise ToolUnavailable(f"The python tool cannot use {executable}: it ended with {status}.")
    facts = json.loads(answer)
    if not facts["kernel"]:
        if executable == sys.executable:
            raise ToolUnavailable(how_to_install(ModuleNotFoundError(name="ipykernel")))
        raise ToolUnavailable(f"The python tool needs ipykernel: `{executable} -m pip install ipykernel`.")
    paths = _paths([Path(prefix) for prefix in facts["prefixes"]], facts["path"])
    return Interpreter(_inside(Path(facts["executable"]), paths), paths)


def _paths(prefixes: list[Path], search: list[str]) -> tuple[Path, ...]:
    """The parts of the prefixes, and the package folders elsewhere that modules come from."""
    both = dict.fromkeys(spelling for prefix in prefixes for spelling in (prefix, prefix.resolve()))
    parts = dict.fromkeys(prefix / part for prefix in both for part in _PARTS if (prefix / part).exists())
    for entry in map(Path, search):
        covered = any(entry.is_relative_to(path) for path in parts)
        if entry.name in _PACKAGE_FOLDERS and entry.is_dir() and not covered:
            parts[entry] = None
    return tuple(parts)


def _inside(executable: Path, paths: tuple[Path, ...]) -> Path:
    """The interpreter by a name that exists in a box: follows a link to the outside, keeps a virtual one."""
    if any(executable.is_relative_to(path) for path in paths):
        return executable
    return executable.resolve()
