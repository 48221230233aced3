# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Inverse temperature (beta) and sparsity (alpha) of a retrieval: fixed or learned, for all heads or one per head."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

from .functional.energy import check_beta
from .functional.normalizers import check_alpha


# A learned alpha is 1 + sigmoid(logit). The ends of [1, 2] would need an infinite logit and would have no gradient, so
# a learned alpha starts at least this far inside: near enough to start as (almost) softmax or sparsemax, far enough
# for the gradient of the sigmoid (0.001 there) to be usable.
LEARNED_ALPHA_MARGIN = 1e-3

# exp of a log_beta that ran away would be 0 or infinite; beyond these, retrieval no longer changes with beta anyway.
LEARNED_LOG_BETA_LIMIT = 20.0


def per_head_values(
    name: str, value: float | Sequence[float] | torch.Tensor, num_heads: int
) -> float | tuple[float, ...]:
    """
    Read a setting that is either one number or one number per head.

    Args:
        name (`str`): Name of the argument, for errors.
        value (`float`, sequence of `float`, or `torch.Tensor` of shape `()` or `(num_heads,)`): What the user gave.
        num_heads (`int`): Number of heads.

    Returns:
        `float` or `tuple[float, ...]`: One number, or `num_heads` numbers. All of them are finite.
    """
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            raise ValueError(
                f"{name} is a tensor that requires grad, but it would be copied and never trained; pass {name} as "
                f"plain numbers and use learn_alpha=True or learn_beta=True to train it."
            )
        value = value.tolist()
    if isinstance(value, bool) or not isinstance(value, (int, float, Sequence)) or isinstance(value, (str, bytes)):
        raise TypeError(f"{name} must be a number or {num_heads} numbers (one per head), got {value!r}.")
    numbers = list(value) if isinstance(value, Sequence) else [value]
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise TypeError(f"{name} must be a number or {num_heads} numbers (one per head), got {value!r}.")
        if not math.isfinite(number):
            raise ValueError(f"{name} must be finite, got {value!r}.")
    if not isinstance(value, Sequence):
        return float(value)
    if len(numbers) != num_heads:
        raise ValueError(
            f"{name} has {len(numbers)} values, but num_heads={num_heads}; give one number or one per head."
        )
    return tuple(float(number) for number in numbers)


def check_each(check: Callable[[float], None], value: float | tuple[float, ...]) -> None:
    """Apply a check of one number to a number or to one number per head."""
    for number in value if isinstance(value, tuple) else (value,):
        check(number)


class RetrievalParameters(nn.Module):
    """
    The beta and alpha of a retrieval.

    What is learned is a parameter with one entry per head, whose form keeps it valid whatever the optimiser does:
    beta = exp(log_beta) > 0 and alpha = 1 + sigmoid(alpha_logit) in [1, 2]. What is not learned is a plain number, so
    a module without learned parts has an empty state dict. The parameters live in a module of their own because PEFT
    saves modules and not bare parameters.

    Args:
        num_heads (`int`): Number of heads.
        alpha (`float` or sequence of `num_heads` floats, *optional*, defaults to 2.0):
            Member of the entmax family, in [1, 2]: 1 is softmax, 2 is sparsemax. With `learn_alpha` this is the
            initial value, moved into [1.001, 1.999]: the ends would need an infinite logit and never move again.
        beta (`float` or sequence of `num_heads` floats, *optional*, defaults to 1.0):
            Multiplier on the scaling of the scores, positive. With `learn_beta` this is the initial value.
        learn_alpha (`bool`, *optional*, defaults to `False`): Learn alpha, per head.
        learn_beta (`bool`, *optional*, defaults to `False`): Learn beta, per head.

    Example:

    ```python
    >>> from hf_sparse_hopfield.layers import RetrievalParameters
    >>> parameters = RetrievalParameters(num_heads=4, alpha=1.5, beta=2.0, learn_beta=True)
    >>> beta, alpha = parameters()
    >>> beta.shape, alpha
    (torch.Size([4]), 1.5)

    ```
    """

    def __init__(
        self,
        num_heads: int,
        alpha: float | Sequence[float] = 2.0,
        beta: float | Sequence[float] = 1.0,
        learn_alpha: bool = False,
        learn_beta: bool = False,
    ) -> None:
        super().__init__()
        if isinstance(num_heads, bool) or not isinstance(num_heads, int) or num_heads < 1:
            raise ValueError(f"num_heads must be a positive integer, got {num_heads!r}.")
        self.num_heads = num_heads
        self.initial_alpha = per_head_values("alpha", alpha, num_heads)
        self.initial_beta = per_head_values("beta", beta, num_heads)
        check_each(check_alpha, self.initial_alpha)
        check_each(check_beta, self.initial_beta)
        self.learn_alpha = bool(learn_alpha)
        self.learn_beta = bool(learn_beta)
        self.register_parameter("log_beta", nn.Parameter(torch.empty(num_heads)) if learn_beta else None)
        self.register_parameter("alpha_logit", nn.Parameter(torch.empty(num_heads)) if learn_alpha else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set what is learned back to its initial value."""
        with torch.no_grad():
            if self.log_beta is not None:
                self.log_beta.copy_(self._head_tensor(self.initial_beta, self.log_beta.device, torch.float64).log())
            if self.alpha_logit is not None:
                alpha = self._head_tensor(self.initial_alpha, self.alpha_logit.device, torch.float64)
                alpha = alpha.clamp(1.0 + LEARNED_ALPHA_MARGIN, 2.0 - LEARNED_ALPHA_MARGIN)
                self.alpha_logit.copy_(torch.logit(alpha - 1.0))

    def _head_tensor(
        self, value: float | tuple[float, ...], device: torch.device | None, dtype: torch.dtype
    ) -> torch.Tensor:
        values = value if isinstance(value, tuple) else (value,) * self.num_heads
        return torch.tensor(values, dtype=dtype, device=device)

    def forward(
        self, device: torch.device | None = None, dtype: torch.dtype = torch.float32
    ) -> tuple[float | torch.Tensor, float | torch.Tensor]:
        """
        The current values.

        Args:
            device (`torch.device`, *optional*): Where to put fixed per-head values, plain numbers until then.
            dtype (`torch.dtype`, *optional*, defaults to `torch.float32`): Dtype of fixed per-head values.

        Returns:
            `tuple`: beta and alpha, each a `float` (fixed, one for all heads) or a tensor of shape `(num_heads,)`.
            Learned ones are in float32 or better, whatever the dtype of the module.
        """
        if self.log_beta is not None:
            beta = _at_least_float32(self.log_beta).clamp(-LEARNED_LOG_BETA_LIMIT, LEARNED_LOG_BETA_LIMIT).exp()
        elif isinstance(self.initial_beta, tuple):
            beta = self._head_tensor(self.initial_beta, device, dtype)
        else:
            beta = self.initial_beta
        if self.alpha_logit is not None:
            alpha = 1.0 + torch.sigmoid(_at_least_float32(self.alpha_logit))
        elif isinstance(self.initial_alpha, tuple):
            alpha = self._head_tensor(self.initial_alpha, device, dtype)
        else:
            alpha = self.initial_alpha
        return beta, alpha

    @property
    def beta(self) -> float | torch.Tensor:
        """The current beta: a `float`, or a tensor of shape `(num_heads,)`."""
        return self()[0]

    @property
    def alpha(self) -> float | torch.Tensor:
        """The current alpha: a `float`, or a tensor of shape `(num_heads,)`."""
        return self()[1]

    def extra_repr(self) -> str:
        alpha = "learned" if self.learn_alpha else self.initial_alpha
        beta = "learned" if self.learn_beta else self.initial_beta
        return f"num_heads={self.num_heads}, alpha={alpha}, beta={beta}"


def _at_least_float32(tensor: torch.Tensor) -> torch.Tensor:
    # exp and sigmoid in half precision would make beta and alpha jump between few values.
    return tensor if tensor.dtype == torch.float64 else tensor.float()
