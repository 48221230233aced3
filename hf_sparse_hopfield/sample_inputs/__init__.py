# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Inputs to try a model on: windows of a text or a dataset, text that the model writes itself, a given
sentence or picture, or random inputs of the right form."""

from .dataset_rows import dataset_rows, dataset_text, is_text_file
from .given import given_inputs
from .random_inputs import random_batches, random_inputs
from .self_written import self_written
from .text import as_batches, check_batch, read_text, text_batches


__all__ = [
    "as_batches",
    "check_batch",
    "dataset_rows",
    "dataset_text",
    "given_inputs",
    "is_text_file",
    "random_batches",
    "random_inputs",
    "read_text",
    "self_written",
    "text_batches",
]
