"""The python tool, declared in Harmony's own words, with this server's facts in their two blanks."""

import asyncio

from tools.python.sandboxes.sandbox import Sandbox
from tools.python.session import PythonSession, SharedParts
from tools.python.shared import SharedMemory, Slots
from tools.tool import Declaration

_DESCRIPTION = (
    "Use this tool to execute Python code in your chain of thought. The code will not be shown to the user. "
    "This tool should be used for internal reasoning, but not for code that is intended to be visible to the "
    "user (e.g. when creating plots, tables, or files).\n\n"
    "When you send a message containing Python code to python, it will be executed in a stateful Jupyter "
    "notebook environment. python will respond with the output of the execution or time out after "
    "{timeout:.1f} seconds. The drive at '/mnt/data' can be used to save and persist user files. {internet}"
)
_NO_INTERNET = "Internet access for this session is disabled."
_SOME_INTERNET = "Internet access for this session is UNKNOWN. Depends on the cluster."


class PythonTool:
    def __init__(
        self,
        sandbox: Sandbox,
        *,
        timeout: float = 120.0,
        grace: float = 3.0,
        max_kernels: int = 32,
        memory: int | None = None,
    ) -> None:
        """`memory`: bytes that all sessions may hold together; None is a quarter of the machine's."""
        self._sessions: set[PythonSession] = set()
        shared_memory = SharedMemory(memory, self._sessions)
        self._shared = SharedParts(sandbox, Slots(max_kernels), shared_memory, timeout, grace)

    @property
    def declaration(self) -> Declaration:
        internet = _NO_INTERNET if self._shared.sandbox.isolated else _SOME_INTERNET
        return Declaration("python", _DESCRIPTION.format(timeout=self._shared.timeout, internet=internet))

    def open(self) -> PythonSession:
        session = PythonSession(self._shared, self._sessions.discard)
        self._sessions.add(session)
        return session

    async def close(self) -> None:
        await asyncio.gather(*(session.close() for session in list(self._sessions)))
        await self._shared.memory.close()
        await self._shared.sandbox.close()
