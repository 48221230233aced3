# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`MultipleInstanceCollator`: batches of bags of different sizes."""

from collections.abc import Sequence
from typing import Any

import torch


class MultipleInstanceCollator:
    """
    Pads bags to the size of the largest one and makes a mask.

    Example:

    ```python
    >>> from hf_sparse_hopfield.models import MultipleInstanceCollator
    >>> bags = [{"instances": [[1.0, 0.0]], "labels": 1}, {"instances": [[0.0, 1.0], [1.0, 1.0]], "labels": 0}]
    >>> batch = MultipleInstanceCollator()(bags)
    >>> batch["instances"].shape, batch["attention_mask"].tolist(), batch["labels"].tolist()
    (torch.Size([2, 2, 2]), [[1, 0], [1, 1]], [1, 0])

    ```
    """

    def __call__(self, features: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """
        Collate.

        Args:
            features (sequence of `dict`):
                Each with `"instances"` (array of shape `(instances, input_size)`) and, in all or none, `"labels"` (a number).

        Returns:
            `dict[str, torch.Tensor]`: `instances` `(batch, largest, input_size)`, `attention_mask` `(batch, largest)` with 1
            for an instance and 0 for padding, and `labels` `(batch,)`.
        """
        bags = [torch.as_tensor(feature["instances"], dtype=torch.float32) for feature in features]
        for number, bag in enumerate(bags):
            if bag.dim() != 2 or not len(bag) or bag.shape[1] != bags[0].shape[-1]:
                raise ValueError(
                    f"the instances of bag {number} of the batch have shape {tuple(bag.shape)}; they must be "
                    f"(instances, input_size), with at least one instance and the same input_size for all bags."
                )
        batch = {
            "instances": torch.nn.utils.rnn.pad_sequence(bags, batch_first=True),
            "attention_mask": torch.nn.utils.rnn.pad_sequence(
                [torch.ones(len(bag), dtype=torch.long) for bag in bags], batch_first=True
            ),
        }
        if any("labels" in feature for feature in features):
            for number, feature in enumerate(features):
                if "labels" not in feature:
                    raise ValueError(
                        f"bag {number} of the batch has no 'labels', but others do; give labels to all bags or to none."
                    )
            batch["labels"] = torch.tensor([feature["labels"] for feature in features])
        return batch
