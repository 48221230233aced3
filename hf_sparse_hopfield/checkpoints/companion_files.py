# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Copy the files of a checkpoint other than the weights and the configuration of its model: its tokenizer, its license, and
what sentence-transformers keeps there."""

import shutil
from pathlib import Path

from huggingface_hub import snapshot_download
from transformers.utils import logging

from ..integration.sites import shortened
from .known_files import CONFIG_FILE, companion_files, is_model_file, named_code, refuse_links, unknown_files


logger = logging.get_logger(__name__)

# Downloaded from the Hub; the numbered folders are the modules of sentence-transformers.
_DOWNLOADED = [
    "*.json",
    "*.txt",
    "*.jinja",
    "*.model",
    "*.spm",
    "*.tiktoken",
    "*.py",
    "[0-9]*_*/*",
    "*LICENSE*",
    "NOTICE*",
]


def local_directory(path: str) -> Path:
    """
    Return the directory with the files of a checkpoint other than its weights.

    Args:
        path (`str`): Local directory or Hub id. From the Hub, the files are downloaded to its cache.
    """
    return Path(path) if Path(path).is_dir() else Path(snapshot_download(path, allow_patterns=_DOWNLOADED))


def check_links(path: str) -> None:
    """
    Refuse a local checkpoint with files that are links to elsewhere: copied or uploaded, they could give away what was
    never part of it.

    Args:
        path (`str`): Local directory or Hub id.
    """
    directory = Path(path)
    if directory.is_dir():
        refuse_links(directory, [Path(CONFIG_FILE), *companion_files(directory), *named_code(directory, directory)])


def copy_companion_files(path: str, directory: Path) -> None:
    """
    Copy the companion files of a checkpoint, and log what is left behind. Files that the directory already has stay.

    Code comes along if a configuration that was written names it: the model's own code does not, because the converted
    model is a class of transformers.

    Args:
        path (`str`): Local directory or Hub id to copy from.
        directory (`Path`): Directory to copy to.
    """
    source = local_directory(path)
    files = companion_files(source)
    _copy(source, directory, files)
    code = named_code(directory, source)  # now that the configurations are there
    _copy(source, directory, code)
    replaced = [Path(entry.name) for entry in source.iterdir() if is_model_file(entry.name)]
    left = unknown_files(source, [*files, *code, *replaced])
    if left:
        logger.warning("Not copied from %s, because they are not files of the checkpoint: %s", path, shortened(left))


def _copy(source: Path, directory: Path, files: list[Path]) -> None:
    refuse_links(source, files)
    for file in files:
        if not (directory / file).exists():
            (directory / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / file, directory / file)
