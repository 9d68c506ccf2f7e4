"""The ops with FP8 weights, keys and values at the 20b model's sizes, on a card, against the reference."""

import functools
from dataclasses import replace

import torch
from torch import Tensor

from inference.config import RopeConfig
from inference.ops import reference
from inference.ops.rope import rope_tables
from inference.ops.scaled import ScaledRows, scaled
from tests.doubles.inference.drawn import Draw, random_pages, relative_error

HIDDEN, HEADS, KV_HEADS, SIZE, BLOCK, VOCABULARY = 2880, 64, 8, 64, 64, 201_088
EPS = 1e-5
PRODUCTS = ("qkv", "out", "head")


@functools.cache
def weights(product: str, device: torch.device, copy: int = 0) -> Tensor:
    """bf16, drawn on the device: drawing the head's on the CPU would take seconds."""
    qkv, out = ((HEADS + 2 * KV_HEADS) * SIZE, HIDDEN), (HIDDEN, HEADS * SIZE)
    shape = {"qkv": qkv, "out": out, "head": (VOCABULARY, HIDDEN)}[product]
    draw = torch.Generator(device).manual_seed(copy)
    rows = torch.randn(shape, generator=draw, device=device, dtype=torch.bfloat16) * shape[1] ** -0.5
    return rows * torch.exp2(torch.arange(len(rows), device=device) % 5 - 2.0)[:, None].bfloat16()


def product_error(product: str, tokens: int, device: torch.device) -> float:
    """The relative error of the kernels against the reference in float32, on the same FP8 numbers."""
    return {"qkv": _qkv_error, "out": _out_error, "head": _head_error}[product](tokens, device)


def _qkv_error(tokens: int, device: torch.device) -> float:
    """The largest of those of queries, keys and values."""
    from inference.ops import fused

    draw, rows = Draw(tokens, device), scaled(weights("qkv", device))
    pages = random_pages(draw, [1] * tokens if tokens < 200 else [1, tokens - 1], None, BLOCK)
    x, norm, bias = draw.rows(tokens, HIDDEN), draw.rows(HIDDEN).float() + 1, draw.rows(len(rows))
    cos, sin = (table[7 : 7 + tokens].to(device) for table in rope_tables(RopeConfig(), SIZE, tokens + 8))
    memory = [draw.memory(int(pages.tables.max()) + 1, BLOCK, KV_HEADS, SIZE) for _ in range(2)]
    wanted_memory = [part.float() for part in memory]
    found = fused.qkv(x, norm, EPS, rows, bias, cos, sin, *memory, pages)
    wanted = reference.qkv(
        x.float(), norm, EPS, rows.floats(torch.float32), bias.float(), cos, sin, *wanted_memory, pages
    )
    pairs = ((found, wanted), *zip(memory, wanted_memory, strict=True))
    return max(relative_error(own, right) for own, right in pairs)


def _out_error(tokens: int, device: torch.device) -> float:
    from inference.ops import fused

    draw, rows = Draw(tokens, device), scaled(weights("out", device))
    x, residual, bias = draw.rows(tokens, HEADS * SIZE), draw.rows(tokens, HIDDEN), draw.rows(HIDDEN)
    found = fused.project_out(x, rows, bias, residual)
    floats = rows.floats(torch.float32)
    wanted = reference.project_out(x.float(), floats, bias.float(), residual.float())
    return relative_error(found, wanted)


@functools.cache
def scaled_head(device: torch.device) -> ScaledRows:
    return scaled(weights("head", device))


def _head_error(tokens: int, device: torch.device) -> float:
    from inference.ops import fused

    draw, rows = Draw(tokens, device), scaled_head(device)
    x, norm = draw.rows(tokens, HIDDEN), draw.rows(HIDDEN).float() + 1
    found = fused.head_logits(x, norm, EPS, rows)
    right = reference.rms_norm(x.float(), norm, EPS)
    wanted = torch.cat([right @ part.floats(torch.float32).t() for part in _parts(rows)], 1)
    return relative_error(found, wanted)


def _parts(rows: ScaledRows) -> list[ScaledRows]:
    pairs = zip(rows.values.split(16_384), rows.scales.split(16_384), strict=True)
    return [ScaledRows(values, scales) for values, scales in pairs]


def attention_error(queries: list[int], window: int | None, device: torch.device) -> float:
    """Over FP8 keys and values, against the reference in float32 on the same ones."""
    from inference.ops import fused

    draw = Draw(len(queries), device)
    pages = random_pages(draw, queries, window, BLOCK, past=3000)
    blocks = int(pages.tables.max()) + 1
    keys, values = (reference.fp8(draw.memory(blocks, BLOCK, KV_HEADS, SIZE)) for _ in range(2))
    query, sinks = draw.rows(sum(queries), HEADS, SIZE, scale=2.0), draw.rows(HEADS, scale=3.0)
    found = fused.paged_attention(query, keys, values, sinks, pages)
    moved = {name: getattr(pages, name).cpu() for name in ("tables", "lengths", "starts", "slots")}
    wanted = reference.paged_attention(
        query.cpu().float(), keys.cpu(), values.cpu(), sinks.cpu().float(), replace(pages, **moved)
    )
    return relative_error(found.cpu(), wanted)
