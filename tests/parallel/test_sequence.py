# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Ulysses sequence parallelism, in real processes."""

import pytest
import torch
from accelerate.utils import DeepSpeedSequenceParallelConfig

from tests.roads.table import road

from . import run_sequence
from .checkpoints import write
from .launch import torchrun


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ulysses")
    for name in ("llama", "one_key", "granite_swa", "bert"):
        write(name, folder / "checkpoints")
    torchrun("run_sequence.py", folder)
    return folder


@pytest.fixture(scope="module")
def processes(folder):
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def check(one: dict, two: dict) -> None:
    for name, values in one.items():
        for key, value in values.items():
            if name == "report":
                for quantity, heads in value.items():
                    assert two[name][key][quantity] == pytest.approx(heads, abs=1e-5), (key, quantity)
            else:
                torch.testing.assert_close(two[name][key], value, rtol=0, atol=1e-6, msg=f"{name}: {key}")


@road("Ulysses sequence parallelism, `with ulysses(model, batch) as part`", "equal")
@pytest.mark.parametrize("name", ["llama", "one_key", "granite_swa"])
def test_two_processes_share_a_sequence(folder, processes, name):
    """Logits, loss, gradients (learned beta among them) and sparsity report with no, left and right padding, gradient checkpointing and DDP; also with one key head and with sinks and windows."""
    one = run_sequence.run_causal(folder / "checkpoints" / name)
    assert one["none"]["model.layers.0.self_attn.sparse_hopfield.log_beta"].abs().max() > 1e-5
    for two in processes:
        check(one, two[name])


def test_two_processes_share_a_sequence_of_an_encoder(folder, processes):
    one = run_sequence.run_masked(folder / "checkpoints" / "bert")
    for two in processes:
        check(one, two["bert"])


@pytest.mark.parametrize(
    "attempt, message",
    {
        "late backward": "Call `backward` inside the context",
        "odd length": "has 11 tokens, which 2 processes cannot share evenly",
        "packed": "position_ids start anew within a row.*ulysses does not support packed",
        "mask": "attention_mask of shape .4, 1, 12, 12. cannot be split along a sequence",
        "cache": "neither caches nor cross-attention",
        "weights": "ulysses does not support output_attentions",
        "positions": "needs position_ids of",
        "labels": "Leave out labels and compute the loss from the logits",
        "dense": "it has no layer that retrieves sparsely",
        "two sequences": "it is an encoder-decoder",
        "one output": "it makes one output of the whole sequence",
        "own softmax": "compute their weights themselves",
        "heads": "has 3 heads, which 2 processes cannot share evenly",
        "twice": "parallel contexts do not nest",
        "not a model": "ulysses needs a model of transformers, got Linear",
    }.items(),
)
def test_what_cannot_be_split_is_refused(processes, attempt, message):
    for results in processes:
        with pytest.raises(Exception, match=message):
            raise RuntimeError(results["refusals"][attempt])


@road(
    'Ulysses through accelerate, `DeepSpeedSequenceParallelConfig(sp_attn_implementation="sparse_hopfield")`',
    "refused",
)
def test_accelerate_knows_other_names_only():
    """accelerate raises when the configuration is made: it accepts sdpa, flash attention and its kernels on the Hub."""
    with pytest.raises(ValueError, match="Invalid sp_attn_implementation: sparse_hopfield"):
        DeepSpeedSequenceParallelConfig(sp_attn_implementation="sparse_hopfield")
