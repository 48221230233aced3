# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The Auto classes know the models of this package, in this process and in others."""

import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForTimeSeriesPrediction

from hf_sparse_hopfield import SparseHopfieldCrossformerConfig, SparseHopfieldCrossformerForPrediction

from .crossformer.test_modeling_crossformer import make_batch
from .crossformer.test_modeling_crossformer import make_model as make_crossformer
from .multiple_instance.test_modeling_multiple_instance import make


def test_remote_code_needs_no_import_of_the_package(tmp_path):
    make("pooling").save_pretrained(tmp_path / "model")
    code = (
        "import sys; from transformers import AutoModelForSequenceClassification as Auto\n"
        "assert 'hf_sparse_hopfield' not in sys.modules\n"
        f"print(type(Auto.from_pretrained({str(tmp_path / 'model')!r}, trust_remote_code=True)).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "SparseHopfieldForMultipleInstanceClassification", done.stderr


@pytest.mark.parametrize("first", ["PreTrainedModel", "AutoModelForSequenceClassification"])
def test_registration_works_whatever_is_imported_first(first):
    code = (
        f"import hf_sparse_hopfield; from transformers import {first}\n"
        "from transformers import AutoConfig, AutoModelForSequenceClassification as Auto\n"
        "print(type(Auto.from_config(AutoConfig.for_model('sparse_hopfield_multiple_instance'))).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "SparseHopfieldForMultipleInstanceClassification", done.stderr


def test_overrides_are_checked(tmp_path):
    """Overrides of `from_pretrained` are checked like the arguments of a configuration."""
    make_crossformer().save_pretrained(tmp_path)
    load = SparseHopfieldCrossformerForPrediction.from_pretrained
    with pytest.raises(ValueError, match="attention='dense' needs alpha=1"):
        load(tmp_path, attention="dense")
    with pytest.raises(ValueError, match="center must be one of"):
        AutoModelForTimeSeriesPrediction.from_pretrained(tmp_path, center="median")
    assert load(tmp_path, dtype=torch.float64).dtype == torch.float64
    dense = load(tmp_path, attention="dense", alpha=1.0).eval()
    assert dense.config.attention == "dense"
    dense.save_pretrained(tmp_path / "dense")
    again = load(tmp_path / "dense").eval()
    past = make_batch(dense.config)["past_values"]
    assert torch.equal(again(past).prediction_outputs, dense(past).prediction_outputs)
    assert not torch.equal(load(tmp_path).eval()(past).prediction_outputs, dense(past).prediction_outputs)
    config, unused = SparseHopfieldCrossformerConfig.from_pretrained(
        tmp_path, center="last", other=1, return_unused_kwargs=True
    )
    assert config.center == "last" and unused == {"other": 1}
