# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`load_metric`: a module of evaluate from the files of this package."""

from pathlib import Path
from typing import Any

from ..checks import check_choice
from ..extras import require


METRICS = (
    "accuracy",
    "embedding_similarity",
    "f1",
    "mae",
    "mse",
    "perplexity",
    "roc_auc",
    "sacrebleu",
    "sparsity",
)
_EXTRAS = {"sacrebleu": "compare"}  # modules that need the package of the same name


def load_metric(name: str, **options: Any) -> Any:
    """
    Load one of the metrics of this package with `evaluate.load`, without network.

    Args:
        name (`str`):
            `"accuracy"`, `"f1"`, `"roc_auc"`, `"mse"`, `"mae"`, `"perplexity"` or `"sacrebleu"`, which are metrics;
            `"sparsity"`, a measurement of how attention uses its keys; or `"embedding_similarity"`, a comparison of two
            models.
        **options: For `evaluate.load`.

    Returns:
        `evaluate.EvaluationModule`: What it takes is in its `inputs_description`.

    Example:

    ```python
    >>> from hf_sparse_hopfield.metrics import load_metric

    >>> load_metric("perplexity").compute(losses=[2.0, 3.0], tokens=[100, 300])["loss"]
    2.75
    >>> load_metric("sparsity").compute(support=[2, 4], keys=[10, 20], entropy=[0.5, 1.0])["share_of_keys"]
    0.2

    ```
    """
    check_choice("name", name, METRICS)
    if name in _EXTRAS:
        require(name, _EXTRAS[name])
    import evaluate  # it imports the pipelines of transformers, which takes seconds

    # In memory, processes that compute the same metric at once do not wait for each other's files.
    options = {"keep_in_memory": options.get("num_process", 1) == 1, **options}
    try:
        return evaluate.load(str(Path(__file__).parent / name), **options)
    except PermissionError as error:
        raise PermissionError(
            f"evaluate copies the metric {name!r} to its cache, which cannot be written ({error}): set HF_HOME to a folder that can."
        ) from error
