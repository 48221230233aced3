# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The bit-pattern experiment: its data, that stacking and counting change nothing, its quick version from end to end."""

from pathlib import Path

import pytest
import torch
from counted_bags import _binomial_table, _dropped, _mean_of_rows, bag_logits, counted_entmax
from harness import load
from reporting import select, spread
from stacking import stack, unstack

from hf_sparse_hopfield import entmax
from hf_sparse_hopfield.models import (
    SparseHopfieldForMultipleInstanceClassification,
    SparseHopfieldMultipleInstanceConfig,
)


pytest.importorskip("matplotlib", reason="the report has pictures")

import bit_pattern  # noqa: E402
import bit_pattern_report  # noqa: E402


def test_bags():
    bags, labels = bit_pattern.make_bags(seed=3, count=400, size=30, positives=2, part="train")
    again, _ = bit_pattern.make_bags(seed=3, count=400, size=30, positives=2, part="train")
    test, _ = bit_pattern.make_bags(seed=3, count=400, size=30, positives=2, part="test")
    assert torch.equal(bags, again) and not torch.equal(bags, test)
    assert labels.float().mean() == 0.5
    background = set(bags[labels == 0].flatten().tolist())
    assert len(background) == 11
    signals = set(range(15)) - background
    assert all(sum(kind in signals for kind in bag.tolist()) == 2 for bag in bags[labels == 1])
    assert set(test[labels == 0].flatten().tolist()) == background
    assert bit_pattern.bit_patterns().unique(dim=0).shape == (15, 4)
    assert bit_pattern.count_kinds(bags).sum(-1).eq(30).all()


@pytest.mark.parametrize("alpha", [1.0, 2.0])
def test_counted_entmax_is_entmax_of_the_whole_bag(alpha):
    kinds = torch.randint(6, (40, 25))
    counts = torch.nn.functional.one_hot(kinds, 6).sum(1).double()
    scores = torch.randn(6, 40, dtype=torch.float64) / 3
    whole = entmax(scores.T.gather(1, kinds), alpha=alpha)
    expected = torch.zeros(40, 6, dtype=torch.float64).scatter_(1, kinds, whole)  # equal kinds have equal weights
    ours = counted_entmax(scores[None, None, :, None], counts.T[None, None, :, None], alpha)[0, 0, :, 0].T
    torch.testing.assert_close(ours, expected)
    if alpha == 2.0:
        assert (ours == 0).any()


@pytest.mark.parametrize("model", bit_pattern.MODELS)
@pytest.mark.parametrize("steps", [0, 3])
def test_stacked_and_counted_models_equal_single_ones(model, steps):
    """Logits and gradients: three models by themselves on whole bags, their stack on whole bags, and on counts."""
    config = bit_pattern.make_config(model)
    if "attention" not in model:
        config.update_steps, config.update_eps = steps, 0.0
    elif steps:
        pytest.skip("attention has no steps")
    models = [SparseHopfieldForMultipleInstanceClassification(config).eval() for _ in range(3)]
    for single in models:
        for parameter in single.parameters():
            parameter.data *= 2.0  # scores far enough apart for sparse and dense to differ
    stacked = stack(models).eval()
    patterns, bags = bit_pattern.bit_patterns(), torch.randint(15, (3, 5, 20))
    single = torch.stack([model(patterns[bag]).logits for model, bag in zip(models, bags, strict=True)])
    whole = stacked(patterns[bags].flatten(0, 1)).logits.view(3, 5, 2)
    counted = bag_logits(stacked, patterns, bit_pattern.count_kinds(bags))
    torch.testing.assert_close(whole, single, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(counted, single, rtol=1e-4, atol=1e-4)
    weights = torch.randn_like(single)
    (single * weights).sum().backward()
    (counted * weights).sum().backward()
    for name, parameter in stacked.named_parameters():
        expected = torch.stack([dict(model.named_parameters())[name].grad for model in models])
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(unstack(stacked, 1)(patterns[bags[1]]).logits, single[1], rtol=1e-4, atol=1e-4)


def test_training_a_stack_is_training_each():
    """Three steps of AdamW, without dropout, with layer norms and an embedding."""
    config = SparseHopfieldMultipleInstanceConfig(
        input_size=4, embedding_layers=1, embedding_size=8, num_heads=2, head_size=4, normalize=True
    )
    # In float32 Adam would make steps of the rounding noise that is the gradient of biases without influence.
    models = [SparseHopfieldForMultipleInstanceClassification(config).double() for _ in range(2)]
    stacked = stack(models)
    instances, labels = torch.randn(2, 6, 7, 4, dtype=torch.float64), torch.randint(2, (2, 6))

    def steps(model, inputs, targets, factor):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(3):
            loss = torch.nn.functional.cross_entropy(model(inputs).logits, targets)
            optimizer.zero_grad()
            (factor * loss).backward()
            optimizer.step()

    steps(stacked, instances.flatten(0, 1), labels.flatten(), 2)
    for number, model in enumerate(models):
        steps(model, instances[number], labels[number], 1)
        for name, value in stacked.state_dict().items():
            torch.testing.assert_close(value[number], model.state_dict()[name], rtol=1e-7, atol=1e-7)


def test_dropout_of_counted_bags_has_the_moments_of_dropout():
    """Against dropout of the single instances, mean and variance over many draws."""
    table = _binomial_table(60, 0.5)
    for trials in (1, 5, 10):
        chances = torch.bincount(table[trials].long(), minlength=trials + 1) / table.shape[1]
        exact = torch.distributions.Binomial(trials, torch.tensor(0.5)).log_prob(torch.arange(trials + 1.0)).exp()
        torch.testing.assert_close(chances, exact, rtol=0, atol=1e-6)
    torch.testing.assert_close(table.var(1, unbiased=False)[60], torch.tensor(15.0), rtol=0.02, atol=0)
    counts = torch.tensor([1.0, 4.0, 0.0, 7.0])
    config = SparseHopfieldMultipleInstanceConfig(aggregation="pooling", bag_dropout=0.5)
    model = SparseHopfieldForMultipleInstanceClassification(config).train()
    draws, kinds = 4000, counts.view(1, 1, 4, 1, 1)
    weights = torch.tensor([0.2, 0.1, 0.0, 0.05]).view(1, 1, 4, 1, 1).expand(1, 1, 4, 1, draws)
    dropped = _dropped(weights, kinds.expand(1, 1, 4, 1, draws), model)[0, 0, :, 0]
    torch.testing.assert_close(dropped.mean(1), (weights * kinds)[0, 0, :, 0, 0], rtol=0.05, atol=1e-6)
    torch.testing.assert_close(dropped.var(1), (weights.square() * kinds)[0, 0, :, 0, 0], rtol=0.1, atol=1e-6)
    rows = torch.rand(4, 4)  # kinds x states
    repeats = counts.long()
    whole = rows.repeat_interleave(repeats, 0).repeat_interleave(repeats, 1)  # every instance as key and as state
    single = torch.nn.functional.dropout(whole.expand(draws, -1, -1), 0.5).mean(2)
    single = torch.stack([part.sum(1) for part in single.split(repeats.tolist(), 1)], 1)
    ours = _mean_of_rows(rows.view(1, 1, 4, 4, 1).expand(1, 1, 4, 4, draws), kinds.expand(1, 1, 4, 1, draws), model)[
        0, 0, :, 0
    ].T
    torch.testing.assert_close(ours.mean(0), single.mean(0), rtol=0.05, atol=1e-3)
    torch.testing.assert_close(ours.var(0), single.var(0), rtol=0.15, atol=1e-6)


def test_quick(tmp_path):
    arguments = ["--quick", "--seeds", "2", "--epochs", "4", "--output_dir", str(tmp_path)]
    record = bit_pattern.main([*arguments, "--only", "*pooling"])
    assert len(record["cells"]) == 6 and record["missing"]
    (result,) = select(record, model="S pooling", bag_size=200, positives=20)
    assert len(result["accuracy"]) == 2 and result["curve"][-1][0] == 4
    assert result["difference"] < 1e-3
    assert set(result["generalization"]) == {str(number) for number in bit_pattern.POSITIVES}
    text = (tmp_path / "bit_pattern.md").read_text()
    assert text.startswith("## 2.") and "### Claims" in text
    for name in ("bit_pattern", "bit_pattern_curves"):
        assert (tmp_path / f"{name}.png").stat().st_size > 1000


def test_cells_on_the_temperature_are_in_no_other_table(tmp_path):
    arguments = ["--quick", "--seeds", "2", "--epochs", "2", "--output_dir", str(tmp_path)]
    record = bit_pattern.main([*arguments, "--only", "*/D_pooling*"])
    plain, temperature = _parts(record)
    found = [(cell["settings"]["scaling"], cell["settings"]["epochs"]) for cell in temperature["cells"].values()]
    assert found == [(1.0, 2)] and len(plain["cells"]) == 3
    text = (tmp_path / "bit_pattern.md").read_text()
    for scaling, epochs in [(0.25, 2), *found]:
        assert f"| D pooling | {scaling:g} | {epochs} |" in text
    assert f"| {spread(record['cells']['size/50/D_pooling']['result']['accuracy'])} (100) |" in text
    assert {verdict for _, verdict, _ in bit_pattern_report._claims(plain, temperature)} == {"not run"}


def test_reasons_of_the_stored_cells():
    record = load(Path(bit_pattern.__file__).parent / "results" / "bit_pattern.json")
    assert not record["missing"]
    assert bit_pattern_report._reasons(*_parts(record))


def test_what_is_within_the_noise_does_not_agree():
    def cell(model, positives, accuracy):
        return {
            "settings": {"model": model, "bag_size": 200, "positives": positives},
            "result": {"accuracy": accuracy},
        }

    dense = {2: [60.0, 61.0, 59.0], 4: [99.0, 100.0, 99.5]}
    cells = [cell("S pooling", positives, [100.0, 100.0, 99.5]) for positives in dense]
    cells += [cell("D pooling", positives, accuracy) for positives, accuracy in dense.items()]
    record = {"cells": dict(enumerate(cells))}
    bags = {"1 %": (200, 2), "2 %": (200, 4)}
    found, text = bit_pattern_report._compared(record, "pooling", bags)
    assert found == "partly" and "1 %: +39.83" in text and "(+50.56)" in text and "2 %: +0.33" in text
    assert bit_pattern_report._compared(record, "pooling", {"1 %": (200, 2)})[0] == "reproduced"
    assert bit_pattern_report._compared(record, "Hopfield", bags) == ("not run", "Not run.")


def _parts(record):
    return [bit_pattern_report._part(record, temperature=temperature) for temperature in (False, True)]


@pytest.mark.slow
def test_sparse_pooling_finds_signals_that_dense_pooling_misses():
    sparse, dense = (
        bit_pattern.train(model, bag_size=100, positives=1, seeds=2, epochs=60)["accuracy"]
        for model in ("S pooling", "D pooling")
    )
    assert min(sparse) > 85 and sum(sparse) > sum(dense) + 20
