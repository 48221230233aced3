# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Samples from a long multivariate series: split by time, standardized, cut into windows of past and future."""

from collections.abc import Sequence

import torch
from torch.utils.data import Dataset

from ...checks import check_integer
from ..feature_standardization import standardization


class TimeSeriesWindows(Dataset):
    """
    All windows of past and future in a series, as `past_values` and `future_values`.

    Args:
        values (`torch.Tensor` of shape `(time, channels)`): The series, in order of time.
        context_length (`int`): Time steps of the past.
        prediction_length (`int`): Time steps of the future.
        limit (`int`, *optional*): Keep at most this many windows, evenly spread.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.models import TimeSeriesWindows
    >>> windows = TimeSeriesWindows(torch.randn(100, 3), context_length=24, prediction_length=6)
    >>> len(windows), windows[0]["past_values"].shape, windows[[0, 70]]["future_values"].shape
    (71, torch.Size([24, 3]), torch.Size([2, 6, 3]))

    ```
    """

    def __init__(
        self, values: torch.Tensor, context_length: int, prediction_length: int, limit: int | None = None
    ) -> None:
        if values.ndim != 2:
            raise ValueError(f"values must have shape (time, channels), got {tuple(values.shape)}.")
        check_integer("context_length", context_length)
        check_integer("prediction_length", prediction_length)
        check_integer("limit", limit, optional=True)
        length = context_length + prediction_length
        if values.shape[0] < length:
            raise ValueError(
                f"values has {values.shape[0]} time steps, but one window needs context_length + prediction_length = "
                f"{context_length} + {prediction_length}."
            )
        self.context_length = context_length
        # A view: windows overlap in memory.
        self.windows = values.unfold(0, length, 1).transpose(1, 2)
        count = len(self.windows)
        if limit is not None and limit < count:
            self.starts = torch.linspace(0, count - 1, limit).round().long()
        else:
            self.starts = torch.arange(count)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int | Sequence[int] | torch.Tensor) -> dict[str, torch.Tensor]:
        """One window, or a batch of windows for several indices."""
        window = self.windows[self.starts[index]]
        return {
            "past_values": window[..., : self.context_length, :],
            "future_values": window[..., self.context_length :, :],
        }


def split_series(
    values: torch.Tensor,
    sizes: Sequence[float],
    context_length: int,
    prediction_length: int,
    limits: Sequence[int | None] = (None, None, None),
    scale: tuple[torch.Tensor, torch.Tensor] | None = None,
) -> dict[str, TimeSeriesWindows]:
    """
    Training, validation and test windows of a series, standardized.

    The futures of a split lie in its own part of the series; the pasts of its first windows reach into the part before.

    Args:
        values (`torch.Tensor` of shape `(time, channels)`): The series, in order of time.
        sizes (`Sequence[float]`): Three numbers of time steps, or three shares that add up to 1.
        context_length (`int`): Time steps of the past.
        prediction_length (`int`): Time steps of the future.
        limits (`Sequence[int]`, *optional*): Most windows of each split, evenly spread; `None` for all.
        scale (`tuple[torch.Tensor, torch.Tensor]`, *optional*):
            Mean and standard deviation of each channel to standardize with. By default, those of the training part.

    Returns:
        `dict[str, TimeSeriesWindows]`: `train`, `validation`, `test`.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.models import split_series
    >>> splits = split_series(torch.randn(1000, 3), (0.7, 0.1, 0.2), context_length=24, prediction_length=6)
    >>> {name: len(windows) for name, windows in splits.items()}
    {'train': 671, 'validation': 95, 'test': 195}

    ```
    """
    lengths = split_lengths(values.shape[0], sizes)
    check_integer("context_length", context_length)
    check_integer("prediction_length", prediction_length)
    if not bool(torch.isfinite(values).all()):
        row, channel = (~torch.isfinite(values)).nonzero()[0].tolist()
        raise ValueError(
            f"values must be finite, but values has {values[row, channel].item()} at time step {row}, channel {channel}."
        )
    mean, deviation = standardization(values[: lengths[0]]) if scale is None else scale
    scaled = ((values.double() - mean) / deviation).float()
    splits, begin = {}, 0
    for name, length, limit in zip(("train", "validation", "test"), lengths, limits, strict=True):
        end = begin + length
        try:
            part = scaled[max(begin - context_length, 0) : end]
            splits[name] = TimeSeriesWindows(part, context_length, prediction_length, limit)
        except ValueError as error:
            raise ValueError(f"the split {name!r} is too short: {error}") from error
        begin = end
    return splits


def split_lengths(total: int, sizes: Sequence[float]) -> list[int]:
    """
    Time steps of training, validation and test.

    Args:
        total (`int`): Time steps of the series.
        sizes (`Sequence[float]`): Three numbers of time steps, or three shares that add up to 1.

    Returns:
        `list[int]`: Three numbers of time steps. With shares, validation gets what rounding leaves over.

    Example:

    ```python
    >>> from hf_sparse_hopfield.models import split_lengths
    >>> split_lengths(1003, (0.7, 0.1, 0.2))
    [702, 101, 200]

    ```
    """
    if len(sizes) != 3 or any(size <= 0 for size in sizes):
        raise ValueError(f"sizes must be three positive numbers, for training, validation and test, got {sizes}.")
    if all(size < 1 for size in sizes):
        if abs(sum(sizes) - 1) > 1e-6:
            raise ValueError(f"sizes are shares and must add up to 1, got {sizes}, which add up to {sum(sizes)}.")
        # As in the literature: training and test are rounded down, validation is the rest.
        train, test = int(total * sizes[0]), int(total * sizes[2])
        return [train, total - train - test, test]
    if not all(size == int(size) for size in sizes):
        raise ValueError(f"sizes must be three whole numbers or three shares below 1, got {sizes}.")
    if sum(sizes) > total:
        raise ValueError(f"sizes={tuple(sizes)} need {int(sum(sizes))} time steps, but the series has {total}.")
    return [int(size) for size in sizes]
