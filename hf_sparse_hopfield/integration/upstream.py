# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Where transformers calls us: the attention registry, and six methods of `PreTrainedModel`.

A registry function alone is not enough: families that compute softmax themselves would take the name and run dense, and
transformers does not save the name of the attention. So, for models with `attn_implementation="sparse_hopfield"` only:

- `get_correct_attn_implementation`, called first thing when a model is made: a configuration with a `sparse_hopfield`
  entry and no other wish means this attention; attention classes chosen by name get to know the name
- `post_init`, called last thing, and `set_attn_implementation`: each attention module gets its settings, or it raises
- `_initialize_weights`: learned alpha and beta that a checkpoint does not have start at their initial values
- `save_pretrained`: what is saved is of model type `sparse_hopfield`, so it comes back sparse or not at all
- `push_to_hub`: what is pushed, also by `save_pretrained(push_to_hub=True)`, has a card that tells of it
"""

import functools
import sys
from collections.abc import Callable
from contextlib import ExitStack, nullcontext

from torch import nn
from transformers import PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from ..parameters import RetrievalParameters
from .attention import sparse_hopfield_attention_forward, sparse_hopfield_mask
from .binding import (
    ATTENTION_NAME,
    asks_for_us,
    bind,
    configs_of,
    is_bound,
    is_converted,
    name_attention,
    retrieves,
)


def install() -> None:
    """Register the attention and mask functions, and wrap the methods above. Once."""
    if ATTENTION_NAME in AttentionInterface._global_mapping:
        return
    AttentionInterface.register(ATTENTION_NAME, sparse_hopfield_attention_forward)
    AttentionMaskInterface.register(ATTENTION_NAME, sparse_hopfield_mask)
    for name, wrap in {
        "get_correct_attn_implementation": _get_correct_attn_implementation,
        "post_init": _post_init,
        "set_attn_implementation": _set_attn_implementation,
        "_initialize_weights": _initialize_weights,
        "save_pretrained": _save_pretrained,
        "push_to_hub": _push_to_hub,
    }.items():
        original = getattr(PreTrainedModel, name)
        setattr(PreTrainedModel, name, functools.wraps(original)(wrap(original)))


def _get_correct_attn_implementation(original: Callable) -> Callable:
    def get_correct_attn_implementation(self, requested_attention=None, is_init_check=False):
        if requested_attention is None:
            # transformers hands the name of the attention down to the parts that a configuration declares. A part whose
            # configuration is made on the way (the backbone of MaskFormer) would stay dense without a word.
            maker = _maker(self)
            made_by_sparse = maker is not None and maker.config._attn_implementation == ATTENTION_NAME
            if made_by_sparse or is_converted(self) or getattr(self.config, ATTENTION_NAME, None) is not None:
                requested_attention = ATTENTION_NAME
        if requested_attention == ATTENTION_NAME:
            _name_attention_classes(type(self))
        return original(self, requested_attention, is_init_check)

    return get_correct_attn_implementation


def _name_attention_classes(model_class: type) -> None:
    # Older families choose an attention class by the name of the implementation. Ours is the eager one, patched.
    for cls in model_class.__mro__:
        for value in list(vars(sys.modules[cls.__module__]).values()):
            if (
                isinstance(value, dict)
                and isinstance(value.get("eager"), type)
                and issubclass(value["eager"], nn.Module)
            ):
                value.setdefault(ATTENTION_NAME, value["eager"])


def _post_init(original: Callable) -> Callable:
    def post_init(self):
        # Settings are attached before transformers initialises the weights, among which are learned alpha and beta.
        # Only the outermost model knows all settings and all layers.
        if _maker(self) is None and asks_for_us(self):
            bind(self)
        original(self)

    return post_init


def _maker(model: PreTrainedModel) -> PreTrainedModel | None:
    """The model in whose `__init__` another one is being made."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "__init__":
            maker = frame.f_locals.get("self")
            if isinstance(maker, PreTrainedModel) and maker is not model and hasattr(maker, "config"):
                return maker
        frame = frame.f_back
    return None


def _set_attn_implementation(original: Callable) -> Callable:
    def set_attn_implementation(self, attn_implementation, allow_all_kernels=False):
        if not _mentions_us(attn_implementation) and not is_bound(self):
            return original(self, attn_implementation, allow_all_kernels)
        # transformers would skip, with a warning, the families that are not on its registry.
        with ExitStack() as undo:
            for config in configs_of(self):
                undo.callback(setattr, config, "_attn_implementation_internal", config._attn_implementation)
            name_attention(self, attn_implementation)
            bind(self)
            undo.pop_all()

    return set_attn_implementation


def _mentions_us(attn_implementation: str | dict | None) -> bool:
    if isinstance(attn_implementation, dict):
        return any(_mentions_us(value) for value in attn_implementation.values())
    return attn_implementation == ATTENTION_NAME


def _initialize_weights(original: Callable) -> Callable:
    def initialize_weights(self, module, *args, **kwargs):
        if isinstance(module, RetrievalParameters) and not getattr(module, "_is_hf_initialized", False):
            parameters = module.named_parameters(recurse=False)
            module.reset_parameters(keep=[n for n, p in parameters if getattr(p, "_is_hf_initialized", False)])
            module._is_hf_initialized = True
        return original(self, module, *args, **kwargs)

    return initialize_weights


def _save_pretrained(original: Callable) -> Callable:
    def save_pretrained(self, save_directory, *args, **kwargs):
        from .auto import as_sparse_class

        if not retrieves(self):
            return original(self, save_directory, *args, **kwargs)
        pushed = {}
        if kwargs.pop("push_to_hub", False) and kwargs.get("is_main_process", True):
            names = ("repo_id", "private", "revision", "create_pr", "commit_message")
            pushed = {"token": kwargs.get("token"), **{name: kwargs.pop(name) for name in names if name in kwargs}}
        with as_sparse_class(self) if is_bound(self) and not is_converted(self) else nullcontext():
            original(self, save_directory, *args, **kwargs)
        if pushed:
            from ..hub.push import push_saved

            push_saved(self, save_directory, **pushed)

    return save_pretrained


def _push_to_hub(original: Callable) -> Callable:
    def push_to_hub(self, repo_id, **kwargs):
        if not retrieves(self):
            return original(self, repo_id, **kwargs)
        from ..hub.push import push_model

        return push_model(self, repo_id, **kwargs)

    return push_to_hub
