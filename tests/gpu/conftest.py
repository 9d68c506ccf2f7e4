"""What needs a card is skipped in a sentence where there is none."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session")
def card() -> torch.device:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.device("cuda")
