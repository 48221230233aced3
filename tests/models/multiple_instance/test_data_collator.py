# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest
import torch

from hf_sparse_hopfield.models import MultipleInstanceCollator


def test_collator():
    bags = [{"instances": torch.ones(2, 3), "labels": 1}, {"instances": torch.ones(4, 3), "labels": 0}]
    batch = MultipleInstanceCollator()(bags)
    assert batch["instances"].shape == (2, 4, 3) and batch["instances"][0, 2:].eq(0).all()
    assert batch["attention_mask"].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert batch["labels"].tolist() == [1, 0]
    assert "labels" not in MultipleInstanceCollator()([{"instances": torch.ones(2, 3)}])
    with pytest.raises(ValueError, match="bag 1 of the batch"):
        MultipleInstanceCollator()([{"instances": torch.ones(2, 3)}, {"instances": torch.ones(2, 4)}])
    with pytest.raises(ValueError, match="bag 0 of the batch has no 'labels'"):
        MultipleInstanceCollator()([{"instances": torch.ones(2, 3)}, bags[0]])
