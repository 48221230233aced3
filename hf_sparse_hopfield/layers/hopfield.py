# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`SparseHopfield`: retrieval among state, stored and projected patterns that are all inputs."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from ..checks import check_dropout, check_flag, check_integer, check_number, is_integer, is_number
from .association import HopfieldAssociation, in_rows


# Limit of updates "until convergence" (update_steps_max None or negative), which hflayers does not have. With eps 1e-4,
# 32 random Gaussian patterns, d from 4 to 64, beta from 0.05 to 4 and alpha 1, 1.5 and 2, no query needs more than 89.
CONVERGENCE_STEPS = 128


class SparseHopfield(nn.Module):
    """
    Retrieval of stored patterns by state patterns, both of which are inputs.

    With Q, K, V the (projected) state patterns, stored patterns and pattern projections of a head, and N the
    alpha-entmax over the stored patterns, the layer computes

        state_0 = Q,   state_u = N(beta * scaling * state_{u-1} Kᵀ) K,   output = N(beta * scaling * state_U Kᵀ) V

    with U = `update_steps_max`: N is evaluated U + 1 times. `alpha=2` is the sparse layer (sparsemax); `alpha=1` is
    its dense twin, the `Hopfield` layer of Ramsauer et al. (softmax). Argument names, meanings and state dict follow
    the package hflayers, with these differences:

    - Each row stops on its own once its state moves by less than `update_steps_eps`. (hflayers measures the change of
      the association matrix and takes the maximum over the batch, so its results depend on the batch.)
    - `update_steps_max` and `update_steps_eps` are numbers, the same for all heads.
    - `concat_bias_pattern` takes effect (hflayers creates the parameters but does not use them).
    - A state that may not attend to anything retrieves zeros, not NaN.
    - A batch of size 1 among the inputs is broadcast to the others.

    Args:
        input_size (`int`, *optional*): Width of the state patterns. May be omitted only if nothing is projected.
        hidden_size (`int`, *optional*, defaults to `input_size // num_heads`): Width of one head's association space.
        output_size (`int`, *optional*, defaults to `input_size`): Width of the output.
        pattern_size (`int`, *optional*, defaults to `hidden_size`): Width of one head's projected pattern.
        num_heads (`int`, *optional*, defaults to 1): Number of heads.
        scaling (`float` or sequence of `num_heads` floats, *optional*):
            Factor on the scores; defaults to `1 / sqrt(hidden_size)`, or to 1 if nothing is projected. It is not part
            of the state dict.
        update_steps_max (`int`, *optional*, defaults to 0):
            Updates of the state before the read-out. `None` or a negative number: until convergence, 128 at most.
        update_steps_eps (`float`, *optional*, defaults to 1e-4):
            A state stops updating once it moves by less than this (Euclidean norm); with 0, it never stops early.
        alpha (`float` or sequence of `num_heads` floats, *optional*, defaults to 2.0):
            Member of the entmax family, in [1, 2]: 1 is softmax, 2 is sparsemax.
        beta (`float` or sequence of `num_heads` floats, *optional*, defaults to 1.0): Multiplier on `scaling`.
        learn_alpha (`bool`, *optional*, defaults to `False`): Learn alpha, one value per head, starting from `alpha`.
        learn_beta (`bool`, *optional*, defaults to `False`): Learn beta, one value per head, starting from `beta`.
        normalize_stored_pattern (`bool`, *optional*, defaults to `True`): Apply layer norm to the stored patterns.
        normalize_stored_pattern_affine (`bool`, *optional*): Learn its scale and shift; by default, if it is applied.
        normalize_stored_pattern_eps (`float`, *optional*, defaults to 1e-5): Its epsilon.
        normalize_state_pattern (`bool`, *optional*, defaults to `True`): Apply layer norm to the state patterns.
        normalize_state_pattern_affine (`bool`, *optional*): Learn its scale and shift; by default, if it is applied.
        normalize_state_pattern_eps (`float`, *optional*, defaults to 1e-5): Its epsilon.
        normalize_pattern_projection (`bool`, *optional*, defaults to `True`): Apply layer norm to the projections.
        normalize_pattern_projection_affine (`bool`, *optional*): Learn its scale and shift; by default, if it is applied.
        normalize_pattern_projection_eps (`float`, *optional*, defaults to 1e-5): Its epsilon.
        normalize_hopfield_space (`bool`, *optional*, defaults to `False`): Apply layer norm to queries and keys.
        normalize_hopfield_space_affine (`bool`, *optional*, defaults to `False`): Learn its scale and shift.
        normalize_hopfield_space_eps (`float`, *optional*, defaults to 1e-5): Its epsilon.
        stored_pattern_as_static (`bool`, *optional*, defaults to `False`): Do not project the stored patterns.
        state_pattern_as_static (`bool`, *optional*, defaults to `False`): Do not project the state patterns.
        pattern_projection_as_static (`bool`, *optional*, defaults to `False`): Do not project the pattern projections.
        pattern_projection_as_connected (`bool`, *optional*, defaults to `False`):
            Apply the projection of the stored patterns to the pattern projections first.
        stored_pattern_size (`int`, *optional*, defaults to `input_size`): Width of the stored patterns.
        pattern_projection_size (`int`, *optional*, defaults to `input_size`): Width of the pattern projections.
        batch_first (`bool`, *optional*, defaults to `True`): Inputs and output are `(batch, length, width)`, else
            `(length, batch, width)`.
        association_activation (`str`, *optional*): Name of a torch function to apply to the output, such as `"relu"`.
        dropout (`float`, *optional*, defaults to 0.0): Probability of dropping a read-out weight in training.
        input_bias (`bool`, *optional*, defaults to `True`): The projections have biases.
        concat_bias_pattern (`bool`, *optional*, defaults to `False`): Add one learned stored pattern, never masked.
        add_zero_association (`bool`, *optional*, defaults to `False`): Add one stored pattern of zeros, never masked.
        disable_out_projection (`bool`, *optional*, defaults to `False`): Return the heads side by side.
        backend (`str`, *optional*, defaults to `"auto"`): Backend of [`retrieve`].

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield import SparseHopfield
    >>> layer = SparseHopfield(input_size=16, num_heads=4, update_steps_max=2)
    >>> stored, state = torch.randn(2, 10, 16), torch.randn(2, 3, 16)
    >>> layer((stored, state, stored)).shape
    torch.Size([2, 3, 16])
    >>> layer.get_association_matrix((stored, state, stored)).shape
    torch.Size([2, 4, 3, 10])

    ```
    """

    def __init__(
        self,
        input_size: int | None = None,
        hidden_size: int | None = None,
        output_size: int | None = None,
        pattern_size: int | None = None,
        num_heads: int = 1,
        scaling: float | Sequence[float] | torch.Tensor | None = None,
        update_steps_max: int | None = 0,
        update_steps_eps: float = 1e-4,
        *,
        alpha: float | Sequence[float] = 2.0,
        beta: float | Sequence[float] = 1.0,
        learn_alpha: bool = False,
        learn_beta: bool = False,
        normalize_stored_pattern: bool = True,
        normalize_stored_pattern_affine: bool | None = None,
        normalize_stored_pattern_eps: float = 1e-5,
        normalize_state_pattern: bool = True,
        normalize_state_pattern_affine: bool | None = None,
        normalize_state_pattern_eps: float = 1e-5,
        normalize_pattern_projection: bool = True,
        normalize_pattern_projection_affine: bool | None = None,
        normalize_pattern_projection_eps: float = 1e-5,
        normalize_hopfield_space: bool = False,
        normalize_hopfield_space_affine: bool = False,
        normalize_hopfield_space_eps: float = 1e-5,
        stored_pattern_as_static: bool = False,
        state_pattern_as_static: bool = False,
        pattern_projection_as_static: bool = False,
        pattern_projection_as_connected: bool = False,
        stored_pattern_size: int | None = None,
        pattern_projection_size: int | None = None,
        batch_first: bool = True,
        association_activation: str | None = None,
        dropout: float = 0.0,
        input_bias: bool = True,
        concat_bias_pattern: bool = False,
        add_zero_association: bool = False,
        disable_out_projection: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        sizes: dict[str, Any] = {
            "input_size": input_size,
            "hidden_size": hidden_size,
            "output_size": output_size,
            "pattern_size": pattern_size,
            "stored_pattern_size": stored_pattern_size,
            "pattern_projection_size": pattern_projection_size,
        }
        for name, size in sizes.items():
            check_integer(name, size, optional=True)
        flags: dict[str, Any] = {
            "learn_alpha": learn_alpha,
            "learn_beta": learn_beta,
            "normalize_hopfield_space": normalize_hopfield_space,
            "normalize_hopfield_space_affine": normalize_hopfield_space_affine,
            "stored_pattern_as_static": stored_pattern_as_static,
            "state_pattern_as_static": state_pattern_as_static,
            "pattern_projection_as_static": pattern_projection_as_static,
            "pattern_projection_as_connected": pattern_projection_as_connected,
            "input_bias": input_bias,
            "concat_bias_pattern": concat_bias_pattern,
            "add_zero_association": add_zero_association,
            "disable_out_projection": disable_out_projection,
        }
        for name, flag in {**flags, "batch_first": batch_first}.items():
            check_flag(name, flag)
        if normalize_hopfield_space_affine and not normalize_hopfield_space:
            raise ValueError(
                "normalize_hopfield_space_affine=True has no effect with normalize_hopfield_space=False; "
                "set both or neither."
            )
        check_dropout("dropout", dropout)
        self.batch_first = batch_first
        self.association_activation = _named_activation(association_activation)
        steps, tolerance = _steps_and_tolerance(update_steps_max, update_steps_eps)
        self.update_steps_max = update_steps_max
        self.update_steps_eps = update_steps_eps

        self.association_core = HopfieldAssociation(
            **sizes,
            **flags,
            num_heads=num_heads,
            scaling=scaling,
            steps=steps,
            tolerance=tolerance,
            alpha=alpha,
            beta=beta,
            normalize_hopfield_space_eps=normalize_hopfield_space_eps,
            dropout=float(dropout),
            backend=backend,
        )
        self.norm_stored_pattern = _layer_norm(
            "stored_pattern",
            normalize_stored_pattern,
            normalize_stored_pattern_affine,
            normalize_stored_pattern_eps,
            ("stored_pattern_size or input_size", stored_pattern_size or input_size),
        )
        self.norm_state_pattern = _layer_norm(
            "state_pattern",
            normalize_state_pattern,
            normalize_state_pattern_affine,
            normalize_state_pattern_eps,
            ("input_size", input_size),
        )
        self.norm_pattern_projection = _layer_norm(
            "pattern_projection",
            normalize_pattern_projection,
            normalize_pattern_projection_affine,
            normalize_pattern_projection_eps,
            ("pattern_projection_size or input_size", pattern_projection_size or input_size),
        )
        self.expected_widths = self._find_expected_widths()

    def _find_expected_widths(self) -> dict[str, int | None]:
        """
        Find the width that each input must have (`None`: any) from everything that is applied to it.

        Raises if two things that are applied to one input need different widths, so that the first call need not.
        """
        core = self.association_core
        hidden_matters = core.static_execution or core.p_norm_weight is not None
        state: dict[str, int | None] = {}
        stored: dict[str, int | None] = {}
        projection: dict[str, int | None] = {}
        if not core.state_is_static:
            state["input_size"] = core.input_size
        elif hidden_matters or not core.stored_is_static:
            state["hidden_size (state_pattern_as_static=True)"] = core.hidden_size
        if not core.stored_is_static:
            stored["stored_pattern_size"] = core.stored_pattern_size
        elif hidden_matters or not core.state_is_static:
            stored["hidden_size (stored_pattern_as_static=True)"] = core.hidden_size
        if not core.projection_is_static or (core.connected and not core.stored_is_static):
            projection["pattern_projection_size"] = core.pattern_projection_size
        elif core.static_execution or core.out_proj is not None:
            projection["pattern_size (pattern_projection_as_static=True)"] = core.pattern_size
        expected: dict[str, int | None] = {}
        for name, needs, norm in (
            ("state_pattern", state, self.norm_state_pattern),
            ("stored_pattern", stored, self.norm_stored_pattern),
            ("pattern_projection", projection, self.norm_pattern_projection),
        ):
            if norm is not None:
                needs[f"normalize_{name}=True"] = norm.normalized_shape[0]
            widths = {width for width in needs.values() if width is not None}
            if len(widths) > 1:
                listed = ", ".join(f"{width} by {reason}" for reason, width in needs.items())
                raise ValueError(f"the width of {name} is fixed to {listed}; make them equal or drop one.")
            expected[name] = widths.pop() if widths else None
        return expected

    def reset_parameters(self) -> None:
        """Initialize all parameters again."""
        self.association_core.reset_parameters()
        for norm in (self.norm_stored_pattern, self.norm_state_pattern, self.norm_pattern_projection):
            if norm is not None:
                norm.reset_parameters()

    def _batch_first_patterns(
        self, input: torch.Tensor | tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Split the input into state, stored and projected patterns, check and normalize them."""
        if isinstance(input, torch.Tensor):
            stored, state, projection = input, input, input
        elif isinstance(input, (tuple, list)) and len(input) == 3 and all(isinstance(x, torch.Tensor) for x in input):
            stored, state, projection = input
        else:
            raise TypeError(
                "input must be a tensor or three tensors (stored_pattern, state_pattern, pattern_projection), got "
                + (f"{len(input)} elements." if isinstance(input, (tuple, list)) else f"{type(input).__name__}.")
            )
        self._check_widths(state, stored, projection)
        if not self.batch_first:
            stored, state, projection = (x.transpose(0, 1) for x in (stored, state, projection))
        if stored.shape[1] != projection.shape[1]:
            raise ValueError(
                f"stored_pattern and pattern_projection must have the same length, got {stored.shape[1]} and "
                f"{projection.shape[1]}."
            )
        _check_batches(state, stored, projection)
        if self.norm_state_pattern is not None:
            state = in_rows(state, self.norm_state_pattern)
        if self.norm_stored_pattern is not None:
            stored = in_rows(stored, self.norm_stored_pattern)
        if self.norm_pattern_projection is not None:
            projection = in_rows(projection, self.norm_pattern_projection)
        return state, stored, projection

    def _check_widths(self, state: torch.Tensor, stored: torch.Tensor, projection: torch.Tensor) -> None:
        layout = "(batch, length, width)" if self.batch_first else "(length, batch, width)"
        patterns = {"state_pattern": state, "stored_pattern": stored, "pattern_projection": projection}
        for name, pattern in patterns.items():
            if pattern.dim() != 3:
                raise ValueError(f"{name} must have shape {layout}, got shape {tuple(pattern.shape)}.")
            width = self.expected_widths[name]
            if width is not None and pattern.shape[2] != width:
                raise ValueError(f"{name} must have width {width}, got shape {tuple(pattern.shape)} {layout}.")
        core = self.association_core
        if core.state_is_static and core.stored_is_static and state.shape[2] != stored.shape[2]:
            raise ValueError(
                f"static state_pattern and stored_pattern must have the same width, got {state.shape[2]} and "
                f"{stored.shape[2]}."
            )

    def forward(
        self,
        input: torch.Tensor | tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        stored_pattern_padding_mask: torch.Tensor | None = None,
        association_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """
        Retrieve.

        Args:
            input (`torch.Tensor` or tuple of three): One tensor `(batch, length, width)` for everything, or the tuple
                `(stored_pattern, state_pattern, pattern_projection)` of shapes `(batch, stored, stored_width)`,
                `(batch, states, width)` and `(batch, stored, projection_width)`.
            stored_pattern_padding_mask (`torch.BoolTensor` of shape `(batch, stored)`, *optional*):
                True where a stored pattern is padding. Its first dimension is the batch, whatever `batch_first` is.
            association_mask (`torch.Tensor` of shape `(states, stored)`, *optional*):
                Boolean (True = masked) or floating point (added to the scores). Leading dimensions `batch`,
                `batch * num_heads` or `(batch, num_heads)` make it different for each sample or head.

        Returns:
            `torch.Tensor` of shape `(batch, states, output_size)`: The retrieved patterns.
        """
        patterns = self._batch_first_patterns(input)
        output, _ = self.association_core(*patterns, stored_pattern_padding_mask, association_mask)
        if self.association_activation is not None:
            output = self.association_activation(output)
        return output if self.batch_first else output.transpose(0, 1)

    @torch.no_grad()
    def get_association_matrix(
        self,
        input: torch.Tensor | tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        stored_pattern_padding_mask: torch.Tensor | None = None,
        association_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """
        The weights of the read-out, before dropout and without gradients.

        Args:
            input, stored_pattern_padding_mask, association_mask: As in [`~SparseHopfield.forward`].

        Returns:
            `torch.Tensor` of shape `(batch, num_heads, states, stored)`, with one more column each for the bias pattern
            and the zero pattern, if any.
        """
        patterns = self._batch_first_patterns(input)
        return self.association_core(*patterns, stored_pattern_padding_mask, association_mask, return_weights=True)[1]

    @torch.no_grad()
    def get_projected_pattern_matrix(
        self,
        input: torch.Tensor | tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        stored_pattern_padding_mask: torch.Tensor | None = None,
        association_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """
        The projected patterns that are read out, without gradients.

        Args:
            input: As in [`~SparseHopfield.forward`].
            stored_pattern_padding_mask, association_mask: Accepted for compatibility with hflayers; without effect.

        Returns:
            `torch.Tensor` of shape `(batch, num_heads, stored, pattern_size)`, with one more row each for the bias
            pattern and the zero pattern, if any.
        """
        value = self.association_core.project(*self._batch_first_patterns(input))[2]
        return value.expand(-1, self.association_core.num_heads, -1, -1)

    @property
    def input_size(self) -> int | None:
        """Width of the state patterns (`None`: any)."""
        return self.association_core.input_size

    @property
    def hidden_size(self) -> int | None:
        """Width of one head's association space (`None`: that of the inputs)."""
        return self.association_core.hidden_size

    @property
    def pattern_size(self) -> int | None:
        """Width of one head's projected patterns (`None`: that of the inputs)."""
        return self.association_core.pattern_size

    @property
    def output_size(self) -> int | None:
        """Width of the output (`None`: `num_heads` times that of the pattern projections)."""
        return self.association_core.output_size

    @property
    def num_heads(self) -> int:
        """Number of heads."""
        return self.association_core.num_heads

    @property
    def scaling(self) -> float | tuple[float, ...]:
        """Factor on the scores, for all heads or one per head."""
        return self.association_core.scaling

    @property
    def alpha(self) -> float | torch.Tensor:
        """Current alpha: a `float`, or a tensor of shape `(num_heads,)`."""
        return self.association_core.retrieval_parameters.alpha

    @property
    def beta(self) -> float | torch.Tensor:
        """Current beta: a `float`, or a tensor of shape `(num_heads,)`."""
        return self.association_core.retrieval_parameters.beta


class LearnedPatternHopfield(nn.Module):
    """
    Base of [`SparseHopfieldPooling`] and [`SparseHopfieldLayer`]: a [`SparseHopfield`] with some learned inputs.

    Args:
        hopfield (`SparseHopfield`): The retrieval.
        quantity (`int`): Number of learned patterns.
    """

    def __init__(self, hopfield: SparseHopfield, quantity: int) -> None:
        super().__init__()
        check_integer("quantity", quantity)
        self.hopfield = hopfield
        self.quantity = quantity

    def _hopfield_input(self, input: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """
        The stored patterns, state patterns and pattern projections that belong to an input.

        Learned patterns stay a batch of size 1, so that they are projected once and not once per sample.
        """
        raise NotImplementedError

    @property
    def batch_first(self) -> bool:
        """Inputs are `(batch, length, width)`, else `(length, batch, width)`."""
        return self.hopfield.batch_first

    def _learned_patterns(self, width: int, trainable: bool) -> nn.Parameter:
        shape = (1, self.quantity, width) if self.batch_first else (self.quantity, 1, width)
        return nn.Parameter(torch.empty(shape), requires_grad=trainable)

    def get_association_matrix(
        self,
        input: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        stored_pattern_padding_mask: torch.Tensor | None = None,
        association_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See [`SparseHopfield.get_association_matrix`]."""
        return self.hopfield.get_association_matrix(
            self._hopfield_input(input), stored_pattern_padding_mask, association_mask
        )

    def get_projected_pattern_matrix(
        self,
        input: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        stored_pattern_padding_mask: torch.Tensor | None = None,
        association_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See [`SparseHopfield.get_projected_pattern_matrix`]."""
        return self.hopfield.get_projected_pattern_matrix(
            self._hopfield_input(input), stored_pattern_padding_mask, association_mask
        )


def _check_batches(state: torch.Tensor, stored: torch.Tensor, projection: torch.Tensor) -> None:
    sizes = [state.shape[0], stored.shape[0], projection.shape[0]]
    larger = [size for size in sizes if size != 1]
    if any(size != larger[0] for size in larger):
        raise ValueError(
            f"state_pattern, stored_pattern and pattern_projection must have the same batch size or 1, got {sizes}."
        )


def _steps_and_tolerance(update_steps_max: int | None, update_steps_eps: float) -> tuple[int, float]:
    """hflayers counts updates before the read-out; `retrieve` counts evaluations of the normalizer, one more."""
    if update_steps_max is not None and not is_integer(update_steps_max):
        raise TypeError(
            f"update_steps_max must be an integer or None (until convergence), the same for all heads, "
            f"got {update_steps_max!r}."
        )
    if not is_number(update_steps_eps):
        raise TypeError(f"update_steps_eps must be a number, the same for all heads, got {update_steps_eps!r}.")
    check_number("update_steps_eps", update_steps_eps)
    if update_steps_max is None or update_steps_max < 0:
        if update_steps_eps == 0:
            raise ValueError(
                f"update_steps_max={update_steps_max} (until convergence) needs update_steps_eps > 0 to detect it."
            )
        update_steps_max = CONVERGENCE_STEPS
    # A single evaluation leaves nothing to stop.
    return update_steps_max + 1, float(update_steps_eps) if update_steps_max else 0.0


def _layer_norm(
    name: str, normalize: bool, affine: bool | None, eps: float, width: tuple[str, int | None]
) -> nn.LayerNorm | None:
    check_flag(f"normalize_{name}", normalize)
    check_flag(f"normalize_{name}_affine", affine, optional=True)
    if not normalize:
        if affine:
            raise ValueError(
                f"normalize_{name}_affine=True has no effect with normalize_{name}=False; set both or neither."
            )
        return None
    if width[1] is None:
        raise ValueError(f"normalize_{name}=True needs {width[0]}; give it, or set normalize_{name}=False.")
    return nn.LayerNorm(width[1], eps=eps, elementwise_affine=affine is not False)


def _named_activation(name: str | None) -> Callable[[torch.Tensor], torch.Tensor] | None:
    if name is None:
        return None
    activation = getattr(torch, name, None) if isinstance(name, str) else None
    if activation is None and isinstance(name, str):
        activation = getattr(nn.functional, name, None)
    problem = (
        f"association_activation={name!r} must be the name of an elementwise torch function, such as 'relu' or 'tanh'"
    )
    if not callable(activation):
        raise ValueError(f"{problem}; no torch function has that name.")
    probe = torch.linspace(-1.0, 1.0, 6).reshape(1, 2, 3)
    try:
        result = activation(probe)
    except (TypeError, RuntimeError, ValueError) as error:
        raise ValueError(f"{problem}; calling it on a tensor gave: {error}") from error
    if not isinstance(result, torch.Tensor) or result.shape != probe.shape:
        raise ValueError(f"{problem}; it does not keep the shape of its input.")
    return activation
