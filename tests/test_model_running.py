# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest
import torch
from torch import nn
from transformers.modeling_outputs import BackboneOutput, BaseModelOutput, CausalLMOutput

from hf_sparse_hopfield.model_running import batch_size, evaluating, main_output, on_device


def test_a_batch_moves_to_the_model():
    model = nn.Linear(2, 2, device="meta")
    moved = on_device({"input_ids": torch.zeros(3, 2), "use_cache": False}, model)
    assert moved["input_ids"].device.type == "meta" and moved["use_cache"] is False
    with pytest.raises(TypeError, match="dicts of model inputs .*, got Tensor"):
        on_device(torch.zeros(3, 2), model)


def test_batch_size_is_that_of_the_first_tensor():
    assert batch_size({"use_cache": True, "scale": torch.tensor(1.0), "input_ids": torch.zeros(3, 2)}) == 3
    assert batch_size({"use_cache": True}) == 1


def test_main_output_is_the_logits_or_the_first_floating_point_tensor():
    logits, hidden, loss = torch.zeros(2, 3), torch.zeros(2, 4), torch.tensor(1.0)
    name, value = main_output(CausalLMOutput(loss=loss, logits=logits, hidden_states=(hidden,)))
    assert name == "logits" and value is logits
    assert main_output(BaseModelOutput(last_hidden_state=hidden))[0] == "last_hidden_state"
    assert main_output((loss, torch.zeros(2, dtype=torch.long), hidden))[1] is hidden
    assert main_output(BackboneOutput(feature_maps=(hidden, logits)))[1] is hidden
    with pytest.raises(ValueError, match="tuple without a floating point tensor"):
        main_output((loss,))


@pytest.mark.parametrize("training", [True, False])
def test_evaluation_mode_ends_with_the_context(training):
    model = nn.Dropout().train(training)
    with pytest.raises(KeyError), evaluating(model):
        assert not model.training
        raise KeyError
    assert model.training == training
