# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The command line of every training script: model, data, retrieval and training arguments."""

import logging
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

from accelerate.utils import broadcast_object_list
from data_splits import DataArguments
from model_loading import ModelArguments
from transformers import HfArgumentParser, TrainingArguments, set_seed

from hf_sparse_hopfield.training import SparseHopfieldArguments


logger = logging.getLogger("examples")


class Arguments(NamedTuple):
    """The parsed command line of a training script."""

    model: ModelArguments
    data: Any
    sparse: SparseHopfieldArguments
    training: Any
    command_line: str


def parse_arguments(
    data_class: type[DataArguments],
    smoke: Sequence[str],
    argv: Sequence[str] | None = None,
    training_class: type[TrainingArguments] = TrainingArguments,
) -> Arguments:
    """
    Parse the command line, or the JSON file that is its only argument, and set up logging and the seed.

    Args:
        data_class (`type`): [`DataArguments`] or a subclass with the script's own fields.
        smoke (`Sequence[str]`): Arguments that `--smoke` stands for. Arguments given explicitly override them.
        argv (`Sequence[str]`, *optional*): Arguments to parse instead of `sys.argv`.
        training_class (`type`, *optional*): [`~transformers.TrainingArguments`] or a subclass.
    """
    parser = HfArgumentParser((ModelArguments, data_class, SparseHopfieldArguments, training_class))
    argv = list(sys.argv[1:] if argv is None else argv)
    needs_directory = "--smoke" in argv and not any(word.partition("=")[0] == "--output_dir" for word in argv)
    if len(argv) == 1 and argv[0].endswith(".json"):
        parsed = parser.parse_json_file(argv[0])
    else:
        if needs_directory:  # the first process creates it and broadcasts its name below
            is_first = os.environ.get("RANK", "0") == "0"
            argv += ["--output_dir", tempfile.mkdtemp(prefix="smoke-") if is_first else "smoke"]
        if "--smoke" in argv:
            argv = [*smoke, "--do_train", "--do_eval", "--do_predict", *argv]
        parsed = parser.parse_args_into_dataclasses(argv, look_for_args_file=False)
    training = parsed[-1]
    _refuse_separate_processes(training)
    if needs_directory:
        training.output_dir = broadcast_object_list([training.output_dir])[0]
    if not training.output_dir:
        raise ValueError("--output_dir is missing: give the directory for the model and the results.")
    training.dataloader_pin_memory &= training.device.type != "cpu"  # otherwise every evaluation warns
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    logger.setLevel(logging.INFO if training.process_index == 0 else logging.WARNING)
    set_seed(training.seed)
    return Arguments(*parsed, shlex.join([os.path.basename(sys.argv[0]), *_without_token(argv)]))


def _refuse_separate_processes(training: TrainingArguments) -> None:
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes > 1 and training.world_size == 1:
        raise ValueError(
            f"{processes} processes were launched (WORLD_SIZE={processes}), but each would train on its own and write to "
            "the same output_dir. On CPUs, also pass --use_cpu to the script; otherwise launch a single process."
        )


def _without_token(argv: Sequence[str]) -> list[str]:
    """Drop `--hub_token`: the command goes into the summary and the model card, which are published."""
    return [
        word
        for before, word in zip(["", *argv], argv, strict=False)
        if before != "--hub_token" and word.partition("=")[0] != "--hub_token"
    ]
