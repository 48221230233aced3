# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The attention and mask functions that transformers calls under the name `"sparse_hopfield"`."""

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask, sdpa_mask
from transformers.utils.output_capturing import _active_collector

from ..configuration import SparseHopfieldConfig
from ..functional import retrieve
from .binding import ATTENTION_NAME, LayerRetrieval, Site, check_current, resolve, settings_of
from .families import Kind, uses_additive_masks


# What attention modules pass besides what is honoured below, and what changes no score. `indices` and `block_indices`
# name for kernels the keys that the mask, which comes with them, has singled out already.
_HARMLESS = frozenset(
    "position_ids cache_position use_cache past_key_values max_length_q max_length_k num_items_in_batch layer_idx "
    "deterministic indices block_indices logits_to_keep labels mm_token_type_ids token_type_ids".split()
)
_HARMLESS_PREFIXES = ("output_", "return_")  # what a model is to return


def sparse_hopfield_mask(*args, config=None, dtype: torch.dtype = torch.float32, **kwargs) -> torch.Tensor | None:
    """
    The mask function. Boolean (`True` = may attend), and `None` where causality alone says it all; additive for families
    that add it to scores themselves.

    Args:
        config ([`~transformers.PreTrainedConfig`]): Configuration of the model that asks.
        dtype (`torch.dtype`): Dtype of an additive mask.
        *args, **kwargs: As for transformers' `sdpa_mask`.
    """
    if config is not None and uses_additive_masks(type(config)):
        return eager_mask(*args, config=config, dtype=dtype, **kwargs)
    return sdpa_mask(*args, config=config, dtype=dtype, **kwargs)


def sparse_hopfield_attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    scaling: float | torch.Tensor | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    position_bias: torch.Tensor | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    sliding_window: int | None = None,
    cu_seq_lens_q: torch.Tensor | None = None,
    cu_seq_lens_k: torch.Tensor | None = None,
    output_attentions: bool | None = None,
    **kwargs,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """
    The attention function.

    Args:
        module (`torch.nn.Module`): The attention module that calls; its `sparse_hopfield` says what to retrieve with.
        query (`torch.Tensor` of shape `(batch, heads, queries, head_dim)`): The states.
        key (`torch.Tensor` of shape `(batch, kv_heads, keys, head_dim)`): The stored patterns.
        value (`torch.Tensor` of shape `(batch, kv_heads, keys, value_dim)`): What is read out.
        attention_mask (`torch.Tensor` broadcastable to `(batch, heads, queries, keys)`, *optional*):
            Boolean (`True` = may attend) or additive. Without one, causality follows from `is_causal`.
        scaling (`float`, *optional*): The model's own scaling.
        dropout (`float`, *optional*): Probability of dropping a weight.
        is_causal (`bool`, *optional*): Causality where there is no mask; otherwise `module.is_causal`.
        position_bias (`torch.Tensor`, *optional*): Added to the scores.
        softcap (`float`, *optional*): Limit of the scores before the normaliser.
        s_aux (`torch.Tensor` of shape `(heads,)`, *optional*): Sinks: logits of one more column.
        sliding_window (`int`, *optional*): Keys that a causal query sees, where there is no mask.
        cu_seq_lens_q, cu_seq_lens_k (`torch.Tensor`, *optional*): Cumulative lengths of sequences packed into one row.
        output_attentions (`bool`, *optional*): Whether the weights are wanted.
        **kwargs: What attention modules pass besides: what changes no score is let through, the unknown is refused.

    Returns:
        `tuple`: The read-out of shape `(batch, queries, heads, value_dim)`, and the weights of shape
        `(batch, heads, queries, keys)` if they were asked for.
    """
    return_weights = bool(output_attentions) or _attentions_are_captured()
    _refuse_unknown(module, kwargs)

    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    queries, keys = query.shape[2], key.shape[2]
    # A query of length 1 comes last: it sees everything. Where transformers gives a mask, causality is in it.
    is_causal = queries > 1 and attention_mask is None and bool(is_causal)
    if is_causal and keys > queries:
        # Only the first call with an empty static cache comes like this: the rest of the cache is not filled yet.
        key, value, keys = key[:, :, :queries], value[:, :, :queries], queries
        position_bias = None if position_bias is None else position_bias[..., :queries]
    if cu_seq_lens_q is not None:
        starts = cu_seq_lens_q if cu_seq_lens_k is None else cu_seq_lens_k
        packed = _packed_mask(cu_seq_lens_q, starts, queries, keys)
        attention_mask = packed if attention_mask is None else _both(packed, attention_mask)
    if attention_mask is not None and attention_mask.shape[-1] > keys:
        attention_mask = attention_mask[..., :keys]  # some families hand over the mask of the whole static cache
    if not is_causal:
        if attention_mask is None and sliding_window is not None and 1 < queries and sliding_window < keys:
            raise ValueError(
                f"{type(module).__name__} passes sliding_window={sliding_window} without a mask and without causality: "
                "which keys it means is ambiguous. Pass an attention_mask to the model."
            )
        sliding_window = None  # in the mask already

    retrieval = _retrieval_of(module)
    if retrieval is None:
        simple = not return_weights and softcap is None and s_aux is None and not isinstance(scaling, torch.Tensor)
        if simple and not (is_causal and sliding_window is not None):
            return sdpa_attention_forward(
                module,
                query,
                key,
                value,
                attention_mask,
                dropout=dropout,
                scaling=scaling,
                is_causal=is_causal,
                position_bias=position_bias,
            )
        beta, alpha, steps, tolerance, backend = 1.0, 1.0, 1, 0.0, "auto"
    else:
        beta, alpha = retrieval(query.device)
        steps, tolerance, backend = retrieval.steps, retrieval.tolerance, retrieval.backend
    if isinstance(scaling, torch.Tensor):
        beta, scaling = beta * scaling, 1.0
    if not query.dtype == key.dtype == value.dtype:  # rotary embeddings in float32 leave the values behind
        key, value = key.to(query.dtype), value.to(query.dtype)
    output = retrieve(
        query,
        key,
        value,
        scaling=scaling,
        beta=beta,
        alpha=alpha,
        steps=steps,
        tolerance=tolerance,
        mask=attention_mask,
        bias=position_bias,
        is_causal=is_causal,
        sliding_window=sliding_window,
        softcap=softcap,
        sinks=s_aux,
        dropout=dropout,
        return_weights=return_weights,
        backend=backend,
    )
    output, weights = output if return_weights else (output, None)
    return output.transpose(1, 2).contiguous(), weights


def _attentions_are_captured() -> bool:
    # Where a model records attentions by hooks, its attention modules need not see `output_attentions`.
    captured = _active_collector.get()
    return captured is not None and any("attentions" in name for name in captured)


def _refuse_unknown(module: torch.nn.Module, kwargs: dict) -> None:
    unknown = [
        name
        for name, value in kwargs.items()
        if value is not None and name not in _HARMLESS and not name.startswith(_HARMLESS_PREFIXES)
    ]
    if unknown:
        raise ValueError(
            f"{type(module).__name__} passes {sorted(unknown)} to its attention, which sparse_hopfield does not know: "
            "the result might differ from what the model means. Use another attention implementation for this model."
        )


def _packed_mask(starts_q: torch.Tensor, starts_k: torch.Tensor, queries: int, keys: int) -> torch.Tensor:
    """Sequences in one row, given by their cumulative lengths, see themselves only."""

    def number(starts: torch.Tensor, length: int) -> torch.Tensor:
        position = torch.arange(length, device=starts.device, dtype=starts.dtype)
        return torch.bucketize(position, starts[1:].contiguous(), right=True)

    return (number(starts_q, queries)[:, None] == number(starts_k, keys)[None, :])[None, None]


def _both(allowed: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    if mask.dtype == torch.bool:
        return allowed & mask
    return mask.masked_fill(~allowed, torch.finfo(mask.dtype).min)


def _retrieval_of(module: torch.nn.Module) -> LayerRetrieval | None:
    """What the module retrieves with; `None` for a layer that stays dense."""
    retrieval = getattr(module, ATTENTION_NAME, _UNBOUND)
    if retrieval is not _UNBOUND:
        if retrieval is not None and not torch.compiler.is_compiling():
            check_current(module, retrieval)
        return retrieval
    # An attention module used outside of a model has settings only if they do not depend on its place in one.
    config = getattr(module, "config", None)
    settings = SparseHopfieldConfig() if config is None else settings_of([config])
    if settings.layer_names or settings.learn_alpha or settings.learn_beta:
        raise RuntimeError(
            f"{type(module).__name__} has not been given its settings, and {settings} depends on the model around it. "
            'Call `model.set_attn_implementation("sparse_hopfield")` on the whole model.'
        )
    site = Site(type(module).__name__, module, Kind("registry"), [config] if config is not None else [module])
    return resolve(site, type(module).__name__)


_UNBOUND = object()
