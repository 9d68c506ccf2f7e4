"""MXFP4 weights on the device: from packed words to bf16 in the registers where the tensor cores read them.

A *fragment* is 16 rows × 64 columns in 128 words of 32 bits. `inference.ops.packing` lays it out so that the
four words that one lane loads are the values that it holds as the left operand of a matrix product. Lanes
exchange no bytes. One shift and one mask of a word give two bf16: each 4-bit float lies on the sign, low
exponent and high mantissa bits of a bf16, which makes it the value times 2^-126. The scale corrects that to
2^-64, which keeps every product in range; the kernel that finishes the sum multiplies by `UNSCALE`.

`PLAIN` computes the same in float32 and without assembly, for Triton's interpreter, whose bf16 is incorrect.
"""

import triton
import triton.language as tl

UNSCALE: tl.constexpr = tl.constexpr(18446744073709551616.0)  # 2^64


@triton.jit
def _decode(words, low_rows, high_rows):
    """Returns eight bf16 per word: for rows g and g + 8, columns 2t, 2t + 1, then the same at columns + 8."""
    return tl.inline_asm_elementwise(
        """
        {
        .reg .b32 a, b, c, d, e, f, none;
        mov.b32 none, 0x80008000;
        and.b32 a, $8, 0x81C081C0;
        fma.rn.bf16x2 a, a, $9, none;
        mov.b32 {$0, $1}, a;
        shl.b32 b, $8, 3;
        and.b32 b, b, 0x81C081C0;
        fma.rn.bf16x2 b, b, $10, none;
        mov.b32 {$2, $3}, b;
        shl.b32 c, $8, 6;
        and.b32 c, c, 0x81C081C0;
        fma.rn.bf16x2 c, c, $9, none;
        mov.b32 {$4, $5}, c;
        shl.b32 d, $8, 1;
        and.b32 d, d, 0x80008000;
        shr.b32 e, $8, 3;
        and.b32 e, e, 0x01800180;
        or.b32 d, d, e;
        shr.b32 f, $8, 7;
        and.b32 f, f, 0x00400040;
        or.b32 d, d, f;
        fma.rn.bf16x2 d, d, $10, none;
        mov.b32 {$6, $7}, d;
        }
        """,
        constraints="=h,=h,=h,=h,=h,=h,=h,=h,r,r,r",
        args=[words, low_rows, high_rows],
        dtype=(tl.bfloat16,) * 8,
        is_pure=True,
        pack=1,
    )


@triton.jit
def _plain_value(words, sign: tl.constexpr, high: tl.constexpr, low: tl.constexpr):
    """The value with its sign at bit `sign`, two exponent bits from bit `high`, mantissa at bit `low`."""
    exponent = (words >> high) & 3
    mantissa = ((words >> low) & 1).to(tl.float32)
    size = tl.where(
        exponent == 0, 0.5 * mantissa, (1.0 + 0.5 * mantissa) * tl.exp2(exponent.to(tl.float32) - 1.0)
    )
    return tl.where(((words >> sign) & 1) == 0, size, -size)


@triton.jit
def _plain_scale(scale):
    """The factor that `_decode` applies for a scale's exponent bits, including the values' 2^-126."""
    return tl.exp2(((scale >> 7) & 0xFF).to(tl.float32) - 253.0)


@triton.jit
def _decode_plain(words, low_rows, high_rows):
    low, high = _plain_scale(low_rows), _plain_scale(high_rows)
    return (
        _plain_value(words, 15, 7, 6) * low,
        _plain_value(words, 31, 23, 22) * low,
        _plain_value(words, 12, 4, 3) * high,
        _plain_value(words, 28, 20, 19) * high,
        _plain_value(words, 9, 1, 0) * low,
        _plain_value(words, 25, 17, 16) * low,
        _plain_value(words, 14, 10, 13) * high,
        _plain_value(words, 30, 26, 29) * high,
    )


@triton.jit
def _unpacked(words, scales, COUNT: tl.constexpr, PLAIN: tl.constexpr):
    """Unpacks the words and scales of COUNT consecutive fragments to COUNT × g, t, tile of 16 columns, column
    of the pair, half of the rows, half of the columns."""
    words, scales = tl.reshape(words, (COUNT, 32, 4)), tl.reshape(scales, (COUNT, 32, 1))
    shift = ((tl.arange(0, 4) // 2) * 8)[None, None, :]
    low_rows = ((scales >> shift) & 0xFF) << 7
    high_rows = ((scales >> (shift + 16)) & 0xFF) << 7
    if PLAIN:
        a0, a1, b0, b1, c0, c1, d0, d1 = _decode_plain(words, low_rows, high_rows)
    else:
        a0, a1, b0, b1, c0, c1, d0, d1 = _decode(
            words, low_rows | (low_rows << 16), high_rows | (high_rows << 16)
        )
    left = tl.join(tl.join(a0, a1), tl.join(b0, b1))
    right = tl.join(tl.join(c0, c1), tl.join(d0, d1))
    return tl.reshape(tl.join(left, right), (COUNT, 8, 4, 4, 2, 2, 2))


@triton.jit
def _opaque(values, PLAIN: tl.constexpr):
    """Returns the same values. Triton analyses the operations before a product: each join makes it assign
    four adjacent columns to a lane, for which it would shuffle. It does not analyse this call."""
    if PLAIN:
        return values
    return tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [values], dtype=tl.bfloat16, is_pure=False, pack=2
    )


@triton.jit
def product(
    x_ptr, rows, present, columns, words_ptr, scales_ptr, first, last, tiles, existing,
    FRAGMENTS: tl.constexpr, TOKENS: tl.constexpr, SHARERS: tl.constexpr, UNROLL: tl.constexpr,
    PLAIN: tl.constexpr,
):  # fmt: skip
    """W·xᵀ over the tiles of 64 columns from `first` to `last`, float32, times 2^-64: FRAGMENTS·16 × TOKENS.

    `rows` are the offsets of x's rows, `present` marks those that exist; `tiles` is the number of tiles of W,
    `existing` the number of fragments left. With SHARERS, warps divide the columns (`_by_columns`).
    """
    if SHARERS == 0:
        total = _by_rows(
            x_ptr, rows, present, columns, words_ptr, scales_ptr, first, last, tiles, existing,
            FRAGMENTS, TOKENS, PLAIN,
        )  # fmt: skip
    else:
        total = _by_columns(
            x_ptr, rows, present, columns, words_ptr, scales_ptr, first, last, tiles, existing,
            FRAGMENTS, TOKENS, SHARERS, UNROLL, PLAIN,
        )  # fmt: skip
    return total


@triton.jit
def _by_rows(
    x_ptr, rows, present, columns, words_ptr, scales_ptr, first, last, tiles, existing,
    FRAGMENTS: tl.constexpr, TOKENS: tl.constexpr, PLAIN: tl.constexpr,
):  # fmt: skip
    """Each warp takes its own rows: for many tokens, with products of warp groups.

    One running number addresses the words: with three-dimensional addresses Triton 3.6 gives a warp those of
    several fragments, and every value then passes through shared memory before the product.
    """
    total = tl.zeros((FRAGMENTS * 16, TOKENS), tl.float32)
    word, scale = tl.arange(0, FRAGMENTS * 128), tl.arange(0, FRAGMENTS * 32)
    words_ptr += (word // 128) * (tiles * 128) + word % 128
    scales_ptr += (scale // 32) * (tiles * 8) + scale % 32 // 4
    for tile in range(first, last):
        if FRAGMENTS > 4:  # packed rows are a multiple of four fragments
            words = tl.load(words_ptr + tile * 128, mask=word // 128 < existing, other=0)
            scales = tl.load(scales_ptr + tile * 8, mask=scale // 32 < existing, other=0)
        else:
            words, scales = tl.load(words_ptr + tile * 128), tl.load(scales_ptr + tile * 8)
        values = _unpacked(words, scales, FRAGMENTS, PLAIN)
        weights = tl.reshape(tl.permute(values, (0, 5, 1, 3, 6, 2, 4)), (FRAGMENTS * 16, 64))
        column = tile * 64 + tl.arange(0, 64)
        x = tl.load(
            x_ptr + rows[None, :] + column[:, None],
            mask=present[None, :] & (column < columns)[:, None],
            other=0.0,
        )
        if PLAIN:
            total += tl.dot(weights, x.to(tl.float32), input_precision="ieee")
        else:
            total = tl.dot(weights, x, total)
    return total


@triton.jit
def _by_columns(
    x_ptr, rows, present, columns, words_ptr, scales_ptr, first, last, tiles, existing,
    FRAGMENTS: tl.constexpr, TOKENS: tl.constexpr, SHARERS: tl.constexpr, UNROLL: tl.constexpr,
    PLAIN: tl.constexpr,
):  # fmt: skip
    """Each of SHARERS warps takes all rows and every SHARERS-th tile of columns; their sums are added last.

    For few tokens, where reading the weights takes most of the time: programs are small and many, each warp
    has its own products of 16 × 8 × 16, which wait for no other warp, and x is read once for all rows.
    """
    total = tl.zeros((SHARERS, FRAGMENTS * 16, TOKENS), tl.float32)
    word, scale = tl.arange(0, FRAGMENTS * SHARERS * 128), tl.arange(0, FRAGMENTS * SHARERS * 32)
    words_ptr += (word // (SHARERS * 128)) * (tiles * 128) + word % (SHARERS * 128)
    scales_ptr += (scale // (SHARERS * 32)) * (tiles * 8) + scale % (SHARERS * 32) // 4
    column = tl.arange(0, SHARERS)[:, None] * 64 + tl.arange(0, 64)[None, :]
    x_ptrs = x_ptr + rows[None, None, :] + column[:, :, None]
    for start in range(first, last, SHARERS * UNROLL):
        for step in tl.static_range(UNROLL):
            tile = start + step * SHARERS
            inside, inside_scales = word // 128 % SHARERS < last - tile, scale // 32 % SHARERS < last - tile
            if FRAGMENTS > 4:
                inside &= word // (SHARERS * 128) < existing
                inside_scales &= scale // (SHARERS * 32) < existing
            words = tl.load(words_ptr + tile * 128, mask=inside, other=0)
            scales = tl.load(scales_ptr + tile * 8, mask=inside_scales, other=0)
            values = tl.reshape(
                _unpacked(words, scales, FRAGMENTS * SHARERS, PLAIN), (FRAGMENTS, SHARERS, 8, 4, 4, 2, 2, 2)
            )
            values = tl.reshape(tl.permute(values, (1, 0, 6, 2, 4, 7, 3, 5)), (SHARERS, FRAGMENTS * 16, 64))
            weights = _opaque(values, PLAIN)
            within = (column < columns - tile * 64) & (column // 64 < last - tile)
            x = tl.load(x_ptrs + tile * 64, mask=present[None, None, :] & within[:, :, None], other=0.0)
            if PLAIN:
                total += tl.dot(weights, x.to(tl.float32), input_precision="ieee")
            else:
                total = tl.dot(weights, x, total)
    return tl.sum(total, 0)
