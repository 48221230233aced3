# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`compare`: the steps of a comparison in order."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from tqdm.std import tqdm
from transformers import PreTrainedModel

from ..checkpoints.loading import load_model, load_tokenizer
from ..checks import check_choice
from ..diagnostics import sparsity_report
from ..integration.binding import has_sparse_retrieval
from ..integration.convert import to_sparse_hopfield
from ..metrics import load_metric
from ..progress import progress_bar, stage
from .estimates import computations, jackknife
from .options import TASKS, CompareOptions
from .peak_memory import peak_memory
from .report import ComparisonReport, Row
from .runs import Runs, run_in_turns
from .tasks import Case, Task, task_class
from .tasks.columns import model_labels
from .tasks.task import Measure, compute


_COUNTED = 8  # batches on which the keys are counted
_ROWS = 64  # queries of each of them, in each layer


def compare(
    dense: str, sparse: str, task: str, data: str, options: CompareOptions | None = None, *, progress: bool = False
) -> ComparisonReport:
    """
    Run a dense checkpoint and a sparse one on the same samples, in turns, and compare quality, speed, memory and support.

    Quality is computed by the modules of [`load_metric`]. Its difference has the standard error of a paired difference, because both
    models see the same samples.

    Args:
        dense (`str`): Local directory or Hub id of the dense checkpoint.
        sparse (`str`): The same of the sparse one, converted from it or from another of the same vocabulary and labels.
        task (`str`):
            `"text-generation"` (perplexity), `"fill-mask"` (loss and accuracy of masked tokens), `"text-classification"` or
            `"image-classification"` (accuracy, F1), `"summarization"` or `"translation"` (BLEU), or `"feature-extraction"` (cosine and
            nearest neighbours of the embeddings).
        data (`str`):
            A `.txt`, `.csv`, `.jsonl` or `.parquet` file, also as `.gz`; a folder that `datasets` reads, also one with images; or the
            id of a dataset on the Hub.
        options ([`CompareOptions`], *optional*): Columns, split, number and size of the samples.
        progress (`bool`, *optional*, defaults to `False`): Show progress.

    Returns:
        [`ComparisonReport`]

    Example:

    ```python
    >>> from pathlib import Path
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from hf_sparse_hopfield import to_sparse_hopfield
    >>> from hf_sparse_hopfield.comparison import CompareOptions, compare
    >>> from hf_sparse_hopfield.demo import make_tokenizer

    >>> tokenizer = make_tokenizer()
    >>> sizes = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "vocab_size": len(tokenizer)}
    >>> model = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=1))
    >>> model.save_pretrained("dense"), tokenizer.save_pretrained("dense")[0]
    (None, 'dense/tokenizer_config.json')
    >>> to_sparse_hopfield(model).save_pretrained("sparse")
    >>> size = Path("text.txt").write_text("Patterns are recalled from a memory by similarity. " * 20)

    >>> options = CompareOptions(length=16, samples=4, no_memory=True)
    >>> report = compare("dense", "sparse", "text-generation", "text.txt", options)
    >>> report.quality["perplexity"].dense > 1, report.support["share_of_keys"].dense
    (True, 1.0)

    ```
    """
    options = options or CompareOptions()
    check_choice("task", task, TASKS)
    dtype = "bfloat16" if options.bf16 else "float32"
    paths = {"dense": dense, "sparse": sparse}
    with stage("loading", progress):
        models = {name: load_model(path, dtype=getattr(torch, dtype)) for name, path in paths.items()}
    _check_roles(models, paths)
    kind = task_class(task)
    for name, path in paths.items():
        kind.check(models[name], path, task)
    _check_labels(models, paths)
    work = kind(models["dense"], _processor(paths), options)
    cases = work.cases(data)
    runs = run_in_turns(work, models, cases, options.seed, progress)
    report = ComparisonReport(
        dense=dense,
        sparse=sparse,
        task=task,
        data=data,
        samples=len(runs.pairs),
        batches=len(cases),
        settings={
            "length": options.length,
            "batch_size": work.batch_size,
            "seed": options.seed,
            "dtype": dtype,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        },
    )
    report.quality = _quality(work, runs, progress)
    report.agreement = work.agreement(runs.pairs)
    report.speed = {"seconds_per_batch": Row(runs.median("dense"), runs.median("sparse"), ratio=runs.ratio())}
    report.support = _support(models, cases, options.seed, progress)
    del models, work
    if not options.no_memory:
        report.memory = _memory(paths, task, cases, dtype, progress)
    return report


def _check_roles(models: dict[str, PreTrainedModel], paths: dict[str, str]) -> None:
    if has_sparse_retrieval(models["dense"]):
        hint = (
            ": exchange the two"
            if not has_sparse_retrieval(models["sparse"])
            else ", and it must be the dense checkpoint"
        )
        raise ValueError(f"the first checkpoint, {paths['dense']!r}, is sparse{hint}.")
    if not has_sparse_retrieval(models["sparse"]):
        raise ValueError(
            f"the second checkpoint, {paths['sparse']!r}, is dense, and it must be sparse: make one with hf-sparse-hopfield convert."
        )


def _check_labels(models: dict[str, PreTrainedModel], paths: dict[str, str]) -> None:
    dense, sparse = (model_labels(models[name].config) for name in ("dense", "sparse"))
    if dense != sparse:
        raise ValueError(
            f"the labels do not match: {paths['dense']!r} has {list(dense.values())}, {paths['sparse']!r} has {list(sparse.values())}."
        )


def _processor(paths: dict[str, str]) -> Any:
    """The tokenizer or image processor, which must be the same for both models."""
    dense, sparse = (load_tokenizer(paths[name]) for name in ("dense", "sparse"))
    if dense is None and sparse is None:
        raise ValueError(f"neither {paths['dense']!r} nor {paths['sparse']!r} has a tokenizer or a processor.")
    vocabularies = [getattr(part, "tokenizer", part) for part in (dense, sparse)]
    if all(hasattr(part, "get_vocab") for part in vocabularies):
        first, second = (part.get_vocab() for part in vocabularies)
        if first != second:
            raise ValueError(
                f"the tokenizers differ: {paths['dense']!r} has {len(first)} tokens, {paths['sparse']!r} has {len(second)}, and "
                f"{len(first.items() ^ second.items())} of them are not the same. Their figures would not be comparable."
            )
    return sparse if dense is None else dense


def _quality(work: Task, runs: Runs, progress: bool) -> dict[str, Row]:
    """The metrics of the task for both models, with their paired difference."""
    measures = work.measures(runs.samples["dense"])
    total = len(measures) * computations(len(runs.pairs))
    with progress_bar("computing metrics", total=total, enabled=progress) as bar:
        return _measured(measures, runs.pairs, bar)


def _measured(measures: Sequence[Measure], samples: Sequence[tuple[Any, Any]], bar: tqdm) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for measure in measures:

        def statistic(pairs: Sequence[tuple[Any, Any]]) -> dict[str, float]:
            bar.update()
            dense, sparse = (compute(measure, [pair[side] for pair in pairs]) for side in (0, 1))  # noqa: B023
            return {
                **{f"dense {name}": value for name, value in dense.items()},
                **{f"sparse {name}": value for name, value in sparse.items()},
                **{name: sparse[name] - dense[name] for name in dense},
            }

        estimates = jackknife(statistic, samples)
        for name in measure.shown:
            dense, sparse = (estimates[f"{side} {name}"].value for side in ("dense", "sparse"))
            found[name] = Row(dense, sparse, difference=estimates[name])
    return found


def _support(models: dict[str, PreTrainedModel], cases: Sequence[Case], seed: int, progress: bool) -> dict[str, Row]:
    """How many keys get weight in the layers of the sparse model, and in the same ones of the dense model."""
    layers = getattr(models["sparse"].config, "sparse_hopfield", None)
    to_sparse_hopfield(models["dense"], {"alpha": 1.0, "layers": layers.layers if layers else None})
    batches = [case.forward or case.inputs for case in cases[:_COUNTED]]
    found = {}
    with progress_bar("counting keys", total=len(models) * len(batches), enabled=progress) as bar:

        def counted() -> Iterator[dict[str, Any]]:
            for batch in batches:
                yield batch
                bar.update()

        for name, model in models.items():
            heads = sparsity_report(model, counted(), rows=_ROWS, seed=seed).layers.values()
            inputs = {
                key: [value for layer in heads for value in layer[key]] for key in ("support", "keys", "entropy")
            }
            found[name] = load_metric("sparsity").compute(**inputs)
    return {name: Row(found["dense"][name], found["sparse"][name]) for name in found["sparse"] if name != "mean_keys"}


def _memory(paths: dict[str, str], task: str, cases: Sequence[Case], dtype: str, progress: bool) -> dict[str, Row]:
    """Peak memory on the largest batch."""
    largest = max((case.inputs for case in cases), key=lambda inputs: next(iter(inputs.values())).numel())
    with progress_bar("measuring memory", paths.values(), enabled=progress) as bar:
        dense, sparse = (peak_memory(path, task, largest, dtype) for path in bar)
    if not dense or sparse is None:
        return {}
    return {"peak_memory_bytes": Row(float(dense), float(sparse))}
