# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The metadata of a model card: task, license, base model, results of an evaluation."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, HfApi, ModelCard
from huggingface_hub.constants import REPOCARD_NAME
from huggingface_hub.errors import HFValidationError, HTTPError, OfflineModeIsEnabled
from huggingface_hub.utils import validate_repo_id
from transformers import PreTrainedModel
from transformers.utils import logging

from ..integration.upstream import auto_model_mappings


logger = logging.get_logger(__name__)

# Auto class to pipeline tag of the Hub. Where several Auto classes know a model class, the first one is named.
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
_TEXT_TAGS = ("text-", "fill-", "token-", "question-", "multiple-", "feature-")


def task_of(model: PreTrainedModel) -> tuple[str | None, str | None]:
    """
    Find the Auto class that loads a model, and the model's task.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model.

    Returns:
        `tuple`: Name of the Auto class (`None` if none knows the model's class), and the Hub's pipeline tag (`None` if the
        Hub has none for it).
    """
    mappings = auto_model_mappings()
    others = (name for name in mappings if name.startswith("AutoModelFor"))
    for name in dict.fromkeys([*_PIPELINE_TAGS, *others]):
        if not loads(name, model):
            continue
        tag = _PIPELINE_TAGS.get(name)
        if name == "AutoModelForSeq2SeqLM" and getattr(model.config, "base_model_type", None) in _TRANSLATORS:
            tag = "translation"
        if tag is not None and tag.startswith(_TEXT_TAGS) and model.main_input_name != "input_ids":
            image = name == "AutoModel" and model.main_input_name == "pixel_values"
            tag = "image-feature-extraction" if image else None
        return name, tag
    return None, None


def loads(auto_class: str, model: PreTrainedModel) -> bool:
    """
    Whether an Auto class loads checkpoints of a model's configuration as a model of its class.

    Args:
        auto_class (`str`): Name of the Auto class.
        model ([`~transformers.PreTrainedModel`]): The model.
    """
    known = auto_model_mappings()[auto_class].get(type(model.config), None)
    return type(model) in (known if isinstance(known, (list, tuple)) else [known])


def license_of(base_model: str | None) -> str | None:
    """
    Look up the license of a model in its card.

    Args:
        base_model (`str`, *optional*): Local directory or Hub id.

    Returns:
        `str`: The license; `None` if there is no card, if it names no license, or if the Hub cannot be reached.
    """
    if not base_model:
        return None
    card = Path(base_model, REPOCARD_NAME)
    if card.is_file():
        return ModelCard.load(card, ignore_metadata_errors=True).data.license
    if hub_id(base_model) is None:
        return None
    try:
        data = HfApi().model_info(base_model, timeout=10).card_data
    except (HTTPError, OfflineModeIsEnabled, OSError) as error:
        logger.info("The license of %s is unknown: %s", base_model, error)
        return None
    return None if data is None else data.get("license")


def hub_id(name: str | None) -> str | None:
    """Return a name that can be a repository on the Hub, and `None` for a local path."""
    if not name or os.path.exists(name):
        return None
    try:
        validate_repo_id(name)
    except HFValidationError:
        return None
    return name


def evaluation_metadata(
    name: str, metrics: Mapping[str, float | str] | None, dataset: str | None, task: str | None
) -> dict[str, Any]:
    """
    The fields of the metadata for the results of an evaluation; none if it is not known what was evaluated on.

    Args:
        name (`str`): Name of the model.
        metrics (`dict[str, float | str]`, *optional*): The results. Texts are left out.
        dataset (`str`, *optional*): Hub id of the dataset.
        task (`str`, *optional*): Pipeline tag of the model.
    """
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
