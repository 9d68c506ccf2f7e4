"""The engine that runs gpt-oss in this process: takes prompts from the event loop and yields steps.

Concurrent generations share every step of the model (loop.py, scheduling/). It must not know layers (the
model's) or distributions (the sampler's).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from inference.config import ModelConfig, read_config
from inference.engine import (
    CheckpointError,
    EngineClosed,
    EngineFailed,
    EngineInfo,
    Sampling,
    Step,
    output_limit,
)
from inference.local.checkpoint_defaults import generation_defaults
from inference.local.loop import Loop
from inference.local.machine import free_memory, machine_memory, machine_share
from inference.local.memory_plan import MemoryPlan, layer_kinds, plan_memory
from inference.local.scheduling import sequence as sequences
from inference.local.scheduling.drafts import costs_on_gpu
from inference.local.scheduling.prefix_cache import PrefixCache, name_blocks
from inference.local.scheduling.scheduler import Scheduler, SchedulerLimits
from inference.local.scheduling.step import Runner
from inference.local.tiers.opening import open_tiers
from inference.local.tiers.tiers import Tiers
from inference.local.torch_runner import TorchRunner
from inference.models.gpt_oss import GptOss, load_model
from inference.models.weights import find_checkpoint
from inference.ops.device import runs_fp8
from inference.ops.pages import BLOCK_SIZE, BLOCK_SIZE_ON_GPU
from inference.options import EngineOptions
from inference.outbox import Outbox, steps_through

if TYPE_CHECKING:  # only few engines need these
    from inference.drafting.head import DraftHead
    from inference.local.cuda.runner import CudaRunner

# On a CPU a step costs little more for a few rows than for one, and much more for very many.
CONCURRENT_ON_CPU, CONCURRENT_ON_GPU = 32, 64
SHARE_OF_CARD = 0.85  # of the memory that the weights leave free; a step's activations need the rest
# Prompt tokens in one step of a GPU: enough that the weights are read for many rows together.
CHUNK_ON_GPU, SHARED_CHUNK_ON_GPU = 4096, 512
# Per step, with speculation: further ones are rarely right. A head's guesses also cost time themselves.
DRAFTED_TOKENS, GUESSED_TOKENS = 6, 4
PREDICTED_ON_CPU = 16  # a prediction's are right until the output leaves it
DEFAULTS = EngineOptions()


class LocalEngine:
    def __init__(
        self,
        runner: Runner,
        info: EngineInfo,
        cache: PrefixCache,
        limits: SchedulerLimits,
        tiers: Tiers | None = None,
    ) -> None:
        self._runner: Runner | None = runner
        self.info = info
        self._numbers = itertools.count()
        self._scheduler = Scheduler(cache, limits)
        self._loop = Loop(runner, self._scheduler, f"inference {info.name}")
        self._tiers = tiers
        if tiers is not None:
            tiers.is_current, tiers.wake = cache.is_current, self._loop.wake
            tiers.start()

    @property
    def active(self) -> int:
        """Generations that hold memory, or wait for it."""
        return self._loop.active

    def measures(self) -> dict[str, float]:
        cache = self._scheduler.cache
        below = {} if self._tiers is None else self._tiers.measures()
        return {**self._scheduler.measures(), "kv_blocks_used": cache.used, "kv_usage": cache.usage, **below}

    def recent_steps(self) -> list[dict[str, int]]:
        return list(self._scheduler.recent)

    def check_room(self) -> None:
        self._loop.check_room()

    def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        return steps_through(lambda: self._begin(tokens, sampling))

    def _begin(self, tokens: Sequence[int], sampling: Sampling) -> Outbox:
        limit = output_limit(len(tokens), sampling, self.info)
        _check_prompt(tokens, self.info.vocab_size)
        if self._runner is None:
            raise EngineClosed("The engine is closed.")
        outbox = Outbox(self._loop.wake)
        sequence = sequences.Sequence(
            number=next(self._numbers),
            tokens=list(tokens),
            prompt_length=len(tokens),
            limit=limit,
            sampling=sampling,
            picker=self._runner.picker(sampling, tokens),
            outbox=outbox,
            drafter=self._scheduler.limits.drafter(sampling),
            scores=None if sampling.prompt_logprobs is None else [None],
        )
        self._loop.submit(sequence)
        return outbox

    def pin(self, tokens: Sequence[int], salt: str | None) -> None:
        """Has the folder delete the blocks of this prompt after all others, once it has been read."""
        names: list[bytes] = []
        name_blocks(list(tokens), self._scheduler.cache.block_size, salt, names)
        if self._tiers is not None:
            self._tiers.pin(names)

    async def check(self) -> None:
        if self._loop.broken is not None:
            raise EngineFailed(self._loop.broken)
        await self._loop.failures.check(self.generate)

    async def close(self) -> None:
        if self._tiers is not None:  # while its blocks are still in memory
            await asyncio.to_thread(self._tiers.close)
        await asyncio.to_thread(self._loop.close)
        self._runner = None


def _check_prompt(tokens: Sequence[int], vocab_size: int) -> None:
    if not tokens:
        raise EngineFailed("The prompt is empty: a model needs at least one token to continue.")
    for token in (min(tokens), max(tokens)):
        if not 0 <= token < vocab_size:
            raise EngineFailed(f"The prompt has the token {token}; the model knows 0 to {vocab_size - 1}.")


def load_local(
    folder: Path,
    options: EngineOptions = DEFAULTS,
    *,
    name: str,
    given: str | None = None,
    about: str = "",
    progress: bool | None = None,
    **facts: Any,
) -> LocalEngine:
    """`name` is what clients read, `given` what users wrote, for errors. `about` begins the description, and
    `facts` are further fields of the engine's info."""
    device = chosen_device(options)
    _check_memory(folder, device)
    model = load_model(
        folder,
        device=device,
        context=options.context,
        progress=progress,
        precision=options.precision,
        given=given,
    )
    info = replace(describe(model, name, about), **facts, defaults=generation_defaults(folder))
    return start_engine(model, info, options, progress, folder)


def _check_memory(folder: Path, device: torch.device) -> None:
    """Refuses what cannot be loaded, before it takes the memory of others."""
    needs = sum(path.stat().st_size for path in find_checkpoint(folder).glob("*.safetensors"))
    free = free_memory() if device.type == "cpu" else torch.cuda.mem_get_info(device)[0]
    if needs > free:
        raise CheckpointError(
            f"The weights in {folder} take {needs / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB of the memory "
            f"for {device.type} are free. Unload another model, or choose a smaller one."
        )


def describe(model: GptOss, name: str, about: str = "") -> EngineInfo:
    text = f"{about}gpt-oss of {model.config.layers} layers on {model.device}"
    if model.rounding is not None:
        text += f", attention and head in FP8 (relative error of the weights {model.rounding:.2%})"
    if model.precision.kv == "fp8":
        text += ", keys and values in FP8"
    return _info_of(model.config, name, text)


def describe_checkpoint(
    folder: Path, options: EngineOptions, *, name: str, given: str, about: str = "", **facts: Any
) -> EngineInfo:
    """What is known before the weights are read. Its plan of memory may shorten the context."""
    config = read_config(find_checkpoint(folder) / "config.json").with_context(options.context, given)
    text = f"{about}gpt-oss of {config.layers} layers, loaded when it is needed"
    return replace(_info_of(config, name, text), **facts, defaults=generation_defaults(folder))


def _info_of(config: ModelConfig, name: str, text: str) -> EngineInfo:
    return EngineInfo(
        name=name,
        context_length=config.context_length,
        vocab_size=config.vocab_size,
        description=f"{text}.",
        enforces_grammar=True,
        scores_prompts=True,
    )


def chosen_device(options: EngineOptions) -> torch.device:
    """Raises `CheckpointError` for a missing GPU, and for FP8 where nothing would be gained by it."""
    has_gpu = torch.cuda.is_available()
    name = ("cuda" if has_gpu else "cpu") if options.device == "auto" else options.device
    device = torch.device(name)
    if device.type == "cuda" and not has_gpu:
        raise CheckpointError(
            f"The device {name!r} was requested, but torch finds no usable GPU. Omit it to run on the CPU, "
            "or install a torch build for the machine's CUDA."
        )
    if (flags := options.precision.flags) and not runs_fp8(device):
        raise CheckpointError(
            f"{flags} needs an NVIDIA GPU with FP8 (Ada, Hopper or later) and Triton; the model "
            f"would run on {device.type!r}, without gain. Omit it. On any device, "
            f"`python -m inference.bench --compare bf16` with it measures its error."
        )
    return device


def start_engine(
    model: GptOss,
    info: EngineInfo,
    options: EngineOptions,
    progress: bool | None = None,
    folder: Path | None = None,
) -> LocalEngine:
    """The engine of a loaded model: plans its memory and creates its runner. `folder`: its checkpoint."""
    on_gpu = model.device.type == "cuda"
    head: DraftHead | None = None
    if options.draft_head is not None:
        from inference.drafting import loading

        head = loading.load_draft_head(options.draft_head, model)
    limits = SchedulerLimits(
        max_concurrent=options.max_concurrent or (CONCURRENT_ON_GPU if on_gpu else CONCURRENT_ON_CPU),
        max_waiting=options.max_waiting,
        drafts=GUESSED_TOKENS if options.draft_head else DRAFTED_TOKENS if options.speculation else 0,
        by_head=head is not None,
        predicted=0 if head is not None else PREDICTED_ON_CPU,  # a head has room for its own guesses
    )
    if on_gpu:
        limits = replace(
            limits,
            chunk=CHUNK_ON_GPU,
            shared_chunk=SHARED_CHUNK_ON_GPU,
            costs=costs_on_gpu(model.config.experts, model.config.experts_per_token),
            ahead=0 if limits.drafts else 1,
            predicted=0 if head is not None else limits.drafts,  # as many as the card's steps have room for
        )
    block_size = BLOCK_SIZE_ON_GPU if on_gpu else BLOCK_SIZE
    plan = plan_memory(
        layer_kinds(model, head, block_size),
        options.kv_memory or _available(model.device),
        context=info.context_length,
        may_shorten=options.context is None,
        limits=limits,
        block_size=block_size,
        # Memory of the CPU is taken page by page as tokens fill it; a card's is taken at the start.
        steady=None if on_gpu or options.kv_memory else machine_share(),
    )
    runner = _runner(model, plan, limits, progress, head)
    chunk = limits.shared_chunk if on_gpu else limits.least_chunk
    tiers = open_tiers(model, runner, runner.memory, options, chunk=chunk, checkpoint=folder)
    cache = PrefixCache(model.config.windows, plan.blocks, plan.block_size, tiers)
    return LocalEngine(runner, _planned(info, options, plan, limits), cache, limits, tiers)


def _runner(
    model: GptOss, plan: MemoryPlan, limits: SchedulerLimits, progress: bool | None, head: DraftHead | None
) -> TorchRunner | CudaRunner:
    on_gpu = model.device.type == "cuda"
    if head is None and not on_gpu:
        return TorchRunner(model, plan.blocks, plan.block_size)
    from inference.local.cuda.runner import CudaRunner

    runner = CudaRunner(
        model, plan.blocks, limits.max_concurrent, plan.block_size, drafts=limits.drafts, head=head
    )
    if on_gpu:
        runner.prepare(progress)
    return runner


def _planned(
    info: EngineInfo, options: EngineOptions, plan: MemoryPlan, limits: SchedulerLimits
) -> EngineInfo:
    drafts, head = "", options.draft_head
    if limits.drafts:
        # Clients see the description, and need not know folders.
        source = f"by the draft head {Path(head).name!r}" if head else "from the text so far"
        drafts = f" Up to {limits.drafts} tokens a step are drafted {source}."
    description = f"{info.description}{drafts}"
    return replace(info, context_length=plan.context, description=description, plan=plan.describe(limits))


def _available(device: torch.device) -> int:
    if device.type == "cpu":
        return machine_memory()
    return int(torch.cuda.mem_get_info(device)[0] * SHARE_OF_CARD)
