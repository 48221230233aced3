# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset
from transformers import Trainer, TrainerCallback, TrainingArguments, default_data_collator

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.backends import available_backends
from hf_sparse_hopfield.diagnostics import record_associations
from hf_sparse_hopfield.layers import RetrievalParameters
from hf_sparse_hopfield.training import SparseHopfieldArguments, SparseHopfieldTrainer, SparsityLoggingCallback
from hf_sparse_hopfield.training.sparsity_logging import first_samples, sparsity_metrics
from tests.tiny_models import sharpened, tiny_inputs, tiny_model

from .run_cases import digest, make_data, make_model


class Reporter(TrainerCallback):
    """Stands for an integration of `report_to`."""

    def __init__(self):
        self.logs = []

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.logs.append((state.global_step, dict(logs)))


def collate(samples):
    """Draws from every source of random numbers, as augmentation does."""
    batch = default_data_collator(samples)
    shift = random.randrange(12) + np.random.randint(12) + int(torch.randint(12, ()))
    return {**batch, "input_ids": batch["input_ids"].roll(shift, 1)}


def train(folder, arguments, case, trainer=SparseHopfieldTrainer, callbacks=(), **extra):
    reporter = Reporter()
    options = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "save_strategy": "no", "logging_steps": 2}
    made = trainer(
        make_model({"model": case, "dropout": 0.2}, arguments),
        TrainingArguments(str(folder), max_steps=4, per_device_train_batch_size=4, learning_rate=1e-2, **options),
        train_dataset=make_data({"model": case}),
        data_collator=collate,
        callbacks=[reporter, *callbacks],
        **extra,
    )
    return made, reporter


@pytest.mark.parametrize("family", ["llama", "bert", "t5", "bart", "vit", "mpnet"])
def test_metrics_are_those_of_the_weights(family):
    model = to_sparse_hopfield(sharpened(tiny_model(family)), {"alpha": 1.5, "beta": 2.0})
    inputs = tiny_inputs(family)
    metrics = sparsity_metrics(model, inputs, rows=10**6)
    associations = record_associations(model, inputs)
    for name, weights in associations.items():
        if "decoder" in name or family == "llama":
            continue  # causal: rows see different numbers of keys
        rows = weights.double().sum(-1) > 0
        support = (weights > 0).sum(-1)[rows].double().mean()
        assert metrics[f"sparsity/{name}/support"] == pytest.approx(float(support), rel=1e-6)
        entropy = torch.special.entr(weights.double()).sum(-1)[rows].mean()
        assert metrics[f"sparsity/{name}/entropy"] == pytest.approx(float(entropy), abs=1e-5)
    layers = [key for key in metrics if key.endswith("/zero_share") and key.count("/") > 1]
    assert len(layers) == len(associations)
    assert metrics["sparsity/zero_share"] == pytest.approx(sum(metrics[key] for key in layers) / len(layers))
    assert 0 < metrics["sparsity/zero_share"] < 1
    assert (metrics["sparsity/alpha"], metrics["sparsity/beta"]) == (1.5, 2.0)


def test_masked_keys_do_not_count():
    model = make_model({"model": "layers"}, SparseHopfieldArguments())
    tokens = torch.randint(1, 40, (3, 12))
    mask = (torch.arange(12) < 4).long().expand(3, 12)
    padded = sparsity_metrics(model, {"input_ids": tokens, "attention_mask": mask})
    short = sparsity_metrics(model, {"input_ids": tokens[:, :4]})
    assert padded == pytest.approx(short)
    assert set(padded) >= {"sparsity/support", "sparsity/pooling.hopfield/support"}


@pytest.mark.parametrize("case", ["bert", "layers"])
def test_logs_reach_reporters_and_training_is_not_touched(tmp_path, case):
    silent = SparseHopfieldArguments(learn_beta=True)
    arguments = SparseHopfieldArguments(learn_beta=True, sparsity_logging_steps=2)
    plain, _ = train(tmp_path, silent, case, sparse_hopfield_args=silent)
    plain.train()
    logged, reporter = train(tmp_path, arguments, case, sparse_hopfield_args=arguments)
    logged.train()
    assert digest(plain.model.state_dict()) == digest(logged.model.state_dict())  # with dropout: random numbers, too
    sparsity = {step: logs for step, logs in reporter.logs if "sparsity/support" in logs}
    assert list(sparsity) == [2, 4]
    assert all(0 < logs["sparsity/support"] <= 12 and logs["sparsity/entropy"] > 0 for logs in sparsity.values())
    assert [step for step, logs in reporter.logs if "loss" in logs] == [2, 4]
    assert any("sparsity/zero_share" in entry for entry in logged.state.log_history)
    # nothing stays behind
    assert "layer_sparsity" not in available_backends()
    parameters = [module for module in logged.model.modules() if isinstance(module, RetrievalParameters)]
    assert parameters and not any(module._forward_hooks for module in parameters)
    assert logged.model.training


def test_any_trainer_can_log(tmp_path):
    arguments = SparseHopfieldArguments(sparsity_logging_steps=4)
    (callback,) = arguments.callbacks()
    trainer, reporter = train(tmp_path, arguments, "bert", Trainer, [callback])
    with pytest.raises(ValueError, match="callback.trainer = trainer"):
        trainer.train()
    callback.trainer = trainer
    trainer.train()
    assert [step for step, logs in reporter.logs if "sparsity/support" in logs] == [4]


def test_samples_come_from_the_data_and_take_nothing_away():
    class Once(IterableDataset):
        def __iter__(self):
            return self

        def __next__(self):
            raise AssertionError("nothing may be taken")

    class Stream(IterableDataset):
        def __iter__(self):
            return iter(make_data({"model": "bert"}))

    data = make_data({"model": "bert"})
    expected = torch.stack([sample["input_ids"] for sample in data[:3]])
    for dataset in (data, Stream()):
        assert first_samples(DataLoader(dataset, collate_fn=default_data_collator), 3)["input_ids"].equal(expected)
    assert len(first_samples(DataLoader(data[:2], collate_fn=default_data_collator), 3)["input_ids"]) == 2
    with pytest.raises(ValueError, match="only once; give it batch="):
        first_samples(DataLoader(Once()), 3)
    with pytest.raises(ValueError, match="neither a batch nor training data"):
        first_samples(None, 3)


def test_wrong_uses_are_refused():
    with pytest.raises(ValueError, match="every must be an integer of at least 1, got 0"):
        SparsityLoggingCallback(every=0)
    with pytest.raises(ValueError, match="has no layer that retrieves sparsely"):
        sparsity_metrics(tiny_model("bert"), tiny_inputs("bert"))
