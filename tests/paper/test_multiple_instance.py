# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The multiple-instance benchmarks: splits without leakage, AUC, the quick version, and a look at the real data."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from reporting import select


metrics = pytest.importorskip("sklearn.metrics", reason="folds are made by scikit-learn")
pytest.importorskip("matplotlib", reason="the report has pictures")

import multiple_instance  # noqa: E402


def test_splits_are_disjoint_and_stratified():
    labels = np.arange(200) % 2
    splits = multiple_instance.make_splits(labels, seed=1, folds=10)
    assert sorted(np.concatenate([split.test for split in splits])) == list(range(200))
    for split in splits:
        assert not set(split.train) & set(split.validation)
        assert not (set(split.train) | set(split.validation)) & set(split.test)
        assert len(split.validation) == 18 and labels[split.validation].mean() == 0.5
    other = multiple_instance.make_splits(labels, seed=2, folds=10)
    assert set(other[0].test) != set(splits[0].test)


def test_auc():
    labels = torch.randint(2, (4, 30))
    scores = (3 * torch.randn(4, 30)).round()  # with ties
    expected = [metrics.roc_auc_score(label, score) for label, score in zip(labels, scores, strict=True)]
    assert multiple_instance.pairwise_auc(scores, labels).tolist() == pytest.approx(expected)
    padded = torch.nn.functional.pad(labels, (0, 5), value=-1)
    more = torch.nn.functional.pad(scores, (0, 5), value=100.0)
    assert multiple_instance.pairwise_auc(more, padded).tolist() == pytest.approx(expected)


def test_standardised_on_what_is_trained_on():
    bags = multiple_instance.load_bags(None)
    splits = multiple_instance.make_splits(bags.labels.numpy(), seed=0, folds=4)
    config = multiple_instance.make_config("S pooling", bags, {"scaling": 1.0, "bag_dropout": 0.0})
    training = multiple_instance.StackedTraining(config, bags, splits, seed=0)
    for number, split in enumerate(splits):
        own = torch.cat([bags.instances[bag][bags.mask[bag] == 1] for bag in split.train])
        torch.testing.assert_close(training.mean[number, 0, 0], own.mean(0), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(training.deviation[number, 0, 0], own.std(0, correction=0), rtol=1e-4, atol=1e-5)
    # Nothing that happens in other bags changes what is learned: the test bags of the first fold made absurd.
    training.fit(2, **multiple_instance.TRAINING)
    changed = bags.instances.clone()
    changed[splits[0].test] += 1000.0
    other = multiple_instance.StackedTraining(config, bags._replace(instances=changed), splits, seed=0)
    other.fit(2, **multiple_instance.TRAINING)
    assert training.auc("validation")[0] == other.auc("validation")[0]
    for name, parameter in training.model.named_parameters():
        assert torch.equal(parameter[0], dict(other.model.named_parameters())[name][0]), name


def test_quick(tmp_path):
    record = multiple_instance.main(["--quick", "--output_dir", str(tmp_path)])
    assert not record["missing"]
    (result,) = select(record, dataset="generated", model="S pooling")
    assert np.shape(result["folds"]) == (2, 3) and np.mean(result["auc"]) > 0.8
    assert len(result["selection"]) == 2
    (nested,) = select(record, dataset="generated-nested", model="S pooling")
    assert np.shape(nested["folds"]) == (1, 3) and nested["auc"][0] > 0.8
    text = (tmp_path / "multiple_instance.md").read_text()
    assert text.startswith("## 3.") and "### Claims" in text
    assert (tmp_path / "multiple_instance.png").stat().st_size > 1000


def test_wider_search():
    bags = multiple_instance.load_bags(None)
    common = {"dataset": "generated", "model": "S pooling", "seeds": 1, "folds": 3, "epochs": 2, "bags": bags}
    grid = {"scaling": [1.0], "bag_dropout": [0.0]}
    narrow = multiple_instance.evaluate(**common, grid=grid)
    # The first choice is that of the small grid; each later one differs from the best so far in one hyperparameter.
    wider = {"embedding_size": [32, 64], "learning_rate": [1e-3, 1e-8]}
    wide = multiple_instance.evaluate(**common, grid=grid, wider=wider)
    assert wide["selection"][0] == narrow["selection"][0] and len(wide["selection"]) == 3
    sizes = [tried.get("embedding_size", 64) for tried in wide["selection"]]
    assert sizes[:2] == [64, 32] and wide["selection"][2]["learning_rate"] == 1e-8
    best = max(wide["selection"], key=lambda tried: tried["validation"])
    assert wide["choice"] == {name: value for name, value in best.items() if name != "validation"}
    untrained = multiple_instance.train(
        "S pooling",
        bags,
        multiple_instance.make_splits(bags.labels.numpy(), 0, 3),
        {"learning_rate": 0.0, **{name: values[0] for name, values in grid.items()}},
        1,
        seed=0,
    )
    fresh = multiple_instance.StackedTraining(untrained.model.config, bags, untrained.splits, seed=0)
    for name, parameter in fresh.model.named_parameters():
        assert torch.equal(parameter, dict(untrained.model.named_parameters())[name]), name


def test_nested_choice_is_blind_to_the_test_fold():
    bags = multiple_instance.load_bags(None)
    common = {"dataset": "generated", "model": "S pooling", "seeds": 2, "folds": 4, "epochs": 2}
    grid = {"scaling": [0.1, 1.0], "bag_dropout": [0.0]}
    result = multiple_instance.evaluate_nested(**common, grid=grid, bags=bags)
    assert np.shape(result["folds"]) == (2, 4) and len(result["choices"]) == 8
    (_, test), *_ = multiple_instance._folds(bags.labels.numpy(), 4, 0)
    changed = bags.instances.clone()
    changed[test] += 1000.0
    other = multiple_instance.evaluate_nested(**common, grid=grid, bags=bags._replace(instances=changed))
    for one, two in zip(result["selection"], other["selection"], strict=True):
        assert one["validation"][0, 0] == two["validation"][0, 0]
    assert any(
        not torch.equal(one["validation"], two["validation"])  # the other folds do see those bags
        for one, two in zip(result["selection"], other["selection"], strict=True)
    )
    assert result["choices"][0] == other["choices"][0]


def test_real_data_is_asked_for(tmp_path):
    with pytest.raises(ValueError, match="--data_dir is needed: the folder that holds mil/tiger.npz"):
        multiple_instance.main(["--output_dir", str(tmp_path)])


def test_real_bags():
    folder = os.environ.get("PAPER_DATA_DIR")
    if not folder or not Path(folder, "mil", "fox.npz").exists():
        pytest.skip("set PAPER_DATA_DIR to the folder that holds mil/fox.npz")
    bags = multiple_instance.load_bags(Path(folder, "mil", "fox.npz"))
    assert bags.instances.shape == (200, 13, 230)
    assert int(bags.mask.sum()) == 1320 and int(bags.labels.sum()) == 100
