# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`ComparisonReport`: what a comparison found, as plain values and as lines of a table."""

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

from .estimates import Estimate


@dataclass(frozen=True)
class Row:
    """
    A figure of both models.

    Args:
        dense, sparse (`float`): The figures.
        difference ([`Estimate`], *optional*): sparse - dense, with the standard error of the paired difference.
        ratio ([`Estimate`], *optional*): sparse / dense.
    """

    dense: float
    sparse: float
    difference: Estimate | None = None
    ratio: Estimate | None = None

    def __post_init__(self) -> None:
        if self.difference is None and self.ratio is None and self.dense:
            object.__setattr__(self, "ratio", Estimate(self.sparse / self.dense))


@dataclass
class ComparisonReport:
    """
    How a sparse checkpoint compares with a dense one.

    Args:
        dense, sparse (`str`): The checkpoints.
        task, data (`str`): What they ran on.
        samples, batches (`int`): How much of it.
        settings (`dict`): Length, batch size, seed, dtype, threads.
        quality (`dict[str, Row]`): The metrics of the task.
        agreement (`dict[str, Estimate]`): How alike the models are.
        speed (`dict[str, Row]`): `seconds_per_batch`, medians.
        memory (`dict[str, Row]`): `peak_memory_bytes` of the largest batch, beyond the weights; empty if not measured.
        support (`dict[str, Row]`): `share_of_keys`, `mean_support` and `mean_entropy`, as the measurement `sparsity` has them.

    Example:

    ```python
    >>> from hf_sparse_hopfield.comparison import ComparisonReport

    >>> ComparisonReport("dense", "sparse", "text-generation", "wiki.txt", samples=64, batches=64).title
    'text-generation on wiki.txt: 64 samples in 64 batches'

    ```
    """

    dense: str
    sparse: str
    task: str
    data: str
    samples: int
    batches: int
    settings: dict[str, Any] = field(default_factory=dict)
    quality: dict[str, Row] = field(default_factory=dict)
    agreement: dict[str, Estimate] = field(default_factory=dict)
    speed: dict[str, Row] = field(default_factory=dict)
    memory: dict[str, Row] = field(default_factory=dict)
    support: dict[str, Row] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """What was compared, in words."""
        return f"{self.task} on {self.data}: {self.samples} samples in {self.batches} batches"

    def to_dict(self) -> dict[str, Any]:
        """As plain values that JSON can hold."""
        return _plain(asdict(self))

    def to_json_string(self) -> str:
        """As JSON."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    def lines(self) -> list[tuple[str, str, str, str]]:
        """The lines of a table: what was measured, dense, sparse, and their difference or ratio."""
        rows = {**self.quality, **self.speed, **self.memory, **self.support}
        found = []
        for name, row in rows.items():
            label, scale, digits = _LABELS.get(name, (name.replace("_", " "), 1.0, 5))
            dense, sparse = (f"{value * scale:.{digits}g}" for value in (row.dense, row.sparse))
            found.append((label, dense, sparse, _change(row)))
        for name, estimate in self.agreement.items():
            found.append((_AGREEMENT.get(name, name), "", _shown(estimate), ""))
        return found


# How a figure is shown: its label, what it is multiplied by, and its digits.
_LABELS = {
    "bleu": ("BLEU", 1.0, 4),
    "macro_f1": ("macro F1", 1.0, 4),
    "seconds_per_batch": ("seconds per batch", 1.0, 4),
    "peak_memory_bytes": ("peak memory (MB)", 1e-6, 4),
    "share_of_keys": ("keys with weight (%)", 100.0, 3),
    "mean_support": ("mean support (keys)", 1.0, 4),
    "mean_entropy": ("mean entropy (nats)", 1.0, 3),
}
_AGREEMENT = {
    "same_label": "same label as dense",
    "cosine": "cosine to dense",
    "same_neighbours": "same nearest neighbours",
    "smallest_cosine": "smallest cosine",
}
FOOTNOTE = (
    "±: standard error. Both models see the same samples, so that of a difference is the one of paired differences: a difference of less "
    "than twice its standard error may be chance. Of speed, it is that of the mean ratio over batches."
)


def _change(row: Row) -> str:
    if row.difference is not None:
        return _shown(row.difference, sign="+")
    return "" if row.ratio is None else f"{_shown(row.ratio)} times"


def _shown(estimate: Estimate, sign: str = "") -> str:
    """A figure with as many digits as its standard error has, which is shown with two."""
    value, error = estimate
    if error is None or not math.isfinite(error) or not math.isfinite(value):
        return f"{value:{sign}.3g}"
    digits = 4 if error == 0 else max(0, 1 - math.floor(math.log10(error)))
    return f"{value:{sign}.{digits}f} ± {error:.{digits}f}"


def _plain(value: Any) -> Any:
    """Estimates as dicts, without fields that are `None`."""
    if isinstance(value, Estimate):
        return _plain(value._asdict())
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items() if part is not None}
    return value
