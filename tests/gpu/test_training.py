# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Training on a GPU: the Trainer in bfloat16, dropout, gradient checkpointing."""

import copy

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from transformers import TrainingArguments

from hf_sparse_hopfield import retrieve
from hf_sparse_hopfield.training import SparseHopfieldArguments, SparseHopfieldTrainer, learned_parameter_names

from ..training.run_cases import make_data, make_model


pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("name", "checkpointing"), [("llama", False), ("llama", True), ("bert", False), ("layers", False)]
)
@pytest.mark.parametrize("bf16", [True, False])
def test_trainer(name, checkpointing, bf16, device, tmp_path):
    arguments = SparseHopfieldArguments(alpha=1.5, learn_alpha=True, learn_beta=True)
    model = make_model({"model": name}, arguments)
    if checkpointing:
        model.gradient_checkpointing_enable()
    before = copy.deepcopy(model.state_dict())
    settings = {"max_steps": 2, "learning_rate": 1e-2, "report_to": "none", "disable_tqdm": True, "logging_steps": 1}
    training = TrainingArguments(
        str(tmp_path), **settings, save_strategy="no", use_cpu=device == "cpu", seed=3, bf16=bf16
    )
    if device == "cuda":
        training._n_gpu = 1  # one, also where there are more: DataParallel is not what is tested
    trainer = SparseHopfieldTrainer(
        model, training, train_dataset=make_data({"model": name}), sparse_hopfield_args=arguments
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 2 and all(torch.tensor(losses).isfinite())
    after = trainer.model.state_dict()
    assert next(iter(after.values())).device.type == device
    for parameter in learned_parameter_names(trainer.model):
        assert not torch.equal(after[parameter].cpu(), before[parameter].cpu()), parameter


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
def test_dropout_is_reproducible(alpha, device):
    leaves = [torch.randn(2, 4, 100, 32, device=device, requires_grad=True) for _ in range(3)]

    def run(seed, wrap=lambda function, *tensors: function(*tensors)):
        torch.manual_seed(seed)
        output = wrap(lambda q, k, v: retrieve(3 * q, k, v, alpha=alpha, dropout=0.3), *leaves)
        return output, *torch.autograd.grad(output.square().sum(), leaves)

    first, again, other = run(1), run(1), run(2)
    assert torch.equal(first[0], again[0]) and not torch.equal(first[0], other[0])
    torch.testing.assert_close(first, again, rtol=1e-4, atol=1e-4)
    recomputed = run(1, lambda function, *tensors: checkpoint(function, *tensors, use_reentrant=False))
    assert torch.equal(recomputed[0], first[0])
    torch.testing.assert_close(recomputed, first, rtol=1e-4, atol=1e-4)


def test_dropout_keeps_the_mean(device):
    query, key, value = (torch.randn(1, 2, 50, 32, device=device) for _ in range(3))
    expected = retrieve(query, key, value, alpha=1.5)
    mean = torch.stack([retrieve(query, key, value, alpha=1.5, dropout=0.2) for _ in range(400)]).mean(0)
    torch.testing.assert_close(mean, expected, atol=0.15, rtol=0.0)
