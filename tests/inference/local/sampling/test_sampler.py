"""The sampler, compared with a naive one that sorts the whole vocabulary, and its promises one by one."""

import math
from collections import Counter

import pytest
import torch
from torch import Tensor

from inference.engine import EngineFailed, Sampling
from inference.local.sampling.sampler import Sampler
from inference.ops import sampling as module

DRAWS = 2000


def some_logits(size: int, seed: int = 0, spread: float = 2.0) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * spread


def naive(logits: Tensor, sampling: Sampling) -> Tensor:
    """The probabilities that `sampling` defines, by sorting everything, in float64."""
    scaled = (logits.double() / sampling.temperature).softmax(0)
    scaled = torch.where(scaled >= sampling.min_p * scaled.max(), scaled, 0.0)
    order = scaled.argsort(descending=True)
    kept = scaled[order]
    if sampling.top_k:
        kept[sampling.top_k :] = 0
        kept /= kept.sum()
    before = kept.cumsum(0) - kept
    kept[before >= sampling.top_p * kept.sum()] = 0
    out = torch.zeros_like(scaled)
    out[order] = kept / kept.sum()
    return out


def drawn(logits: Tensor, sampling: Sampling, draws: int = DRAWS) -> Counter[int]:
    sampler, before = Sampler(sampling, len(logits)), logits.clone()
    counts = Counter(sampler.sample(logits).token for _ in range(draws))
    assert torch.equal(logits, before)
    return counts


MIXED = [{"top_k": 20, "top_p": 0.7, "min_p": 0.02, "temperature": 1.3}, {"top_p": 0.999, "temperature": 3.0}]
FILTERS = [{"top_k": 3}, {"top_p": 0.8}, {"top_p": 0.2}, {"min_p": 0.2}]
DISTRIBUTIONS: list[dict[str, float]] = [{}, {"temperature": 0.6}, {"temperature": 1.7}, *FILTERS, *MIXED]


@pytest.mark.parametrize("fields", DISTRIBUTIONS, ids=str)
def test_draws_follow_the_naive_distribution(fields: dict[str, float]) -> None:
    logits, sampling = some_logits(150), Sampling(seed=1 + DISTRIBUTIONS.index(fields), **fields)
    wanted = naive(logits, sampling)
    counts = drawn(logits, sampling)
    assert all(wanted[token] > 0 for token in counts)
    expected = wanted * DRAWS
    frequent = expected >= 5
    seen = torch.tensor([float(counts[token]) for token in range(len(logits))])
    chi2 = float((((seen - expected) ** 2) / expected.clamp(min=1e-9))[frequent].sum())
    freedom = int(frequent.sum()) - 1
    # Four deviations above the mean of chi-square. The draw is seeded, so this either always or never holds.
    assert chi2 <= freedom + 4 * math.sqrt(2 * max(freedom, 1)) + 1


@pytest.mark.parametrize("parts", [(), (64, 512), (64, 512, 2500)], ids=repr)
@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.99999])
@pytest.mark.parametrize("spread", [0.01, 1.0, 20.0])
def test_a_nucleus_is_the_sorted_one_however_wide(
    monkeypatch: pytest.MonkeyPatch, parts: tuple[int, ...], top_p: float, spread: float
) -> None:
    monkeypatch.setattr(module, "PARTS", parts)
    logits = some_logits(3000, spread=spread).double().mul(1000).round().div(1000).float()
    scaled = logits - logits.max()
    total = scaled.exp().sum(dtype=torch.float64)
    narrow = module._narrow_nucleus(scaled, total, top_p)
    if narrow is None:
        found = set(module._wide_nucleus(scaled.exp(), total, top_p).nonzero().flatten().tolist())
    else:
        found = set(narrow[1][: len(narrow[0])].tolist())
    weights = scaled.double().exp()
    wanted = naive(logits, Sampling(top_p=top_p)) > 0
    # Equal weights at the edge may be in or out; all above it are in, and none below it.
    edge = float(weights[wanted].min())
    assert set((weights > edge * (1 + 1e-6)).nonzero().flatten().tolist()) <= found
    assert found <= set((weights >= edge * (1 - 1e-6)).nonzero().flatten().tolist())


@pytest.mark.parametrize("temperature", [0.5, 1.0, 50.0])
def test_the_vocabulary_is_never_sorted(monkeypatch: pytest.MonkeyPatch, temperature: float) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the whole vocabulary was sorted")

    monkeypatch.setattr(torch.Tensor, "sort", refuse)
    monkeypatch.setattr(torch.Tensor, "argsort", refuse)
    drawn(some_logits(201_088, spread=3.0), Sampling(seed=1, top_p=0.9, temperature=temperature), draws=3)


@pytest.mark.parametrize("size", [1, 5, 1023, 1024, 1025, 5000])
def test_a_point_falls_on_the_weight_that_covers_it(size: int) -> None:
    weights = some_logits(size).exp()
    if size > 1:
        weights[::2] = 0
    sums = weights.double().cumsum(0)
    for point in (0.0, 1e-12, 0.3, 0.5, 0.77, 1 - 2**-53):
        found = module._pick(weights, point)
        assert weights[found] > 0
        wanted = int((sums > point * sums[-1]).int().argmax()) if point < 0.9 else int(weights.nonzero()[-1])
        assert found == wanted


@pytest.mark.parametrize("size", [1, 63, 64, 5000, 20_480])
@pytest.mark.parametrize("count", [1, 64, 300])
def test_the_largest_are_those_of_a_whole_row(size: int, count: int) -> None:
    row = some_logits(size).round(decimals=1)  # so that some are equal
    row[size // 2 :: 3] = -math.inf
    values, places = module.largest(row, min(count, size))
    assert torch.equal(values, row.topk(min(count, size)).values)
    assert torch.equal(row[places], values)
    assert len(set(places.tolist())) == len(places)


@pytest.mark.parametrize("size", [1, 5, 1023, 1024, 1025, 5000])
def test_greedy_takes_the_first_of_the_largest_wherever_it_is(size: int) -> None:
    neutral = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "point": 0.0}
    for place in {0, size // 2, size - 1}:
        logits = some_logits(size)
        logits[place:] = 50.0
        assert module.pick(logits, **neutral) == place  # type: ignore[arg-type]
        for broken in (math.nan, math.inf):
            logits[place] = broken
            assert module.pick(logits, **neutral) is None  # type: ignore[arg-type]


def test_different_seeds_and_none_differ_and_a_seed_repeats_whatever_others_do_in_between() -> None:
    logits = some_logits(500)
    samplers = [Sampler(Sampling(seed=seed), 500) for seed in (-5, -1, 0, 1, 5, None, None, -5, 5)]
    runs = [[sampler.sample(logits).token for sampler in samplers] for _ in range(20)]
    by_sampler = list(zip(*runs, strict=True))
    assert len(set(by_sampler)) == 7
    assert by_sampler[-2:] == [by_sampler[0], by_sampler[4]]


def test_logit_bias_forbids_and_forces_and_is_ignored_outside_the_vocabulary() -> None:
    logits = some_logits(500)
    best = int(logits.argmax())
    assert best not in drawn(logits, Sampling(temperature=0.0, logit_bias={best: -100.0}), 3)
    assert set(drawn(logits, Sampling(seed=1, logit_bias={7: 100.0}), 50)) == {7}
    biased = Sampling(temperature=1e-30, logit_bias={500: 100.0, -1: 100.0})
    assert set(drawn(logits, biased, 20)) == {best}, "a tiny temperature is greedy"


@pytest.mark.parametrize(("presence", "frequency"), [(1.5, 0.0), (0.0, 1.5), (0.5, 0.25), (-1.0, -0.5)])
def test_penalties_count_generated_tokens(presence: float, frequency: float) -> None:
    logits = some_logits(50)
    sampling = Sampling(temperature=0.0, presence_penalty=presence, frequency_penalty=frequency)
    sampler, counts = Sampler(sampling, 50), Counter[int]()
    for _ in range(30):
        penalised = logits.clone()
        for token, count in counts.items():
            penalised[token] -= presence + frequency * count
        token = sampler.sample(logits).token
        assert token == int(penalised.argmax())
        counts[token] += 1


def test_logprobs_are_of_the_distribution_before_temperature_bias_and_penalties() -> None:
    logits = some_logits(300)
    wanted = logits.log_softmax(0)
    fields = {"temperature": 0.3, "top_k": 5, "logit_bias": {4: 5.0}, "presence_penalty": 1.0}
    sampler = Sampler(Sampling(seed=1, logprobs=4, **fields), 300)
    for _ in range(10):
        found = sampler.sample(logits).logprob
        assert found.logprob == pytest.approx(float(wanted[found.token]), abs=1e-5)
        best = wanted.topk(4)
        assert [token for token, _ in found.top] == best.indices.tolist()
        assert [value for _, value in found.top] == pytest.approx(best.values.tolist(), abs=1e-5)


def test_logprobs_with_zero_alternatives_and_with_more_than_the_vocabulary() -> None:
    for count, alternatives in ((0, 0), (20, 10)):
        scored = Sampler(Sampling(logprobs=count), 10).sample(some_logits(10)).logprob
        assert len(scored.top) == alternatives
    assert Sampler(Sampling(), 10).sample(some_logits(10)).logprob is None


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_are_an_error(bad: float, temperature: float) -> None:
    logits = some_logits(20)
    logits[3] = bad
    with pytest.raises(EngineFailed, match="not finite"):
        Sampler(Sampling(temperature=temperature), 20).sample(logits)


def test_logits_of_minus_infinity_are_never_drawn() -> None:
    logits = torch.full((20,), -math.inf)
    logits[3] = 1.0
    assert set(drawn(logits, Sampling(seed=1), 20)) == {3}
    assert set(drawn(logits, Sampling(seed=1, top_p=0.5), 20)) == {3}
