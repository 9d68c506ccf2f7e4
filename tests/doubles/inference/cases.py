"""Calls the ops at the sizes of the 20b and the 120b model, on tensors without memory.

A GPU records a draft head's work. No recording can contain an op that reads a number from the device or takes
a tensor of the host: the first fails without memory, the second is refused here.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from inference.drafting.head import DraftHead
from inference.local.cuda.guesser import MORE_ROWS, CudaGuesser, DraftShape
from inference.local.cuda.inputs import Tables
from inference.models.gpt_oss import GptOss
from inference.models.weights import Weights
from inference.ops import expert_kernels, fused, fused_sampling
from inference.ops.packing import PackedRows
from inference.ops.pages import Pages
from inference.ops.sampling import Picking
from inference.ops.scaled import FP8, Rows, ScaledRows
from inference.shapes import SHAPES
from tests.doubles.inference.full_size import BLOCK, EPS, HEADS, HIDDEN, KV_HEADS, SIZE, VOCABULARY
from tests.doubles.inference.walking import head_shape, random_draft_weights

META, MOST, BLOCKS = torch.device("meta"), 4, 100


@dataclass(frozen=True)
class Case:
    name: str
    run: Callable[[], object]


def of(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(shape, dtype=dtype, device=META)


def every_case() -> Iterator[Case]:
    for tokens in (1, 8, 64):
        yield Case(f"qkv {tokens}", partial(run_qkv, tokens))
        yield Case(f"out {tokens}", partial(run_out, tokens))
    for tokens in (1, 2, 8, 32, 64, 128, 256):
        yield Case(f"scaled_qkv {tokens}", partial(run_qkv, tokens, fp8=True))
        yield Case(f"fp8_qkv {tokens}", partial(run_qkv, tokens, kept=FP8))
        yield Case(f"scaled_out {tokens}", partial(run_out, tokens, fp8=True))
        yield Case(f"scaled_head {tokens}", partial(run_head, tokens, fp8=True))
    for window, (prefix, kept) in itertools.product((None, 128), (("", torch.bfloat16), ("fp8_", FP8))):
        yield Case(f"{prefix}decode {window}", partial(run_attention, [1], window, kept))
        yield Case(f"{prefix}decode {window}", partial(run_attention, [1] * 64, window, kept))
        yield Case(f"{prefix}prefill {window}", partial(run_attention, [2048], window, kept))
        yield Case(f"{prefix}prefill {window}", partial(run_attention, [1, 1, 40], window, kept))
    for sequences in (1, 8, 64):
        yield Case(f"draft_head {sequences}", partial(run_guesses, sequences))
    for experts, tokens in ((32, 1), (32, 4), (32, 64), (32, 256), (32, 2048), (128, 1), (128, 8), (128, 64)):
        yield Case(f"experts {experts} {tokens}", partial(run_experts, tokens, experts))
    for rows in (1, 8):
        yield Case(f"head {rows}", partial(run_head, rows))
        yield Case(f"sample {rows}", partial(run_sample, rows, extras=rows == 8))


def pages_of(queries: list[int], window: int | None) -> Pages:
    return Pages(
        tables=of(len(queries), 2048, dtype=torch.int32),
        lengths=of(len(queries), dtype=torch.int32),
        starts=of(len(queries) + 1, dtype=torch.int32),
        slots=of(sum(queries), dtype=torch.int64),
        window=window,
        block_size=BLOCK,
        decodes=queries.count(1),
        longest=max(queries),
    )


def memory(kept: torch.dtype) -> Tensor:
    return of(KV_HEADS, 1000, BLOCK, SIZE, dtype=kept).permute(1, 2, 0, 3)


def rows_of(rows: int, columns: int, fp8: bool) -> Rows:
    if fp8:
        return ScaledRows(of(rows, columns, dtype=FP8), of(rows, dtype=torch.float32))
    return of(rows, columns)


def run_qkv(tokens: int, fp8: bool = False, kept: torch.dtype = torch.bfloat16) -> None:
    rows = (HEADS + 2 * KV_HEADS) * SIZE
    weight = rows_of(rows, HIDDEN, fp8)
    cos, sin = (of(tokens, SIZE, dtype=torch.float32) for _ in range(2))
    fused.qkv(
        of(tokens, HIDDEN), of(HIDDEN, dtype=torch.float32), EPS, weight, of(rows), cos, sin,
        memory(kept), memory(kept), pages_of([1] * tokens, None),
    )  # fmt: skip


def run_out(tokens: int, fp8: bool = False) -> None:
    weight = rows_of(HIDDEN, HEADS * SIZE, fp8)
    fused.project_out(of(tokens, HEADS * SIZE), weight, of(HIDDEN), of(tokens, HIDDEN))


def run_attention(queries: list[int], window: int | None, kept: torch.dtype) -> None:
    query, pages = of(sum(queries), HEADS, SIZE), pages_of(queries, window)
    fused.paged_attention(query, memory(kept), memory(kept), of(HEADS), pages)


def packed(experts: int, rows: int) -> PackedRows:
    fragments, tiles = -(-rows // 64) * 4, HIDDEN // 64
    words = of(experts, fragments, tiles, 32, 4, dtype=torch.int32)
    return PackedRows(words, of(experts, fragments, tiles, 8, dtype=torch.int32), rows, HIDDEN)


def run_experts(tokens: int, experts: int) -> None:
    mixture = expert_kernels.Mixture(
        packed(experts, 2 * HIDDEN), of(experts, 2 * HIDDEN), packed(experts, HIDDEN), of(experts, HIDDEN),
        limit=7.0, alpha=1.702,
    )  # fmt: skip
    norm = of(HIDDEN, dtype=torch.float32)
    fused.experts_block(of(tokens, HIDDEN), norm, EPS, of(experts, HIDDEN), of(experts), 4, mixture)


def run_head(rows: int, fp8: bool = False) -> None:
    head = rows_of(VOCABULARY, HIDDEN, fp8)
    norm = of(HIDDEN, dtype=torch.float32)
    fused.head_logits(of(rows, HIDDEN), norm, EPS, head.t() if isinstance(head, Tensor) else head)


def run_sample(rows: int, extras: bool) -> None:
    def floats(*shape: int) -> Tensor:
        return of(rows, *shape, dtype=torch.float32)

    seen = of(rows, dtype=torch.int32)
    masks = of(rows, VOCABULARY // 8, dtype=torch.uint8)
    more = (floats(VOCABULARY), seen, masks, seen) if extras else (None,) * 4
    picking = Picking(floats(), seen, floats(), floats(), of(rows, dtype=torch.float64), *more)
    fused_sampling.sample(floats(VOCABULARY), picking)


class OnTheDevice(TorchDispatchMode):
    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> object:
        for each in tree_leaves((args, kwargs or {})):
            assert not isinstance(each, Tensor) or each.device == META, f"{func} takes {each} from the host"
        return func(*args, **(kwargs or {}))


def model_without_layers() -> GptOss:
    config = SHAPES["20b"]
    rows = torch.empty(config.vocab_size, config.hidden, dtype=torch.bfloat16, device=META)
    layer: Any = SimpleNamespace(router=rows)
    weights = Weights(embedding=rows, layers=(layer,), norm=rows[0].float(), head=rows.t(), rounding=None)
    return GptOss(config, weights)


def run_guesses(sequences: int) -> None:
    model = model_without_layers()
    head = DraftHead(head_shape(model.config), random_draft_weights(head_shape(model.config), model), model)
    head._ops = fused
    tables = Tables(sequences, 100, len(model.config.windows), META)
    guessing = CudaGuesser(head, model, BLOCKS, BLOCK, tables, MOST, records=False)

    def whole(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.int64, device=META)

    with torch.inference_mode(), OnTheDevice():
        rows = sequences * (1 + MOST)
        hidden = guessing.hidden()
        hidden.found += [
            torch.empty(rows, model.config.hidden, dtype=model.dtype, device=META) for _ in hidden.after
        ]
        own = Pages(
            tables=whole(rows, 100).int(), lengths=whole(rows).int(), starts=whole(rows + 1).int(),
            slots=whole(rows), window=None, block_size=BLOCK, decodes=rows, longest=1,
        )  # fmt: skip
        pages = [own] * len(model.config.windows)
        guessing.keep(whole(MORE_ROWS * rows), hidden, whole(rows), whole(rows), pages)
        shape = DraftShape(sequences, MOST)
        found = guessing._guessed(whole(guessing._length(shape)), shape)
        assert found.shape == (sequences, MOST)
