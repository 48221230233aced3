# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Attention classes that compute softmax themselves: inside their forward, softmax over scores is replaced.

The replacement is a torch function mode, active only while an attention module that has settings (`module.sparse_hopfield`)
runs. The keys are out of its reach, so there is only one retrieval step, and `beta` multiplies the whole score, position
terms included. The table of these classes is in `families.py`.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

from ..backends import RetrievalProblem
from ..backends.lengths import length_factor, with_row_beta
from ..backends.masks import MASKED_BELOW, canonical_mask
from ..functional import entmax
from ..observation import HeadSettings, look_at, own_settings
from ..parallel.active import active
from ..retrieval import retrieve
from . import uncalibrated
from .binding import LayerRetrieval, check_current
from .families import Kind, classify
from .upstream import ATTENTION_NAME, Method, replace_global, wrap_method


_Rearranged = Callable[[torch.Tensor], torch.Tensor]
_SOFTMAX = (F.softmax, torch.softmax, torch.Tensor.softmax, torch.special.softmax)


class SparseSoftmax(TorchFunctionMode):
    """
    Replaces softmax over scores by alpha-entmax.

    Args:
        settings ([`HeadSettings`]): Factor of the scores, member of the entmax family, and power of the visible keys in the factor.
        kind ([`Kind`]): Where the attention class has its heads, and which of its softmaxes are over keys.
        name (`str`): Path of the attention module, for errors.
    """

    def __init__(self, settings: HeadSettings, kind: Kind, name: str) -> None:
        super().__init__()
        self.settings, self.kind, self.name = settings, kind, name
        self.replaced = False  # whether there was anything to replace
        self.num_heads = max(x.numel() if isinstance(x, torch.Tensor) else 1 for x in settings)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in _SOFTMAX:
            return self.softmax(func, *args, **kwargs)
        if func is F.scaled_dot_product_attention:
            self.replaced = True
            return self.scaled_dot_product_attention(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            self.replaced = True
            return self.multi_head_attention(*args, **kwargs)
        return func(*args, **kwargs)

    def softmax(self, func, input, dim=None, _stacklevel=3, dtype=None):
        last = dim == -1 or dim == input.ndim - 1
        if dim is None or (self.kind.last_only and not last):
            return func(input, dim, dtype=dtype)
        self.replaced = True
        return self.normalised(input if dtype is None else input.to(dtype), dim)

    def normalised(self, scores: torch.Tensor, dim: int) -> torch.Tensor:
        """The replacement for the softmax of the scores of keys."""
        return self.weights(scores, dim, self.settings)

    def weights(self, scores: torch.Tensor, dim: int, settings: HeadSettings) -> torch.Tensor:
        """The alpha-entmax of beta times the scores, without the masked ones."""
        mask = scores > MASKED_BELOW
        beta, alpha, power = (self.per_head(setting, scores) for setting in settings)
        if isinstance(power, torch.Tensor) or power != 0.0:
            beta = beta * length_factor(mask.sum(dim, keepdim=True), power)
        # masked before the product: the gradient of beta would be 0 * -inf
        scaled = scores.masked_fill(~mask, 0) * beta
        return entmax(scaled, alpha=alpha, dim=dim, mask=mask).to(scores.dtype)

    def retrieve(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, mask: torch.Tensor | None, **options: Any
    ) -> Any:
        """Attention that the module leaves to torch as a whole; `options` are those of `retrieve`."""
        beta, alpha, power = self.settings
        if mask is not None and mask.is_floating_point():  # part of the score, which beta multiplies
            mask, bias = canonical_mask(mask, None, (*query.shape[:-1], key.shape[-2]))
            if bias is not None:
                beta, power = (x.view(1, -1, 1, 1) if isinstance(x, torch.Tensor) else x for x in (beta, power))
                causal = bool(options.get("is_causal"))
                problem = RetrievalProblem(
                    query, key, value, beta=beta, mask=mask, is_causal=causal, length_power=power
                )
                beta, power = with_row_beta(problem).beta, 0.0
                options["bias"] = bias * beta
        return retrieve(query, key, value, beta=beta, alpha=alpha, length_power=power, mask=mask, **options)

    def per_head(self, values: float | torch.Tensor, scores: torch.Tensor) -> float | torch.Tensor:
        """Bring one value per head into the shape of the scores."""
        if not isinstance(values, torch.Tensor):
            return values
        if values.numel() == 1:  # also where heads are not kept apart
            return values.reshape(())
        heads = values.shape[0]
        if self.kind.heads == "flat":
            return values.repeat(scores.shape[0] // heads).view(-1, *(1 for _ in scores.shape[1:]))
        axis = int((self.kind.heads or "axis -3").removeprefix("axis "))
        axis = axis if axis >= 0 else axis + scores.ndim
        if not 0 <= axis < scores.ndim or scores.shape[axis] != heads:
            raise ValueError(
                f"{self.name} normalises scores of shape {tuple(scores.shape)}, whose axis {axis} does not have the size of "
                f"its {heads} heads: alpha and beta can be neither learned nor set per head there."
            )
        return values.view(*(heads if i == axis else 1 for i in range(scores.ndim)))

    def scaled_dot_product_attention(
        self, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
    ):
        options = {"scaling": scale, "is_causal": is_causal, "dropout": dropout_p}
        if query.ndim == 4:
            return self.retrieve(query, key, value, mask=attn_mask, **options)
        split, join = self.layout(query.shape)
        leading = query.shape[:-2]
        if attn_mask is not None:
            attn_mask = split(attn_mask.expand(*leading, query.shape[-2], key.shape[-2]))
        query, key, value = (split(states.expand(*leading, *states.shape[-2:])) for states in (query, key, value))
        return join(self.retrieve(query, key, value, mask=attn_mask, **options))

    def layout(self, shape: torch.Size) -> tuple[_Rearranged, _Rearranged]:
        """Functions that bring a query of this shape to `(batch, heads, queries, width)`, and a result back."""
        heads = self.kind.heads
        if len(shape) == 3:  # batch * heads in one, or only one of them
            inner = {"flat": self.num_heads, None: 1}.get(heads, shape[0])
            return lambda states: states.unflatten(0, (-1, inner)), lambda states: states.flatten(0, 1)
        if len(shape) == 5 and heads == "axis -3":  # (batch, windows, heads, queries, width)
            return lambda states: states.flatten(0, 1), lambda states: states.unflatten(0, shape[:2])
        if len(shape) == 5 and heads == "axis 1":  # (batch, heads, windows, queries, width)
            windows = (shape[0], shape[2])
            return (
                lambda states: states.transpose(1, 2).flatten(0, 1),
                lambda states: states.unflatten(0, windows).transpose(1, 2),
            )
        raise ValueError(f"{self.name} calls attention with a query of shape {tuple(shape)}: not supported.")

    def multi_head_attention(
        self,
        query,
        key,
        value,
        embed_dim_to_check,
        num_heads,
        in_proj_weight,
        in_proj_bias,
        bias_k,
        bias_v,
        add_zero_attn,
        dropout_p,
        out_proj_weight,
        out_proj_bias,
        training=True,
        key_padding_mask=None,
        need_weights=True,
        attn_mask=None,
        use_separate_proj_weight=False,
        q_proj_weight=None,
        k_proj_weight=None,
        v_proj_weight=None,
        static_k=None,
        static_v=None,
        average_attn_weights=True,
        is_causal=False,
    ):
        """`torch.nn.MultiheadAttention`, whose weights are out of reach of a function mode."""
        if bias_k is not None or add_zero_attn or static_k is not None or static_v is not None:
            raise ValueError(
                f"{self.name} uses bias_kv, add_zero_attn or static keys of MultiheadAttention: not supported."
            )
        batched = query.ndim == 3
        if not batched:
            query, key, value = (tensor.unsqueeze(1) for tensor in (query, key, value))
        if use_separate_proj_weight:
            weights = (q_proj_weight, k_proj_weight, v_proj_weight)
        else:
            weights = in_proj_weight.chunk(3)
        biases = (None, None, None) if in_proj_bias is None else in_proj_bias.chunk(3)

        def project(tensor, weight, bias):  # (length, batch, width) -> (batch, heads, length, head width)
            projected = F.linear(tensor, weight, bias)
            return projected.view(*projected.shape[:2], num_heads, -1).permute(1, 2, 0, 3)

        states = [project(*both) for both in zip((query, key, value), weights, biases, strict=True)]
        mask = None
        for part, shape in ((attn_mask, None), (key_padding_mask, (-1, 1, 1, key.shape[0]))):
            if part is None:
                continue
            if shape is not None:
                part = part.view(shape)
            elif part.ndim == 3:
                part = part.view(-1, num_heads, *part.shape[1:])
            if part.dtype == torch.bool:  # True masks, here
                part = torch.zeros_like(part, dtype=query.dtype).masked_fill(part, -torch.inf)
            mask = part if mask is None else mask + part
        output, weights = self.retrieve(
            *states, mask=mask, dropout=dropout_p if training else 0.0, return_weights=True
        )
        output = F.linear(output.permute(2, 0, 1, 3).flatten(2), out_proj_weight, out_proj_bias)
        if average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            output, weights = output.squeeze(1), weights.squeeze(0)
        return output, weights if need_weights else None


def patch(cls: type[torch.nn.Module]) -> None:
    """
    Let instances of an attention class use their settings, `module.sparse_hopfield`. Those without settings are unaffected.

    Args:
        cls (`type`): A class whose kind is `"patched"`.
    """
    wrap_method(cls, "forward", functools.partial(_sparse_forward, classify(cls)))  # type: ignore[arg-type]
    for base in cls.__mro__:
        module: Any = sys.modules[base.__module__]
        # The softmax of SEW-D is an autograd function with a gradient of its own, which a function mode does not see.
        replace_global(module, "XSoftmax", _PlainXSoftmax)
        # BigBird exchanges its attention module for another one when a sequence is too short for blocks.
        for owner in ("BigBirdAttention", "BigBirdPegasusEncoderAttention"):
            if hasattr(module, owner):
                wrap_method(getattr(module, owner), "set_attention_type", _keep_settings)


def _sparse_forward(kind: Kind, original: Method) -> Method:
    def forward(self, *args, **kwargs):
        retrieval = getattr(self, ATTENTION_NAME, None)
        if retrieval is None:
            return original(self, *args, **kwargs)
        if not torch.compiler.is_compiling():
            check_current(self, retrieval)
            _refuse_parallel(self)
        mode = _softmax_of(retrieval, kind)
        with mode:
            result = original(self, *args, **kwargs)
        if not mode.replaced and not _contains_attention(self):
            raise RuntimeError(
                f"{type(self).__name__} (layer {retrieval.name!r}) has computed its attention without a softmax that "
                "hf_sparse_hopfield could replace, so the result is dense. Change the option of the model that makes it do "
                "so (I-BERT: quant_mode=False), or keep this layer dense: name the layers that retrieve in `layers`."
            )
        return result

    return forward


def _contains_attention(module: torch.nn.Module) -> bool:
    """Whether the module leaves its attention to a part that has settings itself, and checks itself."""
    return any(hasattr(part, ATTENTION_NAME) for part in module.modules() if part is not module)


def _refuse_parallel(module: torch.nn.Module) -> None:
    parallel = active()
    if parallel is not None:
        raise ValueError(
            f"{type(module).__name__} computes its weights itself, from the keys of this process alone, so it cannot run under "
            f"{type(parallel).__name__}. Use a model whose attention is on transformers' registry."
        )


def _softmax_of(retrieval: LayerRetrieval, kind: Kind) -> SparseSoftmax:
    look = look_at(retrieval)
    if look is not None:
        from .observed_patches import ObservedSoftmax

        return ObservedSoftmax(look, kind, retrieval.num_heads)
    if retrieval.uncalibrated:
        uncalibrated.warn()
    return SparseSoftmax(own_settings(retrieval), kind, retrieval.name)


def _keep_settings(original: Method) -> Method:
    def set_attention_type(self, *args, **kwargs):
        retrieval = getattr(self.self, ATTENTION_NAME, None)
        original(self, *args, **kwargs)
        if retrieval is not None:
            retrieval.patched_class = type(self.self)
            patch(type(self.self))
            self.self.sparse_hopfield = retrieval

    return set_attention_type


class _PlainXSoftmax:
    @staticmethod
    def apply(scores: torch.Tensor, mask: torch.Tensor, dim: int) -> torch.Tensor:
        masked = ~mask.bool()
        weights = F.softmax(scores.masked_fill(masked, torch.finfo(scores.dtype).min), dim)
        return weights.masked_fill(masked, 0)
