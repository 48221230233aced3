# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The forward pass: one look at all scores, then only at blocks of keys that can have weight.

`survey` computes every score once, without a power or a sum. For a block of rows it keeps the maximum of each row, the maxima of
strided lanes, whose own shift is a lower bound of the row's, and the list of key blocks with a score above
`maximum - 1 / (alpha - 1)`, below which no weight can be. The maximum only rises, so the list misses no block.

`solve` raises the shift from its lower bound by Newton's method over the listed blocks. What has no weight at a lower bound never
has any, so the first pass shortens the list. It also collects the scores that are left; if every row of the block has only a
few of them, though they may lie in many blocks, everything after that looks at them alone. Then it reads out the values.
"""

import triton
import triton.language as tl

from .entmax import powers, raised
from .tile import (
    capped,
    chosen_rows,
    kept,
    matrix,
    reach,
    scores,
    seen_by,
    setting,
    similarity,
    some_rows,
    store_matrix,
    weighted,
)


@triton.jit
def survey(
    Q, K, MASK, BIAS, SINKS, BETA, ALPHA, QUERY_SEGMENTS, KEY_SEGMENTS, MAXIMUM, SHIFT, LIST, COUNT, FLAGS,
    scaling, beta_value, alpha_value, softcap, queries, keys, window, width, blocks,
    query_batch, query_head, query_row, key_batch, key_head, key_row, mask_batch, mask_head, mask_row, mask_key,
    bias_batch, bias_head, bias_row, bias_key, beta_batch, beta_head, beta_row, alpha_batch, alpha_head, alpha_row,
    query_segment, key_segment,
    HEADS: tl.constexpr, GROUPS: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, MASK_ROWS: tl.constexpr, SOFTCAP: tl.constexpr, MEMBER: tl.constexpr,
    PRECISION: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # the rows that see most come first
    head = tl.program_id(1)
    batch = tl.program_id(2).to(tl.int64)
    rows = block * BM + tl.arange(0, BM)
    Q += batch * query_batch + head.to(tl.int64) * query_head
    q = matrix(Q, block * BM, query_row, width, queries, BM, D)
    K += batch * key_batch + (head // GROUPS).to(tl.int64) * key_head
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
        segments = tl.load(QUERY_SEGMENTS + batch * query_segment + rows, mask=rows < queries, other=-2)
        KEY_SEGMENTS += batch * key_segment
    place = (batch * HEADS + head) * queries + rows
    row_block = (batch * HEADS + head) * tl.num_programs(0) + block
    LIST += row_block * blocks
    if FLAGS is not None:
        for start in range(0, blocks, BN):
            here = start + tl.arange(0, BN)
            tl.store(FLAGS + row_block * blocks + here, tl.zeros((BN,), tl.int8), mask=here < blocks)
    lanes = tl.full((BM, BN), float("-inf"), tl.float32)
    maximum = tl.full((BM,), float("-inf"), tl.float32)
    if SINKS is not None:
        sink = tl.load(SINKS + head).to(tl.float32)
        maximum = tl.where(rows < queries, sink, maximum)
        lanes = tl.where((tl.arange(0, BN) == 0)[None, :], maximum[:, None], lanes)
    first, stop = reach(block, queries, keys, window, BM, BN, CAUSAL, WINDOWED)
    count = 0
    for step in range(0, stop - first):
        # the first block, which often is an attention sink, then back from the last: the maximum is found early
        number = tl.where(step == 0, first, stop - step)
        columns = number * BN + tl.arange(0, BN)
        seen = seen_by(
            MASK, KEY_SEGMENTS, segments, block * BM, columns, queries, keys, window, mask_row, mask_key, BM, CAUSAL, WINDOWED,
            MASK_ROWS,
        )  # fmt: skip
        anything = 1
        if MASK is not None or KEY_SEGMENTS is not None:
            anything = tl.max(tl.max(seen.to(tl.int32), 1), 0)
        if anything != 0:
            raw = similarity(
                q, Q, K, block * BM, query_row, queries, number * BN, key_row, columns < keys, width, BM, BN, D, PIECE, PRECISION
            )  # fmt: skip
            similar, bend = capped(raw * scaling, softcap, SOFTCAP)
            z = scores(similar, beta, BIAS, block * BM, columns, seen, bias_row, bias_key, BM)
            z = tl.where(z == z, z, float("inf"))  # NaN must not vanish: a maximum of infinity marks its row
            best = tl.max(z, 1)
            maximum = tl.maximum(maximum, best)
            lanes = tl.maximum(lanes, z)
            tl.store(LIST + count, number)
            count += tl.max((best > maximum - 1.0 / eps).to(tl.int32), 0)
    origin = tl.where(tl.abs(maximum) == float("inf"), 0.0, maximum)
    lanes = lanes - origin[:, None]
    shift = tl.zeros((BM,), tl.float32)
    for _turn in range(4):
        p, w = powers(lanes - shift[:, None], eps[:, None], MEMBER)
        shift = raised(shift, tl.sum(p, 1), tl.sum(w, 1), eps)
    tl.store(MAXIMUM + place, maximum, mask=rows < queries)
    tl.store(SHIFT + place, shift * (1.0 - 4e-7), mask=rows < queries)
    tl.store(COUNT + row_block, count)


@triton.jit
def totals(
    q, Q, K, MASK, BIAS, KEY_SEGMENTS, LIST, FOUND, SCORES, listed, first, segments, beta, eps, lowest, sink,
    scaling, softcap, queries, keys, window, width, query_row, key_row, mask_row, mask_key, bias_row, bias_key,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CANDIDATES: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOWED: tl.constexpr, MASK_ROWS: tl.constexpr, SOFTCAP: tl.constexpr, MEMBER: tl.constexpr, PRECISION: tl.constexpr, PIECE: tl.constexpr,
):  # fmt: skip
    """
    The sums of weights and of their derivatives over the listed blocks, with 1 + eps (z - lowest) as the base of a power; how many
    of them have weight, which stay listed; and how many scores each row has collected.
    """
    total, slope = powers(sink - lowest, eps, MEMBER)
    found = tl.zeros((BM,), tl.int32)
    left = 0
    for i in range(0, listed):
        number = tl.load(LIST + i).to(tl.int32)
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
        total += tl.sum(p, 1)
        part = tl.sum(w, 1)
        slope += part
        if CANDIDATES > 0:
            positive = (p > 0).to(tl.int32)
            free = found[:, None] + tl.cumsum(positive, 1) - 1
            fits = (positive != 0) & (free < CANDIDATES)
            spot = tl.arange(0, BM)[:, None] * CANDIDATES + free
            tl.store(FOUND + spot, columns[None, :] + tl.zeros((BM, BN), tl.int32), mask=fits)
            tl.store(SCORES + spot, z, mask=fits)
            found += tl.sum(positive, 1)
        tl.store(LIST + left, number)  # in place: `left` is never beyond `i`
        left += tl.max((part > 0).to(tl.int32), 0)
    return total, slope, left, found


@triton.jit
def solve(
    Q, K, V, MASK, BIAS, SINKS, BETA, ALPHA, QUERY_SEGMENTS, KEY_SEGMENTS, SEED, MAXIMUM, SHIFT, LIST, COUNT, FLAGS,
    FOUND, SCORES, OUT, scaling, beta_value, alpha_value, softcap, dropout, queries, keys, window, width, value_width, blocks,
    query_batch, query_head, query_row, key_batch, key_head, key_row, value_batch, value_head, value_row,
    out_batch, out_head, out_row, mask_batch, mask_head, mask_row, mask_key, bias_batch, bias_head, bias_row, bias_key,
    beta_batch, beta_head, beta_row, alpha_batch, alpha_head, alpha_row, query_segment, key_segment,
    HEADS: tl.constexpr, GROUPS: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    CANDIDATES: tl.constexpr, CHUNK: tl.constexpr, CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, MASK_ROWS: tl.constexpr,
    SOFTCAP: tl.constexpr, MEMBER: tl.constexpr, PRECISION: tl.constexpr, PIECE: tl.constexpr, PRECISE: tl.constexpr,
):  # fmt: skip
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    head = tl.program_id(1)
    batch = tl.program_id(2).to(tl.int64)
    rows = block * BM + tl.arange(0, BM)
    inside = rows < queries
    Q += batch * query_batch + head.to(tl.int64) * query_head
    q = matrix(Q, block * BM, query_row, width, queries, BM, D)
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
    if CANDIDATES > 0:
        FOUND += (head_number * queries + block * BM) * CANDIDATES
        SCORES += (head_number * queries + block * BM) * CANDIDATES
    if FLAGS is not None:
        FLAGS += row_block * blocks
    maximum = tl.load(MAXIMUM + place, mask=inside, other=float("-inf"))
    shift = tl.load(SHIFT + place, mask=inside, other=0.0)
    origin = tl.where(tl.abs(maximum) == float("inf"), 0.0, maximum)
    sink = tl.full((BM,), float("-inf"), tl.float32)
    if SINKS is not None:
        sink = tl.where(inside, tl.load(SINKS + head).to(tl.float32), sink)
    total, slope, left, found = totals(
        q, Q, K, MASK, BIAS, KEY_SEGMENTS, LIST, FOUND, SCORES, tl.load(COUNT + row_block), block * BM, segments, beta, eps,
        origin + shift, sink, scaling, softcap, queries, keys, window, width, query_row, key_row, mask_row, mask_key, bias_row, bias_key,
        D, BM, BN, CANDIDATES, CAUSAL, WINDOWED, MASK_ROWS, SOFTCAP, MEMBER, PRECISION, PIECE,
    )  # fmt: skip
    tl.debug_barrier()
    shift = tl.maximum(raised(shift, total, slope, eps), shift)
    OUT += batch * out_batch + head.to(tl.int64) * out_head
    spoiled = (maximum == float("inf"))[:, None]  # NaN in, NaN out
    scattered = 0
    if CANDIDATES > 0:
        # few scores of each row, in many blocks: from here on each row has its own list
        scattered = ((tl.max(found, 0) <= CANDIDATES) & (left > 2)).to(tl.int32)
    if scattered != 0:
        if CANDIDATES > 0:
            lane = tl.arange(0, CANDIDATES)
            spot = tl.arange(0, BM)[:, None] * CANDIDATES + lane[None, :]
            there = lane[None, :] < found[:, None]
            z = tl.load(SCORES + spot, mask=there, other=float("-inf"))
            moving = 1
            for _turn in range(60):
                if moving != 0:
                    p, w = powers(z - origin[:, None] - shift[:, None], eps[:, None], MEMBER)
                    sink_p, sink_w = powers(sink - origin - shift, eps, MEMBER)
                    new = raised(shift, tl.sum(p, 1) + sink_p, tl.sum(w, 1) + sink_w, eps)
                    moving = tl.max((tl.abs(new - shift) > 1e-6 * tl.maximum(shift, 1.0)).to(tl.int32), 0)
                    shift = tl.maximum(new, shift)
            for entry in range(0, DV, CHUNK):  # in pieces that fit the registers
                gathered = tl.zeros((BM, CHUNK), tl.float32)
                for c in range(0, tl.max(found, 0)):
                    column = tl.load(FOUND + tl.arange(0, BM) * CANDIDATES + c, mask=c < found, other=0)
                    score = tl.load(SCORES + tl.arange(0, BM) * CANDIDATES + c, mask=c < found, other=float("-inf"))
                    weight, slope_of = powers(score - origin - shift, eps, MEMBER)
                    if FLAGS is not None:
                        tl.store(FLAGS + column // BN, tl.full((BM,), 1, tl.int8), mask=weight > 0)
                    v_row = chosen_rows(V + entry, column, weight > 0, value_row, value_width - entry, CHUNK).to(
                        tl.float32
                    )
                    if SEED is not None:
                        weight *= tl.sum(kept(SEED, head_number, rows[:, None], column[:, None], dropout), 1)
                    gathered += weight[:, None] * v_row
                gathered = tl.where(spoiled, float("nan"), gathered)
                store_matrix(OUT + entry, gathered, block * BM, out_row, value_width - entry, queries, BM, CHUNK)
    else:
        moving = 1
        for _turn in range(60):
            if moving != 0:
                total, slope, left, found = totals(
                    q, Q, K, MASK, BIAS, KEY_SEGMENTS, LIST, FOUND, SCORES, left, block * BM, segments, beta, eps,
                    origin + shift, sink, scaling, softcap, queries, keys, window, width, query_row, key_row, mask_row, mask_key, bias_row,
                    bias_key, D, BM, BN, 0, CAUSAL, WINDOWED, MASK_ROWS, SOFTCAP, MEMBER, PRECISION, PIECE,
                )  # fmt: skip
                new = raised(shift, total, slope, eps)
                # where rounding made the shift too large by an ulp, it stays
                moving = tl.max((tl.abs(new - shift) > 1e-6 * tl.maximum(shift, 1.0)).to(tl.int32), 0)
                shift = tl.maximum(new, shift)
                tl.debug_barrier()
        out = tl.zeros((BM, DV), tl.float32)
        for i in range(0, left):
            number = tl.load(LIST + i).to(tl.int32)
            columns = number * BN + tl.arange(0, BN)
            seen = seen_by(
                MASK, KEY_SEGMENTS, segments, block * BM, columns, queries, keys, window, mask_row, mask_key, BM, CAUSAL, WINDOWED,
            MASK_ROWS,
            )  # fmt: skip
            raw = similarity(
                q, Q, K, block * BM, query_row, queries, number * BN, key_row, columns < keys, width, BM, BN, D, PIECE, PRECISION
            )  # fmt: skip
            similar, bend = capped(raw * scaling, softcap, SOFTCAP)
            z = scores(similar, beta, BIAS, block * BM, columns, seen, bias_row, bias_key, BM)
            p, w = powers(z - origin[:, None] - shift[:, None], eps[:, None], MEMBER)
            wanted = tl.max(p, 0) > 0  # values without weight are not read; they may be anything
            v = some_rows(V, number * BN, value_row, value_width, wanted, BN, DV)
            if SEED is not None:
                p *= kept(SEED, head_number, rows[:, None], columns[None, :], dropout)
            out = weighted(p, v, out, PRECISION, PRECISE)
            if FLAGS is not None:
                tl.store(FLAGS + number, 1)
        out = tl.where(spoiled, float("nan"), out)
        store_matrix(OUT, out, block * BM, out_row, value_width, queries, BM, DV)
    tl.store(SHIFT + place, shift, mask=inside)
    tl.store(COUNT + row_block, left)


@triton.jit
def transpose(FLAGS, LIST, COUNT, row_blocks, blocks, CHUNK: tl.constexpr):
    """For each key block, the list of the row blocks in which it has weight."""
    block = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64)
    FLAGS += head * row_blocks * blocks + block
    LIST += (head * blocks + block) * row_blocks
    count = 0
    for start in range(0, row_blocks, CHUNK):
        row_block = start + tl.arange(0, CHUNK)
        flag = tl.load(FLAGS + row_block.to(tl.int64) * blocks, mask=row_block < row_blocks, other=0).to(tl.int32)
        tl.store(LIST + count + tl.cumsum(flag, 0) - 1, row_block, mask=flag != 0)
        count += tl.sum(flag, 0)
    tl.store(COUNT + head * blocks + block, count)
