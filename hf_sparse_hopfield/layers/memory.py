# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Associative memories that need no training: `HopfieldMemory`, and `PolynomialMemory` to compare it with."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialize
from torch import nn

from ..checks import check_flag, check_integer, is_integer
from ..files import new_file
from ..functional.checks import check_alpha, check_beta
from ..functional.energy import energy
from ..retrieval import retrieve
from ..retrieval_parameters import per_head_values
from .association import check_backend


FILE_FORMAT = "hf_sparse_hopfield.HopfieldMemory"
FILE_VERSION = "1"


@dataclass
class MemoryTrace:
    """
    A retrieval from [`HopfieldMemory`] with its intermediate states. `...` are the leading dimensions of the queries.

    Args:
        output (`torch.Tensor` of shape `(..., d)`): The retrieved patterns.
        weights (`torch.Tensor` of shape `(..., M)`): Weight of each stored pattern in the last step.
        steps_used (`torch.LongTensor` of shape `(...)`): Steps of each query; fewer than `steps` if it stopped by
            tolerance.
        states (`torch.Tensor` of shape `(steps + 1, ..., d)`): The query and the state after each step.
        energies (`torch.Tensor` of shape `(steps + 1, ...)`): Energy of each of the states. It never rises.
    """

    output: torch.Tensor
    weights: torch.Tensor
    steps_used: torch.Tensor
    states: torch.Tensor
    energies: torch.Tensor


class _Patterns(nn.Module):
    """Stored patterns, one per row: the common part of all memories."""

    patterns: torch.Tensor

    def __init__(self, patterns: torch.Tensor, normalize: bool) -> None:
        super().__init__()
        check_flag("normalize", normalize)
        self.normalize = normalize
        self.register_buffer("patterns", self._checked_patterns(patterns))

    def _checked_patterns(self, patterns: torch.Tensor) -> torch.Tensor:
        """A checked copy of patterns, scaled to length 1 if `normalize` is set."""
        if not isinstance(patterns, torch.Tensor) or not patterns.is_floating_point():
            given = patterns.dtype if isinstance(patterns, torch.Tensor) else type(patterns).__name__
            raise TypeError(f"patterns must be a floating point tensor of shape (M, d), got {given}; use .float().")
        if patterns.dim() != 2 or patterns.shape[1] == 0:
            raise ValueError(f"patterns must have shape (M, d) with d > 0, got {tuple(patterns.shape)}.")
        if not torch.isfinite(patterns).all():
            raise ValueError("patterns must be finite: a single NaN or infinity spoils every retrieval.")
        patterns = patterns.detach()
        return self._to_unit_length(patterns) if self.normalize else patterns.clone()

    @staticmethod
    def _to_unit_length(vectors: torch.Tensor) -> torch.Tensor:
        # In float16, squares overflow easily.
        precise = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
        return nn.functional.normalize(precise, dim=-1).to(vectors.dtype)

    def __len__(self) -> int:
        return self.patterns.shape[0]

    @property
    def dimension(self) -> int:
        """Width d of the patterns."""
        return self.patterns.shape[1]

    def add(self, patterns: torch.Tensor) -> range:
        """
        Store more patterns.

        Args:
            patterns (`torch.Tensor` of shape `(n, d)` or `(d,)`): Patterns to store, in any floating point dtype.

        Returns:
            `range`: The indices of the new patterns. Removing patterns shifts the indices of later ones.
        """
        if isinstance(patterns, torch.Tensor) and patterns.dim() == 1:
            patterns = patterns.unsqueeze(0)
        if isinstance(patterns, torch.Tensor) and patterns.is_floating_point():
            patterns = patterns.to(self.patterns)  # before the check: another dtype may make it infinite
        patterns = self._checked_patterns(patterns)
        if patterns.shape[1] != self.dimension:
            raise ValueError(
                f"patterns must have width {self.dimension}, like the stored ones, got {tuple(patterns.shape)}."
            )
        first = len(self)
        self.patterns = torch.cat([self.patterns, patterns])
        return range(first, len(self))

    def remove(self, indices: int | Sequence[int] | torch.Tensor) -> None:
        """
        Forget patterns.

        Args:
            indices (`int`, sequence of `int`, or `torch.Tensor`):
                The patterns to forget; negative indices count from the end. A boolean tensor of shape `(M,)` marks them.
        """
        if isinstance(indices, torch.Tensor) and indices.dtype == torch.bool:
            if indices.shape != (len(self),):
                raise ValueError(f"a boolean indices must have shape {(len(self),)}, got {tuple(indices.shape)}.")
            self.patterns = self.patterns[~indices.to(self.patterns.device)]
            return
        if isinstance(indices, torch.Tensor):
            if indices.is_floating_point() or indices.is_complex():
                raise TypeError(f"indices must be integers or booleans, got a tensor of {indices.dtype}.")
            indices = indices.flatten().tolist()
        keep = torch.ones(len(self), dtype=torch.bool, device=self.patterns.device)
        for index in [indices] if isinstance(indices, int) else list(indices):
            if not is_integer(index):
                raise TypeError(f"indices must be integers or a boolean tensor, got {index!r}.")
            if not -len(self) <= index < len(self):
                raise IndexError(f"indices contains {index}, but the memory holds {len(self)} patterns.")
            keep[index] = False
        self.patterns = self.patterns[keep]

    def _checked_queries(self, queries: torch.Tensor) -> torch.Tensor:
        if not isinstance(queries, torch.Tensor):
            raise TypeError(
                f"queries must be a tensor of shape (..., {self.dimension}), got {type(queries).__name__}."
            )
        if queries.dtype != self.patterns.dtype:
            raise TypeError(
                f"queries have dtype {queries.dtype}, the patterns {self.patterns.dtype}; convert one of them."
            )
        if queries.dim() == 0 or queries.shape[-1] != self.dimension:
            raise ValueError(f"queries must have shape (..., {self.dimension}), got {tuple(queries.shape)}.")
        if len(self) == 0:
            raise ValueError("the memory is empty; store patterns with add() first.")
        return self._to_unit_length(queries) if self.normalize else queries

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        # The number of patterns is data, not architecture: it comes from the state dict.
        patterns = state_dict.get(prefix + "patterns")
        if patterns is not None and patterns.dim() == 2 and patterns.shape[1] == self.dimension:
            self.patterns = self.patterns.new_empty(patterns.shape)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )


class HopfieldMemory(_Patterns):
    """
    An associative memory: it stores patterns and completes queries to stored patterns.

    One step of retrieval from the patterns Xi (one per row) is

        T(x) = entmax(beta * x Xiᵀ) Xi

    where entmax is sparsemax for `alpha=2` and softmax for `alpha=1`. For `alpha > 1`, and `beta` large enough for the
    separation of the patterns, the retrieved pattern equals the stored one exactly, not only approximately.

    Nothing is learned. The patterns are a buffer, so the memory moves with `.to(device)`. The state dict of a model that
    holds a memory includes its patterns, alpha, beta and `normalize`. (Older state dicts have only the patterns; loading
    one keeps the other settings.)

    Args:
        patterns (`torch.Tensor` of shape `(M, d)`): Patterns to store; M may be 0 for a memory to be filled later.
        alpha (`float`, *optional*, defaults to 2.0): Member of the entmax family, in [1, 2].
        beta (`float`, *optional*, defaults to 1.0): Inverse temperature, positive. There is no other scaling.
        normalize (`bool`, *optional*, defaults to `False`):
            Scale stored patterns and queries to length 1, so that scores are cosines.
        backend (`str`, *optional*, defaults to `"auto"`): Backend of [`retrieve`].

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield import HopfieldMemory
    >>> patterns = torch.randn(20, 64, generator=torch.Generator().manual_seed(0)).sign()
    >>> memory = HopfieldMemory(patterns, beta=0.5)
    >>> damaged = patterns[:3].clone()
    >>> damaged[:, 32:] = 0.0
    >>> torch.equal(memory.retrieve(damaged), patterns[:3])
    True
    >>> trace = memory.retrieve(damaged, steps=3, return_trace=True)
    >>> trace.states.shape, trace.energies.shape
    (torch.Size([4, 3, 64]), torch.Size([4, 3]))
    >>> memory.add(-patterns[:2])
    range(20, 22)
    >>> memory.remove(0)
    >>> len(memory)
    21

    ```

    Saving and loading:

    ```python
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "memory.safetensors")
    ...     memory.save(path)
    ...     again = HopfieldMemory.load(path)
    >>> torch.equal(again.patterns, memory.patterns), again.beta
    (True, 0.5)

    ```
    """

    _version = 2  # of its part of a state dict, which includes the settings since version 2

    def __init__(
        self,
        patterns: torch.Tensor,
        alpha: float = 2.0,
        beta: float = 1.0,
        normalize: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__(patterns, normalize)
        self.alpha = _one_number("alpha", alpha)
        self.beta = _one_number("beta", beta)
        check_alpha(self.alpha)
        check_beta(self.beta)
        check_backend(backend)
        self.backend = backend

    def retrieve(
        self, queries: torch.Tensor, steps: int = 1, tolerance: float = 0.0, return_trace: bool = False
    ) -> torch.Tensor | MemoryTrace:
        """
        Complete queries to stored patterns.

        Args:
            queries (`torch.Tensor` of shape `(..., d)`): The initial states, in the dtype of the patterns.
            steps (`int`, *optional*, defaults to 1): Number of times to apply T.
            tolerance (`float`, *optional*, defaults to 0.0):
                A query whose state moves by less than this (Euclidean norm) takes only the last step after that. Each
                query stops on its own, so its result does not depend on the others.
            return_trace (`bool`, *optional*, defaults to `False`): Return a [`MemoryTrace`].

        Returns:
            `torch.Tensor` of shape `(..., d)`, or [`MemoryTrace`].
        """
        queries = self._checked_queries(queries)
        leading = queries.shape[:-1]
        patterns = self.patterns[None, None]
        result: Any = retrieve(  # a tensor or a RetrievalResult, depending on return_trace
            queries.reshape(1, 1, -1, self.dimension),
            patterns,
            patterns,
            scaling=1.0,
            beta=self.beta,
            alpha=self.alpha,
            steps=steps,
            tolerance=tolerance,
            return_trace=return_trace,
            backend=self.backend,
        )
        if not return_trace:
            return result.reshape(*leading, self.dimension)
        output = result.output.reshape(*leading, self.dimension)
        states = result.states.reshape(steps, *leading, self.dimension)
        energies = result.energies.reshape(steps, *leading)
        return MemoryTrace(
            output=output,
            weights=result.weights.reshape(*leading, len(self)),
            steps_used=result.steps_used.reshape(leading),
            states=torch.cat([states, output[None].to(states)]),
            energies=torch.cat([energies, self._energy(output)[None].to(energies)]),
        )

    def forward(self, queries: torch.Tensor, steps: int = 1, tolerance: float = 0.0) -> torch.Tensor:
        """The same as [`~HopfieldMemory.retrieve`], so that a memory can be used as a layer."""
        return self.retrieve(queries, steps, tolerance)  # type: ignore[return-value] # no trace: a tensor

    def energy(self, queries: torch.Tensor) -> torch.Tensor:
        """
        The energy H(x) = −(1/beta) Psi*(beta Xiᵀx) + 1/2 ‖x‖², which retrieval never raises.

        Args:
            queries (`torch.Tensor` of shape `(..., d)`): States, in the dtype of the patterns.

        Returns:
            `torch.Tensor` of shape `(...)`, in float32 or better.
        """
        return self._energy(self._checked_queries(queries))

    def _energy(self, states: torch.Tensor) -> torch.Tensor:
        dtype = torch.promote_types(self.patterns.dtype, torch.float32)
        return energy(states.to(dtype), self.patterns.to(dtype), beta=self.beta, alpha=self.alpha)

    def save(self, path: str | os.PathLike) -> None:
        """
        Write the memory to a safetensors file.

        The file appears complete or not at all: it is written under another name beside `path` and then renamed.

        Args:
            path (`str` or `os.PathLike`): The file, replaced if it exists.
        """
        metadata = {
            "format": FILE_FORMAT,
            "version": FILE_VERSION,
            "alpha": repr(self.alpha),
            "beta": repr(self.beta),
            "normalize": str(self.normalize),
        }
        content = serialize({"patterns": self.patterns.detach().cpu().contiguous()}, metadata=metadata)
        with new_file(path) as file:
            file.write_bytes(content)

    @classmethod
    def load(
        cls, path: str | os.PathLike, device: str | torch.device = "cpu", backend: str = "auto"
    ) -> "HopfieldMemory":
        """
        Read a memory written by [`~HopfieldMemory.save`].

        Args:
            path (`str` or `os.PathLike`): The file.
            device (`str` or `torch.device`, *optional*, defaults to `"cpu"`): Where to put the patterns.
            backend (`str`, *optional*, defaults to `"auto"`): As in [`HopfieldMemory`].

        Returns:
            `HopfieldMemory`: The memory.
        """
        patterns, metadata = _read_file(path)
        try:
            alpha, beta = float(metadata["alpha"]), float(metadata["beta"])
            normalize = {"True": True, "False": False}[metadata["normalize"]]
        except (KeyError, ValueError) as error:
            raise ValueError(f"path={os.fspath(path)!r} has damaged metadata {metadata!r}: {error!r}") from error
        try:
            # With `normalize`, saved patterns already have length 1; scaling them again would change the last bits.
            memory = cls(patterns, alpha=alpha, beta=beta, backend=backend)
        except (TypeError, ValueError) as error:
            raise ValueError(f"path={os.fspath(path)!r} is damaged: {error}") from error
        memory.normalize = normalize
        return memory.to(device)

    def get_extra_state(self) -> torch.Tensor:
        """alpha, beta and `normalize` for the state dict, as a tensor because safetensors holds nothing else."""
        return torch.tensor([self.alpha, self.beta, float(self.normalize)], dtype=torch.float64)

    def set_extra_state(self, state: torch.Tensor) -> None:
        """
        Set alpha, beta and `normalize` from a state dict.

        Args:
            state (`torch.Tensor` of shape `(3,)`): From [`~HopfieldMemory.get_extra_state`].
        """
        if not isinstance(state, torch.Tensor) or state.shape != (3,) or float(state[2]) not in (0.0, 1.0):
            raise ValueError(f"the state of a HopfieldMemory is alpha, beta and normalize (0 or 1), got {state!r}.")
        alpha, beta, normalize = state.tolist()
        check_alpha(alpha)
        check_beta(beta)
        self.alpha, self.beta, self.normalize = alpha, beta, bool(normalize)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        settings = f"{prefix}_extra_state"
        if local_metadata.get("version", 1) < self._version and settings in missing_keys:
            missing_keys.remove(settings)

    def extra_repr(self) -> str:
        settings = f"alpha={self.alpha}, beta={self.beta}, normalize={self.normalize}"
        return f"{len(self)} patterns, dimension={self.dimension}, {settings}"


class PolynomialMemory(_Patterns):
    """
    The polynomial memory of Krotov and Hopfield, a baseline for [`HopfieldMemory`].

    As a universal Hopfield network, one step of retrieval from the patterns xi_1 … xi_M is

        T(x) = sum of w_mu xi_mu        with w_mu = (xi_mu · x)^order, scaled to sum 1

    It has no temperature, because beta cancels, and so does the length of the query. As `order` is even, x and -x
    retrieve the same. A query that is orthogonal to all patterns retrieves zero.

    Args:
        patterns (`torch.Tensor` of shape `(M, d)`): Patterns to store; M may be 0 for a memory to be filled later.
        order (`int`, *optional*, defaults to 10): The exponent, even and at least 2.
        normalize (`bool`, *optional*, defaults to `False`):
            Scale stored patterns and queries to length 1, so that scores are cosines.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield import PolynomialMemory
    >>> patterns = torch.randn(20, 64, generator=torch.Generator().manual_seed(0)).sign()
    >>> damaged = patterns[:3].clone()
    >>> damaged[:, 32:] = 0.0
    >>> torch.allclose(PolynomialMemory(patterns).retrieve(damaged), patterns[:3], atol=1e-3)  # near, never exactly
    True
    >>> PolynomialMemory(torch.eye(2), order=2).retrieve(torch.tensor([2.0, 1.0]))
    tensor([0.8000, 0.2000])

    ```
    """

    def __init__(self, patterns: torch.Tensor, order: int = 10, normalize: bool = False) -> None:
        super().__init__(patterns, normalize)
        if not is_integer(order) or order < 2 or order % 2:
            raise ValueError(
                f"order must be an even integer of at least 2, so that no weight is negative, got {order!r}."
            )
        self.order = order

    def retrieve(self, queries: torch.Tensor, steps: int = 1) -> torch.Tensor:
        """
        Complete queries to stored patterns.

        Args:
            queries (`torch.Tensor` of shape `(..., d)`): The initial states, in the dtype of the patterns.
            steps (`int`, *optional*, defaults to 1): Number of times to apply T.

        Returns:
            `torch.Tensor` of shape `(..., d)`.
        """
        check_integer("steps", steps)
        queries = self._checked_queries(queries)
        dtype = torch.promote_types(queries.dtype, torch.float32)
        patterns, states = self.patterns.to(dtype), queries.to(dtype)
        with torch.autocast(states.device.type, enabled=False):  # half precision cannot hold the powers
            for _ in range(steps):
                scores = states @ patterns.T
                # Scale the largest to 1, so that its power neither overflows nor vanishes.
                scores = scores / scores.abs().amax(-1, keepdim=True).clamp_min(1e-30)
                powers = scores**self.order
                states = powers / powers.sum(-1, keepdim=True).clamp_min(1e-30) @ patterns
        return states.to(queries.dtype)

    def forward(self, queries: torch.Tensor, steps: int = 1) -> torch.Tensor:
        """The same as [`~PolynomialMemory.retrieve`], so that a memory can be used as a layer."""
        return self.retrieve(queries, steps)

    def extra_repr(self) -> str:
        settings = f"order={self.order}, normalize={self.normalize}"
        return f"{len(self)} patterns, dimension={self.dimension}, {settings}"


def _one_number(name: str, value: float) -> float:
    number = per_head_values(name, value, 1)
    if isinstance(number, tuple):
        raise TypeError(f"{name} must be one number, got {value!r}.")
    return number


def _read_file(path: str | os.PathLike) -> tuple[torch.Tensor, dict[str, str]]:
    """The patterns and the metadata of a saved memory."""
    if not os.path.isfile(path):
        raise FileNotFoundError(f"path={os.fspath(path)!r} is not a file.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FILE_FORMAT:
                raise ValueError(
                    f"path={os.fspath(path)!r} is not a HopfieldMemory: its format is {metadata.get('format')!r}, "
                    f"not {FILE_FORMAT!r}. Build one from its tensors with HopfieldMemory(patterns)."
                )
            if metadata.get("version") != FILE_VERSION:
                raise ValueError(
                    f"path={os.fspath(path)!r} has version {metadata.get('version')!r} of the format; this "
                    f"package reads version {FILE_VERSION!r}. Upgrade hf-sparse-hopfield."
                )
            patterns = file.get_tensor("patterns")
    except SafetensorError as error:
        raise ValueError(f"path={os.fspath(path)!r} is damaged or not a safetensors file: {error}") from error
    return patterns, metadata
