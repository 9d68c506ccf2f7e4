"""How far a model with FP8 weights, keys or values is from the same model without.

Takes both models and returns figures. The unchanged model samples the text; then both read it, and their
distributions of the next token are compared at every position.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from inference.bench.measure import bench_runner, separate_tables
from inference.engine import Sampling
from inference.local.scheduling.step import StepPart
from inference.models.gpt_oss import GptOss

TOKENS = 10_000
SEQUENCES = 16
ROWS = 125  # whose logits are held at a time
START = 200_006  # `<|start|>`, with which every text of a gpt-oss model begins


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    tokens: int
    mean: float  # of the Kullback-Leibler divergence of a position, in nats
    p99: float
    most: float
    same_best: float  # share of the positions at which both prefer the same token
    loss: float  # mean negative log-probability of the text, unchanged model
    other_loss: float

    def describe(self) -> str:
        return (
            f"{self.tokens:,} tokens: KL divergence mean {self.mean:.5f}, 99th percentile {self.p99:.4f}, "
            f"largest {self.most:.3f} nats; the same best token at {self.same_best:.2%}; loss "
            f"{self.loss:.4f} unchanged, {self.other_loss:.4f} in FP8"
        )


def divergence(plain: GptOss, other: GptOss, tokens: int = TOKENS) -> Divergence:
    length = -(-tokens // SEQUENCES)
    texts = sampled(plain, SEQUENCES, length + 1)
    kept = [part for text in texts for part in _compared(plain, other, text)]
    apart, same, loss, other_loss = (torch.cat(parts) for parts in zip(*kept, strict=True))
    return Divergence(
        tokens=len(apart),
        mean=float(apart.mean()),
        p99=float(torch.quantile(apart, 0.99)),
        most=float(apart.max()),
        same_best=float(same.mean()),
        loss=float(loss.mean()),
        other_loss=float(other_loss.mean()),
    )


def sampled(model: GptOss, sequences: int, length: int) -> list[list[int]]:
    """Texts of `length` tokens that the model samples at temperature 1; the same for the same model."""
    runner = bench_runner(model, sequences, sequences * length)
    tables = separate_tables(runner, model, sequences, length)
    pickers = [runner.picker(Sampling(temperature=1.0, seed=at)) for at in range(sequences)]
    texts = [[min(START, model.config.vocab_size - 1)] for _ in range(sequences)]
    for position in range(length - 1):
        parts = [
            StepPart(at, [texts[at][-1]], position, tables[at], 1, pickers[at]) for at in range(sequences)
        ]
        for text, outcome in zip(texts, runner.launch(parts).outcomes(), strict=True):
            text.append(outcome.sampled[0].token)
    runner.close()
    return texts


def _compared(
    plain: GptOss, other: GptOss, text: Sequence[int]
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """For each token but the last: the divergence, whether the best token is the same, both losses."""
    caches = [model.new_cache(len(text)) for model in (plain, other)]
    for at in range(0, len(text) - 1, ROWS):
        part = text[at : min(at + ROWS, len(text) - 1)]
        after = torch.tensor(text[at + 1 : at + 1 + len(part)], device=plain.device).unsqueeze(1)
        right, wrong = (
            torch.log_softmax(model.all_logits(part, cache).float(), -1)
            for model, cache in zip((plain, other), caches, strict=True)
        )
        yield (
            (right.exp() * (right - wrong)).sum(-1).clamp(min=0).cpu(),
            (right.argmax(-1) == wrong.argmax(-1)).float().cpu(),
            -right.gather(1, after).squeeze(1).cpu(),
            -wrong.gather(1, after).squeeze(1).cpu(),
        )
