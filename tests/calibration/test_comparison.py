# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import math

import pytest
import torch

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.calibration.comparison import compare_with_dense, divergence, mean_loss
from hf_sparse_hopfield.calibration.kl_divergence import kl_divergence
from hf_sparse_hopfield.observation import Observer, OwnSettings

from ..tiny_models import tiny_model
from .recording import batches_for


def test_divergence_of_logits_and_of_hidden_states():
    dense, sparse = torch.randn(2, 5, 7), torch.randn(2, 5, 7)
    expected = torch.nn.functional.kl_div(
        sparse.log_softmax(-1), dense.log_softmax(-1), log_target=True, reduction="none"
    ).sum(-1)
    torch.testing.assert_close(divergence("logits", dense, sparse), expected.mean())
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    torch.testing.assert_close(divergence("logits", dense, sparse, mask), expected[mask == 1].mean())
    error = divergence("last_hidden_state", dense, 3 * dense)
    torch.testing.assert_close(error, torch.tensor(4.0))


def test_comparison_of_a_model_with_its_dense_twin():
    batches = [{**batch, "labels": batch["input_ids"]} for batch in batches_for("llama")]
    dense = tiny_model("llama").train()
    with torch.no_grad():
        dense_loss = sum(float(dense.eval()(**batch).loss) for batch in batches) / len(batches)
    model = to_sparse_hopfield(tiny_model("llama").train(), {"alpha": 2.0})
    compared = compare_with_dense(model, batches)
    assert compared["divergence"] > 0 and compared["cosine"] < 1
    assert compared["dense_loss"] == pytest.approx(dense_loss, rel=1e-5)
    assert compared["sparse_loss"] == pytest.approx(mean_loss(model, batches, OwnSettings()), rel=1e-6)
    assert compared["dense_loss"] == pytest.approx(mean_loss(model, batches, Observer()), rel=1e-6)
    assert model.training
    same = compare_with_dense(model, batches, Observer())
    assert same["divergence"] == 0 and same["sparse_loss"] == same["dense_loss"]


def test_batches_without_labels_have_no_loss_and_no_batches_are_refused():
    model = to_sparse_hopfield(tiny_model("llama"), {"alpha": 2.0})
    assert mean_loss(model, batches_for("llama"), OwnSettings()) is None
    assert set(compare_with_dense(model, batches_for("llama"))) == {"divergence", "cosine"}
    with pytest.raises(ValueError, match="batches is empty"):
        compare_with_dense(model, [])


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_kl_divergence_in_parts(rows, monkeypatch):
    monkeypatch.setattr("hf_sparse_hopfield.calibration.kl_divergence._AT_ONCE", 7 * rows)
    dense, sparse = torch.randn(2, 5, 7), torch.randn(2, 5, 7, dtype=torch.float64)
    dense[..., 6] = -math.inf
    sparse[0, 0, 6] = -math.inf
    sparse.requires_grad_()
    weights = torch.rand(2, 5)
    found = kl_divergence(dense, sparse)
    (found * weights).sum().backward()
    wanted = sparse.detach().clone().requires_grad_()
    logs = wanted.log_softmax(-1), dense.double().log_softmax(-1)
    expected = torch.nn.functional.kl_div(*logs, log_target=True, reduction="none")[..., :6].sum(-1)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
    (expected * weights).sum().backward()
    torch.testing.assert_close(sparse.grad, wanted.grad, rtol=1e-4, atol=1e-6)


def test_kl_divergence_in_half_precision_and_of_slices():
    dense, sparse = torch.randn(2, 6, 9).bfloat16(), torch.randn(2, 6, 9).bfloat16().requires_grad_()
    found = kl_divergence(dense[:, 1:], sparse[:, 1:])
    expected = torch.nn.functional.kl_div(
        sparse.float().log_softmax(-1), dense.float().log_softmax(-1), log_target=True, reduction="none"
    ).sum(-1)[:, 1:]
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected)
    found.sum().backward()
    assert sparse.grad is not None and sparse.grad[:, 0].abs().sum() == 0 and sparse.grad[:, 1:].abs().sum() > 0


def test_kl_divergence_of_nan_is_nan():
    dense, sparse = torch.randn(2, 5, 7), torch.randn(2, 5, 7)
    dense[0, 0, 0] = sparse[1, 1, 1] = math.nan
    assert kl_divergence(dense, sparse).isnan().nonzero().tolist() == [[0, 0], [1, 1]]
