# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""One tile of rows and keys: what is seen, the scores, the random choice of dropout.

Offsets within a tile fit 32 bits; the first row or key of a tile is multiplied with its stride in 64 bits, because tensors may
be longer than 32 bits can address.
"""

import triton
import triton.language as tl


@triton.jit
def matrix(POINTER, first, stride, width, count, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Rows `first ...` of a matrix with `count` rows of `width` entries, which lie next to each other; zeros beyond."""
    row, entry = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    pointers = POINTER + first.to(tl.int64) * stride + (row[:, None] * stride + entry[None, :])
    return tl.load(pointers, mask=(first + row < count)[:, None] & (entry < width)[None, :], other=0.0)


@triton.jit
def chosen_rows(POINTER, rows, wanted, stride, width, WIDTH: tl.constexpr):
    """Some rows of a matrix, wherever they lie; zeros for those that are not wanted."""
    entry = tl.arange(0, WIDTH)
    pointers = POINTER + rows.to(tl.int64)[:, None] * stride + entry[None, :]
    return tl.load(pointers, mask=wanted[:, None] & (entry < width)[None, :], other=0.0)


@triton.jit
def store_matrix(POINTER, numbers, first, stride, width, count, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """The inverse of `matrix`."""
    row, entry = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    pointers = POINTER + first.to(tl.int64) * stride + (row[:, None] * stride + entry[None, :])
    inside = (first + row < count)[:, None] & (entry < width)[None, :]
    tl.store(pointers, numbers.to(POINTER.dtype.element_ty), mask=inside)


@triton.jit
def setting(POINTER, number, rows, queries, stride):
    """alpha or beta of some rows: a tensor whose pointer is at the head, or one number."""
    if POINTER is None:
        return tl.zeros(rows.shape, tl.float32) + number
    else:
        return tl.load(POINTER + rows.to(tl.int64) * stride, mask=rows < queries, other=1.5).to(tl.float32)


@triton.jit
def product(a, b, PRECISION: tl.constexpr):
    """`a @ b`, summed in float32."""
    if a.dtype == b.dtype:
        return tl.dot(a, b, input_precision=PRECISION)
    else:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision=PRECISION)


@triton.jit
def some_rows(POINTER, first, stride, width, wanted, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Those of the rows `first ...` that are wanted; zeros for the others."""
    row, entry = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    pointers = POINTER + first.to(tl.int64) * stride + (row[:, None] * stride + entry[None, :])
    return tl.load(pointers, mask=wanted[:, None] & (entry < width)[None, :], other=0.0)


@triton.jit
def similarity(
    a, A, B, first, a_row, count, start, b_row, wanted, width,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, D: tl.constexpr, PIECE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """
    Rows `first ...` of A times the rows `start ...` of B that are wanted. `a` is the former, loaded before; where PIECE < D, it is
    loaded again in pieces instead, because it would not fit the registers.
    """
    if PIECE == D:
        return product(a, tl.trans(some_rows(B, start, b_row, width, wanted, COLUMNS, D)), PRECISION)
    else:
        total = tl.zeros((ROWS, COLUMNS), tl.float32)
        for piece in range(0, D, PIECE):
            left = matrix(A + piece, first, a_row, width - piece, count, ROWS, PIECE)
            right = some_rows(B + piece, start, b_row, width - piece, wanted, COLUMNS, PIECE)
            total += product(left, tl.trans(right), PRECISION)
        return total


@triton.jit
def weighted(weights, rows, total, PRECISION: tl.constexpr, PRECISE: tl.constexpr):
    """`total + weights @ rows`. The weights are rounded to the dtype of the rows unless `PRECISE`."""
    if PRECISE:
        return tl.dot(weights, rows.to(tl.float32), total, input_precision=PRECISION)
    else:
        return tl.dot(weights.to(rows.dtype), rows, total, input_precision=PRECISION)


@triton.jit
def seen_by(
    MASK, KEY_SEGMENTS, segments, first, columns, queries, keys, window, mask_row, mask_key, BM: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, MASK_ROWS: tl.constexpr,
):  # fmt: skip
    """Which of `columns` each of the rows `first ...` sees. `MASK` is at the head; `segments` are those of the rows."""
    row = tl.arange(0, BM)
    rows = first + row
    seen = (rows < queries)[:, None] & (columns < keys)[None, :]
    if CAUSAL:
        last = rows + (keys - queries)
        seen &= columns[None, :] <= last[:, None]
        if WINDOWED:
            seen &= columns[None, :] > (last - window)[:, None]
    if MASK is not None:
        if MASK_ROWS:
            pointers = MASK + first.to(tl.int64) * mask_row + (row[:, None] * mask_row + columns[None, :] * mask_key)
            seen &= tl.load(pointers, mask=seen, other=0) != 0
        else:
            seen &= (tl.load(MASK + columns * mask_key, mask=columns < keys, other=0) != 0)[None, :]
    if KEY_SEGMENTS is not None:
        own = tl.load(KEY_SEGMENTS + columns, mask=columns < keys, other=-1)
        seen &= segments[:, None] == own[None, :]
    return seen


@triton.jit
def tanh(x):
    """tanh in float32, without losing the digits of a small x."""
    square = x * x
    series = x * (1.0 + square * (-1.0 / 3 + square * (2.0 / 15 + square * (-17.0 / 315 + square * (62.0 / 2835)))))
    return tl.where(tl.abs(x) < 0.25, series, 1.0 - 2.0 / (tl.exp(2.0 * x) + 1.0))


@triton.jit
def capped(raw, softcap, SOFTCAP: tl.constexpr):
    """Scores after the softcap, and the derivative of it."""
    if SOFTCAP:
        bent = tanh(raw / softcap)
        return softcap * bent, 1.0 - bent * bent
    else:
        return raw, raw


@triton.jit
def scores(similar, beta, BIAS, first, columns, seen, bias_row, bias_key, BM: tl.constexpr):
    """Scores of rows `first ...`: `similar` with beta and bias, -inf where a query does not see a key. `BIAS` is at the head."""
    z = similar * beta[:, None]
    if BIAS is not None:
        row = tl.arange(0, BM)
        pointers = BIAS + first.to(tl.int64) * bias_row + (row[:, None] * bias_row + columns[None, :] * bias_key)
        z += tl.load(pointers, mask=seen, other=0.0).to(tl.float32)
    return tl.where(seen, z, float("-inf"))


@triton.jit
def mixed(x):
    """A bijection of 32-bit numbers that spreads every bit over all others (the finalizer of a hash)."""
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def kept(SEED, head, rows, columns, dropout):
    """
    What dropout multiplies weights with: 0, or 1 / (1 - dropout). `rows` and `columns` have two dimensions. Each row draws a
    number by Philox; a hash of it and the column decides, which takes a fourth of the registers of Philox for each weight.
    """
    own = rows.to(tl.uint32)
    drawn, second, third, fourth = tl.philox(tl.load(SEED), own, own * 0 + head.to(tl.uint32), own * 0, own * 0)
    number = mixed(mixed(columns.to(tl.uint32) * 0x9E3779B9 + drawn) ^ second)
    # the upper 24 bits are exact in float32
    return tl.where(
        (number >> 8).to(tl.float32) * (1.0 / 16777216) < dropout, 0.0, 1.0 / tl.maximum(1.0 - dropout, 1e-30)
    )


@triton.jit
def reach(
    block, queries, keys, window, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr
):
    """The first key block that a block of rows can see, and the first one behind them."""
    stop = tl.cdiv(keys, BN)
    first = 0
    if CAUSAL:
        stop = tl.minimum(stop, tl.maximum(tl.cdiv(tl.minimum((block + 1) * BM, queries) + keys - queries, BN), 0))
        if WINDOWED:
            first = tl.minimum(tl.maximum(block * BM + keys - queries - window + 1, 0) // BN, stop)
    return first, stop
