# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Inputs to try a model on: windows of a text, or random inputs of the right form."""

from .random_inputs import random_batches, random_inputs
from .text import check_batch, read_text, text_batches


__all__ = ["check_batch", "random_batches", "random_inputs", "read_text", "text_batches"]
