# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The memory experiment: its baselines by hand, its quick version from end to end, its loaders on the real data."""

import os

import harness
import numpy as np
import pytest
import torch


pytest.importorskip("sklearn", reason="the quick version uses the digits of scikit-learn")
pytest.importorskip("matplotlib", reason="the report has pictures")

import memory  # noqa: E402


def test_polynomial_memory_by_hand():
    patterns = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    query = torch.tensor([[2.0, 1.0]])
    weight = 2.0**10 / (2.0**10 + 1.0)
    found = memory.PolynomialMemory(patterns).retrieve(query)
    torch.testing.assert_close(found, torch.tensor([[weight, 1 - weight]]))
    # no temperature: a hundred times the query gives the same, and nothing overflows
    torch.testing.assert_close(memory.PolynomialMemory(patterns).retrieve(1e20 * query), found)
    again = memory.PolynomialMemory(patterns).retrieve(found)
    torch.testing.assert_close(memory.PolynomialMemory(patterns).retrieve(query, steps=2), again)
    with pytest.raises(ValueError, match="order must be even.*got 3"):
        memory.PolynomialMemory(patterns, order=3)


def test_half_masked_and_scales():
    generator = torch.Generator().manual_seed(0)
    images = memory.draw("digits", None, "signed", 5, generator)
    assert images.shape == (5, 1, 8, 8) and images.min() == -1 and images.max() == 1
    masked = memory.half_masked(images)
    assert torch.equal(masked[..., :4, :], images[..., :4, :]) and not masked[..., 4:, :].any()
    assert memory.draw("digits", None, "byte", 5, generator).max() == 255


def test_measure_finds_a_stored_pattern():
    patterns = torch.eye(4) * 3
    error, cosine = memory.measure("sparse", patterns, patterns[:2] + 0.1, 1.0, 1)
    assert torch.equal(error, torch.zeros(2)) and torch.allclose(cosine, torch.ones(2))
    assert (memory.measure("dense", patterns, patterns[:2] + 0.1, 0.1, 1)[0] > 1).all()


def test_quick(tmp_path):
    record = memory.main(["--quick", "--seeds", "1", "--output_dir", str(tmp_path)])
    assert not record["missing"]
    text = (tmp_path / "memory.md").read_text()
    assert text.startswith("## 1.") and "### Claims" in text and "| digits | clean, beta 0.1 |" in text
    for name in ("capacity", "noise", "pictures"):
        assert (tmp_path / f"memory_{name}.png").stat().st_size > 1000
    # at a low temperature sparse retrieves and dense does not; with ten stored digits at beta = 1 both do
    (low,) = memory.chosen(record, "digits", "clean_0.1", "capacity")
    assert low["sparse"]["success"][-1] > low["dense"]["success"][-1] + 0.3
    (high,) = memory.chosen(record, "digits", "clean_1.0", "capacity")
    assert min(high["sparse"]["success"][0], high["dense"]["success"][0]) >= 0.8
    (noise,) = memory.chosen(record, "digits", "clean_1.0", "noise")
    assert noise["sparse"]["success"][0] > noise["sparse"]["success"][-1]
    (picture,) = [r for r in harness.select(record, dataset="digits") if "query" in r]
    assert memory.unpacked(picture["query"]).shape == (len(memory.NOISES), 8, 8, 1)
    memory.main(["--quick", "--seeds", "1", "--output_dir", str(tmp_path), "--report_only"])
    assert (tmp_path / "memory.md").read_text() == text


def test_full_needs_data():
    with pytest.raises(ValueError, match="--data_dir is needed.*images/mnist.npz"):
        memory.main([])


@pytest.mark.parametrize("dataset", list(memory.FILES))
def test_real_images(dataset):
    folder = os.environ.get("PAPER_DATA_DIR", "")
    if not os.path.exists(os.path.join(folder, memory.FILES[dataset])):
        pytest.skip(f"PAPER_DATA_DIR names no folder with {memory.FILES[dataset]}")
    images = memory.load_images(dataset, folder)
    assert images.shape[1:] == {"mnist": (1, 28, 28), "cifar10": (3, 32, 32), "tiny_imagenet": (3, 64, 64)}[dataset]
    assert len(images) >= max(memory.SIZES) and images.min() >= 0 and images.max() == 1
    # photographs fill the range, digits on black do not: channels and rows in the right place keep neighbours alike
    neighbours = np.corrcoef(images[:200, 0, 10].flatten(), images[:200, 0, 11].flatten())[0, 1]
    assert neighbours > 0.7
