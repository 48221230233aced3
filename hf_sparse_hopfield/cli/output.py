# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Writing a checkpoint as the command line asks: verified, uploaded, with its result on the screen."""

import argparse
from collections.abc import Callable
from typing import Any

from .arguments import check_push, push, show


def write_checkpoint(arguments: argparse.Namespace, convert: Callable[..., dict[str, Any]], **options: Any) -> None:
    """
    Convert a checkpoint, upload it if that was asked for, and show the result.

    Args:
        arguments (`argparse.Namespace`): With `source`, `output` and those of [`add_output_arguments`].
        convert (`Callable`): A conversion of [`~hf_sparse_hopfield.checkpoints`].
        **options: More arguments for it.
    """
    check_push(arguments)
    result = convert(
        arguments.source,
        arguments.output,
        overwrite=arguments.overwrite,
        verify=not arguments.no_verify,
        **options,
    )
    show(arguments, {"output": arguments.output, **result, **push(arguments, arguments.output)}, arguments.source)
