# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest

from hf_sparse_hopfield.hub import support_sizes

from .own_models import multiple_instance


def test_support_sizes_are_counted_over_visible_keys():
    model, inputs = multiple_instance()
    (shares,) = support_sizes(model, [inputs, inputs]).values()
    weights = model(**inputs, output_attentions=True).attentions
    used = (weights > 0).sum((0, 2, 3)) / inputs["attention_mask"].sum()
    assert shares == pytest.approx(used.tolist()) and min(shares) < 1
    assert not any(module._forward_hooks for module in model.modules())
    with pytest.raises(ValueError, match="batches is empty"):
        support_sizes(model, [])
