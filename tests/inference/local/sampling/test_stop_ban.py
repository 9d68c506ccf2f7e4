"""Stop ids that may not be sampled yet, and the repetition penalty, on both samplers."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from inference.engine import Sampling
from inference.local.cuda.picker import CudaPicker, pick_rows
from inference.local.sampling.sampler import Sampler
from tests.doubles.engines.written import Recorded

SIZE = 64
STOPS = frozenset({3, 5})
Draw = Callable[[Sampling, Sequence[int], Tensor, int], list[int]]


def by_sampler(sampling: Sampling, prompt: Sequence[int], logits: Tensor, count: int) -> list[int]:
    sampler = Sampler(sampling, SIZE, prompt=prompt)
    return [sampler.sample(logits).token for _ in range(count)]


def by_picker(sampling: Sampling, prompt: Sequence[int], logits: Tensor, count: int) -> list[int]:
    picker = CudaPicker(sampling, SIZE, torch.device("cpu"), prompt)
    found = []
    for _ in range(count):
        mask = None if picker.masks is None else picker.masks.bits()
        token = pick_rows(logits.unsqueeze(0), [picker], picker.points(1), [mask])
        picker.used(1)
        picker.count(token)
        found.append(int(token))
        if picker.masks is not None:
            picker.masks.accept(found[-1])
    return found


BOTH = pytest.mark.parametrize("draw", [by_sampler, by_picker])


def rising() -> Tensor:
    """The likeliest tokens are the stop ids 5 and 3, then 9."""
    logits = torch.zeros(SIZE)
    logits[[5, 3, 9]] = torch.tensor([4.0, 3.0, 2.0])
    return logits


CASES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "only after the least tokens": ({"min_tokens": 4}, [9, 9, 9, 9, 5, 5]),
    "a bias holds once it may be sampled": ({"min_tokens": 2, "logit_bias": {5: -3.0}}, [9, 9, 3]),
    "an ignored one never": ({"min_tokens": 1, "ignored_stop_ids": frozenset({5})}, [9, 3, 3]),
    "a grammar is narrowed": ({"min_tokens": 2, "grammar": Recorded([{5, 9, 20}])}, [9, 9, 5]),
    "but never to nothing": ({"min_tokens": 9, "grammar": Recorded([{3, 5}])}, [5]),
    # 9 falls to 0.5, then 5 to 2.5 and 3 to 1.5.
    "penalties go on after the ban": ({"min_tokens": 1, "presence_penalty": 1.5}, [9, 5, 3, 5]),
}


@BOTH
@pytest.mark.parametrize(("fields", "tokens"), CASES.values(), ids=CASES)
def test_a_stop_id_is_sampled_where_it_may_be(draw: Draw, fields: dict[str, Any], tokens: list[int]) -> None:
    sampling = Sampling(temperature=0.0, stop_token_ids=STOPS, **fields)
    assert draw(sampling, [1], rising(), len(tokens)) == tokens


@BOTH
@pytest.mark.parametrize("penalty", [1.3, 0.8])
def test_a_repetition_penalty_divides_positive_logits_and_multiplies_negative_ones(
    draw: Draw, penalty: float
) -> None:
    logits = torch.randn(SIZE, generator=torch.Generator().manual_seed(7))
    seen, wanted = {2, 40, int(logits.argmax())}, []
    for _ in range(12):
        changed = [
            (value / penalty if value > 0 else value * penalty) if token in seen else value
            for token, value in enumerate(logits.tolist())
        ]
        wanted.append(max(range(SIZE), key=lambda token: changed[token]))
        seen.add(wanted[-1])
    before = logits.clone()
    sampling = Sampling(temperature=0.0, repetition_penalty=penalty)
    assert draw(sampling, [2, 40, int(logits.argmax())], logits, 12) == wanted
    assert torch.equal(logits, before), "the logits of a log-probability stay the model's own"
