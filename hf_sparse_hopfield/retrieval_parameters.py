# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""[`RetrievalParameters`], the one owner of the alpha, beta and length_power that a layer retrieves with."""

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import nn

from .backends.dispatcher_bypass import can_bypass_dispatcher
from .checks import check_integer, is_number
from .configuration import HEAD_FIELDS
from .functional.checks import LARGEST_LENGTH_POWER, as_valid, check_alpha, check_beta, check_length_power


Numbers = float | tuple[float, ...]  # one for all heads, or one per head

# A learned alpha is 1 + sigmoid(logit). The ends of [1, 2] need an infinite logit and have no gradient, so a learned alpha
# starts at least this far inside: close enough to softmax or sparsemax, far enough for a usable gradient (0.001).
LEARNED_ALPHA_MARGIN = 1e-3

# Keeps exp(log_beta) finite and positive. Beyond this limit, retrieval no longer changes with beta.
LEARNED_LOG_BETA_LIMIT = 20.0

# The parameter that learns a setting, and the check of its values.
_LEARNED_AS = {"alpha": "alpha_logit", "beta": "log_beta", "length_power": "learned_length_power"}
_CHECKS: dict[str, Callable[[float], None]] = {
    "alpha": check_alpha,
    "beta": check_beta,
    "length_power": check_length_power,
}
_PRECISE = (torch.float32, torch.float64)


def per_head_values(name: str, value: float | Sequence[float] | torch.Tensor, num_heads: int) -> Numbers:
    """
    Read a setting that is one number, or one number per head.

    Args:
        name (`str`): Name of the argument, for errors.
        value (`float`, sequence of `float`, or `torch.Tensor` of shape `()` or `(num_heads,)`): The value.
        num_heads (`int`): Number of heads.

    Returns:
        `float` or `tuple[float, ...]`: One number, or `num_heads` numbers. All of them are finite.
    """
    if isinstance(value, torch.Tensor):
        if value.requires_grad:
            raise ValueError(
                f"{name} is a tensor that requires grad, but it would be copied and never trained; pass {name} as "
                "plain numbers and use learn_alpha=True or learn_beta=True to train it."
            )
        value = value.tolist()
    several = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    numbers: list = list(value) if several else [value]  # type: ignore[arg-type]
    if not all(map(is_number, numbers)):
        raise TypeError(f"{name} must be a number or {num_heads} numbers (one per head), got {value!r}.")
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"{name} must be finite, got {value!r}.")
    if not several:
        return float(numbers[0])
    if len(numbers) != num_heads:
        raise ValueError(
            f"{name} has {len(numbers)} values, but num_heads={num_heads}; give one number or one per head."
        )
    return tuple(float(number) for number in numbers)


def check_each(check: Callable[[float], None], value: Numbers) -> None:
    """Apply a check to a number, or to each of several."""
    for number in value if isinstance(value, tuple) else (value,):
        check(number)


class RetrievalParameters(nn.Module):
    """
    The alpha, beta and length_power of a layer. Everything that reads alpha and beta calls this module, everything that changes
    them calls [`~RetrievalParameters.set`].

    - Fixed, one for all heads: a plain number.
    - Fixed, one per head: a buffer that moves with the module, in float32 or better, and is not in the state dict.
    - Learned: a parameter with one entry per head, valid whatever the optimizer does: beta = exp(log_beta) > 0 and
      alpha = 1 + sigmoid(alpha_logit) in [1, 2]; length_power is kept in [-4, 4].

    This is a module of its own because PEFT saves modules, not bare parameters.

    Args:
        num_heads (`int`): Number of heads.
        alpha (`float` or sequence of `num_heads` floats, *optional*, defaults to 2.0):
            Member of the entmax family, in [1, 2]: 1 is softmax, 2 is sparsemax. With `learn_alpha` this is the
            initial value, moved into [1.001, 1.999]: at the ends, the gradient vanishes.
        beta (`float` or sequence of `num_heads` floats, *optional*, defaults to 1.0):
            Multiplier on the scaling of the scores, positive. With `learn_beta` this is the initial value.
        learn_alpha (`bool`, *optional*, defaults to `False`): Learn alpha, per head.
        learn_beta (`bool`, *optional*, defaults to `False`): Learn beta, per head.
        length_power (`float` or sequence of `num_heads` floats, *optional*, defaults to 0.0):
            Power of the number of visible keys in beta, as for [`retrieve`]. With `learn_length_power` this is the initial value.
        learn_length_power (`bool`, *optional*, defaults to `False`): Learn length_power, per head.

    Example:

    ```python
    >>> from hf_sparse_hopfield.layers import RetrievalParameters

    >>> parameters = RetrievalParameters(num_heads=4, alpha=1.5, beta=2.0, learn_beta=True)
    >>> beta, alpha = parameters()
    >>> beta.shape, alpha
    (torch.Size([4]), 1.5)
    >>> parameters.set(alpha=1.25)
    >>> parameters.alpha
    1.25

    ```
    """

    log_beta: nn.Parameter | None
    alpha_logit: nn.Parameter | None
    learned_length_power: nn.Parameter | None

    def __init__(
        self,
        num_heads: int,
        alpha: float | Sequence[float] = 2.0,
        beta: float | Sequence[float] = 1.0,
        learn_alpha: bool = False,
        learn_beta: bool = False,
        length_power: float | Sequence[float] = 0.0,
        learn_length_power: bool = False,
    ) -> None:
        super().__init__()
        check_integer("num_heads", num_heads)
        self.num_heads = num_heads
        self.learn_alpha = bool(learn_alpha)
        self.learn_beta = bool(learn_beta)
        self.learn_length_power = bool(learn_length_power)
        for name in ("beta", "alpha", "length_power"):
            learns = getattr(self, f"learn_{name}")
            self.register_parameter(_LEARNED_AS[name], nn.Parameter(torch.empty(num_heads)) if learns else None)
        self._configured: dict[str, Numbers] = {}
        self._copies: dict[str, torch.Tensor] = {}  # of buffers, in a precision that these do not have
        self._set({"alpha": alpha, "beta": beta, "length_power": length_power}, (), None)

    def set(
        self,
        alpha: float | Sequence[float] | torch.Tensor | None = None,
        beta: float | Sequence[float] | torch.Tensor | None = None,
        length_power: float | Sequence[float] | torch.Tensor | None = None,
        *,
        as_tensors: Sequence[str] = (),
        device: torch.device | None = None,
    ) -> None:
        """
        Change alpha, beta and length_power, or some of them. What is learned continues from the new value.

        Args:
            alpha (`float` or sequence of `num_heads` floats, *optional*): The new alpha; `None` keeps the present one.
            beta (`float` or sequence of `num_heads` floats, *optional*): The new beta; `None` keeps the present one.
            length_power (`float` or sequence of `num_heads` floats, *optional*):
                The new length_power; `None` keeps the present one.
            as_tensors (`Sequence[str]`, *optional*):
                Which of `"alpha"`, `"beta"` and `"length_power"` to hold as a tensor even if one number does for all heads. A compiled
                model compiles again for a new number, but not for a new value in a tensor.
            device (`torch.device`, *optional*): Where to create such a tensor.
        """
        values = {"alpha": alpha, "beta": beta, "length_power": length_power}
        self._set({name: value for name, value in values.items() if value is not None}, as_tensors, device)

    def _set(self, values: dict, as_tensors: Sequence[str], device: torch.device | None) -> None:
        checked = {name: per_head_values(name, value, self.num_heads) for name, value in values.items()}
        for name, numbers in checked.items():
            check_each(_CHECKS[name], numbers)
        self._configured |= checked
        for name in checked:
            self._copies.pop(name, None)
            if name in as_tensors or isinstance(checked[name], tuple):
                self._write_buffer(name, device)
            elif self._buffer(name) is not None:
                delattr(self, f"fixed_{name}")
            self._write_learned(name)

    def configured(self, name: str) -> Numbers:
        """
        The value that was set last: the present one if it is fixed, the initial one if it is learned.

        Args:
            name (`str`): `"alpha"`, `"beta"` or `"length_power"`.
        """
        return self._configured[name]

    def reset_parameters(self, keep: Collection[str] = ()) -> None:
        """
        Set what is learned back to its initial value, and rewrite what is fixed.

        Args:
            keep (`Collection[str]`, *optional*): Learned parameters to keep, such as those a checkpoint has.
        """
        for name, learned in _LEARNED_AS.items():
            if learned not in keep:
                self._write_learned(name)
            if self._buffer(name) is not None:
                self._write_buffer(name)

    def _write_learned(self, name: str) -> None:
        parameter = getattr(self, _LEARNED_AS[name])
        if parameter is None:
            return
        value = self._head_tensor(name, parameter.device, torch.float64)
        if name == "alpha":
            value = torch.logit(value.clamp(1.0 + LEARNED_ALPHA_MARGIN, 2.0 - LEARNED_ALPHA_MARGIN) - 1.0)
        with torch.no_grad():
            parameter.copy_(_sharded_like(parameter, value.log() if name == "beta" else value))

    def _write_buffer(self, name: str, device: torch.device | None = None) -> None:
        if getattr(self, f"learn_{name}"):
            return
        old = self._buffer(name)
        if old is not None and old.dtype in _PRECISE and not old.is_inference():
            # in place: a compiled model keeps the tensor
            old.copy_(self._head_tensor(name, old.device, old.dtype))
        else:
            device = device if old is None else old.device
            tensor = self._head_tensor(name, device, torch.float32)
            self.register_buffer(f"fixed_{name}", tensor, persistent=False)

    def _buffer(self, name: str) -> torch.Tensor | None:
        return self._buffers.get(f"fixed_{name}")

    def _head_tensor(self, name: str, device: torch.device | None, dtype: torch.dtype) -> torch.Tensor:
        value = self._configured[name]
        values = value if isinstance(value, tuple) else (value,) * self.num_heads
        return torch.tensor(values, dtype=dtype, device=device)

    def _apply(self, fn: Callable, recurse: bool = True) -> "RetrievalParameters":
        before = {name: self._buffer(name) for name in HEAD_FIELDS}
        super()._apply(fn, recurse)
        for name, old in before.items():
            # `.half()` rounds, and `.to_empty()` leaves garbage: write the numbers again
            if self._buffer(name) is not old:
                self._write_buffer(name)
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], *args: Any) -> None:
        super()._load_from_state_dict(state_dict, *args)
        for name in HEAD_FIELDS:
            buffer, loaded = self._buffer(name), next(iter(state_dict.values()), None)
            # built on the meta device: loading with `assign=True` replaces saved tensors only
            if buffer is not None and buffer.is_meta and isinstance(loaded, torch.Tensor):
                tensor = self._head_tensor(name, loaded.device, buffer.dtype)
                self.register_buffer(f"fixed_{name}", tensor, persistent=False)

    def forward(self, dtype: torch.dtype = torch.float32) -> tuple[float | torch.Tensor, float | torch.Tensor]:
        """
        The present values.

        Args:
            dtype (`torch.dtype`, *optional*, defaults to `torch.float32`):
                `torch.float64` for fixed per-head values in double precision.

        Returns:
            `tuple`: beta and alpha, each a `float` (fixed, one for all heads) or a tensor of shape `(num_heads,)` in
            float32 or better, whatever the dtype of the module.
        """
        if self.log_beta is not None:
            # exp and sigmoid in half precision would make beta and alpha jump between few values
            log_beta = _at_least_float32(self.log_beta)
            beta: float | torch.Tensor = log_beta.clamp(-LEARNED_LOG_BETA_LIMIT, LEARNED_LOG_BETA_LIMIT).exp()
        else:
            beta = self._fixed("beta", dtype)
        if self.alpha_logit is not None:
            return beta, 1.0 + torch.sigmoid(_at_least_float32(self.alpha_logit))
        return beta, self._fixed("alpha", dtype)

    def _fixed(self, name: str, dtype: torch.dtype) -> float | torch.Tensor:
        buffer = self._buffer(name)
        if buffer is None:
            return self._configured[name]  # type: ignore[return-value]  # a tuple always has a buffer
        if dtype == torch.float64 != buffer.dtype or buffer.dtype not in _PRECISE:  # FSDP may round buffers
            return self._copy(name, buffer, torch.promote_types(dtype, torch.float32))
        # DistributedDataParallel copies rank 0's buffers in place before each forward. `.data` hides that from autograd,
        # which would otherwise refuse the backward pass of an earlier forward. A traced graph has no such copies.
        return buffer if torch.compiler.is_compiling() else as_valid(buffer.data)

    def _copy(self, name: str, buffer: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The numbers in another precision than the buffer's, made once: numbers that go to a GPU in every call delay it."""
        if not can_bypass_dispatcher(buffer):  # what is made while something records belongs to the record
            return self._head_tensor(name, buffer.device, dtype)
        copy = self._copies.get(name)
        outdated = copy is None or (copy.device, copy.dtype) != (buffer.device, dtype)
        if outdated or (copy.is_inference() and not torch.is_inference_mode_enabled()):  # type: ignore[union-attr]
            copy = self._copies[name] = as_valid(self._head_tensor(name, buffer.device, dtype))
        return copy  # type: ignore[return-value]

    @property
    def beta(self) -> float | torch.Tensor:
        """The present beta: a `float`, or a tensor of shape `(num_heads,)`."""
        return self()[0]

    @property
    def alpha(self) -> float | torch.Tensor:
        """The present alpha: a `float`, or a tensor of shape `(num_heads,)`."""
        return self()[1]

    @property
    def length_power(self) -> float | torch.Tensor:
        """The present length_power: a `float`, or a tensor of shape `(num_heads,)`."""
        if self.learned_length_power is None:
            return self._fixed("length_power", torch.float32)
        power = _at_least_float32(self.learned_length_power)
        return power.clamp(-LARGEST_LENGTH_POWER, LARGEST_LENGTH_POWER)

    def extra_repr(self) -> str:
        alpha = "learned" if self.learn_alpha else self.configured("alpha")
        beta = "learned" if self.learn_beta else self.configured("beta")
        power = "learned" if self.learn_length_power else self.configured("length_power")
        length = "" if power == 0.0 else f", length_power={power}"
        return f"num_heads={self.num_heads}, alpha={alpha}, beta={beta}{length}"


def _at_least_float32(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def _sharded_like(parameter: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A value that every process has, in the shards of a parameter if it has any (FSDP2)."""
    mesh = getattr(parameter, "device_mesh", None)
    if mesh is None:
        return value
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value, mesh, parameter.placements, src_data_rank=None)  # type: ignore[attr-defined]
