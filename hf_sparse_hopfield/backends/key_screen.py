# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
r"""[`KeyScreen`]: an int8 copy of keys with bounds, which proves for most keys that their weight is zero.

**The copy.** Key k is kept as `s * code`: a scale `s`, in bfloat16, and codes from -127 to 127. `s` is the largest magnitude of the key
divided by 127 and rounded up, so that no code is clipped. For each group of 256 keys three numbers are kept: the largest
`residual = ‖k / s - code‖`, the largest `norm = ‖code‖` and the largest `s`.

**The bound.** A query q, with the scaling and beta of its row in it, is rounded to `unit * entry` with integers `entry`. With
`k = s (code + rho)` and `q = unit * entry + rest`,

    q · k = s (unit * entry · code + rest · code + q · rho)

and by Cauchy and Schwarz the score is within `s (‖rest‖ norm + ‖q‖ residual)` of `s * unit * (entry · code)`, which integers
compute exactly. Each key is copied by itself: nothing changes for it when others come or go.

**In floating point.** `entry · code` is exact: 32 bits hold it (entries of 16 bits are limited by `head_dim` for that). Everything
else is rounded a few times by at most 2^-24, relative to `‖q‖ s norm`: scaling the query, `unit * entry`, the conversion of the
sum to float32 and its product with `s`; the float32 score that candidates get is rounded `head_dim / 8 + 16` times at most. So
`6e-8 (16 + head_dim / 8) ‖q‖` is added to `‖rest‖`. Norms and residuals are rounded up by 1e-5, and the residual has `2e-5 sqrt(head_dim)`
added for the rounding of `k / s`. Numbers below 2^-100 round to code 0 with a scale of 2^-100. A key with a number above 1e30, infinity
or NaN has no bounds: it gets codes of zero, a scale of 1e35 as a mark, and its group a largest `s` of infinity.

`functional/screening.py` proves what follows from bounds. [`candidates`] is the definition; the compiled core does the same
in passes over the keys (`native/source/screen.hpp`).
"""

import math
from typing import Any

import torch
from torch import Tensor

from ..functional.screening import may_have_weight
from .masks import visible
from .native import library
from .problem import RetrievalProblem
from .triton import INSTALLED as TRITON_INSTALLED


TILE_KEYS = 16  # keys that lie interleaved, four entries at a time: (..., tiles, entries / 4, 16, 4)
GROUP_KEYS = 256  # keys that share their bounds
_WILD = 1e30
_WILD_SCALE = 1e35
_LEAST_SCALE = 2.0**-100
_NATIVE = (torch.float32, torch.bfloat16, torch.float16)


class KeyScreen:
    """
    An int8 copy of keys with bounds. [`retrieve`] takes it as `screen`: it reads the copy, which is a quarter of float32 keys,
    and then only the few keys that the bounds cannot exclude. The result is exact.

    The keys themselves are not kept. Pass the same keys to `retrieve`; if they are others, it raises an error as soon as a
    score is outside of its bounds.

    Args:
        key (`torch.Tensor` of shape `(batch, kv_heads, keys, head_dim)`): The keys.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield import KeyScreen, retrieve

    >>> query, key, value = torch.randn(1, 8, 1, 64), torch.randn(1, 2, 1000, 64), torch.randn(1, 2, 1000, 64)
    >>> screen = KeyScreen(key[:, :, :600])
    >>> screen.append(key[:, :, 600:])
    >>> len(screen), screen.nbytes < key.nbytes / 3
    (1000, True)
    >>> torch.allclose(retrieve(query, key, value, screen=screen), retrieve(query, key, value, screen=False), atol=1e-5)
    True
    ```
    """

    def __init__(self, key: Tensor) -> None:
        _check_keys(key)
        batch, heads, _, width = key.shape
        self.head_dim = width
        self.first = 0  # place of the first key: those before it were dropped
        self._last = 0
        self._layout: tuple[int, ...] = ()
        self.codes = key.new_empty((batch, heads, 0, -(-width // 4), TILE_KEYS, 4), dtype=torch.uint8)
        self.scales = key.new_empty((batch, heads, 0), dtype=torch.bfloat16)
        self.bounds = key.new_empty((batch, heads, 0, 3), dtype=torch.float32)
        self._reserve(key.shape[2])
        self.append(key)

    def __len__(self) -> int:
        return self._last - self.first

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_layout": ()}  # a copy has addresses of its own

    def __repr__(self) -> str:
        return f"KeyScreen(shape={tuple(self.shape)}, nbytes={self.nbytes})"

    @property
    def shape(self) -> torch.Size:
        """Shape of the keys, `(batch, kv_heads, keys, head_dim)`."""
        return torch.Size((*self.scales.shape[:2], len(self), self.head_dim))

    @property
    def device(self) -> torch.device:
        """Where the copy is."""
        return self.codes.device

    @property
    def nbytes(self) -> int:
        """Memory of the copy in bytes, including room for keys to come."""
        return self.codes.nbytes + self.scales.nbytes + self.bounds.nbytes

    def fits(self, key: Tensor) -> bool:
        """Whether keys have the shape and the device of those in the copy."""
        batch, heads, count, width = key.shape
        own_batch, own_heads, _ = self.scales.shape
        same = (
            count == self._last - self.first and heads == own_heads and width == self.head_dim and batch == own_batch
        )
        return same and key.device == self.scales.device

    @property
    def layout(self) -> tuple[int, ...]:
        """Addresses and strides of the copy, for the compiled core."""
        if not self._layout:
            self._layout = library.screen_layout(self.codes, self.scales, self.bounds)
        return self._layout

    def append(self, key: Tensor) -> None:
        """
        Add keys behind those that are there.

        Args:
            key (`torch.Tensor` of shape `(batch, kv_heads, keys, head_dim)`): The new keys.
        """
        _check_keys(key)
        expected = (*self.scales.shape[:2], self.head_dim)
        if (*key.shape[:2], key.shape[3]) != expected or key.device != self.device:
            raise ValueError(
                f"key of shape {tuple(key.shape)} on {key.device} does not continue keys of batch, heads and head_dim "
                f"{expected} on {self.device}."
            )
        self.extend(key.detach())

    def extend(self, key: Tensor) -> None:
        """[`~KeyScreen.append`] without its checks, for a cache that appends to its own keys at every token."""
        count = key.shape[2]
        needed = self._last + count
        if needed > self.scales.shape[2]:
            self._reserve(max(needed, self.scales.shape[2] * 3 // 2))
        if key.numel():
            if library.missing is None and key.device.type == "cpu" and key.dtype in _NATIVE:
                key = key if key.stride(3) == 1 else key.contiguous()
                library.call_screen(key, self.layout, self._last)
            elif key.device.type == "cuda" and TRITON_INSTALLED and key.dtype in _NATIVE:
                torch.ops.hf_sparse_hopfield.triton_append_keys(key, self.codes, self.scales, self.bounds, self._last)
            else:
                self._copy(key)
        self._last = needed

    def crop(self, length: int) -> None:
        """
        Forget keys at the end.

        Args:
            length (`int`): Number of keys to keep.
        """
        if not 0 <= length <= len(self):
            raise ValueError(f"length must be between 0 and the {len(self)} keys there are, got {length}.")
        self._last = self.first + length

    def drop_first(self, count: int) -> None:
        """
        Forget keys at the beginning, as a sliding window does. Their memory stays in use until the screen is made anew.

        Args:
            count (`int`): Number of keys to forget.
        """
        if not 0 <= count <= len(self):
            raise ValueError(f"count must be between 0 and the {len(self)} keys there are, got {count}.")
        self.first += count

    def select(self, indices: Tensor) -> "KeyScreen":
        """
        The screen of some entries of the batch, as beam search needs it.

        Args:
            indices (`torch.LongTensor` of shape `(entries,)`): The entries of the batch, in their new order.

        Returns:
            [`KeyScreen`]: A new screen; this one does not change.
        """
        indices = indices.to(self.device)
        selected = object.__new__(KeyScreen)
        selected.head_dim, selected.first, selected._last, selected._layout = self.head_dim, self.first, self._last, ()
        for name in ("codes", "scales", "bounds"):
            setattr(selected, name, getattr(self, name).index_select(0, indices))
        return selected

    def to(self, device: torch.device | str) -> "KeyScreen":
        """
        The screen on another device; this one if it is there already.

        Args:
            device (`torch.device` or `str`): The device.
        """
        if torch.device(device) == self.device:
            return self
        moved = object.__new__(KeyScreen)
        moved.head_dim, moved.first, moved._last, moved._layout = self.head_dim, self.first, self._last, ()
        for name in ("codes", "scales", "bounds"):
            setattr(moved, name, getattr(self, name).to(device, non_blocking=True))
        return moved

    @classmethod
    def from_tensors(cls, codes: Tensor, scales: Tensor, bounds: Tensor, head_dim: int, keys: int) -> "KeyScreen":
        """
        A screen of which the tensors are there already, such as those of a file.

        Args:
            codes, scales, bounds (`torch.Tensor`): As a screen has them. They are not copied.
            head_dim, keys (`int`): Width and number of the keys.
        """
        batch, heads, room = scales.shape
        groups = -(-room // GROUP_KEYS)
        expected = {
            "codes": (codes, torch.uint8, (batch, heads, room // TILE_KEYS, -(-head_dim // 4), TILE_KEYS, 4)),
            "scales": (scales, torch.bfloat16, (batch, heads, groups * GROUP_KEYS)),
            "bounds": (bounds, torch.float32, (batch, heads, groups, 3)),
        }
        for name, (tensor, dtype, shape) in expected.items():
            if tensor.dtype != dtype or tensor.shape != shape or not tensor.is_contiguous():
                raise ValueError(
                    f"{name} must be contiguous, {dtype} and of shape {shape}, got {tuple(tensor.shape)}."
                )
        if not 0 <= keys <= room:
            raise ValueError(f"keys must be between 0 and {room}, the room of scales, got {keys}.")
        screen = object.__new__(cls)
        screen.head_dim, screen.first, screen._last, screen._layout = head_dim, 0, keys, ()
        screen.codes, screen.scales, screen.bounds = codes, scales, bounds
        return screen

    def trimmed(self) -> "KeyScreen":
        """The same screen without room for keys to come. It shares the memory of this one; do not append to either."""
        groups = -(-self._last // GROUP_KEYS)
        trimmed = object.__new__(KeyScreen)
        vars(trimmed).update(self.__getstate__())
        trimmed.codes = self.codes[:, :, : groups * GROUP_KEYS // TILE_KEYS]
        trimmed.scales, trimmed.bounds = self.scales[:, :, : groups * GROUP_KEYS], self.bounds[:, :, :groups]
        return trimmed

    def part(self, first: int, last: int) -> "KeyScreen":
        """
        The screen of some of the keys, one after the other. It shares the memory of this one; do not append to either.

        Args:
            first, last (`int`): The first of the keys, and the first one behind them.
        """
        part = object.__new__(KeyScreen)
        vars(part).update(vars(self))
        part.drop_first(first)
        part.crop(last - first)
        return part

    def _reserve(self, keys: int) -> None:
        """Make room for so many keys, in whole groups."""
        groups = -(-keys // GROUP_KEYS)
        rooms = {"codes": groups * GROUP_KEYS // TILE_KEYS, "scales": groups * GROUP_KEYS, "bounds": groups}
        for name, room in rooms.items():
            old = getattr(self, name)
            new = old.new_empty((*old.shape[:2], room, *old.shape[3:]))
            new[:, :, : old.shape[2]] = old
            setattr(self, name, new)
        self._layout = ()

    def _copy(self, key: Tensor) -> None:
        """What the compiled core does in `quantize.hpp`, on any device."""
        precise = key.to(torch.promote_types(key.dtype, torch.float32))
        largest = precise.abs().amax(-1)
        wild = ~(largest < _WILD)
        scale = _rounded_up((largest / 127).clamp_min(_LEAST_SCALE).float()).masked_fill(wild, _WILD_SCALE)
        scale = scale.to(torch.bfloat16)
        quotient = (precise / scale.to(precise)[..., None]).masked_fill(wild[..., None], 0)
        rounded = quotient.round()
        residual = (quotient - rounded).norm(dim=-1) * 1.00001 + 2e-5 * math.sqrt(self.head_dim)
        norm = rounded.norm(dim=-1) * 1.00001
        padded = torch.nn.functional.pad(rounded + 128, (0, -self.head_dim % 4), value=128).to(torch.uint8)
        place = torch.arange(self._last, self._last + key.shape[2], device=key.device)
        rows = padded.unflatten(-1, (-1, 4)).permute(2, 0, 1, 3, 4)
        self.codes[:, :, place // TILE_KEYS, :, place % TILE_KEYS] = rows
        self.scales[:, :, place] = scale
        begun = place[place % GROUP_KEYS == 0] // GROUP_KEYS
        self.bounds[:, :, begun] = 0
        group = (place // GROUP_KEYS).expand(scale.shape)
        for number, values in enumerate((residual, norm, scale.float().masked_fill(wild, torch.inf))):
            self.bounds[..., number].scatter_reduce_(2, group, values.float(), "amax")

    def score_bounds(self, query: Tensor, query_bits: int = 8) -> tuple[Tensor, Tensor]:
        """
        Bounds of `query @ key.T`.

        Args:
            query (`torch.Tensor` of shape `(batch, heads, queries, head_dim)`): Queries, with all factors of the scores.
            query_bits (`int`, *optional*, defaults to 8): Precision that queries are rounded to, 8 or 16.

        Returns:
            `tuple[torch.Tensor, torch.Tensor]` of shape `(batch, heads, queries, keys)`: Lower and upper bounds, in float64.
        """
        heads, width = query.shape[1], self.head_dim
        groups = heads // self.scales.shape[1]
        code, scale, residual, norm = (t.repeat_interleave(groups, 1) for t in self._keys())
        query = query.double()
        most = 127 if query_bits == 8 else min(16383, (2**31 - 1) // (256 * (-(-width // 4) * 4)))
        unit = (query.abs().amax(-1, keepdim=True) / most).clamp_min(torch.finfo(torch.float64).tiny)
        entry = (query / unit).round()
        length = query.norm(dim=-1, keepdim=True)
        rest = (query - unit * entry).norm(dim=-1, keepdim=True) + 6e-8 * (16 + width / 8) * length
        score = unit * (entry @ code.mT) * scale.unsqueeze(-2)
        error = (rest * norm.unsqueeze(-2) + length * residual.unsqueeze(-2)) * scale.unsqueeze(-2)
        error = error.masked_fill(scale.unsqueeze(-2) > _WILD, torch.inf)
        return score - error, score + error

    def _keys(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Codes, scale, residual and norm of each key, in float64."""
        code = self.codes.permute(0, 1, 2, 4, 3, 5).flatten(4).flatten(2, 3)[..., : self.head_dim].double() - 128
        residual, norm, _ = self.bounds.double().repeat_interleave(GROUP_KEYS, 2).unbind(-1)
        here = slice(self.first, self._last)
        return code[:, :, here], self.scales[:, :, here].double(), residual[:, :, here], norm[:, :, here]


def can_screen(device: torch.device) -> bool:
    """
    Whether a backend reads the copy on a device: the compiled core on the CPU, Triton on CUDA.

    Args:
        device (`torch.device`): The device of the keys.
    """
    return library.missing is None if device.type == "cpu" else device.type == "cuda" and TRITON_INSTALLED


def candidates(problem: RetrievalProblem, screen: KeyScreen, query_bits: int = 8) -> Tensor:
    """
    The keys that may have weight in one step, by definition of the screen.

    Args:
        problem ([`RetrievalProblem`]): The problem, in canonical form.
        screen ([`KeyScreen`]): The screen of its keys.
        query_bits (`int`, *optional*, defaults to 8): As for [`KeyScreen.score_bounds`].

    Returns:
        `torch.BoolTensor` of shape `(batch, heads, queries, keys)`.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield import KeyScreen
    >>> from hf_sparse_hopfield.backends import RetrievalProblem
    >>> from hf_sparse_hopfield.backends.key_screen import candidates

    >>> query, key = torch.randn(1, 1, 4, 64), torch.randn(1, 1, 5000, 64)
    >>> problem = RetrievalProblem(query, key, key, scaling=1.0, mask=torch.ones(1, 1, 1, 5000, dtype=torch.bool))
    >>> candidates(problem, KeyScreen(key)).float().mean() < 0.01
    tensor(True)
    ```
    """
    factor = problem.scaling
    beta = problem.beta.double() if isinstance(problem.beta, Tensor) else problem.beta
    if problem.softcap is None:
        bounds = screen.score_bounds(problem.query.double() * factor * beta, query_bits)
    else:
        cap = problem.softcap
        raw = screen.score_bounds(problem.query.double() * factor, query_bits)
        bounds = tuple(beta * cap * torch.tanh(bound / cap) for bound in raw)  # type: ignore[assignment]
    allowed = visible(problem)

    def finished(bound: Tensor) -> Tensor:
        bound = bound if problem.bias is None else bound + problem.bias.double()
        bound = bound if allowed is None else bound.masked_fill(~allowed, -torch.inf)
        if problem.sinks is None:
            return bound
        sink = problem.sinks.double()[:, None, None].expand(*bound.shape[:-1], 1)
        return torch.cat([bound, sink], -1)

    lower, upper = map(finished, bounds)
    return may_have_weight(lower, upper, problem.alpha)[..., : len(screen)]


def _check_keys(key: Tensor) -> None:
    if not isinstance(key, Tensor) or not key.is_floating_point():
        raise TypeError(f"key must be a floating point tensor, got {getattr(key, 'dtype', type(key).__name__)}.")
    if key.ndim != 4 or key.shape[3] == 0:
        raise ValueError(
            f"key must have the four dimensions (batch, kv_heads, keys, head_dim) with head_dim > 0, got shape "
            f"{tuple(key.shape)}."
        )


def _rounded_up(numbers: Tensor) -> Tensor:
    """Positive float32 numbers, rounded up to bfloat16."""
    bits = numbers.view(torch.int32)
    return ((bits + 0xFFFF) & ~0xFFFF).view(torch.float32)
