# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Settings reach each attention module once, and its values move and are saved as they should."""

import copy

import pytest
import torch
from transformers import AutoModel

from hf_sparse_hopfield import SparseHopfieldConfig, to_sparse_hopfield
from hf_sparse_hopfield.integration.binding import LayerRetrieval, check_saved_settings
from hf_sparse_hopfield.integration.upstream import is_this_attention

from ..tiny_models import tiny_inputs, tiny_model, tiny_output


PER_HEAD = SparseHopfieldConfig(alpha=[1.1, 1.4, 1.7, 2.0], beta=[0.3, 0.7, 1 / 3, 2.0])


def first_retrieval(model):
    return next(module for module in model.modules() if isinstance(module, LayerRetrieval))


@pytest.mark.parametrize("name", ["bert", "llama", "mpnet"])
def test_fixed_per_head_values_are_buffers_and_not_in_the_state_dict(name):
    model = to_sparse_hopfield(tiny_model(name), PER_HEAD)
    buffers = [path for path, _ in model.named_buffers() if ".sparse_hopfield." in path]
    assert len(buffers) == 4  # alpha and beta of two layers
    assert not any(".sparse_hopfield." in key for key in model.state_dict())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_they_keep_their_precision_when_the_model_changes_its_own(dtype):
    model = to_sparse_hopfield(tiny_model("bert"), PER_HEAD).to(dtype)
    beta, alpha = first_retrieval(model)()
    assert beta.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(beta, torch.tensor(PER_HEAD.beta, dtype=beta.dtype), rtol=0, atol=0)
    torch.testing.assert_close(alpha, torch.tensor(PER_HEAD.alpha, dtype=alpha.dtype), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["bert", "llama", "mpnet"])
def test_they_come_back_from_a_checkpoint(name, tmp_path):
    """transformers makes a model on the meta device and leaves buffers that are not saved uninitialized."""
    model = to_sparse_hopfield(tiny_model(name), PER_HEAD)
    inputs = tiny_inputs(name)
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    torch.testing.assert_close(tiny_output(again, inputs), tiny_output(model, inputs))
    base = AutoModel.from_pretrained(tmp_path)
    torch.testing.assert_close(first_retrieval(base)()[0], torch.tensor(PER_HEAD.beta))


def test_learned_and_fixed_values_side_by_side_come_back(tmp_path):
    settings = SparseHopfieldConfig(alpha=PER_HEAD.alpha, learn_beta=True)
    model = to_sparse_hopfield(tiny_model("bert"), settings)
    with torch.no_grad():
        first_retrieval(model).log_beta.add_(0.5)
    model.save_pretrained(tmp_path)
    beta, alpha = first_retrieval(type(model).from_pretrained(tmp_path))()
    torch.testing.assert_close(beta, torch.full((4,), 0.5).exp())
    torch.testing.assert_close(alpha, torch.tensor(PER_HEAD.alpha))


def test_a_copy_has_values_of_its_own():
    model = to_sparse_hopfield(tiny_model("bert"), PER_HEAD)
    other = copy.deepcopy(model)
    first_retrieval(other).set(beta=5.0)
    assert first_retrieval(other).beta == 5.0
    torch.testing.assert_close(first_retrieval(model).beta, torch.tensor(PER_HEAD.beta))


def test_a_backend_that_does_not_exist_is_named_when_a_model_is_built():
    with pytest.raises(ValueError, match="layer 'bert.*backend must be one of 'auto', .* got 'nope'"):
        to_sparse_hopfield(tiny_model("bert"), {"backend": "nope"})


def test_the_check_of_the_name_comes_and_goes_with_the_settings():
    model = tiny_model("bert", "sparse_hopfield", sparse_hopfield={"layers": [0]})
    hooks = [len(layer.attention.self._forward_pre_hooks) for layer in model.bert.encoder.layer]
    assert hooks == [1, 0], "one for each module that retrieves"
    model.set_attn_implementation("sparse_hopfield")
    assert len(model.bert.encoder.layer[0].attention.self._forward_pre_hooks) == 1
    model.set_attn_implementation("sdpa")
    assert not model.bert.encoder.layer[0].attention.self._forward_pre_hooks
    model(**tiny_inputs("bert"))


def test_settings_of_an_outer_configuration_are_watched_too():
    model = to_sparse_hopfield(tiny_model("llava"), {"alpha": 1.5})
    check_saved_settings(model)
    model.config.text_config.sparse_hopfield = {"alpha": 2.0}  # nearer than those of the model
    for use in (lambda: model(**tiny_inputs("llava")), lambda: check_saved_settings(model)):
        with pytest.raises(RuntimeError, match="now has sparse_hopfield={'alpha': 2.0}"):
            use()
    model.set_attn_implementation("sparse_hopfield")
    check_saved_settings(model)
    model(**tiny_inputs("llava"))


def test_the_name_with_the_paged_cache_is_ours():
    assert all(map(is_this_attention, ("sparse_hopfield", "paged|sparse_hopfield")))
    assert not any(map(is_this_attention, ("sdpa", "paged|sdpa", None, {}, "sparse_hopfield_2")))
