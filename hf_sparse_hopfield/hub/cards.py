# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Model cards: what a model was, how it retrieves, how many keys it uses, how to load it.

The card has a part of its own between two comments. In a card that is there already, of the Trainer or written by hand,
that part is replaced or appended, and the rest stays.
"""

import os
import shlex
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import EvalResult, HfApi, ModelCard, ModelCardData
from huggingface_hub.errors import HFValidationError, HTTPError, OfflineModeIsEnabled
from huggingface_hub.utils import validate_repo_id
from torch import nn
from transformers import PreTrainedModel
from transformers.models.auto import modeling_auto
from transformers.models.auto.auto_factory import _BaseAutoModelClass
from transformers.utils import logging

from ..calibration.calibrate import CalibrationReport
from ..diagnostics.layers import layer_sparsity
from ..extras import require
from ..integration.auto import as_sparse_class
from ..integration.binding import LayerRetrieval, is_bound, is_converted, is_own, retrieves
from ..layers.association import HopfieldAssociation
from ..parameters import RetrievalParameters


logger = logging.get_logger(__name__)

CARD_FILE = "README.md"
PLOT_FILE = "support.png"
# Stands for the repository in a card that was written before anybody knew where it would go.
UNKNOWN_REPOSITORY = "OWNER/NAME"
_BEGIN, _END = "<!-- sparse-hopfield -->", "<!-- end of sparse-hopfield -->"
_TAGS = ["sparse-hopfield", "sparse-attention"]

# Auto class to the Hub's name of what its models do, in the order in which a class that several of them know is named.
_PIPELINE_TAGS = {
    "AutoModelForCausalLM": "text-generation",
    "AutoModelForImageTextToText": "image-text-to-text",
    "AutoModelForSpeechSeq2Seq": "automatic-speech-recognition",
    "AutoModelForSeq2SeqLM": None,
    "AutoModelForMaskedLM": "fill-mask",
    "AutoModelForSequenceClassification": "text-classification",
    "AutoModelForTokenClassification": "token-classification",
    "AutoModelForQuestionAnswering": "question-answering",
    "AutoModelForMultipleChoice": "multiple-choice",
    "AutoModelForImageClassification": "image-classification",
    "AutoModelForSemanticSegmentation": "image-segmentation",
    "AutoModelForObjectDetection": "object-detection",
    "AutoModelForDepthEstimation": "depth-estimation",
    "AutoModelForVideoClassification": "video-classification",
    "AutoModelForZeroShotImageClassification": "zero-shot-image-classification",
    "AutoModelForAudioClassification": "audio-classification",
    "AutoModelForCTC": "automatic-speech-recognition",
    "AutoModelForTimeSeriesPrediction": "time-series-forecasting",
    "AutoModel": "feature-extraction",
}
_TRANSLATORS = ("marian", "m2m_100", "fsmt", "nllb-moe")
_OF_TEXT = ("text-", "fill-", "token-", "question-", "multiple-", "feature-")


class SparseModelCard(ModelCard):
    """A model card that saves the picture it shows beside itself."""

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
    metrics: dict[str, float | str] | None = None,
    dataset: str | None = None,
    command: str | None = None,
    license: str | None = None,
    pipeline_tag: str | None = None,
    tags: Iterable[str] | None = None,
    into: ModelCard | None = None,
) -> SparseModelCard:
    """
    The card of a model. Of a dense one, the baseline of a comparison, it says that it is dense and nothing of retrieval.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model.
        repo_id (`str`, *optional*): Where the card will be, for the lines that load the model.
        base_model (`str`, *optional*):
            Hub id of the dense model; a local path is not written into the card. By default, what the model was loaded
            from.
        calibration ([`CalibrationReport`], *optional*): From [`calibrate`].
        batches (iterable of `dict`, *optional*):
            Model inputs to count support sizes on, for the table and the plot. Without them, those of `calibration`.
        support (`dict[str, list[float]]`, *optional*): From [`support_sizes`], where they are counted already.
        comparison (`dict`, *optional*): From [`compare_with_dense`].
        metrics (`dict[str, float]`, *optional*): Results of an evaluation; a text (how it was measured) is shown only.
        dataset (`str`, *optional*): Hub id of what was evaluated on. With it, the metrics are in the card's metadata, too.
        command (`str`, *optional*): How the checkpoint was made.
        license (`str`, *optional*): By default that of the base model, as far as its card tells.
        pipeline_tag (`str`, *optional*): What the model is for, in the Hub's words. By default, as its class tells.
        tags (`list[str]`, *optional*): More tags.
        into (`ModelCard`, *optional*): A card whose text and metadata are to stay.

    Returns:
        [`SparseModelCard`]: `save` also writes the plot.

    Example:

    ```python
    >>> from transformers import BertConfig, BertModel
    >>> from hf_sparse_hopfield import to_sparse_hopfield
    >>> from hf_sparse_hopfield.hub.cards import model_card

    >>> model = BertModel(BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, vocab_size=100))
    >>> model_card(to_sparse_hopfield(model), base_model="google-bert/bert-base-uncased").data.tags
    ['sparse-hopfield', 'sparse-attention', 'bert']

    ```
    """
    sparse = retrieves(model)
    counted = batches is not None or support is not None
    if sparse and support is None:
        support = _support(model, calibration, batches)
    plotted = support is not None and _can_plot()
    with as_sparse_class(model) if is_bound(model) and not is_converted(model) else nullcontext():
        auto_class, own_tag = task_of(model)
        pipeline_tag = pipeline_tag or own_tag
        family = str(getattr(model.config, "base_model_type", model.config.model_type))
        base = _hub_id(base_model or getattr(model.config, "_name_or_path", None))
        name = (repo_id or base or family).split("/")[-1]
        data = ModelCardData(
            base_model=base if base != repo_id else None,
            library_name="transformers",
            license=license or license_of(base_model or base),
            pipeline_tag=pipeline_tag,
            tags=list(dict.fromkeys([*([] if is_dense(model) else _TAGS), family, *(tags or [])])),
            **_results(name, metrics, dataset, pipeline_tag),
        )
        parts = [
            _description(model, family, data.base_model),
            "## How to load",
            _loading(auto_class, type(model).__name__, repo_id or UNKNOWN_REPOSITORY, sparse),
        ]
        if sparse:
            parts += ["## Settings", settings_table(model, support)]
    if sparse:
        parts += ["## Support size", _support_text(support, plotted, counted)]
    if calibration is not None:
        parts += ["## Calibration", _calibration_text(calibration)]
    if comparison is not None:
        parts += ["## Against the dense model", _numbers(comparison)]
    if metrics is not None:
        parts += ["## Evaluation", _numbers(metrics)]
    if command is not None:
        parts += ["## Made with", f"```bash\n{_without_paths(command)}\n```"]
    section = "\n\n".join([_BEGIN, *parts, _END] if sparse else parts)
    if into is None:
        text = f"\n# {name}{', with sparse Hopfield retrieval' if sparse and not is_own(model) else ''}\n\n{section}\n"
    else:
        data, text = _merged_data(into, data), _merged_text(into.text, section)
    card = SparseModelCard(f"---\n{data.to_yaml()}\n---\n{text}")
    card.support = support if plotted else None
    return card


def settings_table(model: nn.Module, support: dict[str, list[float]] | None = None) -> str:
    """
    alpha, beta and steps of every attention module, as a Markdown table.

    Args:
        model ([`~transformers.PreTrainedModel`]): A model that retrieves sparsely.
        support (`dict[str, list[float]]`, *optional*): For each attention module the share of keys that each head uses.
    """
    support = support or {}
    lines = [
        "| attention module | heads | alpha | beta | steps | keys with weight |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, module, steps in _retrievals(model):
        with torch.no_grad():
            beta, alpha = _learned_or_fixed(module)
        shares = support.get(name)
        used = f"{sum(shares) / len(shares):.1%}" if shares else ""
        lines.append(f"| {name} | {module.num_heads} | {_span(alpha)} | {_span(beta)} | {steps} | {used} |")
    if len(lines) == 2:  # a model of our own with another kind of pooling
        names = ("alpha", "beta", "steps")
        lines = ["| alpha | beta | steps |", "| --- | --- | --- |"]
        lines.append("".join(f"| {getattr(model.config, name, '')} " for name in names) + "|")
    return "\n".join(lines)


def _description(model: PreTrainedModel, family: str, base: str | None) -> str:
    zeros = "alpha-entmax, in which weights that do not matter are exactly zero (alpha = 1 is softmax)"
    fine = f", fine-tuned from [{base}](https://huggingface.co/{base})" if base else ""
    if is_dense(model):
        whose = f"`{type(model).__name__}`{' of the package hf_sparse_hopfield' if is_own(model) else ''}{fine}"
        return f"{whose}. It is dense: its attention is softmax, which gives weight to every key."
    if is_own(model):
        return f"`{type(model).__name__}` of the package hf_sparse_hopfield{fine}. It weighs with {zeros}."
    what = f"[{base}](https://huggingface.co/{base})" if base else f"a {family} model"
    return f"`{type(model).__name__}`: {what} whose attention is sparse modern Hopfield retrieval: {zeros}."


def is_dense(model: PreTrainedModel) -> bool:
    """
    Whether a model retrieves densely, whatever comes: not with layers of ours, or one of our own with softmax.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model.
    """
    if is_own(model):
        return model.config.alpha == 1 and not model.config.learn_alpha
    return not retrieves(model)


def _learned_or_fixed(module: RetrievalParameters) -> tuple[Any, Any]:
    # Of parameters spread over processes, which would all have to come to gather them, one process writes no values.
    sharded = any(hasattr(each, "full_tensor") or each.numel() != module.num_heads for each in module.parameters())
    if not sharded:
        return module()
    beta = "learned" if module.learn_beta else module.initial_beta
    return beta, "learned" if module.learn_alpha else module.initial_alpha


def _retrievals(model: nn.Module) -> list[tuple[str, RetrievalParameters, int]]:
    """The name of each attention module or layer, what it retrieves with, and in how many steps."""
    found = []
    for name, module in model.named_modules():
        if isinstance(module, LayerRetrieval):
            found.append((module.name, module, module.steps))
        elif isinstance(module, HopfieldAssociation):
            found.append((_layer_name(name), module.retrieval_parameters, module.steps))
    return found


def _layer_name(core: str) -> str:
    """The path of a layer, from that of its core."""
    return core.removesuffix("association_core").rstrip(".")


def support_sizes(model: PreTrainedModel, batches: Iterable[dict[str, Any]]) -> dict[str, list[float]]:
    """
    Which share of the visible keys gets weight, for each attention module one number per head.

    Args:
        model ([`~transformers.PreTrainedModel`]): A model that retrieves sparsely, converted or made of our layers.
        batches (iterable of `dict`): Model inputs.
    """
    return shares_of(layer_sparsity(model, list(batches), rows=256))


def shares_of(layers: dict[str, dict[str, list[float]]]) -> dict[str, list[float]]:
    """
    The support sizes in what was counted.

    Args:
        layers (`dict`): From [`layer_sparsity`].
    """
    return {name: [1 - zeros for zeros in layer["zero_share"]] for name, layer in layers.items()}


def plot_support(support: dict[str, list[float]], path: str | os.PathLike) -> None:
    """
    A picture of support sizes: one row for each attention module, one point for each head, a bar for their mean.

    Args:
        support (`dict[str, list[float]]`): From [`support_sizes`].
        path (`str`): Where to save it.
    """
    figure = require("matplotlib.figure", "cli").Figure(figsize=(8, 1.4 + 0.26 * len(support)), layout="constrained")
    axis = figure.subplots()
    for row, shares in enumerate(support.values()):
        axis.barh(row, sum(shares) / len(shares), color="lightsteelblue")
        axis.plot(shares, [row] * len(shares), ".", color="midnightblue", markersize=4)
    axis.set_yticks(range(len(support)), list(support), fontsize=7)
    axis.invert_yaxis()
    axis.set_xlim(0, 1)
    axis.set_xlabel("share of the visible keys that get weight (bar: mean, points: heads)")
    figure.savefig(path, dpi=110)


def task_of(model: PreTrainedModel) -> tuple[str | None, str | None]:
    """
    What loads a model, and what it is for.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model.

    Returns:
        `tuple`: Name of an Auto class (`None` if none knows the model's class), and the Hub's pipeline tag (`None` if it
        has none for it).
    """
    others = (
        name
        for name, value in vars(modeling_auto).items()
        if isinstance(value, type) and issubclass(value, _BaseAutoModelClass) and name.startswith("AutoModelFor")
    )
    for name in dict.fromkeys([*_PIPELINE_TAGS, *others]):
        known = getattr(modeling_auto, name)._model_mapping.get(type(model.config), None)
        if type(model) not in (known if isinstance(known, (list, tuple)) else [known]):
            continue
        tag = _PIPELINE_TAGS.get(name)
        if name == "AutoModelForSeq2SeqLM" and getattr(model.config, "base_model_type", None) in _TRANSLATORS:
            tag = "translation"
        if tag is not None and tag.startswith(_OF_TEXT) and model.main_input_name != "input_ids":
            image = name == "AutoModel" and model.main_input_name == "pixel_values"
            tag = "image-feature-extraction" if image else None
        return name, tag
    return None, None


def license_of(base_model: str | None) -> str | None:
    """
    The license of a model, if its card tells.

    Args:
        base_model (`str`, *optional*): Local directory or Hub id.
    """
    if not base_model:
        return None
    card = Path(base_model, CARD_FILE)
    if card.is_file():
        return ModelCard.load(card, ignore_metadata_errors=True).data.license
    if _hub_id(base_model) is None:
        return None
    try:
        data = HfApi().model_info(base_model, timeout=10).card_data
    except (HTTPError, OfflineModeIsEnabled, OSError) as error:
        logger.info("The license of %s could not be found out: %s", base_model, error)
        return None
    return None if data is None else data.get("license")


def _hub_id(name: str | None) -> str | None:
    if not name or os.path.exists(name):
        return None
    try:
        validate_repo_id(name)
    except HFValidationError:
        return None
    return name


def _can_plot() -> bool:
    try:
        require("matplotlib", "cli")
    except ImportError as error:
        logger.warning("The model card has no plot of the support sizes: %s", error)
        return False
    return True


def _support(model, calibration, batches) -> dict[str, list[float]] | None:
    if batches is not None:
        return support_sizes(model, batches)
    if calibration is not None:
        return {name: layer["support"] for name, layer in calibration.layers.items()}
    return None


def _support_text(support: dict[str, list[float]] | None, plotted: bool, counted: bool) -> str:
    if support is None:
        return "Not counted: neither inputs nor a calibration report were at hand when this card was written."
    shares = [share for layer in support.values() for share in layer]
    how = "counted on given inputs" if counted else "from calibration, with the settings it has chosen"
    text = f"{sum(shares) / len(shares):.1%} of the visible keys get weight in the mean head ({how})."
    if not plotted:
        return f"{text} There is no plot: matplotlib was not installed (`pip install 'hf-sparse-hopfield[cli]'`)."
    return f"{text}\n\n![share of the visible keys that get weight, per attention module and head]({PLOT_FILE})"


def _calibration_text(calibration: CalibrationReport) -> str:
    refining = f", {len(calibration.refined)} refining steps" if calibration.refined else ""
    return (
        f"Calibrated on {calibration.batches} batches (objective: {calibration.objective}{refining}): mean beta "
        f"{calibration.mean('beta'):.3f}, mean alpha {calibration.mean('alpha'):.3f}."
    )


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
        "Without the package, loading fails; the model never runs dense without a word."
    )


def _results(
    name: str, metrics: dict[str, float | str] | None, dataset: str | None, task: str | None
) -> dict[str, Any]:
    if not metrics or dataset is None:
        return {}
    results = [
        EvalResult(
            task_type=task or "other",
            dataset_type=dataset,
            dataset_name=dataset,
            metric_type=metric,
            metric_value=float(value),
        )
        for metric, value in metrics.items()
        if not isinstance(value, str)
    ]
    return {"model_name": name, "eval_results": results, "datasets": [dataset]}


def _numbers(values: dict[str, float | str]) -> str:
    shown = {key: value if isinstance(value, str) else f"{value:.4f}" for key, value in values.items()}
    rows = "\n".join(f"| {key.replace('_', ' ')} | {value} |" for key, value in shown.items())
    return f"| | |\n| --- | --- |\n{rows}"


def _without_paths(command: str) -> str:
    """A command without the directories of the machine it ran on."""

    def bare(part: str) -> str:
        option, equals, value = part.partition("=") if part.startswith("--") else ("", "", part)
        return f"{option}{equals}{Path(value).name}" if os.path.isabs(value) else part

    return shlex.join(map(bare, shlex.split(command)))


def _merged_data(card: ModelCard, ours: ModelCardData) -> ModelCardData:
    data = card.data
    fresh = ("model_name", "eval_results", "datasets") if ours.eval_results else ()
    for key, value in vars(ours).items():
        if value and (key in fresh or not data.get(key)):
            data[key] = value
    data["tags"] = list(dict.fromkeys([*(data.tags or []), *ours.tags]))
    return data


def _merged_text(text: str, section: str) -> str:
    before, begin, rest = text.partition(_BEGIN)
    if not begin:
        return f"{text.rstrip()}\n\n{section}\n"
    return f"{before}{section}{rest.partition(_END)[2]}"


def _span(setting: Any) -> str:
    if isinstance(setting, (str, float, int)):
        return setting if isinstance(setting, str) else f"{setting:.4g}"
    values = torch.as_tensor(setting)
    low, high = f"{float(values.min()):.3g}", f"{float(values.max()):.3g}"
    return low if low == high else f"{low} to {high}"
