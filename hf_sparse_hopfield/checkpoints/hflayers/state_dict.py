# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""State dicts in files: read without running code, renamed, and ready to be written."""

import pickle
import zipfile
from collections.abc import Mapping

import torch
from safetensors.torch import load_file


StateDict = dict[str, torch.Tensor]


def read_state_dict(path: str) -> StateDict:
    """
    Read the tensors of a file. They stay on disk, mapped into memory, where the format allows it. Pickles are read with
    `weights_only=True` and cannot run code.

    Args:
        path (`str`): A `.safetensors` file, or a file written by `torch.save`.
    """
    if path.endswith(".safetensors"):
        return load_file(path)
    try:
        # Only the zip format, the default since torch 1.6, can be mapped into memory.
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"source {path!r} holds more than tensors, or is not a checkpoint: it is not read."
        ) from error
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise ValueError(f"source {path!r} is not a state dict: it holds more than named tensors.")
    return dict(content)


def renamed(state: StateDict, renamings: Mapping[str, str]) -> StateDict:
    """
    Change how names begin.

    Args:
        state (`dict[str, torch.Tensor]`): The state dict.
        renamings (`dict[str, str]`): Old beginning to new beginning, applied in this order.
    """
    for old, new in renamings.items():
        if not any(name.startswith(old) for name in state):
            raise ValueError(f"--rename '{old}={new}' must be OLD=NEW with names that begin with OLD; none does.")
        changed = {(new + name.removeprefix(old) if name.startswith(old) else name): name for name in state}
        if len(changed) < len(state):
            raise ValueError(f"--rename '{old}={new}' gives two tensors the same name.")
        state = {name: state[before] for name, before in changed.items()}
    return state


def without_shared_memory(state: StateDict) -> StateDict:
    """Tensors as a safetensors file can hold them: contiguous, each with memory of its own."""
    seen, separate = set(), {}
    for name, tensor in state.items():
        memory = tensor.untyped_storage().data_ptr()
        separate[name] = tensor.clone() if memory in seen else tensor.contiguous()
        seen.add(memory)
    return separate
