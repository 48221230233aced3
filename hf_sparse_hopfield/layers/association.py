# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The core of the three layers: project patterns into heads, retrieve, project back.

Parameters have the names and shapes of `HopfieldCore` in hflayers, so its checkpoints load with `load_state_dict`.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import nn

from ..backends import available_backends
from ..observation import retrieve_with
from ..retrieval_parameters import RetrievalParameters, check_each, per_head_values


# In the order of the state dict, which is also the order of an optimizer's saved state.
_PARAMETERS = (
    "in_proj_weight",
    "q_proj_weight",
    "k_proj_weight",
    "v_proj_weight",
    "in_proj_bias",
    "bias_k",
    "bias_v",
    "p_norm_weight",
    "p_norm_bias",
)


def check_backend(name: str) -> None:
    """Raise `ValueError` for an unknown backend, so that a constructor fails and not the first call."""
    if name != "auto" and name not in available_backends():
        raise ValueError(f"backend={name!r} is unknown; use 'auto' or one of {available_backends()}.")


def _check_mask(name: str, mask: torch.Tensor) -> None:
    if not isinstance(mask, torch.Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(mask).__name__}; convert it with torch.tensor({name}).")


def _check_scaling(scaling: float) -> None:
    if not scaling > 0.0:
        raise ValueError(f"scaling must be positive, got {scaling!r}.")


def in_rows(patterns: torch.Tensor, norm: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """
    Apply a layer norm to patterns laid out as a matrix.

    If the gradient of a layer norm is a transposed tensor, the backward pass has a memory layout that `torch.compile`
    does not predict, and fails. A matrix has only one layout.
    """
    return norm(patterns.reshape(-1, patterns.shape[-1])).reshape(patterns.shape)


class _Sizes(NamedTuple):
    """Width of every space of a layer that projects; `hidden` and `pattern` are those of one head."""

    input: int
    stored: int
    projection: int
    hidden: int
    pattern: int
    output: int


def _resolve_sizes(
    num_heads: int,
    input_size: int | None,
    hidden_size: int | None,
    output_size: int | None,
    pattern_size: int | None,
    stored_pattern_size: int | None,
    pattern_projection_size: int | None,
    disable_out_projection: bool,
) -> _Sizes:
    """Replace the sizes that were not given by their defaults."""
    if input_size is None:
        raise ValueError(
            "input_size=None is only possible if nothing is projected: give input_size, or set "
            "stored_pattern_as_static, state_pattern_as_static, pattern_projection_as_static and "
            "disable_out_projection to True, and neither connect the projection nor normalize_hopfield_space."
        )
    if hidden_size is None:
        if input_size % num_heads:
            raise ValueError(
                f"input_size={input_size} is not divisible by num_heads={num_heads}; "
                f"give hidden_size (the size of one head)."
            )
        hidden_size = input_size // num_heads
    if pattern_size is None:
        pattern_size = hidden_size
    if disable_out_projection:
        width = num_heads * pattern_size
        if output_size not in (None, width):
            raise ValueError(
                f"output_size={output_size} has no effect with disable_out_projection=True, where the output has "
                f"num_heads * pattern_size = {width} features; leave it out."
            )
        output_size = width
    return _Sizes(
        input=input_size,
        stored=input_size if stored_pattern_size is None else stored_pattern_size,
        projection=input_size if pattern_projection_size is None else pattern_projection_size,
        hidden=hidden_size,
        pattern=pattern_size,
        output=input_size if output_size is None else output_size,
    )


class HopfieldAssociation(nn.Module):
    """
    Multi-head retrieval between normalized patterns, with input and output projections.

    The arguments have the names and meanings of those of [`SparseHopfield`]; `steps` and `tolerance` are those of
    [`retrieve`]. All tensors are batch first. A batch of size 1 is broadcast to the others.
    """

    input_size: int | None
    hidden_size: int | None
    output_size: int | None
    pattern_size: int | None
    stored_pattern_size: int | None
    pattern_projection_size: int | None
    scaling: float | tuple[float, ...]
    out_proj: nn.Linear | None
    in_proj_weight: nn.Parameter | None
    q_proj_weight: nn.Parameter | None
    k_proj_weight: nn.Parameter | None
    v_proj_weight: nn.Parameter | None
    in_proj_bias: nn.Parameter | None
    bias_k: nn.Parameter | None
    bias_v: nn.Parameter | None
    p_norm_weight: nn.Parameter | None
    p_norm_bias: nn.Parameter | None

    def __init__(
        self,
        *,
        input_size: int | None,
        hidden_size: int | None,
        output_size: int | None,
        pattern_size: int | None,
        num_heads: int,
        scaling: float | Sequence[float] | torch.Tensor | None,
        steps: int,
        tolerance: float,
        alpha: float | Sequence[float],
        beta: float | Sequence[float],
        learn_alpha: bool,
        learn_beta: bool,
        normalize_hopfield_space: bool,
        normalize_hopfield_space_affine: bool,
        normalize_hopfield_space_eps: float,
        stored_pattern_as_static: bool,
        state_pattern_as_static: bool,
        pattern_projection_as_static: bool,
        pattern_projection_as_connected: bool,
        stored_pattern_size: int | None,
        pattern_projection_size: int | None,
        dropout: float,
        input_bias: bool,
        concat_bias_pattern: bool,
        add_zero_association: bool,
        disable_out_projection: bool,
        backend: str,
    ) -> None:
        super().__init__()
        check_backend(backend)
        self.retrieval_parameters = RetrievalParameters(num_heads, alpha, beta, learn_alpha, learn_beta)
        self.num_heads = num_heads
        self.steps = steps
        self.tolerance = tolerance
        self.dropout = dropout
        self.backend = backend
        self.stored_is_static = stored_pattern_as_static
        self.state_is_static = state_pattern_as_static
        self.projection_is_static = pattern_projection_as_static
        self.connected = pattern_projection_as_connected
        self.normalize_hopfield_space = normalize_hopfield_space
        self.normalize_hopfield_space_eps = normalize_hopfield_space_eps
        self.add_zero_association = add_zero_association
        # Nothing about the patterns is learned: plain retrieval, whose sizes come from the data.
        self.static_execution = (
            stored_pattern_as_static
            and state_pattern_as_static
            and pattern_projection_as_static
            and not pattern_projection_as_connected
            and not normalize_hopfield_space
            and disable_out_projection
        )
        if concat_bias_pattern and (stored_pattern_as_static or pattern_projection_as_static):
            raise ValueError(
                "concat_bias_pattern=True adds a learned pattern to projected ones; it cannot be combined with "
                "stored_pattern_as_static=True or pattern_projection_as_static=True."
            )
        for name in _PARAMETERS:
            self.register_parameter(name, None)
        self.out_proj = None
        default_scaling = 1.0
        if self.static_execution:
            self._set_static_sizes(hidden_size, output_size, pattern_size)
        else:
            sizes = _resolve_sizes(
                num_heads,
                input_size,
                hidden_size,
                output_size,
                pattern_size,
                stored_pattern_size,
                pattern_projection_size,
                disable_out_projection,
            )
            self._set_sizes(sizes)
            default_scaling = 1.0 / math.sqrt(sizes.hidden)
            # If all inputs have one size, hflayers has one joint weight, otherwise one weight each.
            one_size = sizes.input == sizes.stored == sizes.projection and pattern_size is None
            self._create_input_projections(sizes, joint=one_size and not self.connected, bias=input_bias)
            if not disable_out_projection:
                self.out_proj = nn.Linear(num_heads * sizes.pattern, sizes.output, bias=input_bias)
            if concat_bias_pattern:
                self.bias_k = nn.Parameter(torch.empty(1, 1, num_heads * sizes.hidden))
                self.bias_v = nn.Parameter(torch.empty(1, 1, num_heads * sizes.pattern))
            if normalize_hopfield_space_affine:
                self.p_norm_weight = nn.Parameter(torch.empty(sizes.hidden))
                self.p_norm_bias = nn.Parameter(torch.empty(sizes.hidden))

        self.scaling = default_scaling if scaling is None else per_head_values("scaling", scaling, num_heads)
        check_each(_check_scaling, self.scaling)
        self.reset_parameters()

    def _set_static_sizes(self, hidden_size: int | None, output_size: int | None, pattern_size: int | None) -> None:
        """Set the sizes of a layer that projects nothing. One that is not given stays `None`: any size fits."""
        if output_size is not None:
            raise ValueError(
                f"output_size={output_size} has no effect with disable_out_projection=True; leave it out."
            )
        self.input_size = self.stored_pattern_size = self.pattern_projection_size = self.output_size = None
        self.hidden_size, self.pattern_size = hidden_size, pattern_size

    def _set_sizes(self, sizes: _Sizes) -> None:
        """Set the sizes of a layer that projects, after checking that they fit a connected projection."""
        if self.connected and sizes.stored != sizes.projection:
            raise ValueError(
                f"pattern_projection_as_connected=True projects the pattern projection like the stored pattern, so "
                f"stored_pattern_size={sizes.stored} and pattern_projection_size={sizes.projection} must be equal."
            )
        only_connected = self.connected and self.projection_is_static and not self.stored_is_static
        if only_connected and sizes.pattern != sizes.hidden:
            raise ValueError(
                f"pattern_size={sizes.pattern} must equal hidden_size={sizes.hidden} when "
                f"pattern_projection_as_connected and pattern_projection_as_static are both True."
            )
        self.input_size, self.output_size = sizes.input, sizes.output
        self.hidden_size, self.pattern_size = sizes.hidden, sizes.pattern
        self.stored_pattern_size, self.pattern_projection_size = sizes.stored, sizes.projection

    def _create_input_projections(self, sizes: _Sizes, joint: bool, bias: bool) -> None:
        hidden, pattern = self.num_heads * sizes.hidden, self.num_heads * sizes.pattern
        state = 0 if self.state_is_static else hidden
        stored = 0 if self.stored_is_static else hidden
        projection = 0 if self.projection_is_static else pattern
        # The rows of each part in the joint weight, and in the bias.
        self._rows = {
            "state": slice(0, state),
            "stored": slice(state, state + stored),
            "projection": slice(state + stored, state + stored + projection),
        }
        total = state + stored + projection
        if not total:
            return
        if joint:
            self.in_proj_weight = nn.Parameter(torch.empty(total, sizes.input))
        else:
            if state:
                self.q_proj_weight = nn.Parameter(torch.empty(state, sizes.input))
            if stored:
                self.k_proj_weight = nn.Parameter(torch.empty(stored, sizes.stored))
            if projection:
                projected_twice = self.connected and not self.stored_is_static
                width = hidden if projected_twice else sizes.projection
                self.v_proj_weight = nn.Parameter(torch.empty(projection, width))
        if bias:
            # hflayers keeps the bias of the pattern projection even if that is static and the bias unused.
            self.in_proj_bias = nn.Parameter(torch.empty(state + stored + pattern))

    def reset_parameters(self) -> None:
        """Initialize as hflayers does: weights and bias patterns from N(0, 0.02²), biases zero."""
        self.retrieval_parameters.reset_parameters()
        if self.p_norm_weight is not None and self.p_norm_bias is not None:
            nn.init.ones_(self.p_norm_weight)
            nn.init.zeros_(self.p_norm_bias)
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                nn.init.normal_(weight, std=0.02)
        if self.in_proj_bias is not None:
            nn.init.zeros_(self.in_proj_bias)
        if self.out_proj is not None:
            nn.init.normal_(self.out_proj.weight, std=0.02)
            if self.out_proj.bias is not None:
                nn.init.zeros_(self.out_proj.bias)
        for pattern in (self.bias_k, self.bias_v):
            if pattern is not None:
                nn.init.normal_(pattern, std=0.02)

    def _apply_projection(self, inputs: torch.Tensor, part: str) -> torch.Tensor:
        """Apply the input projection of `part` (`"state"`, `"stored"` or `"projection"`), which is not static."""
        rows = self._rows[part]
        weight: torch.Tensor | None
        if self.in_proj_weight is not None:
            weight = self.in_proj_weight[rows]
        else:
            own = {"state": self.q_proj_weight, "stored": self.k_proj_weight, "projection": self.v_proj_weight}
            weight = own[part]
        assert weight is not None, f"{part} is static"
        bias = None if self.in_proj_bias is None else self.in_proj_bias[rows]
        return nn.functional.linear(inputs, weight, bias)

    def _split_heads(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def _normalize(self, patterns: torch.Tensor) -> torch.Tensor:
        if not self.normalize_hopfield_space:
            return patterns
        width = patterns.shape[-1:]
        return in_rows(
            patterns,
            lambda rows: nn.functional.layer_norm(
                rows, width, self.p_norm_weight, self.p_norm_bias, self.normalize_hopfield_space_eps
            ),
        )

    def project(
        self, state: torch.Tensor, stored: torch.Tensor, projection: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """
        Project patterns into the heads.

        Static patterns are the same for every head. The learned bias pattern and the zero pattern, if any, come last
        among the stored patterns.

        Args:
            state (`torch.Tensor` of shape `(batch, states, state_width)`): State patterns.
            stored (`torch.Tensor` of shape `(batch, stored, stored_width)`): Stored patterns.
            projection (`torch.Tensor` of shape `(batch, stored, projection_width)`): Patterns that are read out.

        Returns:
            `tuple[torch.Tensor, torch.Tensor, torch.Tensor]`: Query `(batch, heads, states, head_dim)`, key and value
            `(batch, heads or 1, stored, head_dim or value_dim)`.
        """
        if self.state_is_static:
            query = state.unsqueeze(1).expand(-1, self.num_heads, -1, -1)
        else:
            query = self._split_heads(self._apply_projection(state, "state"))

        projected_value = projection
        value_has_heads = False
        if self.stored_is_static:
            key = stored.unsqueeze(1)
        else:
            key = self._split_heads(self._apply_projection(stored, "stored"))
            if self.connected:
                projected_value = self._apply_projection(projection, "stored")
                value_has_heads = True
        if not self.projection_is_static:
            projected_value = self._apply_projection(projected_value, "projection")
            value_has_heads = True
        value = self._split_heads(projected_value) if value_has_heads else projected_value.unsqueeze(1)

        query, key = self._normalize(query), self._normalize(key)
        if self.bias_k is not None and self.bias_v is not None:
            key = torch.cat([key, self._split_heads(self.bias_k).expand(key.shape[0], -1, -1, -1)], dim=2)
            value = torch.cat([value, self._split_heads(self.bias_v).expand(value.shape[0], -1, -1, -1)], dim=2)
        if self.add_zero_association:
            key = nn.functional.pad(key, (0, 0, 0, 1))
            value = nn.functional.pad(value, (0, 0, 0, 1))
        # `retrieve` shares one key-value head among all heads, but keys and values need the same number of heads.
        if key.shape[1] != value.shape[1]:
            key = key.expand(-1, self.num_heads, -1, -1)
            value = value.expand(-1, self.num_heads, -1, -1)
        batch = key.shape[0] if query.shape[0] == 1 else query.shape[0]
        return (
            query.expand(batch, -1, -1, -1),
            key.expand(batch, -1, -1, -1),
            value.expand(batch, -1, -1, -1),
        )

    def _mask(
        self,
        padding_mask: torch.Tensor | None,
        association_mask: torch.Tensor | None,
        batch: int,
        states: int,
        stored: int,
    ) -> torch.Tensor | None:
        """Turn hflayers' masks (True = masked) into the mask of `retrieve`: True = may attend, or floats to add."""
        mask = None
        if padding_mask is not None:
            _check_mask("stored_pattern_padding_mask", padding_mask)
            if padding_mask.dtype != torch.bool:
                raise TypeError(
                    f"stored_pattern_padding_mask must be boolean (True = masked), got {padding_mask.dtype}; "
                    f"convert it with .bool()."
                )
            if tuple(padding_mask.shape) not in ((batch, stored), (1, stored)):
                raise ValueError(
                    f"stored_pattern_padding_mask has shape {tuple(padding_mask.shape)}; "
                    f"it must be (batch, stored) = {(batch, stored)}."
                )
            mask = ~padding_mask[:, None, None, :]
        if association_mask is not None:
            _check_mask("association_mask", association_mask)
            association_mask = self._association_mask_4d(association_mask, batch, states, stored)
            if association_mask.dtype == torch.bool:
                mask = ~association_mask if mask is None else mask & ~association_mask
            else:
                mask = association_mask if mask is None else association_mask.masked_fill(~mask, -torch.inf)
        # The patterns that `project` appends are never masked.
        appended = int(self.bias_k is not None) + int(self.add_zero_association)
        if appended and mask is not None:
            mask = nn.functional.pad(mask, (0, appended), value=True if mask.dtype == torch.bool else 0.0)
        return mask

    def _association_mask_4d(self, mask: torch.Tensor, batch: int, states: int, stored: int) -> torch.Tensor:
        if mask.dtype != torch.bool and not mask.dtype.is_floating_point:
            raise TypeError(
                f"association_mask must be boolean (True = masked) or floating point (added to the scores), got "
                f"{mask.dtype}; convert it with .bool()."
            )
        heads = self.num_heads
        shape = tuple(mask.shape)
        if shape == (states, stored):
            return mask[None, None]
        if shape == (batch, states, stored):
            return mask[:, None]
        if shape == (batch * heads, states, stored):
            return mask.unflatten(0, (batch, heads))
        if len(shape) == 4 and shape[0] in (1, batch) and shape[1] in (1, heads) and shape[2:] == (states, stored):
            return mask
        raise ValueError(
            f"association_mask has shape {shape}; it must be (states, stored) = {(states, stored)}, or that with "
            f"batch={batch}, batch * heads = {batch * heads} or (batch, heads) = {(batch, heads)} in front."
        )

    def forward(
        self,
        state: torch.Tensor,
        stored: torch.Tensor,
        projection: torch.Tensor,
        padding_mask: torch.Tensor | None = None,
        association_mask: torch.Tensor | None = None,
        return_weights: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """
        Retrieve.

        Args:
            state, stored, projection (`torch.Tensor`): See [`~HopfieldAssociation.project`].
            padding_mask (`torch.BoolTensor` of shape `(batch, stored)`, *optional*): True = masked.
            association_mask (`torch.Tensor`, *optional*): True = masked, or floats to add to the scores.
            return_weights (`bool`, *optional*, defaults to `False`): Also return the association matrix.

        Returns:
            `tuple`: Output `(batch, states, output_size)` and weights `(batch, heads, states, stored)` or `None`.
        """
        query, key, value = self.project(state, stored, projection)
        mask = self._mask(padding_mask, association_mask, query.shape[0], query.shape[2], stored.shape[1])
        factor: float | torch.Tensor = 1.0
        scaling = self.scaling
        if isinstance(scaling, tuple):
            # `retrieve` takes one scaling: what differs between heads becomes a factor of beta
            precision = torch.promote_types(query.dtype, torch.float32)
            factor, scaling = torch.tensor(scaling, dtype=precision, device=query.device), 1.0
        result = retrieve_with(
            self.retrieval_parameters,
            query,
            key,
            value,
            factor=factor,
            scaling=scaling,
            steps=self.steps,
            tolerance=self.tolerance,
            mask=mask,
            dropout=self.dropout if self.training else 0.0,
            return_weights=return_weights,
            backend=self.backend,
        )
        output, weights = result if return_weights else (result, None)
        output = output.transpose(1, 2).flatten(2)
        return (output if self.out_proj is None else self.out_proj(output)), weights

    def extra_repr(self) -> str:
        return (
            f"num_heads={self.num_heads}, hidden_size={self.hidden_size}, scaling={self.scaling}, steps={self.steps}"
        )
