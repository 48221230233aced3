# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The multiple-instance classifier: what it computes, padding, saving, Trainer."""

import json

import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, Trainer, TrainingArguments

from hf_sparse_hopfield import (
    SparseHopfieldForMultipleInstanceClassification,
    SparseHopfieldMultipleInstanceConfig,
    entmax,
)
from hf_sparse_hopfield.models import MultipleInstanceCollator


AGGREGATIONS = ("pooling", "hopfield", "attention", "gated_attention")


def make(aggregation, **settings):
    return SparseHopfieldForMultipleInstanceClassification(
        SparseHopfieldMultipleInstanceConfig(input_size=6, aggregation=aggregation, **settings)
    ).eval()


def grow(model, factor=3.0):
    """Larger weights, so that scores differ and sparse and dense do."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= factor
    return model


def heads(inputs, weight, bias, count):
    return (inputs @ weight.T + bias).unflatten(-1, (count, -1)).transpose(-2, -3)


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("aggregation", ["pooling", "hopfield"])
def test_the_formula_of_hopfield_aggregation(aggregation, alpha):
    model = grow(make(aggregation, alpha=alpha, num_heads=2, head_size=3, scaling=0.7, update_steps=1, update_eps=0.0))
    bag = torch.randn(1, 5, 6)
    layer = model.aggregation if aggregation == "hopfield" else model.aggregation.hopfield
    core = layer.association_core
    state = bag if aggregation == "hopfield" else model.aggregation.pooling_weights
    query, key, value = (
        heads(x, weight, bias, 2)
        for x, weight, bias in zip(
            (state, bag, bag), core.in_proj_weight.chunk(3), core.in_proj_bias.chunk(3), strict=True
        )
    )
    for _ in range(1):
        query = entmax(0.7 * query @ key.mT, alpha=alpha) @ key
    retrieved = (entmax(0.7 * query @ key.mT, alpha=alpha) @ value).transpose(1, 2).flatten(2)
    expected = model.classifier(core.out_proj(retrieved).mean(1))
    torch.testing.assert_close(model(bag).logits, expected)


@pytest.mark.parametrize("aggregation", ["attention", "gated_attention"])
def test_the_formula_of_attention(aggregation):
    model = grow(make(aggregation, num_heads=2, head_size=3))
    bag = torch.randn(1, 5, 6)
    pool = model.aggregation
    hidden = torch.tanh(bag @ pool.hidden.weight.T + pool.hidden.bias)
    if aggregation == "gated_attention":
        hidden = hidden * torch.sigmoid(bag @ pool.gate.weight.T + pool.gate.bias)
    weights = torch.softmax(hidden @ pool.score.weight.T + pool.score.bias, 1)
    expected = model.classifier(torch.einsum("bnh,bnd->bhd", weights, bag).flatten(1))
    torch.testing.assert_close(model(bag).logits, expected)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_order_and_padding_have_no_influence(aggregation):
    model = grow(make(aggregation, embedding_layers=2, embedding_size=16))
    bag = torch.randn(1, 7, 6)
    alone = model(bag, output_attentions=True)
    padded = torch.cat([bag[:, torch.randperm(7)], 100 * torch.randn(1, 4, 6)], 1)
    mask = torch.tensor([[1] * 7 + [0] * 4])
    other = model(padded, mask, output_attentions=True)
    torch.testing.assert_close(alone.logits, other.logits, rtol=1e-4, atol=1e-4)
    states = 7 if aggregation == "hopfield" else 1
    assert alone.attentions.shape == (1, 8, states, 7)
    torch.testing.assert_close(alone.attentions.sum(-1), torch.ones(1, 8, states))
    assert (other.attentions[..., 7:] == 0).all()


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_padding_may_be_anything(aggregation):
    """NaN in the padding reaches neither output nor gradient."""
    model = grow(make(aggregation))
    bag, mask, label = torch.randn(2, 5, 6), torch.tensor([[1, 1, 1, 0, 0]] * 2), torch.tensor([0, 1])
    model(bag, mask, label).loss.backward()
    expected = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    model.zero_grad()
    bag[:, 3:] = float("nan")
    model(bag, mask, label).loss.backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name])


@pytest.mark.parametrize("alpha", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_an_empty_bag_has_no_weights(aggregation, alpha):
    """All padding: weights and gradients are zero, what the padding holds does not matter, and other bags are as ever."""
    model = grow(make(aggregation, alpha=alpha, embedding_layers=1, embedding_size=8))
    bags, mask = torch.randn(2, 5, 6), torch.tensor([[1, 1, 1, 0, 0], [0] * 5])
    bags.requires_grad_()
    output = model(bags, mask, labels=torch.tensor([0, 1]), output_attentions=True)
    assert not output.attentions[1].any()
    torch.testing.assert_close(output.logits[1], model(100 * bags, mask).logits[1])
    torch.testing.assert_close(output.logits[0], model(bags[:1, :3]).logits[0], rtol=1e-4, atol=1e-4)
    if aggregation != "pooling":  # which has a bias behind what is retrieved
        torch.testing.assert_close(output.logits[1], model.classifier.bias)
    output.loss.backward()
    assert bags.grad[0, :3].any() and not bags.grad[1].any()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())


def test_alpha_makes_sparse_or_dense():
    for aggregation in AGGREGATIONS:
        bag = torch.randn(4, 30, 6)
        sparse = grow(make(aggregation, alpha=2.0))
        dense = make(aggregation, alpha=1.0)
        dense.load_state_dict(sparse.state_dict())
        assert (sparse(bag, output_attentions=True).attentions == 0).float().mean() > 0.3
        assert (dense(bag, output_attentions=True).attentions > 0).all()
        assert not torch.allclose(sparse(bag).logits, dense(bag).logits, atol=1e-3)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_bag_dropout_acts_in_training_only(aggregation):
    model = make(aggregation, bag_dropout=0.5)
    bag = torch.randn(2, 9, 6)
    assert torch.equal(model(bag).logits, model(bag).logits)
    model.train()
    assert not torch.equal(model(bag).logits, model(bag).logits)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_save_and_auto_classes(aggregation, tmp_path):
    learned = {"learn_beta": True, "normalize": True} if aggregation in ("pooling", "hopfield") else {}
    model = grow(make(aggregation, embedding_layers=1, num_labels=3, classifier_activation="relu", **learned))
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert type(loaded) is SparseHopfieldForMultipleInstanceClassification
    assert loaded.config.to_dict() == AutoConfig.from_pretrained(tmp_path).to_dict()
    bag = torch.randn(2, 4, 6)
    assert torch.equal(loaded(bag).logits, model(bag).logits)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_recomputing_activations_changes_no_gradient(aggregation):
    model = make(aggregation, bag_dropout=0.3, embedding_layers=1).train()
    bags, mask, labels = torch.randn(3, 7, 6), torch.ones(3, 7), torch.tensor([0, 1, 1])
    mask[1, 4:] = 0
    gradients = []
    for recompute in (False, True):
        if recompute:
            model.gradient_checkpointing_enable()
        model.zero_grad()
        torch.manual_seed(3)  # of dropout
        model(bags, mask, labels=labels).loss.backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    torch.testing.assert_close(gradients[1], gradients[0], rtol=0, atol=0)


def test_initial_weights():
    as_torch = make("pooling")
    weight = as_torch.aggregation.hopfield.association_core.in_proj_weight
    assert 0.9 * 6**-0.5 < weight.abs().max() < 6**-0.5
    torch.manual_seed(0)
    small = make("pooling", num_heads=32, head_size=32, initializer_range=0.02, embedding_layers=1)
    for name, parameter in small.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any(), name
        else:
            assert 0.013 < parameter.std() < 0.027, name


def test_trainer(tmp_path):
    """A real Trainer on bags of different sizes learns, saves and loads."""
    generator = torch.Generator().manual_seed(0)
    bags = []
    for number in range(128):
        bag = torch.randn(int(torch.randint(3, 9, (), generator=generator)), 6, generator=generator)
        bag[0] += 4.0 * (number % 2)
        bags.append({"instances": bag, "labels": number % 2})
    model = make("pooling", embedding_layers=1, embedding_size=16, bag_dropout=0.2)
    arguments = TrainingArguments(
        tmp_path, max_steps=80, learning_rate=1e-2, per_device_train_batch_size=32, report_to="none", disable_tqdm=True
    )
    trainer = Trainer(
        model=model, args=arguments, train_dataset=bags, eval_dataset=bags, data_collator=MultipleInstanceCollator()
    )
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    assert trainer.evaluate()["eval_loss"] < 0.3 * before
    trainer.save_model(tmp_path / "saved")
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["aggregation"] == "pooling"


def test_bad_inputs():
    model = make("pooling")
    with pytest.raises(ValueError, match="instances must have shape"):
        model(torch.randn(2, 3, 5))
    with pytest.raises(ValueError, match="attention_mask must have shape"):
        model(torch.randn(2, 3, 6), torch.ones(2, 4))
    with pytest.raises(ValueError, match="instances must have shape"):
        model(torch.randn(2, 0, 6))
    with pytest.raises(ValueError, match="it is not added to the scores"):
        model(torch.randn(2, 3, 6), torch.tensor([[0.0, 0.0, -1e9]] * 2))
    with pytest.raises(ValueError, match="classifier_activation must be one of"):
        make("pooling", classifier_activation="rleu")


def test_output_is_a_tuple_where_the_configuration_says_so():
    model = make("pooling", return_dict=False)
    assert isinstance(model(torch.randn(2, 3, 6)), tuple)
    assert model(torch.randn(2, 3, 6), return_dict=True).logits.shape == (2, 2)
