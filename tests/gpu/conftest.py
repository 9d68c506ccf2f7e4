"""Skips tests that need a card on a machine without one."""

import pytest
import torch


@pytest.fixture(scope="session")
def card() -> torch.device:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.device("cuda")
