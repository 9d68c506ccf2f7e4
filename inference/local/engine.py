"""The engine that runs gpt-oss here, in this process, on a thread of its own.

In go prompts from the event loop, out come steps. Generations take turns of one token or one chunk of the
prompt; each has its own cache. It knows nothing of layers (the model's) or of distributions (the sampler's).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inference.engine import CheckpointError, ContextOverflow, EngineClosed, EngineInfo, Sampling, Step
from inference.local.outbox import Outbox
from inference.local.traffic import Traffic
from inference.local.worker import Worker

if TYPE_CHECKING:
    from inference.models.gpt_oss import GptOss


class LocalEngine:
    def __init__(self, model: GptOss, info: EngineInfo) -> None:
        self._model: GptOss | None = model
        self._info = info
        self._worker = Worker(f"inference {info.name}")
        self._traffic = Traffic()

    @property
    def info(self) -> EngineInfo:
        return self._info

    @property
    def active(self) -> int:
        """Generations that hold a cache, or wait for the thread to see them."""
        return self._worker.active

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        from inference.local.generation import Generation, check_prompt

        if len(tokens) >= self._info.context_length:
            raise ContextOverflow(len(tokens), self._info.context_length)
        check_prompt(tokens, self._info.vocab_size)
        if self._model is None:
            raise EngineClosed("The engine is closed.")
        outbox = Outbox(self._worker.wake)
        # The job is the worker's alone: a reference here would keep its cache alive as long as its reader.
        self._worker.submit(Generation(self._model, tokens, sampling, outbox, self._traffic))
        try:
            async with aclosing(outbox.steps()) as steps:
                async for step in steps:
                    yield step
        finally:
            outbox.abandoned = True
            self._worker.wake()

    async def close(self) -> None:
        await asyncio.to_thread(self._worker.close)
        self._model = None


def load_local(
    folder: Path,
    *,
    name: str,
    device: str | None = None,
    context: int | None = None,
    progress: bool | None = None,
    about: str = "",
    any_vocabulary: bool = False,
) -> LocalEngine:
    """`about`: what users should know of it. `any_vocabulary`: for tests, whose models speak no Harmony."""
    _let_idle_threads_sleep()
    import torch

    from inference.models.gpt_oss import load_model

    on = None if device is None else torch.device(device)
    model = load_model(folder, device=on, context=context, progress=progress, any_vocabulary=any_vocabulary)
    defaults = read_generation_defaults(folder)
    info = EngineInfo(
        name=name,
        context_length=model.config.context_length,
        vocab_size=model.config.vocab_size,
        description=f"{about}gpt-oss of {model.config.layers} layers on {model.device}.",
        temperature=defaults.get("temperature", 1.0),
        top_p=defaults.get("top_p", 1.0),
        enforces_grammar=True,
        scores_prompts=True,
    )
    return LocalEngine(model, info)


def read_generation_defaults(folder: Path) -> dict[str, float]:
    """temperature and top_p of generation_config.json, where it has them."""
    path = folder / "generation_config.json"
    if not path.is_file():
        return {}
    try:
        raw: Any = json.loads(path.read_text(encoding="utf-8"))
        found = {key: raw.get(key) for key in ("temperature", "top_p")}
        return {key: float(value) for key, value in found.items() if value is not None}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}. Mend it, or delete it.") from error


def _let_idle_threads_sleep() -> None:
    """Beside other work on few cores, OpenMP threads that spin while they wait cost nine tenths of the speed.

    OpenMP reads these once, when torch is first imported.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        os.environ.setdefault("GOMP_SPINCOUNT", "0")
