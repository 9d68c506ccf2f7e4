"""A random model that walks from token to token, and a draft head that knows some of its steps.

The model's next token is a function of its newest one alone, by a margin that no rounding reaches; all its
layers work as in any model. So any schedule gives the same text, and a head that looks the next token up is
right as often as its table is. The head computes everything that it would compute otherwise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from inference.config import ModelConfig, RopeConfig
from inference.drafting.config import DraftConfig
from inference.drafting.head import DraftHead, DraftWeights
from inference.engine import Sampling
from inference.local.cuda.runner import CudaRunner
from inference.local.scheduling.step import StepPart
from inference.models.gpt_oss import GptOss
from inference.models.random_weights import RandomTensors
from inference.models.weights import load_weights

LARGE = 4.0  # numbers of an embedding: larger than what the layers add


class WalkingTensors(RandomTensors):
    """The logits of a token are its product with the embedding of the token before it on the walk."""

    def __init__(self, device: torch.device, walk: Tensor) -> None:
        super().__init__(device)
        self._walk = walk

    def take(self, name: str, shape: Sequence[int], *, bytes_only: bool = False) -> Tensor:
        if name not in ("model.embed_tokens.weight", "lm_head.weight"):
            return super().take(name, shape, bytes_only=bytes_only)
        embedding = super().take("model.embed_tokens.weight", shape) * (LARGE * math.sqrt(shape[1]))
        if name == "model.embed_tokens.weight":
            return embedding
        head = torch.empty_like(embedding)
        head[self._walk] = embedding / LARGE
        return head


@dataclass
class Walk:
    """The token after each token."""

    following: Tensor

    def text(self, prompt: Sequence[int], count: int) -> list[int]:
        following = self.following.tolist()
        found = [following[prompt[-1]]]
        while len(found) < count:
            found.append(following[found[-1]])
        return found


def walking_model(config: ModelConfig, device: torch.device) -> tuple[GptOss, Walk]:
    draw = torch.Generator().manual_seed(2)
    walk = torch.randperm(config.vocab_size, generator=draw).to(device)
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    weights = load_weights(WalkingTensors(device, walk), config, device=device, dtype=dtype, progress=False)
    return GptOss(config, weights), Walk(walk)


def head_shape(model: ModelConfig, draft_vocab: int = 32_000) -> DraftConfig:
    """As heads of the `speculators` package are for the 20b: attention like the model's, a small MLP."""
    return DraftConfig(
        hidden=model.hidden, intermediate=model.hidden, heads=model.heads, kv_heads=model.kv_heads,
        head_dim=model.head_dim, vocab_size=model.vocab_size, target_hidden=model.hidden,
        draft_vocab=min(draft_vocab, model.vocab_size), window=None, norm_eps=1e-5, attention_bias=False,
        states=(1, model.layers // 2, model.layers - 1) if model.layers > 3 else (0, 1, 2),
        rope=RopeConfig(theta=500_000.0, factor=1.0), norm_before_residual=True, norm_before_fc=False,
        norm_each_state=False, carries_normed=False,
    )  # fmt: skip


class KnowingHead(DraftHead):
    """Guesses the walk's next token where it knows it, else another one."""

    def __init__(self, model: GptOss, walk: Walk) -> None:
        config = head_shape(model.config)
        super().__init__(config, random_draft_weights(config, model), model)
        self._following = walk.following
        self._table = walk.following.clone()

    def know(self, share: float) -> None:
        """In place: recorded work reads the table where it lies."""
        draw = torch.Generator(self._table.device).manual_seed(3)
        knows = torch.rand(self._table.shape, generator=draw, device=self._table.device) < share
        wrong = (self._following + 1) % len(self._table)
        self._table.copy_(torch.where(knows, self._following, wrong))

    def layer(self, tokens: Tensor, *places: Any) -> Tensor:
        self._newest = tokens
        return super().layer(tokens, *places)

    def guesses(self, outputs: Tensor) -> Tensor:
        super().guesses(outputs)
        return self._table[self._newest]


def random_draft_weights(config: DraftConfig, model: GptOss) -> DraftWeights:
    meta = model.device.type == "meta"  # which has no generators
    draw = None if meta else torch.Generator(model.device).manual_seed(4)

    def rows(*shape: int) -> Tensor:
        values = torch.randn(shape, generator=draw, device=model.device, dtype=model.dtype)
        return values * shape[1] ** -0.5

    def norm() -> Tensor:
        return torch.ones(config.hidden, device=model.device)

    hidden, wide = config.hidden, config.heads * config.head_dim
    given: dict[str, Any] = {
        "fc": rows(hidden, 3 * config.target_hidden), "state_norms": (),
        **{name: norm() for name in ("token_norm", "feature_norm", "mlp_norm", "norm")},
        "q": rows(wide, 2 * hidden), "kv": rows(2 * config.kv_heads * config.head_dim, 2 * hidden),
        "out": rows(hidden, wide), "gate_up": rows(2 * config.intermediate, hidden),
        "down": rows(hidden, config.intermediate), "head": rows(config.draft_vocab, hidden),
        "ids": torch.arange(config.draft_vocab, device=model.device),
    }  # fmt: skip
    return DraftWeights(**{field.name: given.get(field.name) for field in fields(DraftWeights)})


Answer = tuple[list[int], list[int]]  # sampled tokens, and guesses
EACH = 6  # blocks of each sequence


@dataclass
class Reader:
    """One sequence: its tokens so far, and those that follow."""

    tokens: list[int]
    later: list[int]
    computed: int = 0

    def part(self, runner: CudaRunner, slot: int, guesses: int) -> StepPart:
        drafts = [self.later[0], self.later[1] ^ 1] if self.computed else []
        tokens = [*self.tokens[self.computed :], *drafts]
        table = list(range(1 + EACH * slot, 1 + EACH * (slot + 1)))
        picker = runner.picker(Sampling(temperature=0.0, stop_token_ids=frozenset()))
        tables = [table] * len(runner._windows)
        return StepPart(slot, tokens, self.computed, tables, 1 + len(drafts), picker, guesses=guesses)


def answers(
    runner: CudaRunner, prompts: list[list[int]], texts: list[list[int]], steps: int, guesses: int
) -> list[list[Answer]]:
    """Of each step and sequence; `texts`: what follows the prompts."""
    readers = [Reader(list(prompt), list(text)) for prompt, text in zip(prompts, texts, strict=True)]
    found = []
    for _ in range(steps):
        parts = [reader.part(runner, slot, guesses) for slot, reader in enumerate(readers)]
        outcomes = runner.launch(parts).outcomes()
        for reader, outcome in zip(readers, outcomes, strict=True):
            sampled = [each.token for each in outcome.sampled]
            reader.computed = len(reader.tokens) + len(sampled) - 1
            reader.tokens += sampled
            del reader.later[: len(sampled)]
        found.append([([each.token for each in o.sampled], list(o.guesses)) for o in outcomes])
    return found
