"""Shortcuts to call the python tool, and to inspect a process's resources."""

import json
import os
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.doubles.tools.attempts import groups
from tools.python import PythonSession, PythonTool
from tools.python.sandboxes.bounds.usage import measure
from tools.tool import ToolCall, ToolOutput


async def call(session: PythonSession, source: str) -> ToolOutput:
    return await session.run(ToolCall("", textwrap.dedent(source)))


async def failure(session: PythonSession, source: str) -> str:
    output = await call(session, source)
    assert output.failed, output.text
    return output.text


async def output_of(session: PythonSession, source: str) -> str:
    return (await call(session, source)).text.strip()


def processes() -> set[int]:
    return set(measure(os.getpid(), 100_000).ids) - {os.getpid()}


def lives(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def launchers() -> set[int]:
    """Orphaned processes of kernels, whatever started them."""
    seen: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            orphan = (entry / "stat").read_text().rpartition(")")[2].split()[1] == "1"
            if orphan and b"/run/launcher.py" in (entry / "cmdline").read_bytes():
                seen.add(int(entry.name))
    return seen


def descriptors() -> set[str]:
    seen: set[str] = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            seen.add(f"{entry.name}={os.readlink(entry)}")
    return seen


async def what_gets_through(
    tool: PythonTool, known: dict[str, Any], *, in_shell: bool = False
) -> dict[str, str]:
    through: dict[str, str] = {}
    for group, source in groups(known):
        session = tool.open()  # fresh, so that the debris of one attempt does not stop another
        text = await (_text_in_shell if in_shell else _text)(session, source)
        answers = json.loads(text.strip().splitlines()[-1])
        assert set(answers) == set(group)
        through |= {name: group[name] for name, answer in answers.items() if answer is None}
        await session.close()
    return through


async def _text(session: PythonSession, source: str) -> str:
    output = await call(session, source)
    assert not output.failed, output.text
    return output.text


async def _text_in_shell(session: PythonSession, source: str) -> str:
    await session.write("attempt.py", source.encode())
    output = await session.run(ToolCall("exec", json.dumps({"commands": ["python3 attempt.py"]})))
    (ran,) = output.details["output"]
    assert ran["outcome"] == {"type": "exit", "exit_code": 0}, ran
    return str(ran["stdout"])
