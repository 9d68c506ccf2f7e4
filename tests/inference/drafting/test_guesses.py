"""Draft heads of both layouts guess as plain arithmetic does, whatever the schedule, and change no token."""

import math
import random
from collections.abc import Sequence as Listed
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from inference.config import ModelConfig
from inference.drafting.head import DraftHead
from inference.drafting.loading import load_draft_head
from inference.engine import Sampling
from inference.local.cuda.recordings import Recordings
from inference.local.cuda.runner import CudaRunner
from inference.local.memory_plan import layer_kinds
from inference.local.scheduling import drafts
from inference.local.scheduling.scheduler import SchedulerLimits
from inference.local.scheduling.step import Flight, Runner, StepPart, right_drafts
from inference.models.gpt_oss import GptOss, HiddenStates, load_model
from tests.doubles.inference.driven import Driven, Prompts, check_each_as_alone, tight_blocks
from tests.doubles.inference.heads import (
    changed_layer,
    llama_config,
    random_tensors,
    speculators_config,
    write_head,
    write_repeating_model,
    write_right_head,
)
from tests.doubles.inference.random_checkpoint import write_random_checkpoint
from tests.doubles.random_tests.seeds import pairs, seeds


class PlainHead:
    """Reads the tensors of a checkpoint by their published names."""

    def __init__(self, config: dict[str, Any], tensors: dict[str, Tensor], model: GptOss) -> None:
        self.layer = config.get("transformer_layer_config", config)
        self.own = config | config.get("eagle_config", {})
        self.at = "layers.0." if "transformer_layer_config" in config else "midlayer."
        self.tensors = {name: tensor.float() for name, tensor in tensors.items()}
        self.model = model

    def guesses(self, tokens: list[int], count: int) -> list[int]:
        """The tokens that follow, each the likeliest after those before it."""
        given = torch.tensor(tokens)
        carried = self.features(given[:-1])
        pairs = [self.pair(int(token), row) for token, row in zip(given[1:], carried, strict=True)]
        found = []
        for _ in range(count):
            output = self.output(pairs)
            found.append(self.token(output))
            pairs.append(self.pair(found[-1], self.normed(output, "norm") if self.carries_normed else output))
        return found

    @property
    def carries_normed(self) -> bool:
        return bool(self.own.get("norm_output") or self.own.get("return_hidden_post_norm"))

    def features(self, tokens: Tensor) -> Tensor:
        config, cache = self.model.config, self.model.new_cache()
        ids = self.own.get("eagle_aux_hidden_state_layer_ids") or (2, config.layers // 2, config.layers - 3)
        wants_all = self.own.get("use_aux_hidden_state", True)
        hidden = HiddenStates(tuple(ids) if wants_all else (config.layers,))
        places = torch.arange(len(tokens))
        self.model.forward(tokens, places, cache.memory, cache.pages(len(tokens)), hidden)
        if not wants_all:
            return self.model.normed(hidden.found[0])
        states = hidden.found
        if self.own.get("fc_norm"):
            states = [self.normed(state, f"fc_norm.{at}") for at, state in enumerate(states)]
        joined = torch.cat(states, 1)
        if self.own.get("norm_before_fc"):
            joined = self.normed(joined, "input_norm")
        return joined @ self.tensors["fc.weight"].t()

    def pair(self, token: int, carried: Tensor) -> tuple[Tensor, Tensor]:
        """What the layer reads, and its residual."""
        normed = self.normed(carried, f"{self.at}hidden_norm")
        embedded = self.model.embed(torch.tensor([token]))[0]
        if "embed_tokens.weight" in self.tensors:
            embedded = self.tensors["embed_tokens.weight"][token]
        x = torch.cat((self.normed(embedded, f"{self.at}input_layernorm"), normed))
        return x, normed if self.own.get("norm_before_residual") else carried

    def output(self, pairs: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Of the last pair; the first one is at position 1."""
        x, (last, residual) = torch.stack([each for each, _ in pairs]), pairs[-1]
        size, heads = self.layer["head_dim"], self.layer["num_attention_heads"]
        kv_heads = self.layer["num_key_value_heads"]
        query = self.projected("q", last).view(heads, size)
        keys, values = (self.projected(part, x).view(len(x), kv_heads, size) for part in "kv")
        first = max(0, len(x) - self.layer["sliding_window"]) if self.layer.get("layer_types") else 0
        (query,) = self.turned(query.unsqueeze(0), torch.tensor([len(x)]))
        keys = self.turned(keys[first:], torch.arange(first + 1, len(x) + 1))
        attended = []
        for head in range(heads):
            own = head * kv_heads // heads
            scores = keys[:, own] @ query[head] / math.sqrt(size)
            attended.append(torch.softmax(scores, 0) @ values[first:, own])
        residual = residual + self.tensors[f"{self.at}self_attn.o_proj.weight"] @ torch.cat(attended)
        inner = self.normed(residual, f"{self.at}post_attention_layernorm")
        gate, up = (self.tensors[f"{self.at}mlp.{part}_proj.weight"] @ inner for part in ("gate", "up"))
        return residual + self.tensors[f"{self.at}mlp.down_proj.weight"] @ (gate * torch.sigmoid(gate) * up)

    def projected(self, part: str, x: Tensor) -> Tensor:
        found = x @ self.tensors[f"{self.at}self_attn.{part}_proj.weight"].t()
        bias = self.tensors.get(f"{self.at}self_attn.{part}_proj.bias")
        return found if bias is None else found + bias

    def turned(self, x: Tensor, positions: Tensor) -> Tensor:
        """Pairs of numbers half a head apart, each row's turned by its position."""
        scaling = self.layer.get("rope_parameters") or self.layer.get("rope_scaling") or {}
        theta = scaling.get("rope_theta", self.layer.get("rope_theta"))
        half = x.shape[-1] // 2
        frequencies = [self.slowed(theta ** (-at / half), scaling) for at in range(half)]
        turns = torch.tensor(frequencies, dtype=torch.float64)
        angles = torch.outer(positions.double(), turns).unsqueeze(1)  # the same for all heads
        first, second = x.double().split(half, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).float()

    def slowed(self, frequency: float, scaling: dict[str, Any]) -> float:
        if scaling.get("rope_type", "default") == "default":
            return frequency
        wave = 2 * math.pi / frequency
        context, factor = scaling["original_max_position_embeddings"], scaling["factor"]
        if wave < context / scaling["high_freq_factor"]:
            return frequency
        if wave > context / scaling["low_freq_factor"]:
            return frequency / factor
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        smooth = (context / wave - low) / (high - low)
        return (1 - smooth) * frequency / factor + smooth * frequency

    def normed(self, x: Tensor, name: str) -> Tensor:
        spread = x.square().mean(-1, keepdim=True) + self.layer["rms_norm_eps"]
        return x / spread.sqrt() * self.tensors[f"{name}.weight"]

    def token(self, output: Tensor) -> int:
        if "lm_head.weight" not in self.tensors:
            return int(self.model.logits(output.unsqueeze(0), self.tensors["norm.weight"]).argmax())
        best = int((self.tensors["lm_head.weight"] @ self.normed(output, "norm")).argmax())
        return best + int(self.tensors["d2t"][best]) if "d2t" in self.tensors else best


CPU = torch.device("cpu")
CONTEXT, SIZE = 120, 8
GREEDY = Sampling(temperature=0.0)
CHUNKS = {"max_waiting": 1000, "chunk": 16, "shared_chunk": 9, "least_chunk": 3, "by_head": True}
HEADS = {
    "speculators": speculators_config,
    "llama": llama_config,
    "all tokens": lambda config: speculators_config(config, draft_vocab=config.vocab_size),
    "a norm for each state": lambda config: speculators_config(config, norm_before_fc=False, fc_norm=True),
    "carries the norm": lambda config: speculators_config(config, norm_output=True),
    "a window": lambda config: changed_layer(
        speculators_config(config), layer_types=["sliding_attention"], sliding_window=5
    ),
    "biases": lambda config: changed_layer(speculators_config(config), attention_bias=True),
    "the last state": lambda config: llama_config(config, eagle_config={"use_aux_hidden_state": False}),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, config: ModelConfig) -> GptOss:
    five = replace(config, layers=5, sliding_layers=(True, False, True, False, False))
    folder = write_random_checkpoint(tmp_path_factory.mktemp("model"), five, seed=11)
    return load_model(folder, device=CPU, context=CONTEXT)


class Checked:
    """A runner that compares every guess with a plain head's."""

    engine: Driven

    def __init__(self, runner: Runner, plain: PlainHead) -> None:
        self.runner, self.plain = runner, plain
        self.compared = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.runner, name)

    def launch(self, parts: Listed[StepPart]) -> Flight:
        known = {each.slot: list(each.tokens) for each in self.engine.scheduler.running}
        flight = self.runner.launch(parts)
        for part, outcome in zip(parts, flight.outcomes(), strict=True):
            assert len(outcome.guesses) in (0, part.guesses)
            if outcome.guesses:
                count = len(part.tokens) - part.samples + 1 + right_drafts(part, outcome)
                tokens = [*known[part.slot][: part.start], *part.tokens[:count], outcome.sampled[-1].token]
                assert list(outcome.guesses) == self.plain.guesses(tokens, len(outcome.guesses))
                self.compared += 1
        return flight


def runner_of(on: str, model: GptOss, blocks: list[int], head: DraftHead, limits: SchedulerLimits) -> Runner:
    options = {"drafts": limits.drafts, "head": head, "graphs": on == "padded"}
    return CudaRunner(model, blocks, limits.max_concurrent, SIZE, **options)


@pytest.fixture(params=["cpu", "padded"])
def on(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Steps as on a CPU, or padded as those are that a card records."""
    monkeypatch.setattr(Recordings, "replay", lambda self, numbers, shape: self._compute(numbers, shape))
    return str(request.param)


def run(engine: Driven, draw: random.Random, requests: int, turns: int, lengths: list[int]) -> None:
    """So many turns after each request, and at last as many as are needed."""
    prompts = Prompts(draw, CONTEXT // 2, vocabulary=500)
    for _ in range(requests):
        engine.request(prompts.next(), draw.choice(lengths), GREEDY)
        for _ in range(turns):
            engine.turn()
    engine.finish()


@pytest.mark.parametrize(("on", "kind"), pairs(["cpu", "padded"], HEADS), indirect=["on"])
async def test_guesses_are_those_of_the_whole_text_and_change_no_token(
    model: GptOss, tmp_path: Path, kind: str, on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With chunks, batches, shared prefixes, preemption and refused drafts."""
    monkeypatch.setattr(drafts, "FIRST_PAUSE", 0)  # a random head is hardly ever right
    raw = HEADS[kind](model.config)
    tensors = random_tensors(raw)
    draw = random.Random(kind)
    limits = SchedulerLimits(max_concurrent=4, drafts=3, **CHUNKS)
    head = load_draft_head(str(write_head(tmp_path / "head", raw, tensors)), model)
    kinds, spare = layer_kinds(model, head, SIZE), draw.choice([1, 21])
    blocks = tight_blocks(kinds, limits, context=CONTEXT, size=SIZE, spare=spare)
    runner = Checked(runner_of(on, model, blocks, head, limits), PlainHead(raw, tensors, model))
    engine = runner.engine = Driven(runner, model.config.windows, blocks, limits)
    run(engine, draw, 8, 3, [2, 12, 12])
    check_each_as_alone(engine, model)
    assert engine.cache.used == 0
    assert runner.compared > 15
    assert engine.scheduler.counts.cached_tokens > 0
    assert engine.scheduler.counts.drafted_tokens > 0


def repeating(folder: Path, config: ModelConfig, share: float) -> tuple[GptOss, DraftHead]:
    """A model that repeats itself but for a share of the tokens, and a head that knows what it repeats."""
    checkpoint = write_repeating_model(folder / "model", config, share=share)
    model = load_model(checkpoint, device=CPU, context=CONTEXT)
    return model, load_draft_head(str(write_right_head(folder / "head", checkpoint)), model)


@pytest.mark.parametrize("seed", seeds(1, 2))
async def test_guesses_that_are_often_right_change_no_token(
    tmp_path: Path, config: ModelConfig, seed: int, on: str
) -> None:
    model, head = repeating(tmp_path, config, 0.05)
    draw = random.Random(seed)
    limits = SchedulerLimits(max_concurrent=6, drafts=4, **CHUNKS)
    blocks = [40 if window else 18 for window in model.config.windows]
    runner = runner_of(on, model, blocks, head, limits)
    engine = Driven(runner, model.config.windows, blocks, limits)
    for first in range(6):  # more than the blocks hold
        engine.request([first] * 20, 40, GREEDY)
    run(engine, draw, 14, 2, [1, 2, 30, 40])
    check_each_as_alone(engine, model)
    counts = engine.scheduler.counts
    assert counts.preemptions > 0
    assert 0.2 < counts.accepted_tokens / counts.drafted_tokens < 0.98
