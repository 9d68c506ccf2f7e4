"""Chooses and tests python's sandbox by its name; `auto` is bubblewrap, then docker, never unsafe-local."""

import sys
from collections.abc import Callable

from tools.python.sandboxes.bounds.limits import SandboxLimits
from tools.python.sandboxes.bubblewrap import Bubblewrap
from tools.python.sandboxes.docker import DEFAULT_IMAGE, Docker
from tools.python.sandboxes.sandbox import Sandbox
from tools.python.sandboxes.unsafe_local import UnsafeLocal
from tools.tool import ToolUnavailable


async def choose_sandbox(
    choice: str = "auto",
    *,
    limits: SandboxLimits | None = None,
    interpreter: str = sys.executable,
    image: str | None = None,
) -> Sandbox | None:
    """The sandbox of that name, tested. The test starts a real box, which takes about as long as a kernel."""
    caps = limits or SandboxLimits()
    makers: dict[str, Callable[[], Sandbox]] = {
        "bubblewrap": lambda: Bubblewrap(caps, interpreter=interpreter),
        "docker": lambda: Docker(caps, image=image or DEFAULT_IMAGE),
        "unsafe-local": lambda: UnsafeLocal(caps, interpreter=interpreter),
    }
    if choice == "off":
        return None
    names = ("bubblewrap", "docker") if choice == "auto" else (choice,)
    if names[0] not in makers:
        choices = ", ".join(("auto", *makers, "off"))
        raise ToolUnavailable(f"There is no python sandbox {choice!r}; choose one of {choices}.")
    refusals: list[str] = []
    for name in names:
        sandbox = makers[name]()
        try:
            await sandbox.check()
        except ToolUnavailable as refusal:
            refusals.append(str(refusal))
        else:
            return sandbox
    raise ToolUnavailable(" ".join(refusals))
