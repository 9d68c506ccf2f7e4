"""Runs steps in plain PyTorch: for the CPU, and as the reference for other runners.

Takes the parts of a step and returns their outcomes; it owns the weights and the paged memory. It must not
know requests: the scheduler decides which tokens go where.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from inference.config import ModelConfig
from inference.engine import Sampling, TokenLogprob
from inference.failures import as_failure
from inference.local.sampling.sampler import Sampler, token_score
from inference.local.scheduling.step import Outcome, Sampled, StepPart
from inference.models.gpt_oss import GptOss
from inference.models.kv_memory import PagedMemory
from inference.ops.cores import on_cores, one_core
from inference.ops.device import device_problem
from inference.ops.pages import BLOCK_SIZE, Pages, Span, pages_from_spans, slot_range, span

# Rows whose logits exist together, 13 MB for 16. The head takes the same time for 16 rows twice as for 32.
ROWS_AT_ONCE = 16
# Sequences of a core: fewer wait for the interpreter. On two cores a step of 32 takes 100 ms, on one 165.
LEAST_SHARE = 6
MOST_SHARED = 4  # tokens of a sequence in a step, on average
# Rows times weights of a layer's products that one core ends sooner than several, which would be woken for
# each product. On two cores, one sequence of the embedded model gets 1.4 times the tokens, eight 1.2 times.
ONE_CORE = 12_000_000
MASK_WORKERS = 2  # each mask takes a fraction of a step; matrix products leave Python free meanwhile


@dataclass(frozen=True, slots=True)
class Landed:
    """A step that ran when it was launched."""

    found: list[Outcome]

    def outcomes(self) -> list[Outcome]:
        return self.found


class TorchRunner:
    """Implements `inference.local.scheduling.step.Runner`."""

    ahead = 0

    def __init__(self, model: GptOss, blocks: Sequence[int], block_size: int = BLOCK_SIZE) -> None:
        """`blocks`: the number for each of the model's windows, block 0 included."""
        _keep_freed_memory()
        self.block_size = block_size
        self._model = model
        self._rows_of_one_core = ONE_CORE // _weights_of_a_row(model.config)
        self._mask_workers = ThreadPoolExecutor(MASK_WORKERS, "masks")
        self.memory = PagedMemory(model.config, blocks, block_size, model.device, model.kv_dtype)

    def picker(self, sampling: Sampling, prompt: Sequence[int] = ()) -> Sampler:
        return Sampler(sampling, self._model.config.vocab_size, self._mask_workers, prompt)

    def problem(self) -> str | None:
        return device_problem(self._model.device)

    def close(self) -> None:
        """Stops the workers. The memory is freed with the last reference to the runner."""
        self._mask_workers.shutdown(wait=False, cancel_futures=True)

    @torch.inference_mode()
    def launch(self, parts: Sequence[StepPart]) -> Landed:
        for part in parts:
            if part.samples and isinstance(part.picker, Sampler):
                part.picker.prepare()
        shares = _shares(parts)
        # All rows before any sample: after an error here, the engine runs each sequence again.
        rows = on_cores(self._rows, shares)
        found = on_cores(lambda pair: self._outcomes(*pair), list(zip(shares, rows, strict=True)))
        return Landed([outcome for some in found for outcome in some])

    def _outcomes(self, parts: Sequence[StepPart], x: Tensor) -> list[Outcome]:
        """Samples from the last layer's rows."""
        wanted = [part.wanted for part in parts]
        ends = accumulate(len(part.tokens) for part in parts)
        picked = [row for end, rows in zip(ends, wanted, strict=True) for row in range(end - rows, end)]
        if not picked:
            return [Outcome() for _ in parts]
        chosen = x if len(picked) == len(x) else x[torch.tensor(picked, device=x.device)]
        return list(self._sampled(parts, wanted, chosen))

    def _sampled(self, parts: Sequence[StepPart], wanted: list[int], rows: Tensor) -> Iterator[Outcome]:
        """A few rows at a time, so that picking finds their logits in a cache, and needs little memory."""
        begin = 0
        while begin < len(parts):
            end, count = begin + 1, wanted[begin]
            while end < len(parts) and (count == 0 or count + wanted[end] <= ROWS_AT_ONCE):
                count += wanted[end]
                end += 1
            some, rows = rows[:count], rows[count:]
            logits = torch.split(self._model.logits(some), wanted[begin:end])
            yield from map(_outcome, parts[begin:end], logits)
            begin = end

    def _rows(self, parts: Sequence[StepPart]) -> Tensor:
        """All parts' tokens through the layers."""
        device = self._model.device
        tokens = torch.tensor([token for part in parts for token in part.tokens], device=device)
        places = [position for part in parts for position in range(part.start, part.start + len(part.tokens))]
        pages = [self._pages(parts, kind) for kind in range(len(self._model.config.windows))]
        with one_core() if len(tokens) <= self._rows_of_one_core else nullcontext():
            return self._model.forward(tokens, torch.tensor(places, device=device), self.memory, pages)

    def _pages(self, parts: Sequence[StepPart], kind: int) -> Pages:
        window, size = self._model.config.windows[kind], self.block_size
        slots: list[int] = []
        spans: list[Span] = []
        for part in parts:
            table, begin, end = part.tables[kind], len(slots), part.start + len(part.tokens)
            slots += slot_range(table, part.start, end, size)
            spans.append(span(begin, len(slots), end, table, window, size))
        return pages_from_spans(spans, torch.tensor(slots, device=self._model.device), window, size)


def _shares(parts: Sequence[StepPart]) -> list[Sequence[StepPart]]:
    """A share of the sequences for each core, where they have few tokens: PyTorch divides large products
    itself, but most operations on few rows run on one core."""
    cores = torch.get_num_threads()
    size = -(-len(parts) // cores)
    if cores == 1 or size < LEAST_SHARE or sum(len(part.tokens) for part in parts) > MOST_SHARED * len(parts):
        return [parts]
    return [parts[begin : begin + size] for begin in range(0, len(parts), size)]


def _weights_of_a_row(config: ModelConfig) -> int:
    """The weights of a layer with which a row is multiplied."""
    attention = 2 * (config.heads + config.kv_heads) * config.head_dim
    return config.hidden * (attention + 3 * config.experts_per_token * config.intermediate)


def _keep_freed_memory() -> None:
    """Makes glibc keep the memory that large tensors leave, up to 64 MiB for each thread.

    Otherwise it returns it to the system, and each step takes it again, page by page: 12 ms of 100 with 32
    generations. It keeps twice the size of the largest block that was freed, of those below 32 MiB.
    """
    torch.empty((32 << 20) - (1 << 16), dtype=torch.uint8)


def _outcome(part: StepPart, logits: Tensor) -> Outcome:
    """`logits`: of the rows that need them."""
    assert isinstance(part.picker, Sampler)
    sampler = part.picker
    scores: tuple[TokenLogprob, ...] = ()
    sampled: list[Sampled] = []
    try:
        if part.scored is not None:
            top = sampler.sampling.prompt_logprobs or 0
            scored = zip(logits, part.scored, strict=False)
            scores = tuple(token_score(row, token, top, ranked=True) for row, token in scored)
        _sample(part, sampler, logits[len(logits) - part.samples :], sampled)
    except Exception as error:
        # Any Exception: a grammar is the caller's code, and may only break its own generation.
        return Outcome(tuple(sampled), scores, as_failure(error))
    return Outcome(tuple(sampled), scores)


def _sample(part: StepPart, sampler: Sampler, logits: Tensor, sampled: list[Sampled]) -> None:
    """Samples a token for each row, until a draft differs from the token sampled before it. So drafts change
    only the time that an answer takes, whatever the sampling."""
    drafts = part.tokens[len(part.tokens) - part.samples + 1 :]
    for at, row in enumerate(logits):
        sample = sampler.sample(row)
        sampled.append(sample)
        is_wrong = at < len(drafts) and drafts[at] != sample.token
        if is_wrong or sample.token in sampler.sampling.stop_token_ids:
            return
