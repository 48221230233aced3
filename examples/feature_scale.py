# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Mean and deviation that features are standardised with, saved with the model in `standardization.json`."""

import json
import logging
import os
from pathlib import Path

import torch
from script_arguments import Arguments
from transformers.utils import cached_file

from hf_sparse_hopfield.files import write_json
from hf_sparse_hopfield.models import standardization


logger = logging.getLogger("examples")

SCALE_FILE = "standardization.json"

Scale = tuple[torch.Tensor, torch.Tensor]


def load_scale(arguments: Arguments, rows: torch.Tensor | None) -> Scale | None:
    """
    Return the mean and deviation of the training data or, without training, those the model was trained with.

    Args:
        arguments ([`Arguments`]): The arguments: whether to train, and which model.
        rows (`torch.Tensor` of shape `(rows, columns)`, *optional*): The training data.
    """
    name = arguments.model.model_name_or_path
    if name and not arguments.training.do_train:
        quiet = ("missing_entries", "connection_errors")
        path = cached_file(name, SCALE_FILE, **{f"_raise_exceptions_for_{kind}": False for kind in quiet})
        if path is not None:
            scale = json.loads(Path(path).read_text(encoding="utf-8"))
            return tuple(torch.tensor(scale[key], dtype=torch.float64) for key in ("mean", "deviation"))
        logger.warning("%s has no %s: it was trained on unscaled data, or by another script", name, SCALE_FILE)
    return None if rows is None else standardization(rows)


def save_scale(directory: str | os.PathLike, scale: Scale) -> None:
    """Write mean and deviation into the directory of the model."""
    mean, deviation = (values.tolist() for values in scale)
    write_json(Path(directory, SCALE_FILE), {"mean": mean, "deviation": deviation})
