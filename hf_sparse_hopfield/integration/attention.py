# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The attention and mask functions that transformers calls under the name `"sparse_hopfield"`.

An attention call has two sides: which keys each query sees (masks, causality, caches, packed sequences: [`_visible`]), and the
settings of the module ([`_retrieval_of`]). `retrieve_with` brings them together.

A keyword argument is honoured, or the model's own eager attention does not read it (`keywords.py`), or it is refused.
"""

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask, sdpa_mask

from ..backends import KeyScreen, RetrievalProblem
from ..backends.masks import canonical_mask, visible
from ..configuration import SparseHopfieldConfig
from ..observation import look_at, retrieve_with
from ..parallel.active import active, check_recomputed
from ..parallel.heads import LocalHeads
from ..parallel.tensor import tensor_parallel_heads
from ..retrieval import retrieve
from . import uncalibrated
from .binding import LayerRetrieval, check_current, resolve
from .cache import screen_of
from .compact_masks import UNCERTAIN, compact_mask, form_of, meaning
from .families import Kind, uses_additive_masks
from .keywords import ignored_keyword
from .packing import Packing, Segments, both
from .paged import in_continuous_batch, sequences_of
from .sites import Site, settings_of
from .upstream import ATTENTION_NAME, attentions_are_captured, drops_masks


# Marks a mask that the user had no part in: a window, say. Positions may still tell sequences in a row apart.
_OF_THE_MODEL_ALONE = "sparse_hopfield_of_the_model_alone"


def sparse_hopfield_mask(
    *args: Any, config: Any = None, dtype: torch.dtype = torch.float32, **kwargs: Any
) -> torch.Tensor | None:
    """
    The mask function: boolean (`True` = may attend), or `None` where causality alone suffices; with one number for each key
    where that says it all (`compact_masks.py`); additive for families that add the mask to their scores themselves.

    Args:
        config ([`~transformers.PreTrainedConfig`]): Configuration of the calling model.
        dtype (`torch.dtype`): Dtype of an additive mask.
        *args, **kwargs: As for transformers' `sdpa_mask`.
    """
    if in_continuous_batch():
        return None
    parallel = active()
    if config is not None and uses_additive_masks(type(config)):
        return eager_mask(*args, config=config, dtype=dtype, **kwargs)  # type: ignore[misc]  # dtype is by keyword
    if parallel is not None:
        return parallel.mask(*args, config=config, dtype=dtype, **kwargs)
    mask = UNCERTAIN if args else compact_mask(config=config, **kwargs)
    if mask is UNCERTAIN:
        mask = sdpa_mask(*args, config=config, dtype=dtype, **kwargs)
    form = form_of(mask)
    if form is not None and form.packed:  # it says what positions would say
        return mask
    if mask is not None and kwargs.get("attention_mask") is None and not torch.compiler.is_compiling():
        vars(mask)[_OF_THE_MODEL_ALONE] = True
    return mask


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
    sinks: torch.Tensor | None = None,
    seq_idx: torch.Tensor | None = None,
    position_ids: torch.Tensor | None = None,
    cache: Any = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """
    The attention function.

    Args:
        module (`torch.nn.Module`): The calling attention module; its settings are in `module.sparse_hopfield`.
        query (`torch.Tensor` of shape `(batch, heads, queries, head_dim)`): The states.
        key (`torch.Tensor` of shape `(batch, kv_heads, keys, head_dim)`): The stored patterns.
        value (`torch.Tensor` of shape `(batch, kv_heads, keys, value_dim)`): The values to read out.
        attention_mask (`torch.Tensor` broadcastable to `(batch, heads, queries, keys)`, *optional*):
            Boolean (`True` = may attend) or additive, or with one number for each key (`compact_masks.py`). Without one,
            causality follows from `is_causal`.
        scaling (`float`, *optional*): The model's own scaling.
        dropout (`float`, *optional*): Probability of dropping a weight.
        is_causal (`bool`, *optional*): Causality without a mask; defaults to `module.is_causal`.
        position_bias (`torch.Tensor`, *optional*): Added to the scores.
        softcap (`float`, *optional*): Limit of the scores before the normalizer.
        s_aux (`torch.Tensor` of shape `(heads,)`, *optional*): Sinks: logits of one more column.
        sliding_window (`int`, *optional*): Number of keys that a causal query sees, without a mask.
        cu_seq_lens_q, cu_seq_lens_k (`torch.Tensor`, *optional*): Cumulative lengths of sequences packed into one row.
        output_attentions (`bool`, *optional*): Whether to return the weights.
        sinks (`torch.Tensor` broadcastable to `(batch, heads, queries, 1)`, *optional*): Sinks of each query.
        seq_idx (`torch.Tensor` of shape `(batch, tokens)`, *optional*): Number of the sequence of each token of a row.
        position_ids (`torch.Tensor` of shape `(batch, tokens)`, *optional*):
            Positions of the tokens. Without a mask, each place where they do not go on by one begins another sequence.
        cache ([`~transformers.generation.continuous_batching.PagedAttentionCache`], *optional*):
            The cache of a continuous batch, whose sequences `cu_seq_lens_q` and `cu_seq_lens_k` tell apart.
        **kwargs:
            Other arguments of attention modules. Those that the eager attention of the model does not read are ignored,
            others are refused.

    Returns:
        `tuple`: The output of shape `(batch, queries, heads, value_dim)`, and the weights of shape
        `(batch, heads, queries, keys)` if they are requested.
    """
    options: dict[str, Any] = {"scaling": scaling, "dropout": dropout, "softcap": softcap, "sinks": s_aux}
    options["return_weights"] = bool(output_attentions) or attentions_are_captured()
    if cache is not None:
        for name, given in (("position_bias", position_bias), ("sinks", sinks), ("seq_idx", seq_idx)):
            if given is not None:
                raise ValueError(f"{type(module).__name__} passes {name}, which continuous batching does not support.")
        return _paged(module, query, key, value, cache, (cu_seq_lens_q, cu_seq_lens_k), options, kwargs)
    if in_continuous_batch():
        raise ValueError(
            f"{type(module).__name__} does not pass the paged cache of continuous batching to its attention, so that its "
            "requests would see each other. Use `generate`, or `transformers serve` without --continuous-batching."
        )
    _refuse_unknown(module, kwargs)
    is_causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    retrieval = _retrieval_of(module)
    parallel = active()
    if parallel is not None:
        limits = {
            "mask": attention_mask,
            "bias": position_bias,
            "is_causal": is_causal,
            "sliding_window": sliding_window,
        }
        unsupported = {
            "output_attentions": options.pop("return_weights"),
            "cu_seq_lens of packed sequences": cu_seq_lens_q is not None,
            "seq_idx of packed sequences": seq_idx is not None,
            "sinks of each query": sinks is not None,
        }
        places = {"position_ids": position_ids, "unsupported": unsupported}
        return _outputs(parallel.attend(module, retrieval, query, key, value, **limits, **options, **places))
    check_recomputed(module)
    _refuse_dropped_masks(module)
    # Next to a mask of the user, positions mean nothing more: those of padding or of a tree of candidates start again, too.
    # Flash attention takes the positions of one row in the same way, causal or not.
    alone = attention_mask is None or hasattr(attention_mask, _OF_THE_MODEL_ALONE)
    positions = position_ids if alone and (is_causal or query.shape[0] == 1) else None
    packing = Packing(cu_seq_lens_q, cu_seq_lens_k, seq_idx, positions)
    seen = _visible(module, query, key, value, attention_mask, position_bias, is_causal, sliding_window, packing)
    if sinks is not None:
        seen = _with_sinks(query, seen, sinks)
    elif retrieval is not None and seen.key is key and query.dtype == key.dtype:
        seen.screen = screen_of(key)
    output, weights = _attend(module, retrieval, query, seen, options)
    return output, weights if sinks is None or weights is None else weights[..., :-1]


@torch.compiler.disable  # as transformers' own paged attention: the cache is changed in place
def _paged(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cache: Any,
    lengths: tuple[Any, Any],
    options: dict[str, Any],
    kwargs: dict[str, Any],
) -> tuple[torch.Tensor, None]:
    """A step of continuous batching: each sequence retrieves from its own keys."""
    if options["return_weights"]:
        raise ValueError("Continuous batching returns no attention weights; set `output_attentions=False`.")
    retrieval = _retrieval_of(module)
    # the compiled core reads single queries' keys where they lie; what else looks at keys wants them together
    in_place = query.device.type == "cpu" and retrieval is not None and look_at(retrieval) is None
    in_place = in_place and query.dtype == key.dtype == value.dtype
    parts = sequences_of(module, query, key, value, cache, *lengths, kwargs, in_place)
    _refuse_unknown(module, kwargs)
    output = query.new_zeros(query.shape[2], query.shape[1], value.shape[-1])
    for part in parts:
        limits = (part.mask, None, part.is_causal, part.sliding_window, part.places)
        seen = _Visible(part.key, part.value, *limits)
        output[part.rows] = _attend(module, retrieval, part.query, seen, options)[0].flatten(0, 1)
    return output[None], None


def _attend(
    module: torch.nn.Module,
    retrieval: LayerRetrieval | None,
    query: torch.Tensor,
    seen: "_Visible",
    options: dict[str, Any],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    if retrieval is None:
        return _dense(module, query, seen, options)
    heads = query.shape[1]
    local = tensor_parallel_heads(module, heads, retrieval.num_heads) if heads < retrieval.num_heads else None
    return _sparse(retrieval, query, seen, {**options, "heads": local})


def attend_with(
    heads: LocalHeads,
    module: torch.nn.Module,
    retrieval: LayerRetrieval | None,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    mask: torch.Tensor | None,
    is_causal: bool,
    sliding_window: int | None,
    **options: Any,
) -> torch.Tensor:
    """
    The attention of some heads of a module, for `parallel/sequence.py`.

    Args:
        heads ([`LocalHeads`]): Which heads these are.
        module (`torch.nn.Module`): The attention module.
        retrieval ([`LayerRetrieval`], *optional*): Its settings; `None` for a layer that stays dense.
        query, key, value, mask, is_causal, sliding_window, **options: As for [`retrieve`].

    Returns:
        `torch.Tensor` of shape `(batch, queries, heads, value_dim)`.
    """
    seen = _visible(module, query, key, value, mask, None, is_causal, sliding_window, Packing())
    options["return_weights"] = False
    if retrieval is None:
        return _dense(module, query, seen, options)[0]
    return _sparse(retrieval, query, seen, {**options, "heads": heads})[0]


def _sparse(
    retrieval: LayerRetrieval, query: torch.Tensor, seen: "_Visible", options: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Retrieve with the settings of the module."""
    factor, options = _scaling_apart(options)
    if seen.is_split and not torch.compiler.is_compiling():
        # alpha = 1 and observers compute dense attention, which torch has for full masks only
        if retrieval.configured("alpha") == 1.0 or look_at(retrieval) is not None:
            seen = seen.in_one_mask(query)
    key, value = seen.stored(query.dtype)
    own: dict[str, Any] = {"steps": retrieval.steps, "tolerance": retrieval.tolerance, "backend": retrieval.backend}
    return _outputs(retrieve_with(retrieval, query, key, value, factor=factor, **own, **seen.limits, **options))


def _dense(
    module: torch.nn.Module, query: torch.Tensor, seen: "_Visible", options: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Attention of a layer that stays dense: transformers' own SDPA where it has all that the call needs."""
    seen = seen.in_one_mask(query)
    modified = options["return_weights"] or options["softcap"] is not None or options["sinks"] is not None
    behind = seen.is_causal and seen.key.shape[2] > query.shape[2]  # SDPA aligns causality to the first key
    if modified or behind or isinstance(options["scaling"], torch.Tensor) or seen.sliding_window is not None:
        factor, options = _scaling_apart(options)
        key, value = seen.stored(query.dtype)
        return _outputs(retrieve(query, key, value, beta=factor, alpha=1.0, **seen.limits, **options))
    return sdpa_attention_forward(
        module,
        query,
        seen.key,
        seen.value,
        seen.mask,
        dropout=options["dropout"],
        scaling=options["scaling"],
        is_causal=seen.is_causal,
        position_bias=seen.bias,
    )


def _scaling_apart(options: dict[str, Any]) -> tuple[float | torch.Tensor, dict[str, Any]]:
    """A scaling that is a tensor becomes a factor besides beta: `retrieve` takes a number."""
    if isinstance(options["scaling"], torch.Tensor):
        return options["scaling"], {**options, "scaling": 1.0}
    return 1.0, options


def _outputs(result: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The result of `retrieve` in the layout of transformers."""
    output, weights = result if isinstance(result, tuple) else (result, None)
    return output.transpose(1, 2).contiguous(), weights


def _refuse_dropped_masks(module: torch.nn.Module) -> None:
    if module._forward_pre_hooks and drops_masks(module):
        raise ValueError(
            f"{type(module).__name__} is prepared for accelerate's context parallelism, whose hook drops attention masks, but "
            "runs outside of its context. Run it inside `accelerator.maybe_context_parallel`, or use a model that is not prepared."
        )


def _refuse_unknown(module: torch.nn.Module, kwargs: dict[str, Any]) -> None:
    unknown = [name for name, value in kwargs.items() if value is not None and not ignored_keyword(type(module), name)]
    if unknown:
        raise ValueError(
            f"{type(module).__name__} passes {sorted(unknown)} to its attention, which sparse_hopfield does not know: "
            "the result might differ from what the model means. Use another attention implementation for this model."
        )


@dataclass
class _Visible:
    """The keys and values of a call, and the limits on what each query sees of them."""

    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    bias: torch.Tensor | None
    is_causal: bool
    sliding_window: int | None
    places: torch.Tensor | None = None  # of keys and values in a paged cache
    screen: KeyScreen | None = None  # the int8 copy of the keys, from our own cache
    segments: Segments | None = None  # numbers of the sequences in a row

    @property
    def limits(self) -> dict[str, Any]:
        """The arguments of `retrieve` for what each query sees, and how it finds it."""
        limits: dict[str, Any] = {
            "mask": self.mask,
            "bias": self.bias,
            "is_causal": self.is_causal,
            "sliding_window": self.sliding_window,
        }
        if self.places is not None:
            limits["places"] = self.places
        if self.screen is not None:
            limits["screen"] = self.screen
        if self.segments is not None:
            limits["segments"] = self.segments
        return limits

    @property
    def is_split(self) -> bool:
        """Whether more than a mask, or more than causality, says what a query sees."""
        return self.segments is not None or (self.is_causal and self.mask is not None)

    def in_one_mask(self, query: torch.Tensor) -> "_Visible":
        """The same with one mask of all queries and keys, if it is split."""
        if not self.is_split:
            return self
        limits: dict[str, Any] = {"is_causal": self.is_causal, "sliding_window": self.sliding_window}
        allowed = visible(RetrievalProblem(query, self.key, self.value, segments=self.segments, **limits))
        assert allowed is not None
        mask = self.mask
        if mask is None or mask.dtype == torch.bool:
            mask = allowed if mask is None else allowed & mask
        else:
            mask = mask.masked_fill(~allowed, torch.finfo(mask.dtype).min)
        return replace(self, mask=mask, is_causal=False, sliding_window=None, segments=None)

    def stored(self, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values in the dtype of the queries: rotary embeddings in float32 leave the values in the model's."""
        if self.key.dtype == self.value.dtype == dtype:
            return self.key, self.value
        return self.key.to(dtype), self.value.to(dtype)


def _visible(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    bias: torch.Tensor | None,
    is_causal: bool,
    sliding_window: int | None,
    packing: Packing,
) -> _Visible:
    """Bring the ways in which models limit what a query sees into the form that `retrieve` takes."""
    queries, keys = query.shape[2], key.shape[2]
    segments = None
    if mask is not None and form_of(mask) is not None:
        is_causal = True
        mask, segments, sliding_window = meaning(mask, module, queries, keys, sliding_window)
    else:
        # A single query comes last and sees everything. A full mask from transformers contains causality.
        is_causal = queries > 1 and mask is None and is_causal
        if is_causal and keys > queries:
            # Only the first call with an empty static cache looks like this: the rest of the cache is not filled yet.
            key, value, keys = key[:, :, :queries], value[:, :, :queries], queries
            bias = None if bias is None else bias[..., :queries]
    if queries > 1:
        segments = both(segments, packing.segments(query.shape[0], queries, keys))
    if mask is not None and mask.shape[-1] > keys:
        mask = mask[..., :keys]  # some families pass the mask of the whole static cache
    if is_causal:
        return _Visible(key, value, mask, bias, True, sliding_window, segments=segments)
    if mask is None and sliding_window is not None and 1 < queries and sliding_window < keys:
        raise ValueError(
            f"{type(module).__name__} passes sliding_window={sliding_window} without a mask and without causality: which "
            "keys it means is ambiguous. Pass an attention_mask to the model."
        )
    return _Visible(key, value, mask, bias, False, None, segments=segments)  # the window is in the mask


def _with_sinks(query: torch.Tensor, seen: _Visible, sinks: torch.Tensor) -> _Visible:
    """Sinks that differ from query to query: one more key and value of zeros at the end, whose scores are a bias."""
    shape = (*query.shape[:3], seen.key.shape[2])
    mask, bias = canonical_mask(seen.mask, seen.bias, shape)
    limits: dict[str, Any] = {"is_causal": seen.is_causal, "sliding_window": seen.sliding_window}
    mask = visible(RetrievalProblem(query, seen.key, seen.value, mask=mask, segments=seen.segments, **limits))
    if mask is not None:
        mask = F.pad(mask.expand(*mask.shape[:-1], shape[-1]), (0, 1), value=True)
    bias = query.new_zeros(()) if bias is None else bias
    bias = torch.cat([bias.expand(shape), sinks.to(bias.dtype).expand(*shape[:3], 1)], -1)
    key, value = (F.pad(stored, (0, 0, 0, 1)) for stored in (seen.key, seen.value))
    return _Visible(key, value, mask, bias, False, None)


def _retrieval_of(module: torch.nn.Module) -> LayerRetrieval | None:
    """The settings of a module; `None` for a layer that stays dense."""
    retrieval = getattr(module, ATTENTION_NAME, _UNBOUND)
    if retrieval is not _UNBOUND:
        if retrieval is not None and not torch.compiler.is_compiling():
            check_current(module, retrieval)
        if retrieval is not None and retrieval.uncalibrated and look_at(retrieval) is None:
            uncalibrated.warn()
        return retrieval
    # An attention module outside of a model has settings only if they do not depend on its place in the model.
    config = getattr(module, "config", None)
    settings = SparseHopfieldConfig() if config is None else settings_of([config])
    if settings.layer_names or settings.learned:
        raise RuntimeError(
            f"{type(module).__name__} has no settings yet, and {settings} depends on the model around it. "
            'Call `model.set_attn_implementation("sparse_hopfield")` on the whole model.'
        )
    configs: list[Any] = [module if config is None else config]
    site = Site(type(module).__name__, module, Kind("registry"), configs)
    return resolve(site, type(module).__name__)


_UNBOUND: Any = object()

# Here and not in `upstream.py`: importing this module imports transformers, and the functions must exist first.
AttentionInterface.register(ATTENTION_NAME, sparse_hopfield_attention_forward)
AttentionMaskInterface.register(ATTENTION_NAME, sparse_hopfield_mask)
