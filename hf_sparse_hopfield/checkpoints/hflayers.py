# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Checkpoints of hflayers (and of the paper's sparse fork, which has the same keys) for the layers of this package.

The parameter names are the same, so weights pass through unchanged. What a state dict does not say (number of heads,
scaling, steps, whether it was sparse) is given as arguments and written beside the weights; what it does say (sizes,
which parts exist) is read off the shapes. Weights stay on disk, mapped into memory, but for one layer at a time.
"""

import argparse
import json
import math
import pickle
import re
from pathlib import Path
from typing import Any

import torch

from ..cli.arguments import add_output_arguments, check_push, push, show
from ..layers.hopfield import CONVERGENCE_STEPS


HELP = "convert a state dict of hflayers"
DESCRIPTION = """Read a state dict (.pt, .pth, .bin with weights only, or .safetensors) that holds hflayers' Hopfield, HopfieldPooling
or HopfieldLayer, alone or inside a larger model, and write model.safetensors (all tensors of the state dict) and layers.json,
from which hf_sparse_hopfield.checkpoints.hflayers.load_layers makes SparseHopfield, SparseHopfieldPooling or SparseHopfieldLayer.
With --model, what is written also is a checkpoint of SparseHopfieldForMultipleInstanceClassification, for from_pretrained:
the state dict needs its names, aggregation.* (HopfieldPooling or Hopfield), classifier.* and, if there is one, embedding.0.*,
embedding.2.*, ...; --rename gives them. Other models are not made. Outputs of the layers on random inputs are compared with
the formula."""
EXAMPLES = """examples:
  %(prog)s hopfield.pt ./converted --num_heads 4                   # a dense checkpoint, kept dense
  %(prog)s hopfield.pt ./converted --num_heads 4 --alpha 2          # the sparse fork, or made sparse
  %(prog)s model.pt ./converted --num_heads 8 --options '{"scaling": 0.25, "update_steps_max": 3}'
  %(prog)s mil.pt ./classifier --num_heads 8 --alpha 2 --model --rename emb.=embedding. pool.=aggregation. out.=classifier."""

_CORE = re.compile(r"^(?P<prefix>.*?)association_core\.[^.]+(\.(weight|bias))?$")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("source", help="the state dict")
    parser.add_argument("output", help="directory to write")
    parser.add_argument("--num_heads", type=int, default=1, help="heads of every layer (default: %(default)s)")
    parser.add_argument(
        "--alpha", type=float, default=1.0, help="1 for dense checkpoints (default), 2 for the sparse fork"
    )
    parser.add_argument(
        "--options", type=parse_object, default={}, help="more constructor arguments of the layers, as a JSON object"
    )
    parser.add_argument("--model", action="store_true", help="write a multiple-instance classifier, see above")
    parser.add_argument(
        "--rename", nargs="+", default=[], metavar="OLD=NEW", help="beginnings of names that are to change"
    )
    add_output_arguments(parser)


def parse_object(text: str) -> dict[str, Any]:
    """The value of `--options`."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"must be a JSON object such as '{{\"scaling\": 0.25}}', got {text!r}")
    return value


def run(arguments: argparse.Namespace) -> None:
    """Convert."""
    from safetensors.torch import save_file

    from ..files import new_directory

    check_push(arguments)
    state = _renamed(read_state_dict(arguments.source), arguments.rename)
    layers = describe_layers(state, arguments.num_heads, arguments.alpha, arguments.options)
    config = multiple_instance_config(state, layers) if arguments.model else None
    differences = {}
    options = {"mark": "layers.json", "source": arguments.source}
    with new_directory(arguments.output, arguments.overwrite, **options) as directory:
        save_file(_apart(state), directory / "model.safetensors", metadata={"format": "pt"})
        del state
        (directory / "layers.json").write_text(json.dumps(layers, indent=2) + "\n", encoding="utf-8")
        if config is not None:
            config.save_pretrained(directory)
            _check_model(directory)
        for prefix, entry in {} if arguments.no_verify else layers.items():
            layer = load_layers(directory, prefix)[prefix]
            differences[prefix or "(the whole file)"] = verify(layer, entry["arguments"])
    result = {"output": arguments.output, "layers": {prefix: entry["class"] for prefix, entry in layers.items()}}
    if config is not None:
        result["model"] = config.architectures[0]
    show(arguments, {**result, "difference": differences, **push(arguments, arguments.output)}, arguments.source)


def read_state_dict(path: str) -> dict[str, torch.Tensor]:
    """
    The tensors of a file, which stay there as long as nobody changes them. Pickles are read with `weights_only=True` and
    can run no code.

    Args:
        path (`str`): A .safetensors file, or one written by `torch.save`.
    """
    if path.endswith(".safetensors"):
        from safetensors.torch import load_file

        return load_file(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=_is_zip(path))
    except pickle.UnpicklingError as error:
        raise ValueError(f"source {path!r} holds more than tensors, or is no checkpoint: it is not read.") from error
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise ValueError(f"source {path!r} is no state dict: it holds something else than named tensors.")
    return dict(content)


def _is_zip(path: str) -> bool:
    """Whether `torch.save` wrote it as it has done since torch 1.6: only that can be mapped into memory."""
    import zipfile

    return zipfile.is_zipfile(path)


def _renamed(state: dict[str, torch.Tensor], renamings: list[str]) -> dict[str, torch.Tensor]:
    for renaming in renamings:
        old, equals, new = renaming.partition("=")
        if not equals or not any(name.startswith(old) for name in state):
            raise ValueError(f"--rename {renaming!r} must be OLD=NEW, and some name must begin with OLD.")
        changed = {(new + name.removeprefix(old) if name.startswith(old) else name): name for name in state}
        if len(changed) < len(state):
            raise ValueError(f"--rename {renaming!r} gives two tensors the same name.")
        state = {name: state[before] for name, before in changed.items()}
    return state


def _apart(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors as a file can hold them: contiguous, and none of them part of another one's memory."""
    seen, apart = set(), {}
    for name, tensor in state.items():
        memory = tensor.untyped_storage().data_ptr()
        apart[name] = tensor.clone() if memory in seen else tensor.contiguous()
        seen.add(memory)
    return apart


def multiple_instance_config(state: dict[str, torch.Tensor], layers: dict[str, dict[str, Any]]) -> Any:
    """
    The configuration of [`SparseHopfieldForMultipleInstanceClassification`] that a state dict is of.

    Args:
        state (`dict[str, torch.Tensor]`): The state dict.
        layers (`dict`): From [`describe_layers`].
    """
    from ..models import SparseHopfieldMultipleInstanceConfig

    kinds = {"SparseHopfieldPooling": "pooling", "SparseHopfield": "hopfield"}
    entry = layers.get("aggregation.", {"class": None})
    if list(layers) != ["aggregation."] or entry["class"] not in kinds or "classifier.weight" not in state:
        raise ValueError(
            "--model needs 'classifier.weight' and one layer of hflayers, HopfieldPooling or Hopfield, whose names begin "
            f"with 'aggregation.'; the state dict has the layers {[*layers]}. Use --rename, or leave --model out."
        )
    arguments = entry["arguments"]
    names = {"update_steps_max": "update_steps", "update_steps_eps": "update_eps", "hidden_size": "head_size"}
    same = ("num_heads", "alpha", "beta", "scaling", "quantity")
    embedding = [name for name in state if re.fullmatch(r"embedding\.\d+\.weight", name)]
    norms = [arguments[f"normalize_{name}"] for name in ("stored_pattern", "state_pattern", "pattern_projection")]
    return SparseHopfieldMultipleInstanceConfig(
        input_size=state["embedding.0.weight"].shape[1] if embedding else arguments["input_size"],
        embedding_layers=len(embedding),
        embedding_size=arguments["input_size"],
        aggregation=kinds[entry["class"]],
        normalize=all(norms),
        num_labels=state["classifier.weight"].shape[0],
        architectures=["SparseHopfieldForMultipleInstanceClassification"],
        **{names.get(name, name): arguments[name] for name in (*names, *same) if arguments.get(name) is not None},
    )


def _check_model(directory: Path) -> None:
    from ..models import SparseHopfieldForMultipleInstanceClassification

    _, loading = SparseHopfieldForMultipleInstanceClassification.from_pretrained(directory, output_loading_info=True)
    wrong = {kind: sorted(map(str, names)) for kind, names in loading.items() if names}
    if wrong:
        raise ValueError(f"--model: the state dict is not one of a multiple-instance classifier: {wrong}.")


def describe_layers(
    state: dict[str, torch.Tensor], num_heads: int, alpha: float, options: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """
    Class and constructor arguments of every Hopfield layer in a state dict.

    Args:
        state (`dict[str, torch.Tensor]`): The state dict.
        num_heads (`int`): Heads of every layer.
        alpha (`float`): 1 for a dense layer, 2 for a sparse one.
        options (`dict`): More constructor arguments; they win over what the shapes say.

    Returns:
        `dict`: Prefix of a layer's keys to its `class` and `arguments`.
    """
    if num_heads < 1:
        raise ValueError(f"num_heads must be at least 1, got {num_heads}.")
    prefixes = sorted({match["prefix"] for match in map(_CORE.match, state) if match})
    if not prefixes:
        raise ValueError("the state dict has no keys with 'association_core.': it holds no layer of hflayers.")
    layers = {}
    for prefix in prefixes:
        arguments = {**_sizes(state, prefix, num_heads, options), "num_heads": num_heads, "alpha": alpha, **options}
        outer = prefix.removesuffix("hopfield.")
        name, extra = "SparseHopfield", {}
        if prefix.endswith("hopfield.") and f"{outer}pooling_weights" in state:
            name, extra = "SparseHopfieldPooling", {"quantity": state[f"{outer}pooling_weights"].shape[1]}
        elif prefix.endswith("hopfield.") and f"{outer}lookup_weights" in state:
            name, extra = "SparseHopfieldLayer", {"quantity": state[f"{outer}lookup_weights"].shape[1]}
            extra["lookup_weights_as_separated"] = f"{outer}target_weights" in state
        layers[outer if extra else prefix] = {"class": name, "arguments": {**arguments, **extra}}
    return layers


def _sizes(state: dict[str, torch.Tensor], prefix: str, heads: int, options: dict[str, Any]) -> dict[str, Any]:
    core = {
        key.removeprefix(f"{prefix}association_core."): value for key, value in state.items() if key.startswith(prefix)
    }
    found: dict[str, Any] = {
        "input_bias": "in_proj_bias" in core,
        "concat_bias_pattern": "bias_k" in core,
        "normalize_hopfield_space": "p_norm_weight" in core,
        "normalize_hopfield_space_affine": "p_norm_weight" in core,
        "disable_out_projection": "out_proj.weight" not in core,
    }
    for name in ("stored_pattern", "state_pattern", "pattern_projection"):
        found[f"normalize_{name}"] = f"{prefix}norm_{name}.weight" in state
    if any(options.get(f"{name}_as_static") for name in ("stored_pattern", "state_pattern", "pattern_projection")):
        return found  # static parts have no rows to read sizes off: these come with the options
    if "in_proj_weight" in core:
        rows, width = core["in_proj_weight"].shape  # one joint weight: three parts of the same size
        found |= {"input_size": width, "hidden_size": rows // 3 // heads}
    elif "q_proj_weight" in core:
        found["hidden_size"], found["input_size"] = (
            core["q_proj_weight"].shape[0] // heads,
            core["q_proj_weight"].shape[1],
        )
        found["stored_pattern_size"] = core["k_proj_weight"].shape[1]
        found["pattern_size"] = core["v_proj_weight"].shape[0] // heads
        found["pattern_projection_size"] = core["v_proj_weight"].shape[1]
    else:
        raise ValueError(
            f"layer {prefix!r} has neither in_proj_weight nor q_proj_weight: give its sizes in --options."
        )
    if "out_proj.weight" in core:
        found["output_size"] = core["out_proj.weight"].shape[0]
    return found


def load_layers(directory: str | Path, prefix: str | None = None) -> dict[str, torch.nn.Module]:
    """
    The layers of a converted checkpoint.

    Args:
        directory (`str`): What this command has written.
        prefix (`str`, *optional*): Load the layer with this prefix only.

    Returns:
        `dict[str, torch.nn.Module]`: Prefix of a layer's keys to the layer, with its weights.
    """
    from safetensors import safe_open

    from .. import layers as classes

    described = json.loads(Path(directory, "layers.json").read_text(encoding="utf-8"))
    loaded = {}
    with safe_open(Path(directory, "model.safetensors"), "pt") as file:
        for name, entry in described.items():
            if prefix is not None and name != prefix:
                continue
            layer = getattr(classes, entry["class"])(**entry["arguments"])
            expected = layer.state_dict().keys()
            own = {key.removeprefix(name): key for key in file.keys() if key.startswith(name)}
            own = {key: full for key, full in own.items() if key in expected or "association_core." in key}
            layer.load_state_dict({key: file.get_tensor(full) for key, full in own.items()}, assign=True)
            loaded[name] = layer.eval()
    return loaded


@torch.no_grad()
def verify(layer: torch.nn.Module, arguments: dict[str, Any]) -> float | str:
    """
    The largest difference between the outputs of a layer and the formula, on random inputs, in float64.

    Args:
        layer (`torch.nn.Module`): From [`load_layers`]. It is in float64 afterwards.
        arguments (`dict`): Its constructor arguments.
    """
    hopfield = getattr(layer, "hopfield", layer)
    special = ("_as_static", "_as_connected", "concat_bias_pattern", "add_zero_association", "association_activation")
    beyond = any(value for key, value in arguments.items() if key.endswith(special))
    beyond = beyond or arguments["normalize_hopfield_space"] or not arguments.get("batch_first", True)
    if beyond or any(isinstance(arguments.get(name), list) for name in ("alpha", "beta")):
        return "loads; its options are beyond the formula here"
    layer.double()
    state = hopfield.state_dict()
    core = {key.removeprefix("association_core."): value for key, value in state.items()}
    heads = arguments["num_heads"]
    generator = torch.Generator().manual_seed(0)

    def noise(size: int, width: int) -> torch.Tensor:
        return torch.randn(2, size, width, generator=generator, dtype=torch.float64)

    width = arguments["input_size"]
    given = noise(7, arguments.get("stored_pattern_size") or width)
    projection = given if arguments.get("pattern_projection_size") in (None, given.shape[-1]) else None
    if projection is None:
        projection = noise(7, arguments["pattern_projection_size"])
    query = noise(3, width)
    if hasattr(layer, "pooling_weights"):
        query, inputs = layer.pooling_weights.expand(2, -1, -1), given
    elif hasattr(layer, "lookup_weights"):
        given = layer.lookup_weights.expand(2, -1, -1)
        targets = getattr(layer, "target_weights", None)
        projection, inputs = given if targets is None else targets.expand(2, -1, -1), query
    else:
        inputs = (given, query, projection)
    output = layer(inputs)

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        if not arguments[f"normalize_{name}"]:
            return x
        weight, bias = state.get(f"norm_{name}.weight"), state.get(f"norm_{name}.bias")
        eps = arguments.get(f"normalize_{name}_eps", 1e-5)
        return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias, eps)

    names = ("state_pattern", "stored_pattern", "pattern_projection")
    patterns = [norm(x, name) for x, name in zip((query, given, projection), names, strict=True)]
    hidden, values = hopfield.hidden_size * heads, hopfield.pattern_size * heads
    if "in_proj_weight" in core:
        weights = core["in_proj_weight"].split([hidden, hidden, values])
    else:
        weights = [core[f"{letter}_proj_weight"] for letter in "qkv"]
    biases = core["in_proj_bias"].split([hidden, hidden, values]) if "in_proj_bias" in core else (0.0, 0.0, 0.0)
    q, k, v = (
        (x @ weight.T + bias).unflatten(-1, (heads, -1)).transpose(1, 2)
        for x, weight, bias in zip(patterns, weights, biases, strict=True)
    )
    scaling = arguments.get("scaling") or 1 / math.sqrt(hopfield.hidden_size)
    scaling = torch.as_tensor(scaling, dtype=torch.float64).reshape(-1, 1, 1) * arguments.get("beta", 1.0)
    updates = arguments.get("update_steps_max", 0)
    updates = CONVERGENCE_STEPS if updates is None or updates < 0 else updates
    for _ in range(updates):
        q = _normalised(scaling * q @ k.transpose(-1, -2), arguments["alpha"]) @ k
    z = _normalised(scaling * q @ k.transpose(-1, -2), arguments["alpha"]) @ v
    z = z.transpose(1, 2).flatten(2)
    if "out_proj.weight" in core:
        z = z @ core["out_proj.weight"].T + core.get("out_proj.bias", 0.0)
    difference = float((z.reshape(output.shape) - output).abs().max())
    # A layer that stops updating a row once it moves by less than update_steps_eps may differ by about that much.
    allowed = 10 * arguments.get("update_steps_eps", 1e-4) if updates else 1e-8
    if not difference <= allowed * float(z.abs().max().clamp_min(1)):
        raise RuntimeError(
            f"verification failed: the layer's outputs differ by up to {difference:.3g} from the formula. Are num_heads="
            f"{heads} and the options right? Nothing was kept."
        )
    return difference


def _normalised(scores: torch.Tensor, alpha: float) -> torch.Tensor:
    if alpha == 1.0:
        return scores.softmax(-1)
    if alpha != 2.0:
        from ..functional import entmax

        return entmax(scores, alpha)
    ordered = scores.sort(-1, descending=True).values
    thresholds = (ordered.cumsum(-1) - 1) / torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype)
    size = (ordered > thresholds).sum(-1, keepdim=True)
    return (scores - thresholds.gather(-1, size - 1)).clamp_min(0)
