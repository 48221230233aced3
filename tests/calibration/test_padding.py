# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What is measured and minimised does not depend on padding."""

import pytest
import torch
from transformers import AlbertConfig, AlbertModel

from hf_sparse_hopfield import DistillationOptions, distill, to_sparse_hopfield
from hf_sparse_hopfield.calibration.comparison import compare_with_dense
from hf_sparse_hopfield.calibration.distillation_module import Distillation

from ..tiny_models import sharpened, tiny_model


def _batch(name, side):
    tokens = torch.randint(3, 90, (1, 10), generator=torch.Generator().manual_seed(1))
    ones, zeros = torch.ones_like(tokens), torch.zeros(1, 0 if side is None else 6, dtype=torch.long)

    def padded(tensor):
        return torch.cat([zeros, tensor] if side == "left" else [tensor, zeros], 1)

    batch = {"input_ids": padded(tokens), "attention_mask": padded(ones)}
    if name in ("t5", "bart"):  # of another length than the encoder's, or its padding would do for both
        batch |= {"decoder_input_ids": padded(tokens[:, 2:]), "decoder_attention_mask": padded(ones[:, 2:])}
    elif side == "left" and name != "bloom":
        batch["position_ids"] = (batch["attention_mask"].cumsum(1) - 1).clamp_min(0)
    return batch


@torch.no_grad()
def _measured(name, side):
    model = to_sparse_hopfield(sharpened(tiny_model(name), 3.0), {"alpha": 2.0})
    batch, distillation = _batch(name, side), Distillation(model, None, DistillationOptions(layer_steps=1))
    losses = []
    for distillation.step in (0, 1):  # by layers, and on the outputs
        losses.append(float(distillation(batch)["loss"]))
    return [*losses, *compare_with_dense(model, [batch]).values()]


@pytest.mark.parametrize(
    ("name", "side"),
    [("llama", "left"), ("llama", "right"), ("gpt2", "left"), ("bloom", "left"), ("bert", "right"), ("mpnet", "right")]
    + [("t5", "left"), ("t5", "right"), ("bart", "right")],
)
def test_padding_does_not_count(name, side):
    assert _measured(name, side) == pytest.approx(_measured(name, None), rel=1e-3)


def test_the_decoder_has_a_mask_of_its_own():
    """The masks have the same shape, so the encoder's would pass for the decoder's."""
    model = to_sparse_hopfield(sharpened(tiny_model("t5"), 3.0), {"alpha": 2.0})
    tokens = torch.randint(3, 90, (1, 10))
    whole, half = torch.ones_like(tokens), torch.tensor([[1] * 5 + [0] * 5])
    alone = {"input_ids": tokens, "attention_mask": whole, "decoder_input_ids": tokens[:, :5]}
    padded = {**alone, "decoder_input_ids": tokens, "decoder_attention_mask": half}
    assert compare_with_dense(model, [padded]) == pytest.approx(compare_with_dense(model, [alone]), rel=1e-4)


def test_labels_of_an_encoder_decoder_are_enough():
    model = to_sparse_hopfield(sharpened(tiny_model("t5"), 3.0), {"alpha": 2.0})
    generator = torch.Generator().manual_seed(0)
    batches = [
        {"input_ids": torch.randint(3, 90, (2, 9), generator=generator), "labels": torch.full((2, 9), 5)}
        for _ in range(3)
    ]
    for batch in batches:
        batch["labels"][:, 6:] = -100
    shorter = [{**batch, "labels": batch["labels"][:, :6].clone()} for batch in batches]
    compared = compare_with_dense(model, batches)
    assert compared == pytest.approx(compare_with_dense(model, shorter), rel=1e-4)
    _, report = distill(model, batches, steps=2, layer_steps=1, progress=False)
    assert report.held_out["before"]["dense_loss"] > 0


def test_layers_that_share_a_module_are_all_matched():
    torch.manual_seed(0)
    sizes = {"vocab_size": 99, "embedding_size": 16, "hidden_size": 32, "intermediate_size": 40}
    config = AlbertConfig(**sizes, num_hidden_layers=3, num_attention_heads=4)
    model = to_sparse_hopfield(AlbertModel(config).eval(), {"alpha": 2.0})
    distillation = Distillation(model, None, DistillationOptions())
    (site,) = distillation.sites.values()
    calls = []
    site.module.register_forward_hook(lambda *args: calls.append(1))
    distillation({"input_ids": torch.randint(3, 90, (2, 10))})
    assert len(calls) == 2 * 3
