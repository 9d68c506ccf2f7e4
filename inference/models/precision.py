"""In how many bits a model's attention weights and head, and its keys and values, are stored.

It imports no framework, so that the command line may read it.
"""

from __future__ import annotations

from dataclasses import dataclass

CHOICES = ("auto", "fp8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """`auto` is the type that the device computes in: bf16 on a GPU, float32 on a CPU."""

    weights: str = "auto"  # of attention and the head; experts stay as the checkpoint has them
    kv: str = "auto"  # keys and values

    @property
    def flags(self) -> str:
        """The flags that ask for FP8, as a user writes them; empty if none does."""
        asked = (("--weights fp8", self.weights), ("--kv-dtype fp8", self.kv))
        return " and ".join(flag for flag, value in asked if value == "fp8")
