"""Counts the failures of an engine in a row, and finds out whether it can still generate.

Takes news of failures and successes from any thread. `check` samples one token, but only after several
failures in a row: a single request that no engine could serve must not look like a broken engine.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from inference.engine import EngineBusy, EngineClosed, EngineFailed, InferenceError, Sampling, Step

logger = logging.getLogger(__name__)

IN_A_ROW = 3
SECONDS = 20.0  # for the token of a check, which may wait for other sequences
_FIRST = -(2**31)  # a priority: the check starts before the requests that wait
Generate = Callable[[Sequence[int], Sampling], AsyncGenerator[Step, None]]


def as_failure(error: BaseException) -> InferenceError:
    """The error that clients see. Only the log has the text of a defect, which may hold secrets."""
    if isinstance(error, InferenceError):
        return error
    logger.error("A generation failed.", exc_info=error)
    return EngineFailed(f"The generation failed with {type(error).__name__}; the log has more.")


class Failures:
    def __init__(self, *, seconds: float = SECONDS) -> None:
        self.count = 0  # since the last success
        self._seconds = seconds

    def failed(self) -> None:
        self.count += 1

    def succeeded(self) -> None:
        self.count = 0

    async def check(self, generate: Generate, prompt: Sequence[int] = (0,)) -> None:
        """Raises `EngineFailed` if the last steps failed and a token cannot be sampled now."""
        if self.count < IN_A_ROW:
            return
        failed = self.count
        try:
            async with asyncio.timeout(self._seconds):
                await _sample(generate, prompt)
        except EngineClosed:
            return
        except TimeoutError:
            why = f"sampled nothing within {self._seconds:g} s"
        except EngineBusy as error:
            why = f"was refused: {error}"
        except InferenceError as error:
            why = f"failed: {error}"
        except Exception as error:  # an engine of a user may raise anything, which only its log should have
            why = f"failed with {type(error).__name__}"
        else:
            self.succeeded()
            return
        if self.count < IN_A_ROW:  # others succeeded in the meantime
            return
        raise EngineFailed(f"{failed} steps failed in a row, and a check with one token {why.rstrip('.')}.")


async def _sample(generate: Generate, prompt: Sequence[int]) -> None:
    sampling = Sampling(temperature=0.0, max_tokens=1, priority=_FIRST)
    async with aclosing(generate(prompt, sampling)) as steps:
        async for _ in steps:
            pass
