# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The memory experiment: its verdicts, its quick version from end to end, its loaders on the real data."""

import os

import numpy as np
import pytest
import torch
from reporting import select


pytest.importorskip("sklearn", reason="the quick version uses the digits of scikit-learn")
pytest.importorskip("matplotlib", reason="the report has pictures")

import memory  # noqa: E402
import memory_report  # noqa: E402


def made_record(success):
    """A record of full size; `success` gives a model's share for dataset, protocol, task and run."""
    cells = {}
    for dataset in memory.FILES:
        for protocol, (scale, beta, steps, kind) in memory.PROTOCOLS.items():
            settings = {"dataset": dataset, "scale": scale, "beta": beta or memory.CAPTION[dataset][1], "steps": steps}
            for task, axis in (("capacity", memory.SIZES), ("noise", memory.NOISES)):
                for seed in range(3):
                    result = {"axis": axis, "top": [1.0] * len(axis)}
                    for model in memory.MODELS:
                        result[model] = {
                            "success": [success(model, dataset, protocol, task) + seed / 1000] * len(axis)
                        }
                    entry = {"settings": {**settings, "success": kind, "task": task, "seed": seed}, "result": result}
                    cells[f"{dataset}/{protocol}/{task}/{seed}"] = entry
    return {"cells": cells}


def test_verdicts_follow_the_record():
    def verdicts(record):
        rows = memory_report.verdicts(record, list(memory.FILES))
        return [verdict for _, verdict, _ in rows], [text for _, _, text in rows]

    better = made_record(lambda model, *_: 0.9 if model == "sparse" else 0.5)
    assert verdicts(better)[0] == ["reproduced", "reproduced", "reproduced", "not run"]
    worse = made_record(lambda model, *_: 0.1 if model == "sparse" else 0.5)
    assert verdicts(worse)[0] == ["not", "not", "not", "not run"]
    equal = made_record(lambda *_: 0.5)
    assert verdicts(equal)[0] == ["not", "not", "not", "not run"]

    def one_lost(model, dataset, protocol, task):
        lost = model == "polynomial" and (dataset, protocol, task) == ("mnist", "caption_unit", "noise")
        return 0.95 if lost else 0.9 if model == "sparse" else 0.5

    found, texts = verdicts(made_record(one_lost))
    assert found[:3] == ["reproduced", "reproduced", "partly"]
    assert "Better in 53 of 54" in texts[2] and "MNIST, caption's beta, [0, 1], noise 90.1 / 95.1" in texts[2]
    # what was not run keeps a claim from being reproduced
    for name in [name for name in better["cells"] if name.startswith("cifar10/clean_0.1/capacity")]:
        del better["cells"][name]
    assert verdicts(better)[0][:2] == ["partly", "reproduced"]


def test_verdict_on_sparse_patterns():
    """A gain at one beta that the best beta takes back is half of what the claim says."""

    def record(best_gain, gain):
        cells = {}
        for density in memory.DENSITIES:
            for seed in range(3):
                shape = (len(memory.DENSITY_BETAS), len(memory.DENSITY_NOISES))
                dense = np.full(shape, 0.5) + seed / 1000
                dense[0] -= gain
                sparse = np.full(shape, 0.5 + best_gain) + (seed + seed % 2) / 1000
                result = {"sparse": sparse.tolist(), "dense": dense.tolist()}
                cells[f"{density}/{seed}"] = {"settings": {"density": density, "seed": seed}, "result": result}
        return {"cells": cells}

    _, verdict, text = memory_report.sparsity_verdict(record(0.0, 0.4))
    assert verdict == "partly" and "at 3 of 3 densities, with the best beta for each at 0" in text
    assert "(up to 40 at one beta and noise)" in text
    assert memory_report.sparsity_verdict(record(0.1, 0.4))[1] == "reproduced"
    assert memory_report.sparsity_verdict(record(0.0, 0.0))[1] == "not"
    assert memory_report.sparsity_verdict({"cells": {}})[1] == "not run"


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
    (low,) = memory_report.chosen(record, "digits", "clean_0.1", "capacity")
    assert low["sparse"]["success"][-1] > low["dense"]["success"][-1] + 0.3
    (high,) = memory_report.chosen(record, "digits", "clean_1.0", "capacity")
    assert min(high["sparse"]["success"][0], high["dense"]["success"][0]) >= 0.8
    (noise,) = memory_report.chosen(record, "digits", "clean_1.0", "noise")
    assert noise["sparse"]["success"][0] > noise["sparse"]["success"][-1]
    (picture,) = [r for r in select(record, dataset="digits") if "query" in r]
    assert memory_report.unpacked(picture["query"]).shape == (len(memory.NOISES), 8, 8, 1)
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
