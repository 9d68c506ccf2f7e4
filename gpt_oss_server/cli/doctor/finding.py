"""A finding of a check, and how checks are run: all at once, each within its time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gpt_oss_server.settings import Settings

SECONDS = 120.0  # of one check: compiling a kernel for the first time takes most of it
_log = logging.getLogger(__name__)


class State(StrEnum):
    OK = "ok"
    NOTE = "note"  # something is missing that these settings do not need
    PROBLEM = "problem"  # these settings need it, and it does not work


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    state: State
    found: str  # a sentence
    advice: str = ""  # what to do about it


Check = Callable[[Settings], Awaitable[Finding]]


def ok(check: str, found: str) -> Finding:
    return Finding(check, State.OK, found)


def missing(check: str, found: str, advice: str, *, needed: bool) -> Finding:
    return Finding(check, State.PROBLEM if needed else State.NOTE, found, advice)


async def findings(
    checks: Sequence[tuple[str, Check]], settings: Settings, *, seconds: float = SECONDS
) -> AsyncIterator[Finding]:
    """In the order of the checks, each as soon as it and those before it have ended."""
    running = [asyncio.create_task(_checked(name, check, settings, seconds)) for name, check in checks]
    try:
        for task in running:
            yield await task
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _checked(name: str, check: Check, settings: Settings, seconds: float) -> Finding:
    try:
        async with asyncio.timeout(seconds):
            return await check(settings)
    except TimeoutError:
        advice = "Run doctor again when the machine is less busy; if it stays so, what is checked hangs."
        return missing(name, f"The check did not end within {seconds:g} s.", advice, needed=True)
    except Exception as error:  # a check must not hide the findings of the others
        _log.debug("The check %s failed.", name, exc_info=True)
        found = f"The check failed: {type(error).__name__}: {error}"
        return missing(name, found, "`--log-level debug` shows where.", needed=True)
