"""MXFP4 weights on the device: from packed words to bf16 in the registers where the tensor cores want them.

A *fragment* is 16 rows × 64 columns in 128 words of 32 bits, laid out by `inference.ops.packing` so that the
four words that one lane loads are the very values that it holds as the left operand of a matrix product. No
byte is shuffled between lanes. A word gives two bf16 for a shift and a mask: each 4-bit float sits on bits
that are a bf16's sign, low exponent and high mantissa bits, which makes it the value times 2^-126. The scale
mends that but for 2^-64, which keeps every product in range; `UNSCALE` is the rest, for whoever ends the sum.

`PLAIN` is the same in float32 and without assembly, for Triton's interpreter, whose bf16 is not to be
trusted.
"""

import triton
import triton.language as tl

UNSCALE: tl.constexpr = tl.constexpr(18446744073709551616.0)  # 2^64


@triton.jit
def _decode(words, low_rows, high_rows):
    """Eight bf16 of each word: for rows g and g + 8, columns 2t, 2t + 1, then the same at columns + 8."""
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
    """A value whose sign is bit `sign`, its two exponent bits those from `high`, its mantissa bit `low`."""
    exponent = (words >> high) & 3
    mantissa = ((words >> low) & 1).to(tl.float32)
    size = tl.where(
        exponent == 0, 0.5 * mantissa, (1.0 + 0.5 * mantissa) * tl.exp2(exponent.to(tl.float32) - 1.0)
    )
    return tl.where(((words >> sign) & 1) == 0, size, -size)


@triton.jit
def _plain_scale(scale):
    """What `_decode` makes of a scale's exponent bits, the 2^-126 of its values included."""
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
def fragments(words_ptr, scales_ptr, words_stride, scales_stride, COUNT: tl.constexpr, PLAIN: tl.constexpr):
    """COUNT·16 rows × 64 columns, times 2^-64; the strides lead from one fragment's rows to the next."""
    fragment, lane, word = tl.arange(0, COUNT), tl.arange(0, 32), tl.arange(0, 4)
    at = fragment[:, None, None] * words_stride + (lane * 4)[None, :, None] + word[None, None, :]
    words = tl.load(words_ptr + at)
    scales = tl.load(scales_ptr + fragment[:, None] * scales_stride + (lane // 4)[None, :])
    shift = ((word // 2) * 8)[None, None, :]
    low_rows = ((scales[:, :, None] >> shift) & 0xFF) << 7
    high_rows = ((scales[:, :, None] >> (shift + 16)) & 0xFF) << 7
    if PLAIN:
        a0, a1, b0, b1, c0, c1, d0, d1 = _decode_plain(words, low_rows, high_rows)
    else:
        a0, a1, b0, b1, c0, c1, d0, d1 = _decode(
            words, low_rows | (low_rows << 16), high_rows | (high_rows << 16)
        )
    left = tl.join(tl.join(a0, a1), tl.join(b0, b1))
    right = tl.join(tl.join(c0, c1), tl.join(d0, d1))
    # fragment, g, t, tile of 16 columns, column of the pair, half of the rows, half of the columns
    values = tl.reshape(tl.join(left, right), (COUNT, 8, 4, 4, 2, 2, 2))
    return tl.reshape(tl.permute(values, (0, 5, 1, 3, 6, 2, 4)), (COUNT * 16, 64))


@triton.jit
def product(
    x_ptr, rows, present, columns, words_ptr, scales_ptr, first, last, tiles,
    FRAGMENTS: tl.constexpr, TOKENS: tl.constexpr, UNROLL: tl.constexpr, PLAIN: tl.constexpr,
):  # fmt: skip
    """W·xᵀ over the tiles of 64 columns from `first` to `last`, float32, times 2^-64: FRAGMENTS·16 × TOKENS.

    `rows` are the offsets of x's rows, `present` which of them are there; `tiles` is how many W has in all.
    """
    total = tl.zeros((FRAGMENTS * 16, TOKENS), tl.float32)
    for at in range(first, last, UNROLL):
        for step in tl.static_range(UNROLL):
            tile = at + step
            weights = fragments(
                words_ptr + tile * 128, scales_ptr + tile * 8, tiles * 128, tiles * 8, FRAGMENTS, PLAIN
            )
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
