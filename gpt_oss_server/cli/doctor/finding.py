"""A finding of a check, and how checks run: concurrently, each within its time."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gpt_oss_server.cli.terminal.console import CommandLineError
from gpt_oss_server.settings import Settings, SettingsError

SECONDS = 120.0  # of one check: compiling a kernel for the first time takes most of it
_log = logging.getLogger(__name__)


class State(StrEnum):
    OK = "ok"
    NOTE = "note"  # something is missing that these settings do not need
    PROBLEM = "problem"  # these settings need it, and it does not work


@dataclass(frozen=True, slots=True)
class Finding:
    state: State
    sentence: str
    advice: str = ""  # what to do about it


Check = Callable[[Settings], Awaitable[Finding]]


def ok(sentence: str) -> Finding:
    return Finding(State.OK, sentence)


def missing(sentence: str, advice: str = "", *, needed: bool) -> Finding:
    return Finding(State.PROBLEM if needed else State.NOTE, sentence, advice)


async def findings(
    checks: Mapping[str, Check], settings: Settings, *, seconds: float = SECONDS
) -> AsyncIterator[tuple[str, Finding]]:
    """In the order of the checks, each as soon as it and those before it have ended."""
    begin = asyncio.create_task
    running = {name: begin(_checked(name, check, settings, seconds)) for name, check in checks.items()}
    try:
        for name, task in running.items():
            yield name, await task
    finally:
        for task in running.values():
            task.cancel()
        await asyncio.gather(*running.values(), return_exceptions=True)


async def _checked(name: str, check: Check, settings: Settings, seconds: float) -> Finding:
    try:
        async with asyncio.timeout(seconds):
            return await check(settings)
    except TimeoutError:
        advice = "Run doctor again when the machine is less busy; if it stays so, what is checked hangs."
        return missing(f"The check did not end within {seconds:g} s.", advice, needed=True)
    except (SettingsError, CommandLineError) as error:
        return missing(str(error), needed=True)
    except Exception as error:  # a check must not hide the findings of the others
        _log.debug("The check %s failed.", name, exc_info=True)
        sentence = f"The check failed: {type(error).__name__}: {error}"
        return missing(sentence, "`--log-level debug` shows where.", needed=True)
