"""A draft head's work of a step and after it, at the 20b's sizes, on tensors without memory.

A GPU records this work. No recording can contain an op that reads a number from the device or takes a tensor
of the host: the first fails without memory, the second is refused here.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from inference.ops import fused
from inference.ops.pages import Pages
from inference.shapes import SHAPES
from tests.doubles.inference.walking import head_shape, random_draft_weights

META, MOST, BLOCKS, SIZE = torch.device("meta"), 4, 100, 64


class OnTheDevice(TorchDispatchMode):
    """Refuses ops that take a tensor of the host."""

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
    guessing = CudaGuesser(head, model, BLOCKS, SIZE, tables, MOST, records=False)

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
            slots=whole(rows), window=None, block_size=SIZE, decodes=rows, longest=1,
        )  # fmt: skip
        pages = [own] * len(model.config.windows)
        guessing.keep(whole(MORE_ROWS * rows), hidden, whole(rows), whole(rows), pages)
        shape = DraftShape(sequences, MOST)
        found = guessing._guessed(whole(guessing._length(shape)), shape)
        assert found.shape == (sequences, MOST)
