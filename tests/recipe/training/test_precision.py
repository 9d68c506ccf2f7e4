"""The number format of training: the faster one on this processor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from recipe.training import precision


@pytest.fixture(autouse=True)
def _tried_anew() -> Iterator[None]:
    precision._on_this_processor.cache_clear()
    yield
    precision._on_this_processor.cache_clear()


@pytest.mark.parametrize(("known", "quicker"), [(True, True), (True, False), (False, True)])
def test_bf16_is_used_if_available_and_faster(
    known: bool, quicker: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {torch.bfloat16: 1.0 if quicker else 3.0, torch.float32: 2.0}
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: known)
    monkeypatch.setattr(precision, "_seconds", seconds.__getitem__)
    assert precision.products_in_bf16(torch.device("cpu")) is (known and quicker)


def test_a_product_is_timed() -> None:
    assert 0 < precision._seconds(torch.float32) < 10
