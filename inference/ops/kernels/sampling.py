"""Picks tokens from logits on the device: a survey by many programs per row, then a draw by one.

The survey applies adjustments and masks to the logits and stores the maximum and the weight of each chunk. If
no setting narrows the choice, the draw needs only those and one chunk. Otherwise it finds the bound that
excludes tokens by halving, in passes over the row. Tokens with equal logits are in or out together.
"""

import triton
import triton.language as tl

HALVINGS: tl.constexpr = tl.constexpr(32)
LEAST: tl.constexpr = tl.constexpr(-80.0)  # e^-80 of the best token's weight is negligible


@triton.jit
def survey(
    logits_ptr, adjusted_ptr, adjustments_ptr, adjustment_of_ptr, masks_ptr, mask_of_ptr, temperature_ptr,
    peaks_ptr, places_ptr, weights_ptr, vocabulary, mask_bytes, stride, chunks,
    HAS_ADJUSTMENTS: tl.constexpr, HAS_MASKS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    token = chunk * CHUNK + tl.arange(0, CHUNK)
    inside = token < vocabulary
    logits = tl.load(logits_ptr + row * stride + token, mask=inside, other=float("-inf"))
    if HAS_ADJUSTMENTS:
        at = tl.load(adjustment_of_ptr + row).to(tl.int64)
        if at >= 0:
            logits += tl.load(adjustments_ptr + at * vocabulary + token, mask=inside, other=0.0)
    if HAS_MASKS:
        at = tl.load(mask_of_ptr + row).to(tl.int64)
        if at >= 0:
            bits = tl.load(
                masks_ptr + at * mask_bytes + token // 8, mask=inside & (token // 8 < mask_bytes), other=0
            )
            logits = tl.where(((bits.to(tl.int32) >> (token % 8)) & 1) == 1, logits, float("-inf"))
    if HAS_ADJUSTMENTS or HAS_MASKS:
        tl.store(adjusted_ptr + row * vocabulary + token, logits, mask=inside)
    peak, place = tl.max(logits, 0, return_indices=True, return_indices_tie_break_left=True)
    # A maximum loses a NaN; a sum does not.
    peak = tl.where(tl.sum(tl.where(logits != logits, 1, 0), 0) > 0, float("nan"), peak)
    temperature = tl.maximum(tl.load(temperature_ptr + row), 1e-4)
    safe = tl.where(peak == float("-inf"), 0.0, peak)
    weight = tl.sum(tl.exp((logits - safe) / temperature), 0)
    tl.store(peaks_ptr + row * chunks + chunk, peak)
    tl.store(places_ptr + row * chunks + chunk, chunk * CHUNK + place)
    tl.store(weights_ptr + row * chunks + chunk, weight)


@triton.jit
def _kept(logits_ptr, bound, best, temperature, vocabulary, COUNTED: tl.constexpr, CHUNK: tl.constexpr):
    """The weight of the tokens at or above the bound, or with COUNTED their number."""
    total = tl.zeros((CHUNK,), tl.float32)
    for first in range(0, vocabulary, CHUNK):
        token = first + tl.arange(0, CHUNK)
        logits = tl.load(logits_ptr + token, mask=token < vocabulary, other=float("-inf"))
        scaled = (logits - best) / temperature
        if COUNTED:
            total += tl.where(scaled >= bound, 1.0, 0.0)
        else:
            total += tl.where(scaled >= bound, tl.exp(scaled), 0.0)
    return tl.sum(total, 0)


@triton.jit
def _bound_by_count(logits_ptr, least, most, best, temperature, vocabulary, CHUNK: tl.constexpr):
    """The smallest bound that keeps at most `most` tokens, but at least one."""
    low, high = least, 0.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        fits = _kept(logits_ptr, middle, best, temperature, vocabulary, True, CHUNK) <= most
        low, high = tl.where(fits, low, middle), tl.where(fits, middle, high)
    return high


@triton.jit
def _bound_by_weight(logits_ptr, least, wanted, best, temperature, vocabulary, CHUNK: tl.constexpr):
    """The largest bound that keeps at least the weight `wanted`."""
    low, high = least, 0.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        enough = _kept(logits_ptr, middle, best, temperature, vocabulary, False, CHUNK) >= wanted
        low, high = tl.where(enough, middle, low), tl.where(enough, high, middle)
    return low


@triton.jit
def _draw(logits_ptr, chunk, target, bound, best, temperature, vocabulary, CHUNK: tl.constexpr):
    """The token where a chunk's running weight exceeds the target; if rounding leaves none, the last kept."""
    token = chunk * CHUNK + tl.arange(0, CHUNK)
    logits = tl.load(logits_ptr + token, mask=token < vocabulary, other=float("-inf"))
    scaled = (logits - best) / temperature
    weight = tl.where(scaled >= bound, tl.exp(scaled), 0.0)
    passed = (tl.cumsum(weight, 0) > target) & (weight > 0)
    found = tl.min(tl.where(passed, token, vocabulary), 0)
    last = tl.max(tl.where(weight > 0, token, 0), 0)
    return tl.where(found < vocabulary, found, last)


@triton.jit
def draw(
    logits_ptr, peaks_ptr, places_ptr, weights_ptr, temperature_ptr, top_k_ptr, top_p_ptr, min_p_ptr,
    points_ptr, tokens_ptr, vocabulary, stride, chunks, CHUNK: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """Each program takes one row; it stores -1 if the largest logit is not finite."""
    row = tl.program_id(0).to(tl.int64)
    every = tl.arange(0, CHUNKS)
    used = every < chunks
    peaks = tl.load(peaks_ptr + row * chunks + every, mask=used, other=float("-inf"))
    best, at = tl.max(peaks, 0, return_indices=True, return_indices_tie_break_left=True)
    broken = tl.sum(tl.where(peaks != peaks, 1, 0), 0) > 0
    token = tl.load(places_ptr + row * chunks + at)
    if broken | (best == float("-inf")) | (best == float("inf")):
        tl.store(tokens_ptr + row, -1)
        return
    temperature = tl.load(temperature_ptr + row)
    if temperature <= 0:
        tl.store(tokens_ptr + row, token.to(tl.int64))
        return
    temperature = tl.maximum(temperature, 1e-4)
    logits_ptr += row * stride
    top_k, top_p = tl.load(top_k_ptr + row), tl.load(top_p_ptr + row)
    min_p = tl.load(min_p_ptr + row)
    weights = tl.load(weights_ptr + row * chunks + every, mask=used, other=0.0)
    weights *= tl.exp((tl.where(used, peaks, best) - best) / temperature)
    bound = tl.full((), float("-inf"), tl.float32)
    if min_p > 0:
        bound = tl.log(tl.minimum(min_p, 1.0))
    if (top_k > 0) & (top_k < vocabulary):
        least = tl.maximum(bound, LEAST)
        if _kept(logits_ptr, least, best, temperature, vocabulary, True, CHUNK) > top_k:
            bound = _bound_by_count(logits_ptr, least, top_k, best, temperature, vocabulary, CHUNK)
    if top_p < 1:
        # The nucleus is a part of the tokens that min_p and top_k keep.
        whole = tl.sum(weights, 0)
        if bound > float("-inf"):
            whole = _kept(logits_ptr, bound, best, temperature, vocabulary, False, CHUNK)
        bound = _bound_by_weight(
            logits_ptr, tl.maximum(bound, LEAST), top_p * whole, best, temperature, vocabulary, CHUNK
        )
    if bound > float("-inf"):
        weights = tl.zeros((CHUNKS,), tl.float32)
        for chunk in range(chunks):
            part = chunk * CHUNK + tl.arange(0, CHUNK)
            logits = tl.load(logits_ptr + part, mask=part < vocabulary, other=float("-inf"))
            scaled = (logits - best) / temperature
            weight = tl.sum(tl.where(scaled >= bound, tl.exp(scaled), 0.0), 0)
            weights = tl.where(every == chunk, weight, weights)
    exact = weights.to(tl.float64)
    ends = tl.cumsum(exact, 0)
    target = tl.load(points_ptr + row) * tl.sum(exact, 0)
    chosen = tl.min(tl.where((ends > target) & (exact > 0), every, CHUNKS), 0)
    chosen = tl.where(chosen < CHUNKS, chosen, tl.max(tl.where(exact > 0, every, 0), 0))
    before = tl.sum(tl.where(every < chosen, exact, 0.0), 0)
    token = _draw(
        logits_ptr, chosen, (target - before).to(tl.float32), bound, best, temperature, vocabulary, CHUNK
    )
    tl.store(tokens_ptr + row, token.to(tl.int64))
