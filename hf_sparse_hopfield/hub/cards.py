# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Model cards: the base model, how the model retrieves, how many keys it uses, how to load it.

The part about retrieval stands between two comments. In an existing card, written by the Trainer or by hand, that part is
replaced or appended, and the rest stays.
"""

import os
import shlex
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

from huggingface_hub import ModelCard, ModelCardData
from huggingface_hub.constants import REPOCARD_NAME
from transformers import PreTrainedModel
from transformers.utils import logging

from ..calibration.report import CalibrationReport, DistillationReport
from ..extras import require
from ..integration.auto import as_sparse_class
from ..integration.binding import has_bound_attention, has_sparse_retrieval, is_converted, is_own_model
from .metadata import evaluation_metadata, hub_id, license_of, task_of
from .support_plot import PLOT_FILE, plot_support, support_sizes
from .tables import numbers_table, settings_table


logger = logging.get_logger(__name__)

CARD_FILE = REPOCARD_NAME
UNKNOWN_REPOSITORY = "OWNER/NAME"  # in a card that is written before it is known where the model goes
UNLIKE_USE = "On inputs unlike these, the difference to the dense model may be larger: convert on text like that of the model's use."
_BEGIN, _END = "<!-- sparse-hopfield -->", "<!-- end of sparse-hopfield -->"
_TAGS = ["sparse-hopfield", "sparse-attention"]


class SparseModelCard(ModelCard):
    """A model card that saves its plot of the support sizes beside it."""

    support: dict[str, list[float]] | None = None

    def save(self, filepath: Path | str) -> None:
        """
        Write the card, and the plot of the support sizes if it has one.

        Args:
            filepath (`str`): The card; the plot goes into the same directory.
        """
        super().save(filepath)
        if self.support:
            plot_support(self.support, Path(filepath).with_name(PLOT_FILE))


def model_card(
    model: PreTrainedModel,
    *,
    repo_id: str | None = None,
    base_model: str | None = None,
    calibration: CalibrationReport | None = None,
    batches: Iterable[dict[str, Any]] | None = None,
    support: dict[str, list[float]] | None = None,
    comparison: dict[str, float] | None = None,
    distillation: DistillationReport | None = None,
    measured_on: str | None = None,
    metrics: dict[str, float | str] | None = None,
    dataset: str | None = None,
    command: str | None = None,
    license: str | None = None,
    pipeline_tag: str | None = None,
    tags: Iterable[str] | None = None,
    into: ModelCard | None = None,
) -> SparseModelCard:
    """
    Make the card of a model. The card of a dense model, the baseline of a comparison, says that it is dense and nothing
    about retrieval.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model.
        repo_id (`str`, *optional*): Where the card will be, for the lines that load the model.
        base_model (`str`, *optional*):
            Hub id of the dense model, by default the one that the model was loaded from. A local path is not written into
            the card.
        calibration ([`CalibrationReport`], *optional*): From [`calibrate`].
        batches (iterable of `dict`, *optional*):
            Model inputs to count support sizes on, for the table and the plot. By default, the card shows those of
            `calibration`.
        support (`dict[str, list[float]]`, *optional*): From [`support_sizes`], if they are counted already.
        comparison (`dict`, *optional*): From [`compare_with_dense`].
        distillation ([`DistillationReport`], *optional*): From [`distill`].
        measured_on (`str`, *optional*): What the inputs of calibration, distillation and comparison are.
        metrics (`dict[str, float | str]`, *optional*):
            Results of an evaluation. Texts, such as how it was measured, are not part of the metadata.
        dataset (`str`, *optional*):
            Hub id of the dataset of the evaluation. With it, the metrics are in the metadata as well.
        command (`str`, *optional*): The command that made the checkpoint.
        license (`str`, *optional*): By default the license of the base model, if its card names one.
        pipeline_tag (`str`, *optional*): The task on the Hub. By default, the task of the model's class.
        tags (`list[str]`, *optional*): More tags.
        into (`ModelCard`, *optional*): An existing card, whose text and metadata stay.

    Returns:
        [`SparseModelCard`]: `save` also writes the plot.

    Example:

    ```python
    >>> from transformers import BertConfig, BertModel
    >>> from hf_sparse_hopfield import to_sparse_hopfield
    >>> from hf_sparse_hopfield.hub import model_card

    >>> model = BertModel(BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, vocab_size=100))
    >>> model_card(to_sparse_hopfield(model), base_model="google-bert/bert-base-uncased").data.tags
    ['sparse-hopfield', 'sparse-attention', 'bert']

    ```
    """
    sparse = has_sparse_retrieval(model)
    counted = _how_counted(batches is not None or support is not None, comparison, distillation)
    if sparse and support is None:
        support = _support(model, calibration, batches) if distillation is None else distillation.support
    plotted = support is not None and _can_plot()
    with as_sparse_class(model) if has_bound_attention(model) and not is_converted(model) else nullcontext():
        auto_class, own_tag = task_of(model)
        pipeline_tag = pipeline_tag or own_tag
        family = str(getattr(model.config, "base_model_type", model.config.model_type))
        base = hub_id(base_model or getattr(model.config, "name_or_path", None))
        name = (repo_id or base or family).split("/")[-1]
        data = ModelCardData(
            base_model=base if base != repo_id else None,
            library_name="transformers",
            license=license or license_of(base_model or base),
            pipeline_tag=pipeline_tag,
            tags=list(dict.fromkeys([*([] if is_dense(model) else _TAGS), family, *(tags or [])])),
            **evaluation_metadata(name, metrics, dataset, pipeline_tag),
        )
        parts = [
            _description(model, family, base if base != repo_id else None),
            "## How to load",
            _loading(auto_class, type(model).__name__, repo_id or UNKNOWN_REPOSITORY, sparse),
        ]
        if sparse:
            parts += ["## Settings", settings_table(model, support)]
    if sparse:
        parts += ["## Support size", _support_text(support, plotted, counted)]
    if calibration is not None:
        parts += ["## Calibration", _calibration_text(calibration, measured_on)]
    if distillation is not None:
        parts += ["## Distillation", _distillation_text(distillation, measured_on)]
    if comparison is not None:
        figures = {name: value for name, value in comparison.items() if name != "held_out_batches"}
        held_out = int(comparison["held_out_batches"]) if "held_out_batches" in comparison else None
        parts += ["## Against the dense model", _comparison_text(measured_on, held_out), numbers_table(figures)]
    if metrics is not None:
        parts += ["## Evaluation", numbers_table(metrics)]
    if command is not None:
        parts += ["## Made with", f"```bash\n{_without_paths(command)}\n```"]
    section = "\n\n".join([_BEGIN, *parts, _END] if sparse else parts)
    if into is None:
        text = f"\n# {name}{', with sparse Hopfield retrieval' if sparse and not is_own_model(model) else ''}\n\n{section}\n"
    else:
        data, text = _merged_data(into, data), _merged_text(into.text, section)
    card = SparseModelCard(f"---\n{data.to_yaml()}\n---\n{text}")
    card.support = support if plotted else None
    return card


def _description(model: PreTrainedModel, family: str, base: str | None) -> str:
    zeros = "alpha-entmax, which sets small weights exactly to zero (alpha = 1 is softmax)"
    fine = f", fine-tuned from [{base}](https://huggingface.co/{base})" if base else ""
    if is_dense(model):
        whose = f"`{type(model).__name__}`{' of the package hf_sparse_hopfield' if is_own_model(model) else ''}{fine}"
        return f"{whose}. It is dense: its attention is softmax, which gives weight to every key."
    if is_own_model(model):
        return f"`{type(model).__name__}` of the package hf_sparse_hopfield{fine}. Its weights are {zeros}."
    what = f"[{base}](https://huggingface.co/{base})" if base else f"a {family} model"
    return f"`{type(model).__name__}`: {what} whose attention is sparse modern Hopfield retrieval: {zeros}."


def is_dense(model: PreTrainedModel) -> bool:
    """
    Whether a model is and stays dense: it does not use sparse retrieval, or it is a model of this package with softmax.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model.
    """
    if is_own_model(model):
        return model.config.alpha == 1 and not model.config.learn_alpha
    return not has_sparse_retrieval(model)


def _can_plot() -> bool:
    try:
        require("matplotlib", "cli")
    except ImportError as error:
        logger.warning("The model card has no plot of the support sizes: %s", error)
        return False
    return True


def _support(
    model: PreTrainedModel, calibration: CalibrationReport | None, batches: Iterable[dict[str, Any]] | None
) -> dict[str, list[float]] | None:
    if batches is not None:
        return support_sizes(model, batches)
    if calibration is not None:
        return {name: layer["support"] for name, layer in calibration.layers.items()}
    return None


def _how_counted(given: bool, comparison: dict[str, float] | None, distillation: DistillationReport | None) -> str:
    """On what support sizes are counted, in words."""
    if "held_out_batches" in (comparison or {}) or (distillation is not None and not given):
        return "counted on held-out batches"
    return "counted on given inputs" if given else "on the batches of calibration, with the settings chosen there"


def _support_text(support: dict[str, list[float]] | None, plotted: bool, counted: str) -> str:
    if support is None:
        return "Not counted: this card was written without inputs and without a calibration report."
    shares = [share for layer in support.values() for share in layer]
    text = f"{sum(shares) / len(shares):.1%} of the visible keys get weight on average over the heads ({counted})."
    if not plotted:
        return f"{text} There is no plot: matplotlib was not installed (`pip install 'hf-sparse-hopfield[cli]'`)."
    return f"{text}\n\n![share of the visible keys that get weight, per attention module and head]({PLOT_FILE})"


def _calibration_text(calibration: CalibrationReport, measured_on: str | None) -> str:
    refining = f", {len(calibration.refined)} refining steps" if calibration.refined else ""
    of = f" of {measured_on}" if measured_on else ""
    return (
        f"Calibrated on {calibration.batches} batches{of}, in which a query sees up to {calibration.longest} keys (objective: "
        f"{calibration.objective}{refining}): mean beta {calibration.mean('beta'):.3f}, mean alpha "
        f"{calibration.mean('alpha'):.3f}. The settings hold for rows of such lengths; calibrate on longer ones to use longer ones."
    )


def _distillation_text(distillation: DistillationReport, measured_on: str | None) -> str:
    of = f" of {measured_on}" if measured_on else ""
    before, after = (distillation.held_out[when]["divergence"] for when in ("before", "after"))
    change = sum(distillation.changed.values()) / len(distillation.changed)
    rank = distillation.options.get("rank")
    trained = "The weights" if rank is None else f"Updates of rank {rank} of the weights"
    return (
        f"{trained} of the attention modules were trained for {distillation.steps} steps ({distillation.tokens} {distillation.unit}{of}) on the "
        f"outputs of {distillation.teacher}. The weights changed by {change:.1%} of their norm; all other weights are those of the dense model. "
        f"The divergence from {distillation.teacher} on {distillation.held_out_batches} held-out batches{of} was {before:.4f} before and is "
        f"{after:.4f}."
    )


def _comparison_text(measured_on: str | None, held_out: int | None) -> str:
    of = f" of {measured_on}" if measured_on else ""
    count = "" if held_out is None else f" ({held_out})"
    return f"Measured on held-out batches{of}{count}, on which nothing was chosen or trained. {UNLIKE_USE}"


def _loading(auto_class: str | None, class_name: str, repo_id: str, sparse: bool) -> str:
    if not sparse:
        auto_class = auto_class or class_name
        lines = f'from transformers import {auto_class}\n\nmodel = {auto_class}.from_pretrained("{repo_id}")'
        return f"```python\n{lines}\n```"
    if auto_class is None:
        lines = f'from hf_sparse_hopfield.checkpoints import load_model\n\nmodel = load_model("{repo_id}")'
        return f"No Auto class of transformers knows `{class_name}`:\n\n```python\n{lines}\n```"
    with_plugin = (
        "import hf_sparse_hopfield  # pip install hf-sparse-hopfield\n"
        f'from transformers import {auto_class}\n\nmodel = {auto_class}.from_pretrained("{repo_id}")'
    )
    remote = f'model = {auto_class}.from_pretrained("{repo_id}", trust_remote_code=True)'
    return (
        f"```python\n{with_plugin}\n```\n\nor, with the package installed but not imported:\n\n```python\n"
        f"from transformers import {auto_class}\n\n{remote}\n```\n\n"
        "Without the package the model does not load, and never runs dense: transformers raises a `ValueError` that asks for "
        "`trust_remote_code=True`, and with that an `ImportError` that says `pip install hf_sparse_hopfield`."
    )


def _without_paths(command: str) -> str:
    """A command without the directories of the machine it ran on."""

    def bare(part: str) -> str:
        option, equals, value = part.partition("=") if part.startswith("--") else ("", "", part)
        return f"{option}{equals}{Path(value).name}" if os.path.isabs(value) else part

    return shlex.join(map(bare, shlex.split(command)))


def _merged_data(card: ModelCard, ours: ModelCardData) -> ModelCardData:
    data = cast(ModelCardData, card.data)
    fresh = ("model_name", "eval_results", "datasets") if ours.eval_results else ()
    for key, value in vars(ours).items():
        if value and (key in fresh or not data.get(key)):
            data[key] = value
    data.tags = list(dict.fromkeys([*(data.tags or []), *(ours.tags or [])]))
    return data


def _merged_text(text: str, section: str) -> str:
    before, begin, rest = text.partition(_BEGIN)
    if not begin:
        return f"{text.rstrip()}\n\n{section}\n"
    return f"{before}{section}{rest.partition(_END)[2]}"
