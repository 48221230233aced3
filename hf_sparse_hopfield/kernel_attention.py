# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The attention function of the kernel on the Hub, which `hub/kernels.py` builds: `attn_implementation="org/repo"`.

It runs without this package and without anything from transformers: whatever this module imports is copied into the kernel.
transformers gives it the masks of SDPA: boolean or additive ones of all queries and keys, or none where causality says it all.

The settings come from the entry `sparse_hopfield` of `module.config`, as those of [`SparseHopfieldConfig`]; without one they are
its defaults. A kernel does not see the model around an attention module. So what needs the model is refused: layers that are
named by a pattern, and learned alpha and beta.
"""

import functools
import logging
import threading
from typing import Any

import torch
from torch import nn

from .configuration import SparseHopfieldConfig
from .retrieval import retrieve


logger = logging.getLogger(__name__)

__all__ = ["flash_attn_forward", "retrieve", "supports_flash_attn"]

# What models pass down to their attention and what changes no score.
_HARMLESS = frozenset(
    {
        "cache_position",
        "max_length_k",
        "max_length_q",
        "num_items_in_batch",
        "output_hidden_states",
        "output_router_logits",
        "position_ids",
        "return_dict",
        "use_cache",
    }
)


def supports_flash_attn() -> bool:
    """Tells transformers, by its presence, to call [`flash_attn_forward`] with the masks of SDPA."""
    return True


def flash_attn_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    position_bias: torch.Tensor | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    sliding_window: int | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    cu_seq_lens_k: torch.Tensor | None = None,
    seq_idx: torch.Tensor | None = None,
    output_attentions: bool | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """
    Sparse Hopfield retrieval as an attention function of transformers. The name is the one that transformers looks for.

    Args:
        module (`torch.nn.Module`): The calling attention module.
        query (`torch.Tensor` of shape `(batch, heads, queries, head_dim)`): The states.
        key (`torch.Tensor` of shape `(batch, kv_heads, keys, head_dim)`): The stored patterns.
        value (`torch.Tensor` of shape `(batch, kv_heads, keys, value_dim)`): The values to read out.
        attention_mask (`torch.Tensor` broadcastable to `(batch, heads, queries, keys)`, *optional*):
            Boolean (`True` = may attend) or additive. Without one, causality follows from `is_causal`.
        scaling (`float`, *optional*, defaults to `1 / sqrt(head_dim)`): The model's own scaling.
        dropout (`float`, *optional*, defaults to 0.0): Probability of dropping a weight.
        is_causal (`bool`, *optional*): Causality without a mask; defaults to `module.is_causal`.
        position_bias (`torch.Tensor`, *optional*): Added to the scores.
        softcap (`float`, *optional*): Limit of the scores before the normalizer.
        s_aux (`torch.Tensor` of shape `(heads,)`, *optional*): Sinks: logits of one more column.
        sliding_window (`int`, *optional*): Number of keys that a causal query sees, without a mask.
        cu_seq_lens_q, cu_seq_lens_k (`torch.Tensor`, *optional*): Cumulative lengths of sequences packed into one row.
        seq_idx (`torch.Tensor` of shape `(batch, tokens)`, *optional*): Number of the sequence of each token of a row.
        output_attentions (`bool`, *optional*): Whether to return the weights.
        **kwargs: Other arguments of attention modules. Those that change no score are ignored, others are refused.

    Returns:
        `tuple`: The output of shape `(batch, queries, heads, value_dim)`, and the weights of shape
        `(batch, heads, queries, keys)` if they are requested.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.kernel_attention import flash_attn_forward

    >>> output, _ = flash_attn_forward(torch.nn.Module().train(), *torch.randn(3, 1, 4, 10, 16))
    >>> output.shape
    torch.Size([1, 10, 4, 16])

    ```
    """
    where = type(module).__name__
    unknown = [name for name, given in kwargs.items() if given is not None and name not in _HARMLESS]
    if unknown:
        raise ValueError(
            f"{where} passes {sorted(unknown)} to its attention, which this kernel does not know: the result might differ from "
            "what the model means. Use another attention implementation for this model."
        )
    queries, keys = query.shape[2], key.shape[2]
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    # A single query comes last and sees everything. A mask contains causality and the window.
    causal = causal and queries > 1 and attention_mask is None
    if causal and keys > queries:
        # Only the first call with an empty static cache looks like this: the rest of the cache is not filled yet.
        key, value, keys = key[:, :, :queries], value[:, :, :queries], queries
        position_bias = None if position_bias is None else position_bias[..., :queries]
    if attention_mask is not None:
        attention_mask = attention_mask[..., :keys]  # some families pass the mask of the whole static cache
    elif sliding_window is not None and not causal and 1 < queries and sliding_window < keys:
        raise ValueError(
            f"{where} passes sliding_window={sliding_window} without a mask and without causality: which keys it means is "
            "ambiguous. Pass an attention_mask to the model."
        )
    result = retrieve(
        query,
        key.to(query.dtype),  # rotary embeddings in float32 leave keys and values apart
        value.to(query.dtype),
        scaling=scaling,
        mask=attention_mask,
        bias=position_bias,
        is_causal=causal,
        sliding_window=sliding_window if causal else None,
        softcap=softcap,
        sinks=s_aux,
        dropout=dropout,
        segments=_segments(query.shape[0], queries, keys, cu_seq_lens_q, cu_seq_lens_k, seq_idx),
        return_weights=bool(output_attentions),
        **_settings(module, query),
    )
    output, weights = result if isinstance(result, tuple) else (result, None)
    return output.transpose(1, 2).contiguous(), weights  # type: ignore[union-attr]  # no trace is asked for


def _segments(
    batch: int,
    queries: int,
    keys: int,
    starts_q: torch.Tensor | None,
    starts_k: torch.Tensor | None,
    numbers: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The number of the sequence of each query and key in rows of packed sequences."""
    if queries == 1 or (starts_q is None and numbers is None):
        return None
    if starts_q is not None:
        if batch > 1:
            raise ValueError(
                f"cu_seq_lens_q holds the lengths of the sequences in one row, but the batch has {batch} rows. Pass one row, "
                "as DataCollatorWithFlattening makes it."
            )
        return _numbers(starts_q, queries), _numbers(starts_q if starts_k is None else starts_k, keys)
    assert numbers is not None
    if queries != keys:
        raise ValueError(
            f"seq_idx numbers {queries} queries, but there are {keys} keys. Packed sequences can use no cache: pass use_cache=False."
        )
    numbers = numbers if numbers.ndim > 1 else numbers[None]
    return numbers, numbers


def _numbers(starts: torch.Tensor, length: int) -> torch.Tensor:
    position = torch.arange(length, device=starts.device, dtype=starts.dtype)
    return torch.bucketize(position, starts[1:].contiguous(), right=True, out_int32=True)[None]


def _settings(module: nn.Module, query: torch.Tensor) -> dict[str, Any]:
    """The arguments of `retrieve` that are settings of the module, on the device of the queries."""
    _note_settings(module, module.training)
    dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
    on_device = _traced_tensor if torch.compiler.is_compiling() else _kept_tensor
    settings: tuple[tuple[str, Any], ...] = getattr(module, _NOTED)[1]
    return {
        name: on_device(value, query.device, dtype) if isinstance(value, tuple) else value for name, value in settings
    }


def _traced_tensor(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype, device=device)


@functools.lru_cache(maxsize=4096)  # numbers that go to a GPU in every call delay it
def _kept_tensor(values: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=dtype, device=device)


# Attribute of an attention module: the entry of its configuration, and the settings of the module that follow from it, as
# pairs of name and value. A tuple has one number per head.
_NOTED = "sparse_hopfield_of_kernel"


def _note_settings(module: nn.Module, training: bool) -> None:
    config = getattr(module, "config", None)
    source = getattr(config, "sparse_hopfield", None)
    noted = vars(module).get(_NOTED)
    if noted is None or noted[0] is not source:
        if source is not None:  # one object that cannot be changed, and is recognised by its identity
            source = SparseHopfieldConfig.from_dict(source)
            config.sparse_hopfield = source  # type: ignore[union-attr]  # it has the entry
        noted = vars(module)[_NOTED] = source, _resolved(module, SparseHopfieldConfig.from_dict(source))
    settings = dict(noted[1])
    alpha = settings["alpha"]
    if not training and settings["beta"] == 1.0 and max(alpha if isinstance(alpha, tuple) else (alpha,)) > 1.0:
        _warn()


# torch calls the function while it traces, once, and does not look inside. `torch.compiler.assume_constant_result` sets the same
# mark, but imports the compiler, which takes a second.
_note_settings._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _resolved(module: nn.Module, config: SparseHopfieldConfig) -> tuple[tuple[str, Any], ...]:
    where = type(module).__name__
    patterns = [layer for layer in config.layer_names if isinstance(layer, str)]
    needed = [f"the layers {patterns}"] if patterns else []
    needed += [f"{name}=True" for name in [f"learn_{name}" for name in config.learned]]
    index = getattr(module, "layer_idx", None)
    if config.layer_names and index is None:
        needed.append(f"the index of the layer of {where}")
    if needed:
        raise ValueError(
            f"{where} has sparse_hopfield settings with {' and '.join(needed)}, which a kernel cannot find in the model. "
            "`hf_sparse_hopfield.hub.kernel_settings(model)` writes the settings of a sparse model by the index of each layer; or use "
            'the package itself: attn_implementation="sparse_hopfield".'
        )
    # as the paths of most models: the first number is the index of the layer
    settings = config.for_layer("layer" if index is None else f"layers.{index}") or {"alpha": 1.0, "beta": 1.0}
    return tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in settings.items())


_said = threading.Lock()  # taken by the first warning and never given back


def _warn() -> None:
    if _said.acquire(blocking=False):
        logger.warning(
            "Uncalibrated sparse retrieval: the model runs with alpha > 1 and beta = 1. Unless its weights were trained so, the "
            "outputs may be far off. Fine-tune the model, or calibrate it with the package hf_sparse_hopfield and set "
            "`config.sparse_hopfield = kernel_settings(model)` (from hf_sparse_hopfield.hub)."
        )
