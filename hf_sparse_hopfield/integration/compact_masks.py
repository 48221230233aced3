# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Masks with one number for each key, where transformers makes one for each query and key.

Most masks say only that queries are causal, how far back they see, and which keys are padding or which sequence of a packed row
a key belongs to. A mask of shape `(batch, 1, 1, keys)` says the same, if whoever reads it knows the rest. Its dtype tells:

| dtype    | number of a key            | keys that a query sees                             |
|----------|----------------------------|----------------------------------------------------|
| `bool`   | `True`; `False` is padding | all of them                                        |
| `int8`   | 1; 0 is padding            | those that are not later                           |
| `int16`  | 1; 0 is padding            | the last `sliding_window` of these                 |
| `uint32` | that of its sequence       | those of its own sequence that are not later       |
| `uint64` | that of its sequence       | the last `sliding_window` of these                 |

Queries are the last ones of the keys. The mask keeps its meaning on the way to attention, whatever an attention module says about
causality, also when it is moved to another device. It is not confused with one that a user makes, which is boolean or floating
point: a boolean mask of this shape hides keys and no more.

[`compact_mask`] makes one where nothing else can happen to it: for models that support flash attention, which pass masks on as
they are, if all code around their attention is transformers' own; and for patterns that it recognises. In all other cases masks
are those of transformers.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.utils.import_utils import is_tracing

from .sites import Site
from .upstream import mask_pattern, passes_masks_on


class Form(NamedTuple):
    """
    What the numbers of a causal mask mean.

    Args:
        packed (`bool`): They number sequences; otherwise, zero means padding.
        windowed (`bool`): A query sees only the keys of a sliding window.
    """

    packed: bool
    windowed: bool


_DTYPES = {
    Form(packed=False, windowed=False): torch.int8,
    Form(packed=False, windowed=True): torch.int16,
    Form(packed=True, windowed=False): torch.uint32,
    Form(packed=True, windowed=True): torch.uint64,
}
_FORMS = {dtype: form for form, dtype in _DTYPES.items()}
UNCERTAIN: Any = object()  # instead of a mask: transformers has to make it


def form_of(mask: Tensor | None) -> Form | None:
    """The form of a causal mask that [`compact_mask`] has made; `None` for every other mask."""
    return None if mask is None else _FORMS.get(mask.dtype)


def compact_mask(
    *,
    config: Any,
    batch_size: int,
    q_length: int,
    kv_length: int,
    mask_function: Any,
    q_offset: Any = 0,
    kv_offset: Any = 0,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    allow_is_causal_skip: bool = True,
    allow_is_bidirectional_skip: bool = False,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    **kwargs: Any,
) -> Tensor | None:
    """
    The mask with one number for each key.

    Args:
        config ([`~transformers.PreTrainedConfig`]): Configuration of the calling model.
        batch_size, q_length, kv_length, mask_function, q_offset, kv_offset, attention_mask, local_size, **kwargs:
            As for transformers' `sdpa_mask`.
        allow_is_causal_skip, allow_is_bidirectional_skip (`bool`): As there. Without, the caller has use for a full mask.

    Returns:
        `torch.Tensor` of shape `(batch, 1, 1, keys)`; `None` where no mask is needed; `UNCERTAIN` where a full mask is.
    """
    pattern = None if use_vmap or config is None or not _is_certain(type(config)) else mask_pattern(mask_function)
    if pattern is None or q_length == 1 or isinstance(q_offset, Tensor) or isinstance(kv_offset, Tensor):
        return UNCERTAIN  # a single query has a mask of this shape anyway
    padding = None
    if attention_mask is not None:
        if attention_mask.dtype != torch.bool or attention_mask.ndim != 2 or attention_mask.shape[0] != batch_size:
            return UNCERTAIN
        if attention_mask.shape[1] < kv_offset + kv_length:  # a static cache has room for more keys than there are
            return UNCERTAIN
        padding = attention_mask[:, None, None, kv_offset : kv_offset + kv_length]
    if not pattern.is_causal:
        if attention_mask is None or local_size is not None or not allow_is_bidirectional_skip:
            return UNCERTAIN
        return padding if _may_hide(attention_mask) else None
    if q_offset + q_length != kv_offset + kv_length:  # the queries are not the last ones of the keys
        return UNCERTAIN
    windowed = pattern.window is not None and kv_length > pattern.window
    # attention modules take their window from the configuration, too, which `meaning` checks
    if windowed and not pattern.window == local_size == getattr(config, "sliding_window", None):
        return UNCERTAIN
    sequences = pattern.sequences
    if sequences is not None:
        is_plain = torch.device(device).type in ("cpu", "cuda")  # other devices may not have the dtypes
        if padding is not None or q_length != kv_length or sequences.shape != (batch_size, kv_length) or not is_plain:
            return UNCERTAIN
        return sequences[:, None, None].to(_DTYPES[Form(packed=True, windowed=windowed)])
    if not allow_is_causal_skip or (padding is None and torch.compiler.is_compiling()):
        return UNCERTAIN
    if padding is None or not _may_hide(padding):
        if q_length == kv_length and not windowed:
            return None
        padding = torch.ones((batch_size, 1, 1, kv_length), dtype=torch.bool, device=device)
    return padding.to(_DTYPES[Form(packed=False, windowed=windowed)])


# By class of configuration: whether all code around the attention of its models, as far as they are bound, is known.
_KNOWN: dict[type, bool] = {}
_LIBRARIES = ("transformers.", "torch.", "hf_sparse_hopfield.")


def note_code_around(model: torch.nn.Module, sites: list[Site]) -> None:
    """
    Note whether the code around the attention of a model may change masks, because it is neither transformers' nor ours.

    Args:
        model (`torch.nn.Module`): The model.
        sites (`list[Site]`): Its attention modules.
    """
    for site in sites:
        around = [model]
        for name in filter(None, site.name.split(".")):
            around.append(getattr(around[-1], name))
        known = all(_is_of_libraries(type(module)) for module in around)
        for config in site.configs:
            config_class = _base_class(type(config))
            _KNOWN[config_class] = known and _KNOWN.get(config_class, True)


def _is_of_libraries(cls: type) -> bool:
    """Whether a class, and the forward that it has now, come from the libraries."""
    sources = (cls.__module__, getattr(getattr(cls, "forward", None), "__module__", None) or "")
    return all(f"{source}.".startswith(_LIBRARIES) for source in sources)


def _base_class(config_class: type) -> type:
    """The class of the configuration before conversion."""
    return getattr(config_class, "base_config_class", config_class)


@torch.compiler.assume_constant_result
def _is_certain(config_class: type) -> bool:
    return _KNOWN.get(_base_class(config_class), False) and passes_masks_on(config_class)


def _may_hide(padding: Tensor) -> bool:
    # on a GPU, to look would be to wait for all work before it
    return is_tracing(padding) or padding.device.type != "cpu" or not bool(padding.all())


class Meaning(NamedTuple):
    """
    What a compact mask says, in the form that `retrieve` takes, next to `is_causal=True`.

    Args:
        mask (`torch.BoolTensor` of shape `(batch, 1, 1, keys)`, *optional*): The keys that are none of padding.
        segments (`tuple[torch.Tensor, torch.Tensor]`, *optional*): The numbers of the sequences.
        sliding_window (`int`, *optional*): How many keys a query sees.
    """

    mask: Tensor | None
    segments: tuple[Tensor, Tensor] | None
    sliding_window: int | None


def meaning(mask: Tensor, module: torch.nn.Module, queries: int, keys: int, sliding_window: int | None) -> Meaning:
    """
    Read a mask that [`compact_mask`] has made.

    Args:
        mask (`torch.Tensor` of shape `(batch, 1, 1, keys)`): The mask.
        module (`torch.nn.Module`): The attention module, for errors.
        queries, keys (`int`): How many there are.
        sliding_window (`int`, *optional*): The window that the module passes to its attention function.
    """
    form, name = _FORMS[mask.dtype], type(module).__name__
    if mask.ndim != 4 or mask.shape[1:] != (1, 1, keys):
        raise ValueError(
            f"{name} got a mask of dtype {mask.dtype} and shape {tuple(mask.shape)}. Pass a boolean or additive mask. If you passed "
            f"none, the model has changed one of hf_sparse_hopfield's own, of shape (batch, 1, 1, {keys}): please report it."
        )
    configured = getattr(getattr(module, "config", None), "sliding_window", sliding_window)
    if form.windowed and (sliding_window is None or configured != sliding_window):
        raise ValueError(
            f"{name} passes sliding_window={sliding_window} to its attention function, but the mask of its model is for "
            f"sliding_window={configured}. Please report it, and pass a full (four-dimensional) attention_mask."
        )
    window = sliding_window if form.windowed else None
    if not form.packed:
        return Meaning(mask.bool(), None, window)
    numbers = mask[:, 0, 0].to(torch.int32)
    return Meaning(None, (numbers[:, -queries:], numbers), window)
