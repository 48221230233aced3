# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The backward pass over the tiles that have weight, without atomic operations: the same result every time.

With the weights `p`, their derivatives `w = p ^ (2 - alpha)`, the gradient `g` of a weight and the mean of `g` under `w`, the gradient
of a score is `w (g - mean)`. `grad_rows` goes along the rows, once for the mean and once for the gradients of queries, beta, alpha
and sinks. `grad_keys` goes along the columns, for the gradients of keys and values. What several rows share is summed by
`sum_parts`; `grad_bias` computes the gradient of a bias.
"""

import triton
import triton.language as tl

from .entmax import by_alpha, powers
from .tile import (
    capped,
    kept,
    matrix,
    product,
    scores,
    seen_by,
    setting,
    similarity,
    some_rows,
    store_matrix,
    weighted,
)


@triton.jit
def row_tile(
    q, grad, Q, GRAD, K, V, MASK, BIAS, KEY_SEGMENTS, SEED, number, first, segments, beta, eps, lowest, head_number,
    scaling, softcap, dropout, queries, keys, window, width, value_width, query_row, grad_row, key_row, value_row, mask_row,
    mask_key, bias_row, bias_key,
    D: tl.constexpr, DV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
    MASK_ROWS: tl.constexpr, SOFTCAP: tl.constexpr, MEMBER: tl.constexpr, PRECISION: tl.constexpr, PIECE: tl.constexpr,
    VALUE_PIECE: tl.constexpr,
):  # fmt: skip
    """The weights of a tile, their derivatives and gradients; the similarities, and how much the softcap bends them."""
    columns = number * BN + tl.arange(0, BN)
    seen = seen_by(
        MASK, KEY_SEGMENTS, segments, first, columns, queries, keys, window, mask_row, mask_key, BM, CAUSAL, WINDOWED, MASK_ROWS
    )  # fmt: skip
    raw = similarity(
        q, Q, K, first, query_row, queries, number * BN, key_row, columns < keys, width, BM, BN, D, PIECE, PRECISION
    )  # fmt: skip
    similar, bend = capped(raw * scaling, softcap, SOFTCAP)
    z = scores(similar, beta, BIAS, first, columns, seen, bias_row, bias_key, BM)
    p, w = powers(z - lowest[:, None], eps[:, None], MEMBER)
    g = similarity(
        grad, GRAD, V, first, grad_row, queries, number * BN, value_row, tl.max(w, 0) > 0, value_width, BM, BN, DV, VALUE_PIECE,
        PRECISION,
    )  # fmt: skip
    if SEED is not None:
        g *= kept(SEED, head_number, (first + tl.arange(0, BM))[:, None], columns[None, :], dropout)
    return p, w, g, similar, bend


@triton.jit
def grad_rows(
    Q, K, V, MASK, BIAS, SINKS, BETA, ALPHA, QUERY_SEGMENTS, KEY_SEGMENTS, SEED, MAXIMUM, SHIFT, LIST, COUNT,
    GRAD, GRAD_Q, MEAN, PARTS, scaling, beta_value, alpha_value, softcap, dropout, queries, keys, window, width, value_width,
    blocks, parts,
    query_batch, query_head, query_row, key_batch, key_head, key_row, value_batch, value_head, value_row,
    grad_batch, grad_head, grad_row, mask_batch, mask_head, mask_row, mask_key,
    bias_batch, bias_head, bias_row, bias_key, beta_batch, beta_head, beta_row, alpha_batch, alpha_head, alpha_row,
    query_segment, key_segment,
    HEADS: tl.constexpr, GROUPS: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, MASK_ROWS: tl.constexpr, SOFTCAP: tl.constexpr,
    MEMBER: tl.constexpr, PRECISION: tl.constexpr, PIECE: tl.constexpr, VALUE_PIECE: tl.constexpr,
    PRECISE: tl.constexpr, WANT_BETA: tl.constexpr, WANT_ALPHA: tl.constexpr,
    EACH_ROW: tl.constexpr,
):  # fmt: skip
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    head = tl.program_id(1)
    batch = tl.program_id(2).to(tl.int64)
    rows = block * BM + tl.arange(0, BM)
    inside = rows < queries
    Q += batch * query_batch + head.to(tl.int64) * query_head
    q = matrix(Q, block * BM, query_row, width, queries, BM, D)
    GRAD += batch * grad_batch + head.to(tl.int64) * grad_head
    grad = matrix(GRAD, block * BM, grad_row, value_width, queries, BM, DV)
    K += batch * key_batch + (head // GROUPS).to(tl.int64) * key_head
    V += batch * value_batch + (head // GROUPS).to(tl.int64) * value_head
    if MASK is not None:
        MASK += batch * mask_batch + head.to(tl.int64) * mask_head
    if BIAS is not None:
        BIAS += batch * bias_batch + head.to(tl.int64) * bias_head
    if BETA is not None:
        BETA += batch * beta_batch + head * beta_head
    if ALPHA is not None:
        ALPHA += batch * alpha_batch + head * alpha_head
    beta = setting(BETA, beta_value, rows, queries, beta_row)
    eps = tl.maximum(setting(ALPHA, alpha_value, rows, queries, alpha_row) - 1.0, 1e-6)
    segments = rows
    if KEY_SEGMENTS is not None:
        segments = tl.load(QUERY_SEGMENTS + batch * query_segment + rows, mask=inside, other=-2)
        KEY_SEGMENTS += batch * key_segment
    head_number = batch * HEADS + head
    place = head_number * queries + rows
    row_block = head_number * tl.num_programs(0) + block
    LIST += row_block * blocks
    maximum = tl.load(MAXIMUM + place, mask=inside, other=float("-inf"))
    lowest = tl.load(SHIFT + place, mask=inside, other=0.0) + tl.where(tl.abs(maximum) == float("inf"), 0.0, maximum)
    count = tl.load(COUNT + row_block)
    slope = tl.zeros((BM,), tl.float32)
    pull = tl.zeros((BM,), tl.float32)
    sink_w = tl.zeros((BM,), tl.float32)
    if SINKS is not None:  # the value of a sink is zero, and so is the gradient of its weight
        sink_p, sink_w = powers(tl.load(SINKS + head).to(tl.float32) - lowest, eps, MEMBER)
        slope += sink_w
    for i in range(0, count):
        number = tl.load(LIST + i).to(tl.int32)
        p, w, g, similar, bend = row_tile(
            q, grad, Q, GRAD, K, V, MASK, BIAS, KEY_SEGMENTS, SEED, number, block * BM, segments, beta, eps, lowest, head_number,
            scaling, softcap, dropout, queries, keys, window, width, value_width, query_row, grad_row, key_row, value_row, mask_row,
            mask_key, bias_row, bias_key, D, DV, BM, BN, CAUSAL, WINDOWED, MASK_ROWS, SOFTCAP, MEMBER, PRECISION, PIECE, VALUE_PIECE,
        )  # fmt: skip
        slope += tl.sum(w, 1)
        pull += tl.sum(w * g, 1)
    mean = pull / tl.where(slope > 0, slope, 1.0)
    beta_grad = tl.zeros((BM,), tl.float32)
    alpha_grad = tl.zeros((BM,), tl.float32)
    if WANT_ALPHA and SINKS is not None:
        alpha_grad -= by_alpha(sink_p, eps) * mean
    grad_q = tl.zeros((BM, D), tl.float32)
    for i in range(0, count):
        number = tl.load(LIST + i).to(tl.int32)
        p, w, g, similar, bend = row_tile(
            q, grad, Q, GRAD, K, V, MASK, BIAS, KEY_SEGMENTS, SEED, number, block * BM, segments, beta, eps, lowest, head_number,
            scaling, softcap, dropout, queries, keys, window, width, value_width, query_row, grad_row, key_row, value_row, mask_row,
            mask_key, bias_row, bias_key, D, DV, BM, BN, CAUSAL, WINDOWED, MASK_ROWS, SOFTCAP, MEMBER, PRECISION, PIECE, VALUE_PIECE,
        )  # fmt: skip
        g -= mean[:, None]
        if WANT_ALPHA:
            alpha_grad += tl.sum(by_alpha(p, eps[:, None]) * g, 1)
        dz = w * g
        if WANT_BETA and (SOFTCAP or not PRECISE):
            beta_grad += tl.sum(dz * tl.where(w > 0, similar, 0.0), 1)
        if SOFTCAP:
            dz *= tl.where(w > 0, bend, 0.0)
        k = some_rows(K, number * BN, key_row, width, tl.max(w, 0) > 0, BN, D)  # those without weight may be NaN
        grad_q = weighted(dz, k, grad_q, PRECISION, PRECISE)
    if (
        WANT_BETA and PRECISE and not SOFTCAP
    ):  # the sum of dz * similarity is the product of the query and its own gradient
        beta_grad += tl.sum(grad_q * q.to(tl.float32), 1) * scaling
    spoiled = maximum == float("inf")  # NaN in, NaN out
    grad_q = tl.where(spoiled[:, None], float("nan"), grad_q * (beta * scaling)[:, None])
    GRAD_Q += head_number * queries * width
    store_matrix(GRAD_Q, grad_q, block * BM, width, width, queries, BM, D)
    tl.store(MEAN + place, tl.where(spoiled, float("nan"), mean), mask=inside)
    if PARTS is not None:
        spot = row_block
        if EACH_ROW:
            spot = place
        sink_grad = tl.where(inside, -sink_w * mean, 0.0)
        if EACH_ROW:
            tl.store(PARTS + spot, beta_grad, mask=inside)
            tl.store(PARTS + parts + spot, alpha_grad, mask=inside)
            tl.store(PARTS + 2 * parts + spot, sink_grad, mask=inside)
        else:
            tl.store(PARTS + spot, tl.sum(beta_grad, 0))
            tl.store(PARTS + parts + spot, tl.sum(alpha_grad, 0))
            tl.store(PARTS + 2 * parts + spot, tl.sum(sink_grad, 0))


@triton.jit
def grad_keys(
    Q, K, V, MASK, BIAS, BETA, ALPHA, QUERY_SEGMENTS, KEY_SEGMENTS, SEED, MAXIMUM, SHIFT, LIST, COUNT, GRAD, MEAN, GRAD_K, GRAD_V,
    scaling, beta_value, alpha_value, softcap, dropout, queries, keys, window, width, value_width, row_blocks,
    query_batch, query_head, query_row, key_batch, key_head, key_row, value_batch, value_head, value_row,
    grad_batch, grad_head, grad_row, mask_batch, mask_head, mask_row, mask_key,
    bias_batch, bias_head, bias_row, bias_key, beta_batch, beta_head, beta_row, alpha_batch, alpha_head, alpha_row,
    query_segment, key_segment,
    HEADS: tl.constexpr, GROUPS: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, MASK_ROWS: tl.constexpr, SOFTCAP: tl.constexpr,
    MEMBER: tl.constexpr, PRECISION: tl.constexpr, PIECE: tl.constexpr, VALUE_PIECE: tl.constexpr,
    PRECISE: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    kv_head = tl.program_id(1)
    batch = tl.program_id(2).to(tl.int64)
    columns = block * BN + tl.arange(0, BN)
    K += batch * key_batch + kv_head.to(tl.int64) * key_head
    V += batch * value_batch + kv_head.to(tl.int64) * value_head
    k = matrix(K, block * BN, key_row, width, keys, BN, D)
    v = matrix(V, block * BN, value_row, value_width, keys, BN, DV)
    grad_k = tl.zeros((BN, D), tl.float32)
    grad_v = tl.zeros((BN, DV), tl.float32)
    if KEY_SEGMENTS is not None:
        KEY_SEGMENTS += batch * key_segment
    for group in range(0, GROUPS):
        head = kv_head * GROUPS + group
        head_number = batch * HEADS + head
        column_block = head_number * tl.num_programs(0) + block
        count = tl.load(COUNT + column_block)
        mask, bias, own_beta, own_alpha = MASK, BIAS, BETA, ALPHA
        if MASK is not None:
            mask = MASK + batch * mask_batch + head.to(tl.int64) * mask_head
        if BIAS is not None:
            bias = BIAS + batch * bias_batch + head.to(tl.int64) * bias_head
        if BETA is not None:
            own_beta = BETA + batch * beta_batch + head * beta_head
        if ALPHA is not None:
            own_alpha = ALPHA + batch * alpha_batch + head * alpha_head
        for i in range(0, count):
            number = tl.load(LIST + column_block * row_blocks + i).to(tl.int32)
            rows = number * BM + tl.arange(0, BM)
            inside = rows < queries
            query = Q + batch * query_batch + head.to(tl.int64) * query_head
            upstream = GRAD + batch * grad_batch + head.to(tl.int64) * grad_head
            q = matrix(query, number * BM, query_row, width, queries, BM, D)
            grad = matrix(upstream, number * BM, grad_row, value_width, queries, BM, DV)
            beta = setting(own_beta, beta_value, rows, queries, beta_row)
            eps = tl.maximum(setting(own_alpha, alpha_value, rows, queries, alpha_row) - 1.0, 1e-6)
            segments = rows
            if KEY_SEGMENTS is not None:
                segments = tl.load(QUERY_SEGMENTS + batch * query_segment + rows, mask=inside, other=-2)
            place = head_number * queries + rows
            maximum = tl.load(MAXIMUM + place, mask=inside, other=0.0)
            lowest = tl.load(SHIFT + place, mask=inside, other=0.0) + tl.where(
                tl.abs(maximum) == float("inf"), 0.0, maximum
            )
            mean = tl.load(MEAN + place, mask=inside, other=0.0)
            seen = seen_by(
                mask, KEY_SEGMENTS, segments, number * BM, columns, queries, keys, window, mask_row, mask_key, BM, CAUSAL, WINDOWED, MASK_ROWS
            )  # fmt: skip
            if PIECE == D:
                raw = product(q, tl.trans(k), PRECISION)
            else:
                raw = similarity(
                    q, query, K, number * BM, query_row, queries, block * BN, key_row, columns < keys, width, BM, BN, D, PIECE,
                    PRECISION,
                )  # fmt: skip
            similar, bend = capped(raw * scaling, softcap, SOFTCAP)
            z = scores(similar, beta, bias, number * BM, columns, seen, bias_row, bias_key, BM)
            p, w = powers(z - lowest[:, None], eps[:, None], MEMBER)
            if VALUE_PIECE == DV:
                g = product(grad, tl.trans(v), PRECISION)
            else:
                g = similarity(
                    grad, upstream, V, number * BM, grad_row, queries, block * BN, value_row, columns < keys, value_width, BM, BN,
                    DV, VALUE_PIECE, PRECISION,
                )  # fmt: skip
            if SEED is not None:
                factor = kept(SEED, head_number, rows[:, None], columns[None, :], dropout)
                g *= factor
                p *= factor
            grad_v = weighted(tl.trans(p), grad, grad_v, PRECISION, PRECISE)
            # a value without weight may be NaN: its gradient is zero then
            dz = tl.where(w > 0, w * (g - mean[:, None]) * beta[:, None], 0.0)
            if SOFTCAP:
                dz *= tl.where(w > 0, bend, 0.0)
            grad_k = weighted(tl.trans(dz), q, grad_k, PRECISION, PRECISE)
    kv_number = batch * tl.num_programs(1) + kv_head
    store_matrix(GRAD_K + kv_number * keys * width, grad_k * scaling, block * BN, width, width, keys, BN, D)
    store_matrix(GRAD_V + kv_number * keys * value_width, grad_v, block * BN, value_width, value_width, keys, BN, DV)


@triton.jit
def sum_parts(
    PARTS, BETA_GRAD, ALPHA_GRAD, SINK_GRAD, batches, row_blocks, parts, beta_batches, beta_heads, alpha_batches, alpha_heads,
    HEADS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Gradients of beta, alpha and sinks that several rows, heads or batches share."""
    kind, number = tl.program_id(0), tl.program_id(1)
    own_batches, own_heads = beta_batches, beta_heads
    if kind == 1:
        own_batches, own_heads = alpha_batches, alpha_heads
    if kind == 2:
        own_batches, own_heads = own_batches * 0 + 1, own_heads * 0 + HEADS
    if number < own_batches * own_heads:
        first_batch, first_head = number // own_heads, number % own_heads
        last_batch = tl.where(own_batches == 1, batches, first_batch + 1)
        last_head = tl.where(own_heads == 1, HEADS, first_head + 1)
        total = tl.zeros((CHUNK,), tl.float32)
        for batch in range(first_batch, last_batch):
            for head in range(first_head, last_head):
                for start in range(0, row_blocks, CHUNK):
                    here = start + tl.arange(0, CHUNK)
                    spot = kind * parts + (batch * HEADS + head) * row_blocks + here
                    total += tl.load(PARTS + spot, mask=here < row_blocks, other=0.0)
        result = tl.sum(total, 0)
        if BETA_GRAD is not None:
            if kind == 0:
                tl.store(BETA_GRAD + number, result)
        if ALPHA_GRAD is not None:
            if kind == 1:
                tl.store(ALPHA_GRAD + number, result)
        if SINK_GRAD is not None:
            if kind == 2:
                tl.store(SINK_GRAD + number, result)


@triton.jit
def grad_bias(
    Q, K, V, MASK, BIAS, BETA, ALPHA, QUERY_SEGMENTS, KEY_SEGMENTS, SEED, MAXIMUM, SHIFT, FLAGS, GRAD, MEAN, GRAD_BIAS,
    scaling, beta_value, alpha_value, softcap, dropout, batches, queries, keys, window, width, value_width, row_blocks, blocks,
    own_batches, own_heads, own_queries, own_keys,
    query_batch, query_head, query_row, key_batch, key_head, key_row, value_batch, value_head, value_row,
    grad_batch, grad_head, grad_row, mask_batch, mask_head, mask_row, mask_key,
    bias_batch, bias_head, bias_row, bias_key, beta_batch, beta_head, beta_row, alpha_batch, alpha_head, alpha_row,
    query_segment, key_segment,
    HEADS: tl.constexpr, GROUPS: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, MASK_ROWS: tl.constexpr, SOFTCAP: tl.constexpr,
    MEMBER: tl.constexpr, PRECISION: tl.constexpr, BIAS_ROWS: tl.constexpr, BIAS_KEYS: tl.constexpr,
):  # fmt: skip
    """The gradient of a bias, summed over what shares it. `BIAS_ROWS` and `BIAS_KEYS`: it has one entry for each row, or key."""
    number = tl.program_id(2)
    first_batch, first_head = number // own_heads, number % own_heads
    last_batch = tl.where(own_batches == 1, batches, first_batch + 1)
    last_head = tl.where(own_heads == 1, HEADS, first_head + 1)
    first_rows, last_rows = 0, row_blocks
    first_keys, last_keys = 0, blocks
    if BIAS_ROWS:
        first_rows = tl.program_id(0)
        last_rows = first_rows + 1
    if BIAS_KEYS:
        first_keys = tl.program_id(1)
        last_keys = first_keys + 1
    total = tl.zeros((BM, BN), tl.float32)
    zero = number * 0  # the interpreter counts loops with Python's numbers, which have no `to`
    for batch_number in range(first_batch, last_batch):
        batch = (zero + batch_number).to(tl.int64)
        for number_of_head in range(first_head, last_head):
            head = zero + number_of_head
            head_number = batch * HEADS + head
            mask, own_beta, own_alpha, key_segments = MASK, BETA, ALPHA, KEY_SEGMENTS
            bias = BIAS + batch * bias_batch + head.to(tl.int64) * bias_head
            if MASK is not None:
                mask = MASK + batch * mask_batch + head.to(tl.int64) * mask_head
            if BETA is not None:
                own_beta = BETA + batch * beta_batch + head * beta_head
            if ALPHA is not None:
                own_alpha = ALPHA + batch * alpha_batch + head * alpha_head
            if KEY_SEGMENTS is not None:
                key_segments = KEY_SEGMENTS + batch * key_segment
            query = Q + batch * query_batch + head.to(tl.int64) * query_head
            upstream = GRAD + batch * grad_batch + head.to(tl.int64) * grad_head
            key = K + batch * key_batch + (head // GROUPS).to(tl.int64) * key_head
            value = V + batch * value_batch + (head // GROUPS).to(tl.int64) * value_head
            for row_block in range(first_rows, last_rows):
                row_number = zero + row_block
                for key_block in range(first_keys, last_keys):
                    key_number = zero + key_block
                    if tl.load(FLAGS + (head_number * row_blocks + row_number) * blocks + key_number) != 0:
                        rows = row_number * BM + tl.arange(0, BM)
                        columns = key_number * BN + tl.arange(0, BN)
                        inside = rows < queries
                        q = matrix(query, row_number * BM, query_row, width, queries, BM, D)
                        grad = matrix(upstream, row_number * BM, grad_row, value_width, queries, BM, DV)
                        k = matrix(key, key_number * BN, key_row, width, keys, BN, D)
                        v = matrix(value, key_number * BN, value_row, value_width, keys, BN, DV)
                        beta = setting(own_beta, beta_value, rows, queries, beta_row)
                        eps = tl.maximum(setting(own_alpha, alpha_value, rows, queries, alpha_row) - 1.0, 1e-6)
                        segments = rows
                        if KEY_SEGMENTS is not None:
                            segments = tl.load(QUERY_SEGMENTS + batch * query_segment + rows, mask=inside, other=-2)
                        place = head_number * queries + rows
                        maximum = tl.load(MAXIMUM + place, mask=inside, other=0.0)
                        lowest = tl.load(SHIFT + place, mask=inside, other=0.0)
                        lowest += tl.where(tl.abs(maximum) == float("inf"), 0.0, maximum)
                        mean = tl.load(MEAN + place, mask=inside, other=0.0)
                        seen = seen_by(
                            mask, key_segments, segments, row_number * BM, columns, queries, keys, window, mask_row, mask_key, BM, CAUSAL,
                            WINDOWED, MASK_ROWS,
                        )  # fmt: skip
                        raw = product(q, tl.trans(k), PRECISION)
                        similar, bend = capped(raw * scaling, softcap, SOFTCAP)
                        z = scores(similar, beta, bias, row_number * BM, columns, seen, bias_row, bias_key, BM)
                        p, w = powers(z - lowest[:, None], eps[:, None], MEMBER)
                        g = product(grad, tl.trans(v), PRECISION)
                        if SEED is not None:
                            g *= kept(SEED, head_number, rows[:, None], columns[None, :], dropout)
                        total += tl.where(w > 0, w * (g - mean[:, None]), 0.0)
    rows = first_rows * BM + tl.arange(0, BM)
    columns = first_keys * BN + tl.arange(0, BN)
    GRAD_BIAS += number.to(tl.int64) * own_queries * own_keys
    kind = GRAD_BIAS.dtype.element_ty
    if BIAS_ROWS and BIAS_KEYS:
        pointers = GRAD_BIAS + rows.to(tl.int64)[:, None] * own_keys + columns[None, :]
        tl.store(pointers, total.to(kind), mask=(rows < own_queries)[:, None] & (columns < own_keys)[None, :])
    elif BIAS_ROWS:
        tl.store(GRAD_BIAS + rows, tl.sum(total, 1).to(kind), mask=rows < own_queries)
    elif BIAS_KEYS:
        tl.store(GRAD_BIAS + columns, tl.sum(total, 0).to(kind), mask=columns < own_keys)
    else:
        tl.store(GRAD_BIAS, tl.sum(tl.sum(total, 1), 0).to(kind))
