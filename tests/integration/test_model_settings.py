# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""alpha and beta of a whole model change in its modules and in its configurations alike."""

import pytest
import torch

from hf_sparse_hopfield import (
    SparseHopfieldConfig,
    SparseHopfieldForMultipleInstanceClassification,
    SparseHopfieldMultipleInstanceConfig,
    to_sparse_hopfield,
)
from hf_sparse_hopfield.integration.model_settings import LiveSettings, apply_settings

from ..tiny_models import tiny_inputs, tiny_model, tiny_output


@pytest.mark.parametrize("name", ["bert", "mpnet"])
def test_what_is_written_runs_and_is_saved(name, tmp_path):
    model = to_sparse_hopfield(tiny_model(name), {"alpha": 2.0, "beta": [1.0, 2.0, 3.0, 4.0]})
    inputs = tiny_inputs(name)
    before = tiny_output(model, inputs)
    live = LiveSettings(model)
    tree = live.read()
    tree["configs"][0] |= {"alpha": 1.25, "beta": [4.0, 3.0, 2.0, 1.0]}
    live.write(tree)
    assert live.read() == tree
    after = tiny_output(model, inputs)
    assert not torch.allclose(after, before, atol=1e-4)
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(tiny_output(type(model).from_pretrained(tmp_path), inputs), after)


def test_learned_values_are_left_alone_unless_asked_for():
    model = to_sparse_hopfield(tiny_model("bert"), {"learn_beta": True})
    live = LiveSettings(model)
    with torch.no_grad():
        live.retrievals[0].log_beta.fill_(1.0)
    learned = live.retrievals[0].beta.detach().clone()
    live.write(live.read())
    torch.testing.assert_close(live.retrievals[0].beta, learned)
    live.write(live.read(), restart_learned=live.retrievals)
    torch.testing.assert_close(live.retrievals[0].beta, torch.ones(4))


def test_models_made_of_layers():
    model = SparseHopfieldForMultipleInstanceClassification(SparseHopfieldMultipleInstanceConfig(input_size=16))
    live = LiveSettings(model)
    tree = live.read()
    tree["layer_configs"][0]["alpha"] = tree["layers"][0]["alpha"] = 1.5
    live.write(tree)
    assert model.config.alpha == 1.5 and live.layers[0].alpha == 1.5


def test_settings_of_single_layers():
    model = to_sparse_hopfield(tiny_model("bert"), {"alpha": 1.5, "learn_beta": True})
    name = "bert.encoder.layer.1.attention.self"
    apply_settings(model, {name: {"beta": torch.tensor([1.0, 2.0, 3.0, 4.0])}})
    assert model.config.sparse_hopfield.overrides == {"encoder.layer.1.attention.self": {"beta": [1.0, 2.0, 3.0, 4.0]}}
    torch.testing.assert_close(model.get_submodule(name).sparse_hopfield.beta, torch.tensor([1.0, 2.0, 3.0, 4.0]))


def test_a_dense_model_is_refused():
    with pytest.raises(ValueError, match="BertForMaskedLM has no layer that retrieves sparsely"):
        LiveSettings(tiny_model("bert"))


def test_other_layers_keep_what_they_have_learned():
    model = to_sparse_hopfield(tiny_model("bert"), {"alpha": 1.5, "learn_beta": True})
    first, second = (model.bert.encoder.layer[i].attention.self.sparse_hopfield for i in (0, 1))
    with torch.no_grad():
        first.log_beta.fill_(1.0)
        second.log_beta.fill_(1.0)
    apply_settings(model, {"bert.encoder.layer.0.attention.self": {"beta": torch.full((4,), 3.0)}})
    torch.testing.assert_close(first.beta, torch.full((4,), 3.0))
    torch.testing.assert_close(second.log_beta, torch.ones(4))


def test_every_copy_of_a_configuration_is_written():
    """The encoder and the decoder of T5 have copies of the configuration."""
    model = to_sparse_hopfield(tiny_model("t5"), {"alpha": 1.5})
    name = "decoder.block.0.layer.0.SelfAttention"
    apply_settings(model, {name: {"beta": torch.tensor([1.0, 2.0, 3.0, 4.0])}})
    tiny_output(model, tiny_inputs("t5"))  # no copy differs from what runs
    assert model.config.sparse_hopfield == model.decoder.config.sparse_hopfield


def test_defaults_that_are_written_down_are_not_taken_for_a_change():
    for name in ("bert", "llava"):
        model, inputs = tiny_model(name, "sparse_hopfield"), tiny_inputs(name)
        expected = tiny_output(model, inputs)
        live = LiveSettings(model)
        assert model.config.sparse_hopfield == SparseHopfieldConfig()
        torch.testing.assert_close(tiny_output(model, inputs), expected)
        live.write(live.read())
        torch.testing.assert_close(tiny_output(model, inputs), expected)
        model.config.sparse_hopfield = None
        with pytest.raises(RuntimeError, match="now has sparse_hopfield=None"):
            model(**inputs)
