"""A runner that breaks when a test says so, and the local engine around it."""

from collections.abc import Sequence as Listed
from dataclasses import dataclass

from inference.engine import EngineInfo
from inference.local.engine import LocalEngine
from inference.local.scheduling.prefix_cache import PrefixCache
from inference.local.scheduling.scheduler import SchedulerLimits
from inference.local.scheduling.step import StepPart
from tests.doubles.inference.driven import MemoryRunner, Underway

BLOCKS, BLOCK_SIZE = 64, 4
VOCABULARY = 201_088  # of gpt-oss models, so that a server may ask it for anything


@dataclass
class BreakingRunner(MemoryRunner):
    """Every step raises `failure` while there is one; `trouble` is what its device is found to have."""

    failure: BaseException | None = None
    trouble: str | None = None
    launched: int = 0

    def problem(self) -> str | None:
        return self.trouble

    def launch(self, parts: Listed[StepPart]) -> Underway:
        self.launched += 1
        if self.failure is not None:
            raise type(self.failure)(*self.failure.args)  # another one each time: tracebacks add up
        return super().launch(parts)


def breaking_engine(context: int = 200) -> tuple[LocalEngine, BreakingRunner]:
    """The engine of this project with its thread and its scheduler, over a model that is only a memory."""
    runner = BreakingRunner((None,), BLOCK_SIZE)
    cache = PrefixCache((None,), [BLOCKS], BLOCK_SIZE)
    info = EngineInfo(name="breaking", context_length=context, vocab_size=VOCABULARY)
    return LocalEngine(runner, info, cache, SchedulerLimits(max_concurrent=4, max_waiting=100)), runner
