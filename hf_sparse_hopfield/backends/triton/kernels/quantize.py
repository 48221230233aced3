# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Adds keys to the int8 copy of a `KeyScreen`: what `KeyScreen._copy` does, in one launch."""

import triton
import triton.language as tl


@triton.jit
def copy_keys(
    K, CODES, SCALES, BOUNDS, first, count, width, room, key_batch, key_head, key_row,
    KV_HEADS: tl.constexpr, D: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Each program writes the new keys of one group of 256, and the bounds of the group."""
    group = first // 256 + tl.program_id(0)
    number = tl.program_id(1).to(tl.int64)
    K += (number // KV_HEADS) * key_batch + (number % KV_HEADS) * key_head
    fours = tl.cdiv(width, 4)
    CODES += number * room * fours * 4
    SCALES += number * room
    BOUNDS += (number * (room // 256) + group) * 3
    entry = tl.arange(0, D)
    begun = group * 256 < first  # earlier keys of the group have their bounds already
    most_residual = tl.load(BOUNDS, mask=begun, other=0.0)
    most_norm = tl.load(BOUNDS + 1, mask=begun, other=0.0)
    most_scale = tl.load(BOUNDS + 2, mask=begun, other=0.0)
    for start in range(0, 256, BN):
        place = group * 256 + start + tl.arange(0, BN)
        row = place - first
        inside = (row >= 0) & (row < count)
        pointers = K + row.to(tl.int64)[:, None] * key_row + entry[None, :]
        key = tl.load(pointers, mask=inside[:, None] & (entry < width)[None, :], other=0.0).to(tl.float32)
        largest = tl.max(tl.where(key == key, tl.abs(key), float("inf")), 1)
        wild = largest >= 1e30
        scale = tl.maximum(largest / 127.0, 7.888609052210118e-31)
        bits = (scale.to(tl.int32, bitcast=True) + 0xFFFF) & -65536  # rounded up to bfloat16
        scale = tl.where(wild, 1e35, bits.to(tl.float32, bitcast=True)).to(tl.bfloat16)
        exact = scale.to(tl.float32)
        quotient = tl.where(wild[:, None], 0.0, key / exact[:, None])
        rounded = tl.floor(quotient + 0.5)
        lost = quotient - rounded
        residual = tl.sqrt(tl.sum(lost * lost, 1)) * 1.00001 + 2e-5 * tl.sqrt(width * 1.0)
        norm = tl.sqrt(tl.sum(rounded * rounded, 1)) * 1.00001
        spot = ((place // 16).to(tl.int64) * fours * 64)[:, None] + ((entry // 4) * 64 + entry % 4)[None, :]
        spot += ((place % 16) * 4)[:, None]
        codes = (tl.where((entry < width)[None, :], rounded, 0.0) + 128.0).to(tl.uint8)
        tl.store(CODES + spot, codes, mask=inside[:, None] & (entry < fours * 4)[None, :])
        tl.store(SCALES + place, scale, mask=inside)
        most_residual = tl.maximum(most_residual, tl.max(tl.where(inside, residual, 0.0), 0))
        most_norm = tl.maximum(most_norm, tl.max(tl.where(inside, norm, 0.0), 0))
        most_scale = tl.maximum(most_scale, tl.max(tl.where(inside, tl.where(wild, float("inf"), exact), 0.0), 0))
    tl.store(BOUNDS, most_residual)
    tl.store(BOUNDS + 1, most_norm)
    tl.store(BOUNDS + 2, most_scale)
