# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Crossformer: shapes, its three attentions, checkpoints, Trainer and masks."""

import json
import subprocess
import sys

import pytest
import torch
from torch import nn
from transformers import AutoConfig, AutoModelForTimeSeriesPrediction, Trainer, TrainingArguments

from hf_sparse_hopfield import (
    SparseHopfieldCrossformerConfig,
    SparseHopfieldCrossformerForPrediction,
    to_dense,
    to_sparse_hopfield,
)
from hf_sparse_hopfield.layers import SparseHopfield
from hf_sparse_hopfield.models import (
    SparseHopfieldCrossformerOutput,
    split_series,
)
from hf_sparse_hopfield.models.crossformer.modeling_crossformer import (
    CrossformerSegmentMerging,
    CrossformerTwoStageAttention,
)


SMALL = {
    "num_input_channels": 3,
    "context_length": 24,
    "prediction_length": 8,
    "segment_length": 4,
    "num_routers": 2,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "dropout": 0.0,
}


def make_model(**settings):
    torch.manual_seed(0)
    return SparseHopfieldCrossformerForPrediction(SparseHopfieldCrossformerConfig(**{**SMALL, **settings})).eval()


def make_batch(config, batch=2):
    generator = torch.Generator().manual_seed(1)
    past = torch.randn(batch, config.context_length, config.num_input_channels, generator=generator)
    future = torch.randn(batch, config.prediction_length, config.num_input_channels, generator=generator)
    return {"past_values": past, "future_values": future}


@pytest.mark.parametrize("attention", ["sparse", "dense", "softmax"])
@pytest.mark.parametrize("lengths", [(24, 8, 4), (25, 7, 4), (3, 1, 4), (20, 9, 4)])
def test_shapes(attention, lengths):
    context, prediction, segment = lengths
    model = make_model(
        attention=attention, context_length=context, prediction_length=prediction, segment_length=segment
    )
    batch = make_batch(model.config)
    output = model(**batch)
    assert output.prediction_outputs.shape == (2, prediction, 3)
    expected = (output.prediction_outputs - batch["future_values"]).square().mean()
    assert type(output) is SparseHopfieldCrossformerOutput
    torch.testing.assert_close(output.loss, expected)
    assert model(batch["past_values"]).loss is None
    assert torch.equal(model(**batch, return_dict=False)[1], output.prediction_outputs)


def test_segments_are_halved_from_layer_to_layer():
    model = make_model(context_length=28, num_hidden_layers=3)
    assert [layer.routers.shape[0] for layer in model.encoder_layers] == [7, 4, 2]
    assert len(model.decoder_layers) == 4


def test_padding_repeats_the_first_value():
    """A context that is no multiple of the segments gives what the filled-up one gives."""
    model = make_model(context_length=22)
    filled = make_model(context_length=24)
    filled.load_state_dict(model.state_dict())
    past = make_batch(model.config)["past_values"]
    long = torch.cat([past[:, :1].expand(-1, 2, -1), past], dim=1)
    torch.testing.assert_close(model(past).prediction_outputs, filled(long).prediction_outputs)


def test_merging_repeats_the_last_segment():
    config = SparseHopfieldCrossformerConfig(**SMALL, merge_window=3)
    merging = CrossformerSegmentMerging(config)
    grid = torch.randn(2, 3, 4, 16)
    filled = torch.cat([grid, grid[:, :, -1:], grid[:, :, -1:]], dim=2)
    torch.testing.assert_close(merging(grid), merging(filled))
    assert merging(grid).shape == (2, 3, 2, 16)


def test_attentions_of_the_configuration():
    """-DH is -SH at alpha 1, bit for bit; sparsemax and the attention without layer norms are something else."""
    dense, sparse_at_one = make_model(attention="dense"), make_model(attention="sparse", alpha=1.0)
    sparse, softmax = make_model(attention="sparse"), make_model(attention="softmax")
    batch = make_batch(dense.config)
    sparse_at_one.load_state_dict(dense.state_dict())
    sparse.load_state_dict(dense.state_dict())
    reference = dense(**batch).prediction_outputs
    assert torch.equal(sparse_at_one(**batch).prediction_outputs, reference)
    assert not torch.allclose(sparse(**batch).prediction_outputs, reference, atol=1e-4)
    assert len(dense.state_dict()) > len(softmax.state_dict())
    layers = [module for module in sparse.modules() if isinstance(module, SparseHopfield)]
    assert len(layers) == 2 * 3 + 3 * 4 and all(layer.alpha == 2.0 for layer in layers)


def test_initial_weights():
    """As torch initialises linear maps, for all attentions; positions and routers from N(0, 1)."""
    for attention in ("sparse", "softmax"):
        model = make_model(attention=attention, hidden_size=64)
        core = model.encoder_layers[0].time_attention.association_core
        uniform = 1 / (3 * 64) ** 0.5
        for weight in (core.in_proj_weight, core.out_proj.weight, model.encoder_layers[0].time_feed_forward.up.weight):
            assert weight.std().item() == pytest.approx(uniform, rel=0.1)
        for learned in (model.past_positions, model.encoder_layers[0].routers):
            assert learned.std().item() == pytest.approx(1, rel=0.1)


def test_sparse_attention_has_zeros():
    # scores far apart
    model = make_model(beta=10.0)
    layer = model.encoder_layers[0].time_attention
    weights = layer.get_association_matrix(torch.randn(4, 6, 16))
    assert (weights == 0).float().mean() > 0.3
    dense = make_model(attention="dense", beta=10.0).encoder_layers[0].time_attention
    dense.load_state_dict(layer.state_dict())
    assert (dense.get_association_matrix(torch.randn(4, 6, 16)) > 0).all()


def test_softmax_is_multi_head_attention():
    """The attention of the published model, as torch has it."""
    ours = make_model(attention="softmax").encoder_layers[0].time_attention
    theirs = nn.MultiheadAttention(16, 2, batch_first=True)
    core = ours.association_core
    theirs.load_state_dict(
        {
            "in_proj_weight": core.in_proj_weight,
            "in_proj_bias": core.in_proj_bias,
            "out_proj.weight": core.out_proj.weight,
            "out_proj.bias": core.out_proj.bias,
        }
    )
    past, future = torch.randn(4, 6, 16), torch.randn(4, 3, 16)
    expected = theirs(future, past, past, need_weights=False)[0]
    torch.testing.assert_close(ours((past, future, past)), expected, atol=1e-5, rtol=1e-5)


def test_two_stages():
    """Time first, within each series; then series, through routers, within each segment."""
    layer = make_model(attention="dense").encoder_layers[0]  # dense: no weight, and so no gradient, is exactly zero
    assert isinstance(layer, CrossformerTwoStageAttention)
    grid = torch.randn(2, 3, 6, 16, requires_grad=True)
    layer(grid)[0, 0, 0, 0].backward()
    reached = grid.grad.abs().sum(-1) > 0
    # everything of the sample, through the other times of each series, and nothing of the other one
    assert reached[0].all() and not reached[1].any()
    with torch.no_grad():
        by_hand = []
        for sample in grid:
            series = torch.stack(
                [
                    layer.time_feed_forward(layer.time_norm(one[None], layer.time_attention(one[None])))[0]
                    for one in sample
                ]
            )
            columns = []
            for moment in range(6):
                states = series[None, :, moment]
                routers = layer.routers[moment][None]
                gathered = layer.gather_attention((states, routers, states))
                states = layer.channel_norm(states, layer.distribute_attention((gathered, states, gathered)))
                columns.append(layer.channel_feed_forward(states)[0])
            by_hand.append(torch.stack(columns, dim=1))
        torch.testing.assert_close(layer(grid), torch.stack(by_hand), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("attention", ["sparse", "softmax"])
def test_gradient(attention):
    """Every parameter is used, and the gradient of the loss is right along a random direction."""
    model = make_model(attention=attention, learn_beta=True).double()
    batch = {name: values.double() for name, values in make_batch(model.config).items()}
    model(**batch).loss.backward()
    parameters = list(model.parameters())
    assert all(parameter.grad is not None for parameter in parameters)
    directions = [torch.randn_like(parameter) for parameter in parameters]
    slope = sum((parameter.grad * d).sum() for parameter, d in zip(parameters, directions, strict=True)).item()
    size, losses = 1e-6, []
    with torch.no_grad():
        for sign in (1, -2):
            for parameter, d in zip(parameters, directions, strict=True):
                parameter.add_(sign * size * d)
            losses.append(model(**batch).loss.item())
    assert (losses[0] - losses[1]) / (2 * size) == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("center", ["mean", "last"])
def test_center(center):
    """A level that is added to the past is added to the prediction, and changes nothing else."""
    model = make_model(center=center)
    past = make_batch(model.config)["past_values"]
    level = torch.tensor([5.0, -3.0, 100.0])
    moved = model(past + level).prediction_outputs
    torch.testing.assert_close(moved, model(past).prediction_outputs + level, atol=1e-4, rtol=1e-4)
    without = make_model()
    assert not torch.allclose(without(past + 5).prediction_outputs, without(past).prediction_outputs + 5, atol=0.1)


def test_observed_masks():
    model = make_model()
    batch = make_batch(model.config)
    observed = torch.ones_like(batch["past_values"], dtype=torch.bool)
    observed[0, 3:6, 1] = False
    observed[1, :, 2] = False
    broken = batch["past_values"].masked_fill(~observed, torch.nan)
    filled = batch["past_values"].clone()
    filled[0, 3:6, 1] = batch["past_values"][0, observed[0, :, 1], 1].mean()
    filled[1, :, 2] = 0
    prediction = model(broken, past_observed_mask=observed).prediction_outputs
    torch.testing.assert_close(prediction, model(filled).prediction_outputs)

    future_observed = torch.rand(batch["future_values"].shape) > 0.5
    future = batch["future_values"].masked_fill(~future_observed, torch.nan)
    loss = model(batch["past_values"], future, future_observed_mask=future_observed).loss
    error = model(batch["past_values"]).prediction_outputs - future
    torch.testing.assert_close(loss, error[future_observed].square().mean())


def test_a_future_without_observations_has_no_loss():
    """As with the time series models of transformers: 0, and zero gradients."""
    model = make_model()
    batch = make_batch(model.config)
    nothing = torch.zeros_like(batch["future_values"], dtype=torch.bool)
    unknown = torch.full_like(batch["future_values"], torch.nan)
    loss = model(batch["past_values"], unknown, future_observed_mask=nothing).loss
    assert loss.item() == 0
    loss.backward()
    assert all(not parameter.grad.any() for parameter in model.parameters())


def test_recomputing_activations_changes_no_gradient():
    model = make_model(dropout=0.2, learn_beta=True).train()
    batch = make_batch(model.config)
    gradients = []
    for recompute in (False, True):
        if recompute:
            model.gradient_checkpointing_enable()
        model.zero_grad()
        torch.manual_seed(3)  # of dropout
        model(**batch).loss.backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=0)


def test_wrong_inputs():
    model = make_model()
    batch = make_batch(model.config)
    with pytest.raises(ValueError, match=r"past_values must have the shape \(batch, 24, 3\)"):
        model(batch["past_values"][:, 1:])
    with pytest.raises(ValueError, match=r"future_values must have the shape \(batch, 8, 3\)"):
        model(batch["past_values"], batch["past_values"])
    with pytest.raises(ValueError, match="past_observed_mask must be boolean"):
        model(batch["past_values"], past_observed_mask=batch["past_values"])


def test_save_and_load(tmp_path):
    """A fresh process loads the checkpoint by its type and predicts the same, bit for bit."""
    model = make_model(learn_alpha=True, learn_beta=True, alpha=1.5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(tmp_path)
    again, info = AutoModelForTimeSeriesPrediction.from_pretrained(tmp_path, output_loading_info=True)
    assert isinstance(again, SparseHopfieldCrossformerForPrediction)
    assert not any(info.values())
    past = make_batch(model.config)["past_values"]
    expected = model(past).prediction_outputs
    assert torch.equal(again.eval()(past).prediction_outputs, expected)
    config = AutoConfig.from_pretrained(tmp_path)
    assert isinstance(config, SparseHopfieldCrossformerConfig) and config.alpha == 1.5 and config.learn_beta

    torch.save(past, tmp_path / "past.pt")
    code = (
        "import sys, json, torch, hf_sparse_hopfield\n"
        "from transformers import AutoModelForTimeSeriesPrediction\n"
        "model = AutoModelForTimeSeriesPrediction.from_pretrained(sys.argv[1]).eval()\n"
        "with torch.no_grad():\n"
        "    print(json.dumps(model(torch.load(sys.argv[1] + '/past.pt', weights_only=True)).prediction_outputs.tolist()))\n"
    )
    result = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    torch.testing.assert_close(torch.tensor(json.loads(result.stdout.splitlines()[-1])), expected)


@pytest.mark.parametrize("function", [to_sparse_hopfield, to_dense])
def test_it_is_not_converted(function):
    with pytest.raises(ValueError, match="has its own Hopfield layers and cannot be converted"):
        function(make_model())


def test_dtype_and_training_mode():
    model = make_model(dropout=0.5).train()
    batch = make_batch(model.config)
    assert not torch.equal(model(**batch).prediction_outputs, model(**batch).prediction_outputs)
    half = make_model().bfloat16()
    output = half(batch["past_values"].bfloat16()).prediction_outputs
    assert output.dtype == torch.bfloat16 and torch.isfinite(output).all()


def test_trainer(tmp_path):
    """Real Trainer steps on a wave: the loss falls, evaluation and prediction work."""
    series = torch.stack([torch.sin(torch.arange(300) / period) for period in (2, 3, 5)], dim=1)
    splits = split_series(series, (200, 40, 60), 24, 8)
    model = make_model()
    arguments = TrainingArguments(
        str(tmp_path),
        max_steps=25,
        per_device_train_batch_size=16,
        learning_rate=3e-3,
        label_names=["future_values"],
        report_to="none",
        disable_tqdm=True,
        save_strategy="no",
        use_cpu=True,
    )
    trainer = Trainer(model, arguments, train_dataset=splits["train"], eval_dataset=splits["validation"])
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < 0.5 * before
    prediction = trainer.predict(splits["test"])
    assert prediction.predictions.shape == prediction.label_ids.shape == (53, 8, 3)
    # Without label_names it still has a loss.
    arguments.label_names = None
    plain = Trainer(model, arguments, eval_dataset=splits["validation"])
    assert plain.evaluate()["eval_loss"] == pytest.approx(trainer.evaluate()["eval_loss"])
    assert model(**make_batch(model.config), return_loss=False).loss is None
