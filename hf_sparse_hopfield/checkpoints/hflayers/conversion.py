# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`convert_hflayers`, and `load_layers` for its result."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file

from ... import layers as layer_classes
from ...files import check_output, new_directory
from ...models import SparseHopfieldForMultipleInstanceClassification
from ..known_files import LAYERS_FILE
from .description import describe_layers, multiple_instance_config
from .state_dict import read_state_dict, renamed, without_shared_memory
from .verification import Layer, verify_layer


WEIGHTS_FILE = "model.safetensors"


def convert_hflayers(
    source: str,
    output: str | os.PathLike,
    *,
    num_heads: int = 1,
    alpha: float = 1.0,
    options: Mapping[str, Any] | None = None,
    model: bool = False,
    rename: Mapping[str, str] | None = None,
    overwrite: bool = False,
    verify: bool = True,
) -> dict[str, Any]:
    """
    Convert a state dict that holds layers of hflayers, alone or inside a larger model.

    Writes all its tensors (`model.safetensors`) and a description of the layers (`layers.json`), for [`load_layers`].

    Args:
        source (`str`): The state dict: a `.safetensors` file, or a file written by `torch.save`.
        output (`str`): Directory to write.
        num_heads (`int`, *optional*, defaults to 1): Heads of every layer.
        alpha (`float`, *optional*, defaults to 1.0): 1 for dense layers, 2 for those of the sparse fork.
        options (`dict`, *optional*): More constructor arguments of the layers.
        model (`bool`, *optional*, defaults to `False`):
            Make the result a checkpoint of [`SparseHopfieldForMultipleInstanceClassification`] as well.
        rename (`dict[str, str]`, *optional*): How names begin in the state dict, and how they begin in the result.
        overwrite (`bool`, *optional*, defaults to `False`): Replace an existing directory.
        verify (`bool`, *optional*, defaults to `True`): Compare the layers with the formula, on random inputs.

    Returns:
        `dict`: `layers` (prefix of each layer's names to its class), `model` (name of its class, if one was asked for) and
        `difference` (of each layer from the formula).

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield import SparseHopfield
    >>> from hf_sparse_hopfield.checkpoints import convert_hflayers, load_layers

    >>> torch.save({f"pool.{name}": value for name, value in SparseHopfield(8).state_dict().items()}, "old.pt")
    >>> convert_hflayers("old.pt", "new")["layers"]
    {'pool.': 'SparseHopfield'}
    >>> load_layers("new")["pool."](torch.randn(2, 5, 8)).shape
    torch.Size([2, 5, 8])

    ```
    """
    check_output(output, overwrite, source=source)  # fail early
    state = renamed(read_state_dict(source), rename or {})
    layers = describe_layers(state, num_heads, alpha, options or {})
    config = multiple_instance_config(state, layers) if model else None
    differences = {}
    with new_directory(output, overwrite, source=source) as directory:
        save_file(without_shared_memory(state), directory / WEIGHTS_FILE, metadata={"format": "pt"})
        del state
        (directory / LAYERS_FILE).write_text(json.dumps(layers, indent=2) + "\n", encoding="utf-8")
        if config is not None:
            config.save_pretrained(directory)
            _check_classifier(directory)
        for prefix, entry in layers.items() if verify else ():
            layer = load_layers(directory, prefix)[prefix]
            differences[prefix or "(the whole file)"] = verify_layer(layer, entry["arguments"])
    result: dict[str, Any] = {"layers": {prefix: entry["class"] for prefix, entry in layers.items()}}
    if config is not None:
        result["model"] = SparseHopfieldForMultipleInstanceClassification.__name__
    return {**result, "difference": differences}


def _check_classifier(directory: Path) -> None:
    """Refuse a checkpoint whose weights are not exactly those of the classifier."""
    _, loading = SparseHopfieldForMultipleInstanceClassification.from_pretrained(directory, output_loading_info=True)
    wrong = {kind: sorted(map(str, names)) for kind, names in loading.items() if names}
    if wrong:
        raise ValueError(f"--model: the state dict is not that of a multiple-instance classifier: {wrong}.")


def load_layers(directory: str | os.PathLike, prefix: str | None = None) -> dict[str, Layer]:
    """
    Load the layers that [`convert_hflayers`] wrote.

    Args:
        directory (`str`): The output of [`convert_hflayers`].
        prefix (`str`, *optional*): Load only the layer with this prefix.

    Returns:
        `dict`: Prefix of a layer's names to the [`SparseHopfield`], [`SparseHopfieldPooling`] or [`SparseHopfieldLayer`],
        in evaluation mode.
    """
    described = json.loads(Path(directory, LAYERS_FILE).read_text(encoding="utf-8"))
    loaded = {}
    with safe_open(Path(directory, WEIGHTS_FILE), "pt") as file:
        for name, entry in described.items():
            if prefix is not None and name != prefix:
                continue
            layer = getattr(layer_classes, entry["class"])(**entry["arguments"])
            expected = layer.state_dict().keys()
            own = {key.removeprefix(name): key for key in file.keys() if key.startswith(name)}
            own = {key: full for key, full in own.items() if key in expected or "association_core." in key}
            layer.load_state_dict({key: file.get_tensor(full) for key, full in own.items()}, assign=True)
            loaded[name] = layer.eval()
    return loaded
