# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The files of a checkpoint other than the weights and the configuration of its model: its tokenizer, its license, and what
other libraries such as sentence-transformers keep there."""

import json
import re
import shutil
from pathlib import Path

from huggingface_hub import snapshot_download

from ..hub.cards import CARD_FILE
from ..hub.support_plot import PLOT_FILE
from ..remote_code import REMOTE_CODE_FILE


CALIBRATION_FILE = "calibration.json"
CONFIG_FILE = "config.json"

# Not copied: the new checkpoint has its own weights and files, and exports of the old weights do not describe it.
_OWN_FILES = {CONFIG_FILE, CARD_FILE, PLOT_FILE, CALIBRATION_FILE, REMOTE_CODE_FILE}
_WEIGHTS = re.compile(r"\.(safetensors|bin|h5|msgpack|ot|pt|pth|ckpt|pb|gguf|onnx|onnx_data|tflite|index\.json)$")
# Downloaded from the Hub; the numbered folders are the modules of sentence-transformers.
_DOWNLOADED = ["*.json", "*.txt", "*.jinja", "*.model", "*.spm", "*.tiktoken", "*.py", "[0-9]*_*/*"]


def companion_files(path: str) -> list[Path]:
    """
    List the files of a checkpoint besides the weights and the configuration of its model.

    Args:
        path (`str`): Local directory or Hub id.

    Returns:
        `list[Path]`: Paths relative to the directory of the checkpoint.
    """
    directory = _local_directory(path)
    try:
        modules = json.loads((directory / "modules.json").read_text(encoding="utf-8"))
        folders = [directory / module["path"] for module in modules if re.fullmatch(r"[\w-]+", module["path"])]
    except (OSError, ValueError, TypeError, KeyError):  # not a checkpoint of sentence-transformers
        folders = []
    files = [file for file in directory.iterdir() if file.name not in _OWN_FILES and not _WEIGHTS.search(file.name)]
    files += [file for folder in folders for file in sorted(folder.rglob("*"))]
    return [file.relative_to(directory) for file in files if file.is_file() and not file.name.startswith(".")]


def copy_companion_files(path: str, directory: Path) -> None:
    """
    Copy the companion files of a checkpoint. Files that the directory already has stay.

    Args:
        path (`str`): Local directory or Hub id to copy from.
        directory (`Path`): Directory to copy to.
    """
    for file in companion_files(path):
        if not (directory / file).exists():
            (directory / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(_local_directory(path) / file, directory / file)


def _local_directory(path: str) -> Path:
    return Path(path) if Path(path).is_dir() else Path(snapshot_download(path, allow_patterns=_DOWNLOADED))
