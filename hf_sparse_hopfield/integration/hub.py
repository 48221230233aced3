# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Model cards for converted checkpoints, and pushing them to the Hub."""

import os
from typing import Any

from huggingface_hub import HfApi, ModelCard, ModelCardData
from transformers import PreTrainedModel

from .calibration import CalibrationReport
from .settings import LayerRetrieval


def model_card(
    model: PreTrainedModel,
    *,
    base_model: str | None = None,
    calibration: CalibrationReport | None = None,
    comparison: dict[str, float] | None = None,
    command: str | None = None,
) -> ModelCard:
    """
    The card of a sparse model: what it was, how it retrieves, how to load it.

    Args:
        model ([`~transformers.PreTrainedModel`]): A converted model.
        base_model (`str`, *optional*): Hub id of the dense model; a local path is not written into the card.
        calibration ([`CalibrationReport`], *optional*): From [`calibrate`].
        comparison (`dict`, *optional*): From [`compare_with_dense`].
        command (`str`, *optional*): How the checkpoint was made.

    Example:

    ```python
    >>> from transformers import BertConfig, BertModel
    >>> from hf_sparse_hopfield import to_sparse_hopfield
    >>> from hf_sparse_hopfield.integration.hub import model_card

    >>> model = BertModel(BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, vocab_size=100))
    >>> model_card(to_sparse_hopfield(model), base_model="google-bert/bert-base-uncased").data.tags
    ['sparse-hopfield', 'sparse-attention', 'bert']

    ```
    """
    hub_id = base_model if base_model and not os.path.exists(base_model) else None
    family = getattr(model.config, "base_model_type", model.config.model_type)
    data = ModelCardData(
        base_model=hub_id,
        library_name="transformers",
        tags=["sparse-hopfield", "sparse-attention", family],
    )
    name = (hub_id or family).split("/")[-1]
    parts = [
        f"# {name}, with sparse Hopfield retrieval",
        f"`{type(model).__name__}`: {f'[{hub_id}](https://huggingface.co/{hub_id})' if hub_id else f'a {family} model'} "
        "whose attention retrieves with alpha-entmax instead of softmax. Weights that do not matter are exactly zero.",
        "```python\nimport hf_sparse_hopfield  # pip install hf-sparse-hopfield\nfrom transformers import "
        f'{_auto_class(model)}\n\nmodel = {_auto_class(model)}.from_pretrained("...")\n```',
        "## Settings",
        settings_table(model),
    ]
    if calibration is not None:
        line = (
            f"Calibrated on {calibration.batches} batches (objective: {calibration.objective}"
            f"{f', {len(calibration.refined)} refining steps' if calibration.refined else ''}). "
            f"Mean beta {calibration.mean('beta'):.3f}, mean alpha {calibration.mean('alpha'):.3f}, "
            f"{calibration.mean('support'):.1%} of the visible keys get weight in the mean head before refining."
        )
        parts += ["## Calibration", line]
    if comparison is not None:
        rows = "\n".join(f"| {key.replace('_', ' ')} | {value:.4f} |" for key, value in comparison.items())
        parts += ["## Against the dense model", f"| | |\n| --- | --- |\n{rows}"]
    if command is not None:
        parts += ["## Made with", f"```bash\n{command}\n```"]
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n" + "\n\n".join(parts) + "\n")


def settings_table(model: PreTrainedModel) -> str:
    """alpha, beta and steps of every attention module, as a Markdown table."""
    lines = ["| attention module | heads | alpha | beta | steps |", "| --- | --- | --- | --- | --- |"]
    for module in model.modules():
        if isinstance(module, LayerRetrieval):
            beta, alpha = module()
            lines.append(f"| {module.name} | {module.num_heads} | {_span(alpha)} | {_span(beta)} | {module.steps} |")
    return "\n".join(lines)


def _span(setting: Any) -> str:
    if not hasattr(setting, "tolist"):
        return f"{setting:.4g}"
    low, high = float(setting.min()), float(setting.max())
    return f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"


def _auto_class(model: PreTrainedModel) -> str:
    name = type(model).__name__
    for ending, auto in (
        ("ForCausalLM", "AutoModelForCausalLM"),
        ("LMHeadModel", "AutoModelForCausalLM"),
        ("ForMaskedLM", "AutoModelForMaskedLM"),
        ("ForConditionalGeneration", "AutoModelForSeq2SeqLM"),
        ("ForSequenceClassification", "AutoModelForSequenceClassification"),
        ("ForImageClassification", "AutoModelForImageClassification"),
    ):
        if name.endswith(ending):
            return auto
    return "AutoModel"


def push_folder(folder: str | os.PathLike, repo_id: str, private: bool = False) -> str:
    """
    Upload a checkpoint, with the token that `hf auth login` has stored.

    Args:
        folder (`str`): The checkpoint.
        repo_id (`str`): Where to, as `owner/name`; it is created if need be.
        private (`bool`, *optional*, defaults to `False`): Create it private.

    Returns:
        `str`: Address of the commit.
    """
    api = HfApi()
    api.create_repo(repo_id, private=private, exist_ok=True)
    return str(api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message="Add sparse Hopfield checkpoint"))
