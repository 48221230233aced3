# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The cost model of GPUs: numbers computed by hand, and what must rise or fall."""

import dataclasses

import pytest

from hf_sparse_hopfield.benchmark.gpu_model import (
    A100,
    H100,
    Attention,
    backward_products,
    decode_seconds,
    flash_decode_seconds,
    forward_products,
    main,
    parity_share,
    predict,
)


SHARES = [0.0, 0.05, 0.3, 0.7, 1.0]


def test_products_by_hand():
    assert forward_products(0.25) == 1 + 0.25 * (3 + 2)
    assert forward_products(0.25, passes=2) == 1 + 0.25 * (2 + 2)
    assert forward_products(0.25, surveyed=0.5) == 1 + 0.5 + 0.25 * (2 + 2)
    assert forward_products(0.9, surveyed=1.0, collecting=1.0) == 2  # scattered weights: the survey and one pass
    assert backward_products(0.25) == 9 * 0.25
    assert backward_products(0.25, listed=0.5) == 5 * 0.5 + 4 * 0.25


def test_seconds_by_hand():
    dense = predict(Attention(4096, heads=16, head_dim=64, batch=2, causal=False), A100, 2, 5)
    operations = 4 * 2 * 16 * 4096**2 * 64  # as the FlashAttention papers count them
    assert dense.forward == dense.flash_forward == pytest.approx(operations / 312e12 / 0.73)
    assert dense.backward == dense.flash_backward == pytest.approx(2.5 * operations / 312e12 / 0.63)
    assert dense.ratio == 1
    causal = predict(Attention(4096, heads=16, head_dim=64, batch=2), A100, 2, 5)
    assert causal.forward == pytest.approx(dense.forward / 2, rel=1e-3)
    assert predict(Attention(4096), H100, 2, 5, utilisation=0.5).ratio == 2


@pytest.mark.parametrize("gpu", [A100, H100], ids=lambda gpu: gpu.name)
def test_time_rises_with_the_share(gpu):
    ratios = [predict(Attention(8192), gpu, forward_products(s), backward_products(s)).ratio for s in SHARES]
    assert ratios == sorted(set(ratios)) and ratios[0] < 1 < ratios[-1]
    decodes = [decode_seconds(Attention(32768), gpu, value_share=s) for s in SHARES]
    assert decodes == sorted(set(decodes))


def test_time_rises_with_the_sizes():
    def both(attention):
        result = predict(attention, A100, 2, 2)
        return result.forward, result.backward, decode_seconds(attention, A100, value_share=0.1)

    small = Attention(4096)
    for field in ("length", "head_dim", "batch"):
        larger = dataclasses.replace(small, **{field: 2 * getattr(small, field)})
        assert all(more > less for more, less in zip(both(larger), both(small), strict=True))


def test_parity_with_flash_attention():
    assert parity_share(H100) == pytest.approx(6 / 14)  # 1 + 5 s + 9 s = 7
    for gpu in (A100, H100):
        for passes in (2, 3, 5):
            share = parity_share(gpu, passes=passes)
            products = forward_products(share, passes=passes), backward_products(share)
            assert predict(Attention(16384), gpu, *products).ratio == pytest.approx(1)


def test_decode_by_hand():
    work = Attention(65536, heads=32, kv_heads=8, head_dim=128)
    key_bytes = 8 * 65536 * 256
    assert flash_decode_seconds(work, A100) == pytest.approx(2 * key_bytes / 2039e9 + 6e-6)
    scores = 32 * 65536 * 4  # they fit the cache: written, read for the values, and read three times by 32 programs
    expected = key_bytes * 1.1 / 2039e9 + scores * (2 / 5e12 + 3 / (32 * 90e9)) + 12e-6
    assert decode_seconds(work, A100, value_share=0.1) == pytest.approx(expected)
    int8 = 8 * 65536 * (128 + 2 + 12 / 256)
    expected = (int8 + key_bytes * (0.1 + 0.2)) / 2039e9 + scores * (4 / 5e12 + 3 / (32 * 90e9)) + 12e-6
    assert decode_seconds(work, A100, value_share=0.1, candidate_share=0.2) == pytest.approx(expected)
    large = dataclasses.replace(work, batch=4)  # scores beyond the cache go to memory
    scores *= 4
    expected = 4 * key_bytes * 1.1 / 2039e9 + scores * 5 / 2039e9 + 12e-6
    assert decode_seconds(large, A100, value_share=0.1) == pytest.approx(expected)


def test_the_copy_pays_only_if_it_excludes_keys():
    work = Attention(65536)
    without, few, all_keys = (
        decode_seconds(work, H100, value_share=0.01, candidate_share=candidates) for candidates in (None, 0.05, 1.0)
    )
    assert few < without < all_keys


def cells(line):
    return [cell.strip() for cell in line.split("|")[1:-1]]


def test_the_command_prints_tables(capsys):
    main(["--at", "4096", "2", "5", "--at", "8192", "1", "2.5", "--decode", "0.1", "0.2"])
    _, _, first, second, _, _, _, short, long = capsys.readouterr().out.splitlines()
    assert cells(first)[4] == cells(first)[7] == "1.00" and cells(first)[2] == cells(first)[3]
    assert cells(second)[4] == cells(second)[7] == "0.50"
    work = Attention(8192)
    ratio = decode_seconds(work, A100, value_share=0.1) / flash_decode_seconds(work, A100)
    assert cells(short)[0] == "4096" and cells(long)[2] == f"{ratio:.2f}"
