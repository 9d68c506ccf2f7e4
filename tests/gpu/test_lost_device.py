"""A device that an error has broken for good is found; one that merely ran out of memory is not."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from inference.ops.device import device_problem

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[2]
# In a process of its own, whose context on the device is lost.
LOSE = """
import torch
from inference.ops.device import device_problem
device = torch.device("cuda")
assert device_problem(device) is None
try:
    torch.zeros(4, device=device)[torch.tensor([9], device=device)].cpu()
except RuntimeError:
    pass
print(device_problem(device))
"""


def test_a_card_is_sound_even_without_free_memory(card: torch.device) -> None:
    with pytest.raises(torch.cuda.OutOfMemoryError):
        torch.empty(1 << 45, device=card)
    assert device_problem(card) is None


def test_a_lost_context_is_a_sentence(card: torch.device) -> None:
    done = subprocess.run([sys.executable, "-c", LOSE], cwd=ROOT, capture_output=True, text=True)
    assert "computes nothing any more" in done.stdout, done.stderr
