# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""GGUF files to dense checkpoints. Reading GGUF takes a minute: do it once, and convert the result."""

import os
from pathlib import Path
from typing import Any

from transformers import GgufConfig

from ..extras import require
from ..files import check_output
from ..progress import stage
from .loading import load_model, load_tokenizer
from .verified_saving import inputs_to_verify, save_verified


def gguf_options(file: str) -> dict[str, Any]:
    """
    Options with which [`load_model`] reads a GGUF file, dequantised to float32.

    Args:
        file (`str`): Name of the file in the directory of the checkpoint.
    """
    return {"gguf_file": file, "quantization_config": GgufConfig(dequantize=True), "dtype": "float32"}


def convert_gguf(
    source: str | os.PathLike,
    output: str | os.PathLike,
    *,
    overwrite: bool = False,
    verify: bool = True,
    progress: bool = True,
) -> dict[str, Any]:
    """
    Dequantise a GGUF file and write it, with its tokenizer, as a dense checkpoint.

    Args:
        source (`str`): The GGUF file.
        output (`str`): Directory to write.
        overwrite (`bool`, *optional*, defaults to `False`): Replace an existing directory.
        verify (`bool`, *optional*, defaults to `True`): Load the result and compare its outputs.
        progress (`bool`, *optional*, defaults to `True`): Show progress.

    Returns:
        `dict`: `difference`, the largest difference of the outputs after loading the result; empty without verification.
    """
    require("gguf", "gguf")
    source = Path(source)
    if not source.is_file():
        raise FileNotFoundError(f"source {str(source)!r} is not a file.")
    check_output(output, overwrite, source=str(source))
    with stage(f"loading {source}", progress):
        holder = [load_model(str(source.parent), **gguf_options(source.name))]
        tokenizer = load_tokenizer(str(source.parent), gguf_file=source.name)
    inputs = inputs_to_verify(holder[0]) if verify else None
    return save_verified(holder, tokenizer, output, overwrite=overwrite, inputs=inputs, progress=progress)
