# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Run a tiny model of a family, and record which attention modules retrieve sparsely and which softmax stays dense.

The whole model runs on generated inputs. Attention modules that this does not reach (such as the vision part of a model that
got only text) are reached by running their submodel or, failing that, by calling them directly.
"""

import functools
import inspect
import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest import mock

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from transformers import PreTrainedModel

from hf_sparse_hopfield.integration import attention, patches
from hf_sparse_hopfield.integration.families import NOT_SCORES, PATCHED, class_key
from hf_sparse_hopfield.integration.sites import attention_sites

from ..tiny_families import IMAGE, VOCABULARY


BATCH, LENGTH = 2, 7
_DENSE = (
    F.softmax,
    torch.softmax,
    torch.Tensor.softmax,
    F.scaled_dot_product_attention,
    F.multi_head_attention_forward,
)


@dataclass
class Watch:
    """Paths of the attention modules that retrieved sparsely, and classes in which a softmax stayed dense."""

    sparse: set[str] = field(default_factory=set)
    dense: set[str] = field(default_factory=set)


class _DenseSoftmax(TorchFunctionMode):
    def __init__(self, see: Callable[[torch.Tensor], None]) -> None:
        super().__init__()
        self.see = see

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in _DENSE:
            self.see(args[0])
        return func(*args, **(kwargs or {}))


@contextmanager
def watching() -> Iterator[Watch]:
    """Record sparse retrieval and dense softmax in the modules that run within the context."""
    watch, running = Watch(), []

    def enter(module, *_):
        running.append(module)

    def leave(module, *_):
        while running and running.pop() is not module:
            pass

    def noting(function):
        @functools.wraps(function)
        def noted(*args, **kwargs):
            module = next(m for m in reversed(running) if getattr(m, "sparse_hopfield", None) is not None)
            watch.sparse.add(module.sparse_hopfield.name)
            return function(*args, **kwargs)

        return noted

    def see_dense(scores):
        if running and scores.ndim > 2:
            watch.dense.add(class_key(type(running[-1])))

    handles = [
        nn.modules.module.register_module_forward_pre_hook(enter),
        nn.modules.module.register_module_forward_hook(leave, always_call=True),
    ]
    try:
        with (
            mock.patch.object(attention, "retrieve_with", noting(attention.retrieve_with)),
            mock.patch.object(patches, "retrieve", noting(patches.retrieve)),
            mock.patch.object(patches, "entmax", noting(patches.entmax)),
            _DenseSoftmax(see_dense),
            torch.no_grad(),
        ):
            yield watch
    finally:
        for handle in handles:
            handle.remove()


def tokens(config, *shape: int) -> torch.Tensor:
    size = getattr(config, "vocab_size", None) or VOCABULARY
    return torch.randint(3, max(4, min(size, 90)), shape)


def _first(config, *names: str, default: int) -> int:
    for name in names:
        value = getattr(config, name, None)
        if isinstance(value, (list, tuple)) and value:
            value = value[0]
        if isinstance(value, int):
            return value
    return default


def candidates(name: str, model: PreTrainedModel) -> list[torch.Tensor]:
    """Generate values for an argument of a model's forward, the most likely ones first."""
    config = model.config
    entry = next((m.in_features for m in model.modules() if isinstance(m, nn.Linear)), 32)
    channels = _first(config, "num_channels", "in_channels", "in_chans", default=3)
    size = _first(config, "image_size", "img_size", default=IMAGE)
    frames = _first(config, "num_frames", default=4)
    mel = _first(config, "num_mel_bins", "feature_size", "input_feat_per_channel", "input_dim", "num_mel", default=16)
    width = _first(config, "hidden_size", "d_model", "embed_dim", "n_embd", "dim", default=32)
    if name in ("input_ids", "decoder_input_ids", "text_input_ids"):
        return [tokens(config, BATCH, LENGTH), tokens(config, BATCH, 16)]
    if name in ("pixel_values", "images", "image", "pixel_values_videos", "flattened_patches"):
        image = torch.randn(BATCH, channels, size, size)
        return [image, torch.randn(BATCH, frames, channels, size, size), torch.randn(BATCH, channels, 64, 64)]
    if name in ("input_values", "audio_values", "waveform"):
        return [torch.randn(BATCH, 2000), torch.randn(BATCH, 1, 2000), torch.randn(BATCH, 40, mel)]
    if name in ("input_features", "audio_features", "features"):
        shapes = ((mel, 40), (40, mel), (40, width), (40, entry), (40, 128), (128, 40), (1, 64, 64))
        return [torch.randn(BATCH, *shape) for shape in shapes]
    if name == "audio_mel":
        return [torch.randn(BATCH, 40, getattr(config, "input_feat_size", mel))]
    if name == "audio_mel_mask":
        return [torch.zeros(BATCH, 40, dtype=torch.bool)]
    if name == "visual_feats":
        return [torch.randn(BATCH, 5, getattr(config, "visual_feat_dim", width))]
    if name == "visual_pos":
        return [torch.rand(BATCH, 5, 4)]
    if name in ("inputs_embeds", "hidden_states", "encoder_hidden_states", "decoder_inputs_embeds"):
        return [torch.randn(BATCH, LENGTH, width), torch.randn(LENGTH, width)]
    if name == "bbox":
        return [torch.ones(BATCH, LENGTH, 4, dtype=torch.long), torch.rand(BATCH, LENGTH, 8)]
    if name == "attention_mask":
        return [torch.ones(BATCH, LENGTH, dtype=torch.long)]
    if name == "position_ids":
        return [torch.arange(LENGTH)[None].expand(BATCH, -1)]
    return []


_INPUT_SETS = (
    (),
    ("input_ids",),
    ("pixel_values",),
    ("input_ids", "decoder_input_ids"),
    ("input_ids", "pixel_values"),
    ("input_values",),
    ("input_features",),
    ("input_features", "decoder_input_ids"),
    ("input_values", "decoder_input_ids"),
    ("inputs_embeds",),
    ("hidden_states",),
    ("input_ids", "bbox"),
    ("input_ids", "visual_feats", "visual_pos"),
)


def model_inputs(model: PreTrainedModel) -> Iterator[dict[str, torch.Tensor]]:
    """Generate inputs for a model, the most likely ones first."""
    parameters = inspect.signature(type(model).forward).parameters
    named = {
        name: p
        for name, p in parameters.items()
        if name != "self" and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    required = [name for name, p in named.items() if p.default is p.empty]
    main = model.main_input_name
    main = [name for name in ([main] if isinstance(main, str) else main) if name in named]
    tried = set()
    for names in _INPUT_SETS:
        chosen = tuple(dict.fromkeys([*required, *(names or main)]))
        if chosen in tried or not chosen or any(name not in named for name in chosen):
            continue
        tried.add(chosen)
        choices = {name: candidates(name, model) for name in chosen}
        if not all(choices.values()):
            continue
        for variant in range(max(map(len, choices.values()))):
            yield {name: values[min(variant, len(values) - 1)] for name, values in choices.items()}


_STATES = re.compile(r"state|^(x|inputs|hidden|features|context|query|key|value|queries|keys|values|.*_hidden)$")


def attention_inputs(module: nn.Module) -> Iterator[dict]:
    """Generate inputs for an attention module, the most likely ones first."""
    parameters = inspect.signature(type(module).forward).parameters
    named = {n: p for n, p in parameters.items() if n != "self" and p.kind is p.POSITIONAL_OR_KEYWORD}
    usual = [
        name
        for name, p in named.items()
        if p.default is p.empty
        or "position_embeddings" in name
        or name in ("cu_seqlens", "rotary_pos_emb", "rope_k_repeat")
    ]
    more = [name for name in named if name in usual or _STATES.search(name)]
    linears = {name: m.in_features for name, m in module.named_modules() if isinstance(m, nn.Linear)}
    width = {
        role: next(
            (size for name, size in linears.items() if re.search(pattern, name)), next(iter(linears.values()), 32)
        )
        for role, pattern in (("query", "q"), ("key", r"k(?!.*q)|kv"), ("value", "v(?!.*q)"))
    }
    head_dim = getattr(module, "head_dim", None) or getattr(module, "attention_head_size", None) or 8
    rotary = getattr(module, "qk_rope_head_dim", None) or head_dim
    for wanted, shape, rotary_dim, rotary_shape in itertools.product(
        (usual, more),
        ((BATCH, 16), (16,), (BATCH, 4, 4), (BATCH, 8, 16)),
        (rotary, rotary // 2),
        ((1, 16), (16,), (BATCH, 16), (3, 1, 16), None),
    ):
        values = {}
        for name in wanted:
            role = "value" if name.startswith("value") else "key" if re.match("key|encoder|context", name) else "query"
            if ("position_embeddings" in name or name == "rotary_pos_emb") and rotary_shape is None:
                values[name] = torch.randn(*shape, width["query"])
            elif "position_embeddings" in name or name == "rotary_pos_emb":
                values[name] = tuple(torch.randn(*rotary_shape, rotary_dim) for _ in "cs")
            elif name == "cu_seqlens":
                values[name] = torch.tensor([0, 16], dtype=torch.int32)
            elif name == "rope_k_repeat":  # of EdgeTAM, whose default of 0 divides by zero
                values[name] = 1
            elif name in ("cos", "sin") and rotary_shape is not None:
                values[name] = torch.randn(*rotary_shape, rotary_dim)
            elif "mask" in name or "past" in name or "cache" in name:
                values[name] = None
            elif _STATES.search(name):
                values[name] = torch.randn(*shape, width[role])
            else:
                values[name] = None
        yield values


def exercise(model: PreTrainedModel) -> tuple[Watch, dict[str, str], list[str]]:
    """
    Run a model and its parts until every attention module has been reached.

    Returns:
        `tuple`: The record, how each attention module was reached, and the modules that were not reached.
    """
    sites = attention_sites(model)
    reached: dict[str, str] = {}
    errors: dict[str, str] = {}
    with watching() as watch:

        def attempt(target: nn.Module, inputs: Iterator[dict], how: str) -> None:
            for values in inputs:
                try:
                    target(**values)
                except Exception as error:  # generated inputs may be wrong in any way
                    errors.setdefault(how, f"{type(error).__name__}: {str(error)[:150]}")
                for site in sites:
                    if site.name in watch.sparse:
                        reached.setdefault(site.name, how)
                if all(site.name in reached for site in sites if _is_within(target, site.module)):
                    return

        attempt(model, model_inputs(model), "whole")
        parts = [(name, part) for name, part in model.named_modules() if isinstance(part, PreTrainedModel) and name]
        for name, part in parts:
            if any(site.name not in reached for site in sites if _is_within(part, site.module)):
                attempt(part, model_inputs(part), f"part {name}")
        for site in sites:
            if site.name not in reached:
                attempt(site.module, attention_inputs(site.module), f"module {site.name}")
    missed = [
        f"{site.name}: {errors.get(f'module {site.name}')}, whole: {errors.get('whole')}"
        for site in sites
        if site.name not in reached
    ]
    return watch, reached, missed


def exercise_attention_alone(model: PreTrainedModel) -> tuple[Watch, dict[str, str], list[str]]:
    """As [`exercise`], for a full-size model without weights: call one attention module of each class directly."""
    sites = {type(site.module): site for site in attention_sites(model)}.values()
    reached, missed = {}, []
    with watching() as watch:
        for site in sites:
            site.module.to_empty(device="cpu")
            for parameter in site.module.parameters():
                nn.init.normal_(parameter, std=0.05)
            error = None
            for values in attention_inputs(site.module):
                try:
                    site.module(**values)
                except Exception as failure:  # generated inputs may be wrong in any way
                    error = error or f"{type(failure).__name__}: {str(failure)[:150]}"
                if site.name in watch.sparse:
                    reached[site.name] = "alone"
                    break
            else:
                missed.append(f"{site.name}: {error}")
    return watch, reached, missed


def _is_within(model: nn.Module, module: nn.Module) -> bool:
    return any(module is part for part in model.modules())


# Softmaxes over three or more dimensions that are not attention.
_NOT_ATTENTION = {
    "Router": "weights of experts",
    "Indexer": "chooses keys for an attention that uses the registry",
    "HyperConnection": "mixes residual streams",
    "Compressor": "a gate that pools neighbouring keys",
    "blt.BltPatcher": "entropy of the next byte",
    "ovis2.Ovis2VisionModel": "probabilities of visual words",
    "SLAHead": "probabilities of structure tokens",
    "superpoint.SuperPointInterestPointDecoder": "probabilities of interest points",
    "torch.Softmax": "probabilities of CTC labels in Granite Speech; attention with nn.Softmax is patched",
    "granite_speech5.GraniteSpeech5Encoder": "probabilities of CTC labels",
}


def unexplained(watch: Watch) -> set[str]:
    """Return the classes in which a softmax stayed dense without a reason in the tables."""
    known = (*NOT_SCORES, *_NOT_ATTENTION, *(key for key, kind in PATCHED.items() if kind.last_only))
    return {key for key in watch.dense if not key.endswith(known)}
