# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Few queries, many keys: the keys are split over programs, and only values with weight are read.

All query heads that share a kv head are rows of one tile, `row = head of the group * queries + query`. `score_keys` writes the scores,
or `screen_keys` those of keys that may have weight, which it learns from the int8 copy (`key_screen.py` has the bound and its
proof). `find_shift` solves each row, `read_values` reads out each split, and `add_splits` puts them together.
"""

import triton
import triton.language as tl

from .entmax import powers, raised
from .tile import capped, chosen_rows, matrix, product, weighted


@triton.jit
def row_settings(
    POINTER, number, head, query, real, setting_head, setting_row
):  # fmt: skip
    """alpha or beta of the rows of a group. The pointer is at the batch."""
    if POINTER is None:
        return tl.zeros(head.shape, tl.float32) + number
    else:
        return tl.load(POINTER + head * setting_head + query * setting_row, mask=real, other=1.5).to(tl.float32)


@triton.jit
def seen_in_group(
    MASK, head, query, columns, real, stop, queries, keys, window, mask_head, mask_row, mask_key,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr,
):  # fmt: skip
    """Which of `columns` each row of a group sees. `MASK` is at the batch."""
    seen = real[:, None] & (columns < stop)[None, :]
    if CAUSAL:
        last = query + (keys - queries)
        seen &= columns[None, :] <= last[:, None]
        if WINDOWED:
            seen &= columns[None, :] > (last - window)[:, None]
    if MASK is not None:
        pointers = (
            MASK
            + (head.to(tl.int64) * mask_head + query.to(tl.int64) * mask_row)[:, None]
            + columns[None, :] * mask_key
        )
        seen &= tl.load(pointers, mask=seen, other=0) != 0
    return seen


@triton.jit
def with_bias(z, BIAS, head, query, columns, seen, bias_head, bias_row, bias_key):
    """Scores with their bias. `BIAS` is at the batch."""
    if BIAS is not None:
        pointers = (
            BIAS
            + (head.to(tl.int64) * bias_head + query.to(tl.int64) * bias_row)[:, None]
            + columns[None, :] * bias_key
        )
        z += tl.load(pointers, mask=seen, other=0.0).to(tl.float32)
    return tl.where(seen, z, float("-inf"))


@triton.jit
def score_keys(
    Q, K, MASK, BIAS, BETA, SCORES, TOP, scaling, beta_value, softcap, queries, keys, window, width, split,
    query_batch, query_head, query_row, key_batch, key_head, key_row, mask_batch, mask_head, mask_row, mask_key,
    bias_batch, bias_head, bias_row, bias_key, beta_batch, beta_head, beta_row,
    HEADS: tl.constexpr, GROUPS: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr, BN: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, SOFTCAP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    part, kv_head = tl.program_id(0), tl.program_id(1)
    batch = tl.program_id(2).to(tl.int64)
    row = tl.arange(0, ROWS)
    head, query = kv_head * GROUPS + row // queries, row % queries
    real = row < GROUPS * queries
    own = head.to(tl.int64) * query_head + query.to(tl.int64) * query_row
    q = chosen_rows(Q + batch * query_batch, own, real, 1, width, D)
    if BETA is not None:
        BETA += batch * beta_batch
    if MASK is not None:
        MASK += batch * mask_batch
    if BIAS is not None:
        BIAS += batch * bias_batch
    beta = row_settings(BETA, beta_value, head, query, real, beta_head, beta_row)
    K += batch * key_batch + kv_head.to(tl.int64) * key_head
    SCORES += (batch * HEADS + kv_head * GROUPS) * queries * keys
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    stop = tl.minimum((part + 1) * split, keys)
    for start in range(part * split, stop, BN):
        first = part * 0 + start
        columns = first + tl.arange(0, BN)
        k = matrix(K, first, key_row, width, keys, BN, D)
        seen = seen_in_group(
            MASK, head, query, columns, real, stop, queries, keys, window, mask_head, mask_row, mask_key, CAUSAL, WINDOWED
        )  # fmt: skip
        similar, bend = capped(product(q, tl.trans(k), PRECISION) * scaling, softcap, SOFTCAP)
        z = with_bias(similar * beta[:, None], BIAS, head, query, columns, seen, bias_head, bias_row, bias_key)
        z = tl.where(z == z, z, float("inf"))
        top = tl.maximum(top, tl.max(z, 1))
        spot = row.to(tl.int64)[:, None] * keys + columns[None, :]
        tl.store(SCORES + spot, z, mask=real[:, None] & (columns < stop)[None, :])
    spot = ((batch * HEADS + kv_head * GROUPS) * queries + row) * tl.num_programs(0) + part
    tl.store(TOP + spot, top, mask=real)


@triton.jit
def screen_keys(
    Q, K, MASK, BIAS, BETA, ALPHA, CODES, SCALES, BOUNDS, SCORES, TOP, scaling, beta_value, alpha_value, softcap, queries, keys,
    window, width, split, first_key, room,
    query_batch, query_head, query_row, key_batch, key_head, key_row, mask_batch, mask_head, mask_row, mask_key,
    bias_batch, bias_head, bias_row, bias_key, beta_batch, beta_head, beta_row, alpha_batch, alpha_head, alpha_row,
    HEADS: tl.constexpr, GROUPS: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr, BN: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOWED: tl.constexpr, SOFTCAP: tl.constexpr, MEMBER: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """
    The int8 copy bounds every score of a split. Lower bounds give a lower bound of the threshold of the split, and so of the row;
    keys whose upper bound lies below it have no weight, and their scores become -inf. The others are scored exactly.
    """
    part, kv_head = tl.program_id(0), tl.program_id(1)
    batch = tl.program_id(2).to(tl.int64)
    row = tl.arange(0, ROWS)
    head, query = kv_head * GROUPS + row // queries, row % queries
    real = row < GROUPS * queries
    own = head.to(tl.int64) * query_head + query.to(tl.int64) * query_row
    q = chosen_rows(Q + batch * query_batch, own, real, 1, width, D)
    if BETA is not None:
        BETA += batch * beta_batch
    if ALPHA is not None:
        ALPHA += batch * alpha_batch
    if MASK is not None:
        MASK += batch * mask_batch
    if BIAS is not None:
        BIAS += batch * bias_batch
    beta = row_settings(BETA, beta_value, head, query, real, beta_head, beta_row)
    eps = tl.maximum(row_settings(ALPHA, alpha_value, head, query, real, alpha_head, alpha_row) - 1.0, 1e-6)
    K += batch * key_batch + kv_head.to(tl.int64) * key_head
    kv_number = batch * tl.num_programs(1) + kv_head
    fours = tl.cdiv(width, 4)
    CODES += kv_number * room * fours * 4
    SCALES += kv_number * room
    BOUNDS += kv_number * (room // 256) * 3
    # the rounded query
    exact = q.to(tl.float32) * scaling
    length = tl.sqrt(tl.sum(exact * exact, 1)) * 1.00001
    unit = tl.maximum(tl.max(tl.abs(exact), 1) / 127.0, 1e-30)
    entry = tl.floor(exact / unit[:, None] + 0.5)
    entry = tl.minimum(tl.maximum(entry, -127.0), 127.0)
    lost = exact - unit[:, None] * entry
    rest = tl.sqrt(tl.sum(lost * lost, 1)) * 1.00001 + 6e-8 * (16.0 + width / 8.0) * length
    codes_q = entry.to(tl.int8)
    SCORES += (batch * HEADS + kv_head * GROUPS) * queries * keys
    d = tl.arange(0, D)
    lanes = tl.full((ROWS, BN), float("-inf"), tl.float32)
    stop = tl.minimum((part + 1) * split, keys)
    for start in range(part * split, stop, BN):
        columns = part * 0 + start + tl.arange(0, BN)
        place = columns + first_key
        inside = columns < stop
        # keys lie interleaved in tiles of 16, four entries at a time
        spot = (
            ((place // 16).to(tl.int64) * fours * 64)[:, None]
            + ((d // 4) * 64 + d % 4)[None, :]
            + ((place % 16) * 4)[:, None]
        )
        code = tl.load(CODES + spot, mask=inside[:, None] & (d < width)[None, :], other=128)
        code = (code.to(tl.int16) - 128).to(tl.int8)
        whole = tl.dot(codes_q, tl.trans(code)).to(tl.float32)
        scale = tl.load(SCALES + place, mask=inside, other=0.0).to(tl.float32)
        group = BOUNDS + (place // 256) * 3
        residual = tl.load(group, mask=inside, other=0.0)
        norm = tl.load(group + 1, mask=inside, other=0.0)
        middle = unit[:, None] * whole * scale[None, :]
        error = (rest[:, None] * norm[None, :] + length[:, None] * residual[None, :]) * scale[None, :]
        error = tl.where((scale > 1e30)[None, :], float("inf"), error)  # a key without bounds
        seen = seen_in_group(
            MASK, head, query, columns, real, stop, queries, keys, window, mask_head, mask_row, mask_key, CAUSAL, WINDOWED
        )  # fmt: skip
        lower, bend = capped(middle - error, softcap, SOFTCAP)
        upper, bend = capped(middle + error, softcap, SOFTCAP)
        slack = 1e-5 if SOFTCAP else 0.0  # tanh is rounded, too
        lower = with_bias(
            (lower - slack) * beta[:, None], BIAS, head, query, columns, seen, bias_head, bias_row, bias_key
        )
        upper = with_bias(
            (upper + slack) * beta[:, None], BIAS, head, query, columns, seen, bias_head, bias_row, bias_key
        )
        lanes = tl.maximum(lanes, tl.where(lower == lower, lower, float("-inf")))
        upper = tl.where(upper == upper, upper, float("inf"))
        tl.store(
            SCORES + row.to(tl.int64)[:, None] * keys + columns[None, :], upper, mask=real[:, None] & inside[None, :]
        )
    best = tl.max(lanes, 1)
    origin = tl.where(tl.abs(best) == float("inf"), 0.0, best)
    lanes = lanes - origin[:, None]
    shift = tl.zeros((ROWS,), tl.float32)
    for _turn in range(4):
        p, w = powers(lanes - shift[:, None], eps[:, None], MEMBER)
        shift = raised(shift, tl.sum(p, 1), tl.sum(w, 1), eps)
    # below this no key of the row can have weight; the margin covers the rounding of the bound itself
    least = origin + shift * (1.0 - 4e-7) - (1.0 + 1e-5) / eps - 1e-5 * (1.0 + tl.abs(origin))
    least = tl.where(best == float("-inf"), float("-inf"), least)
    tl.debug_barrier()
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    for start in range(part * split, stop, BN):
        columns = part * 0 + start + tl.arange(0, BN)
        spot = row.to(tl.int64)[:, None] * keys + columns[None, :]
        inside = real[:, None] & (columns < stop)[None, :]
        upper = tl.load(SCORES + spot, mask=inside, other=float("-inf"))
        possible = (upper > least[:, None]) & (upper > float("-inf"))
        wanted = tl.max(possible.to(tl.int32), 0) > 0
        z = tl.full((ROWS, BN), float("-inf"), tl.float32)
        if tl.max(wanted.to(tl.int32), 0) > 0:
            k = chosen_rows(K, columns, wanted, key_row, width, D)
            seen = possible
            similar, bend = capped(product(q, tl.trans(k), PRECISION) * scaling, softcap, SOFTCAP)
            z = with_bias(similar * beta[:, None], BIAS, head, query, columns, seen, bias_head, bias_row, bias_key)
            z = tl.where(z == z, z, float("inf"))
        top = tl.maximum(top, tl.max(z, 1))
        tl.store(SCORES + spot, z, mask=inside)
    spot = ((batch * HEADS + kv_head * GROUPS) * queries + row) * tl.num_programs(0) + part
    tl.store(TOP + spot, top, mask=real)


@triton.jit
def find_shift(
    SCORES, TOP, SINKS, ALPHA, SHIFT, alpha_value, queries, keys, splits, alpha_batch, alpha_head, alpha_row,
    HEADS: tl.constexpr, SPLITS: tl.constexpr, CHUNK: tl.constexpr, MEMBER: tl.constexpr,
):  # fmt: skip
    """The score below which a row has no weight, as `maximum + shift`; +inf marks a row with NaN."""
    query, head = tl.program_id(0), tl.program_id(1)
    batch = tl.program_id(2).to(tl.int64)
    if ALPHA is None:
        eps = tl.maximum(query * 0.0 + alpha_value - 1.0, 1e-6)
    else:
        eps = tl.load(ALPHA + batch * alpha_batch + head * alpha_head + query * alpha_row).to(tl.float32)
        eps = tl.maximum(eps - 1.0, 1e-6)
    row = (batch * HEADS + head) * queries + query
    split = tl.arange(0, SPLITS)
    top = tl.load(TOP + row * splits + split, mask=split < splits, other=float("-inf"))
    maximum = tl.max(top, 0)
    sink = maximum * 0.0 + float("-inf")
    if SINKS is not None:
        sink = tl.load(SINKS + head).to(tl.float32)
        maximum = tl.maximum(maximum, sink)
    origin = tl.where(tl.abs(maximum) == float("inf"), 0.0, maximum)
    shift = origin * 0.0
    for _turn in range(3):  # a lower bound from the maxima of the splits
        p, w = powers(top - origin - shift, eps, MEMBER)
        sink_p, sink_w = powers(sink - origin - shift, eps, MEMBER)
        shift = raised(shift, tl.sum(p, 0) + sink_p, tl.sum(w, 0) + sink_w, eps)
    shift *= 1.0 - 4e-7
    moving = 1
    for _turn in range(60):
        if moving != 0:
            total = tl.zeros((CHUNK,), tl.float32)
            slope = tl.zeros((CHUNK,), tl.float32)
            for start in range(0, keys, CHUNK):
                columns = start + tl.arange(0, CHUNK)
                z = tl.load(SCORES + row * keys + columns, mask=columns < keys, other=float("-inf"))
                p, w = powers(z - origin - shift, eps, MEMBER)
                total += p
                slope += w
            sink_p, sink_w = powers(sink - origin - shift, eps, MEMBER)
            new = raised(shift, tl.sum(total, 0) + sink_p, tl.sum(slope, 0) + sink_w, eps)
            moving = (tl.abs(new - shift) > 1e-6 * tl.maximum(shift, 1.0)).to(tl.int32)
            shift = tl.maximum(new, shift)
    tl.store(SHIFT + row, tl.where(maximum == float("inf"), float("inf"), origin + shift))


@triton.jit
def read_values(
    SCORES, SHIFT, ALPHA, V, OUT_PARTS, alpha_value, queries, keys, value_width, split, value_batch, value_head, value_row,
    alpha_batch, alpha_head, alpha_row,
    HEADS: tl.constexpr, GROUPS: tl.constexpr, ROWS: tl.constexpr, DV: tl.constexpr, BN: tl.constexpr,
    MEMBER: tl.constexpr, PRECISION: tl.constexpr, PRECISE: tl.constexpr,
):  # fmt: skip
    part, kv_head = tl.program_id(0), tl.program_id(1)
    batch = tl.program_id(2).to(tl.int64)
    row = tl.arange(0, ROWS)
    head, query = kv_head * GROUPS + row // queries, row % queries
    real = row < GROUPS * queries
    if ALPHA is not None:
        ALPHA += batch * alpha_batch
    eps = tl.maximum(row_settings(ALPHA, alpha_value, head, query, real, alpha_head, alpha_row) - 1.0, 1e-6)
    first_row = (batch * HEADS + kv_head * GROUPS) * queries
    lowest = tl.load(SHIFT + first_row + row, mask=real, other=float("inf"))
    V += batch * value_batch + kv_head.to(tl.int64) * value_head
    out = tl.zeros((ROWS, DV), tl.float32)
    stop = tl.minimum((part + 1) * split, keys)
    for start in range(part * split, stop, BN):
        columns = part * 0 + start + tl.arange(0, BN)
        inside = real[:, None] & (columns < stop)[None, :]
        spot = (first_row + row)[:, None] * keys + columns[None, :]
        z = tl.load(SCORES + spot, mask=inside, other=float("-inf"))
        p, w = powers(z - lowest[:, None], eps[:, None], MEMBER)
        wanted = tl.max(p, 0) > 0
        if tl.max(wanted.to(tl.int32), 0) > 0:
            v = chosen_rows(V, columns, wanted, value_row, value_width, DV)
            out = weighted(p, v, out, PRECISION, PRECISE)
    out = tl.where((lowest == float("inf"))[:, None], float("nan"), out)
    entry = tl.arange(0, DV)
    spot = ((first_row + row) * tl.num_programs(0) + part)[:, None] * value_width + entry[None, :]
    tl.store(OUT_PARTS + spot, out, mask=real[:, None] & (entry < value_width)[None, :])


@triton.jit
def add_splits(OUT_PARTS, OUT, splits, value_width, DV: tl.constexpr):
    """The sum of the parts of a row."""
    row = tl.program_id(0).to(tl.int64)
    entry = tl.arange(0, DV)
    out = tl.zeros((DV,), tl.float32)
    for part in range(0, splits):
        out += tl.load(OUT_PARTS + (row * splits + part) * value_width + entry, mask=entry < value_width, other=0.0)
    tl.store(OUT + row * value_width + entry, out.to(OUT.dtype.element_ty), mask=entry < value_width)
