# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
r"""[`ShardedMemory`]: an associative memory of which each process has a part.

**Two rounds.** Each process finds the patterns that have weight among its own; all that have weight among all patterns are among
them. First, the processes share their thresholds. The largest is a lower bound of the threshold of the whole row, as the
threshold of a part of a row is at most that of the row, and excludes most of what was found. Then they share the patterns that
are left, and each solves the same small problem. (`functional/screening.py` has the proof.)
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..checks import check_integer, check_number
from ..functional import threshold
from ..layers import HopfieldMemory, MemoryMatches
from ..layers.memory.matches import Candidates, fitting_queries, match
from ..layers.memory.vectors import checked_queries, to_unit_length
from .processes import Processes


Result = TypeVar("Result")

_SAME = ("alpha", "beta", "normalize", "dimension", "dtype")


@contextmanager
def _none_lost() -> Iterator[None]:
    """Say what it means if another process is gone."""
    try:
        yield
    except RuntimeError as error:  # that of gloo has no class of its own
        raise RuntimeError(
            "a part of the memory is lost: another process of the group has ended or does not answer, and a search without it "
            f"would leave out its patterns ({error})."
        ) from error


class _Shards(Processes):
    """The processes that have a part of the memory."""

    def largest(self, tensor: Tensor) -> Tensor:
        with _none_lost():
            return super().largest(tensor)

    def gather(self, numbers: list[int], device: torch.device) -> list[list[int]]:
        with _none_lost():
            return super().gather(numbers, device)

    def gather_tensors(self, tensor: Tensor) -> list[Tensor]:
        with _none_lost():
            return super().gather_tensors(tensor)

    def gather_objects(self, value: Any) -> list[Any]:
        with _none_lost():
            return super().gather_objects(value)

    def in_all(self, action: Callable[[], Result]) -> Result:
        """What an action gives in this process. If it fails in one process, it fails in all."""
        error: Exception | None = None
        try:
            result = action()
        except Exception as caught:  # raised below, after the others know
            error = caught
        failures = self.gather([int(error is not None)], torch.device("cpu"))
        if not any(failed for (failed,) in failures):
            return result
        messages = self.gather_objects(None if error is None else f"{type(error).__name__}: {error}")
        if error is not None:
            raise error
        rank = next(rank for rank, message in enumerate(messages) if message is not None)
        raise RuntimeError(f"process {rank} could not search its part of the memory: {messages[rank]}")


class ShardedMemory:
    """
    A [`HopfieldMemory`] spread over the processes of a group: each holds some of the patterns. All of them call the same methods,
    with the same queries or each with its own, and get the result of one memory with all patterns.

    An error in one process is raised in all, and so is the loss of a process: a part of the patterns is never left out.

    Args:
        memory ([`HopfieldMemory`]): The patterns of this process; it may be empty. alpha must be above 1.
        group (`torch.distributed.ProcessGroup`, *optional*): The processes; all by default.

    Example (`accelerate launch script.py`, or `torchrun`):

    ```python
    >>> from hf_sparse_hopfield.parallel import ShardedMemory

    >>> def find(queries):  # in each process
    ...     memory = ShardedMemory.load("memory")  # a folder written by `HopfieldMemory.save`
    ...     return memory.search(queries).rows

    ```
    """

    def __init__(self, memory: HopfieldMemory, group: Any = None) -> None:
        self._processes = _Shards(group)
        self.memory = memory
        own = {name: getattr(memory, name) for name in _SAME}
        everyone = self._processes.gather_objects((own, len(memory)))
        for rank, (settings, _) in enumerate(everyone):
            for name in _SAME:
                if settings[name] != everyone[0][0][name]:
                    raise ValueError(
                        f"all processes must have the same {name}: process 0 has {everyone[0][0][name]}, process {rank} has "
                        f"{settings[name]}."
                    )
        if memory.alpha == 1.0:
            raise ValueError("alpha=1.0 gives every pattern weight, so that all of them would be sent: use alpha > 1.")
        self._candidates = 0

    @classmethod
    def load(cls, path: str | os.PathLike, group: Any = None, **options: Any) -> "ShardedMemory":
        """
        Load a memory of which each process takes an equal part.

        Args:
            path (`str` or `os.PathLike`): The folder that [`HopfieldMemory.save`] wrote. Each process needs to see it.
            group (`torch.distributed.ProcessGroup`, *optional*): The processes; all by default.
            **options: As for [`HopfieldMemory.load`].
        """
        processes = _Shards(group)
        rank, size = processes.rank, processes.size
        return cls(processes.in_all(lambda: HopfieldMemory.load(path, **options).share(rank, size)), group)

    def __len__(self) -> int:
        """Number of patterns of all processes."""
        return sum(length for (length,) in self._processes.gather([len(self.memory)], self._pattern_device))

    @property
    def _pattern_device(self) -> torch.device:
        return self.memory.rows.device

    def retrieve(self, queries: Tensor, steps: int = 1, tolerance: float = 0.0) -> Tensor:
        """
        Complete queries to stored patterns, as [`HopfieldMemory.retrieve`] does.

        Args:
            queries, steps, tolerance: As for [`~ShardedMemory.search`].

        Returns:
            `torch.Tensor` of shape `(..., d)`.
        """
        return self.search(queries, steps, tolerance).output

    def search(self, queries: Tensor, steps: int = 1, tolerance: float = 0.0) -> MemoryMatches:
        """
        Find the patterns that have weight for queries, as [`HopfieldMemory.search`] does.

        Args:
            queries (`torch.Tensor` of shape `(..., d)`): The queries of this process.
            steps, tolerance: As for [`HopfieldMemory.search`], and the same in all processes.

        Returns:
            [`MemoryMatches`]: For the queries of this process.
        """
        processes = self._processes

        def checked() -> Tensor:
            check_integer("steps", steps)
            check_number("tolerance", tolerance)
            given = checked_queries(queries, self.memory.dimension, self.memory.dtype, stored=1)
            if not torch.isfinite(given).all():
                raise ValueError("queries must be finite: NaN or infinity is similar to nothing.")
            return to_unit_length(given) if self.memory.normalize else given

        with torch.no_grad():
            flat = processes.in_all(checked).reshape(-1, self.memory.dimension)
            if len(self) == 0:
                raise ValueError("the memory is empty; store patterns with add() first.")
            described = [len(flat), steps, _digest(flat, tolerance)]
            everyone = processes.gather(described, self._pattern_device)
            if any(steps != other for _, other, _ in everyone):
                raise ValueError(
                    f"steps must be the same in all processes, got {[other for _, other, _ in everyone]}."
                )
            alike = all(other == described for other in everyone)
            counts = [count for count, _, _ in everyone]
            asked = flat if alike else self._all_queries(flat, counts)
            found = match(self, asked, self.memory.alpha, self.memory.beta, steps, tolerance)
        leading = queries.shape[:-1]
        first = 0 if alike else sum(counts[: processes.rank])
        own = slice(first, first + len(flat))
        return MemoryMatches(
            found.rows[own].reshape(*leading, found.rows.shape[-1]),
            found.weights[own].reshape(*leading, found.weights.shape[-1]),
            found.output[own].reshape(queries.shape),
            found.energies[:, own].reshape(steps, *leading),
        )

    def _all_queries(self, queries: Tensor, counts: list[int]) -> Tensor:
        padded = F.pad(queries, (0, 0, 0, max(counts) - len(queries)))
        parts = self._processes.gather_tensors(padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    # What `match` asks for: see `Finder`.

    def places(self, states: Tensor) -> list[Tensor]:
        """The places, in each segment of this process, of the patterns that may have weight for states `(n, d)`, then -1."""
        places = self._processes.in_all(lambda: self.memory.places(states))
        widths = self._processes.gather([sum(place.shape[1] for place in places)], self._pattern_device)
        self._candidates = sum(width for (width,) in widths)
        return places

    def at_once(self, places: list[Tensor]) -> int:
        """How many states to take at a time: the same number in all processes."""
        return fitting_queries(self._candidates, self.memory.dimension)

    def gather(self, states: Tensor, places: list[Tensor]) -> Candidates:
        """The patterns of all processes that may have weight."""
        own = self._processes.in_all(lambda: self.memory.gather(states, places))
        scores = own.scores(states, self.memory.beta).double()
        alpha = self.memory.alpha
        bound = scores.new_full((len(states), 1), -torch.inf)
        if scores.shape[1]:
            bound = threshold(scores, alpha)
        bound = self._processes.largest(bound)
        slack = 1e-6 * (1 + bound.abs().nan_to_num(posinf=0.0))  # scores are in float32
        left = own.present & ((alpha - 1) * scores > bound - slack)
        most = int(left.sum(-1).max()) if left.numel() else 0
        most = max(width for (width,) in self._processes.gather([most], self._pattern_device))
        order = left.byte().sort(dim=-1, descending=True, stable=True).indices[:, :most]
        missing = most - order.shape[1]
        parts = [
            F.pad(own.vectors.gather(1, order[..., None].expand(-1, -1, own.vectors.shape[-1])), (0, 0, 0, missing)),
            F.pad(own.rows.gather(1, order), (0, missing)),
            F.pad(left.gather(1, order), (0, missing)),
        ]
        return Candidates(*(torch.cat(self._processes.gather_tensors(part), 1) for part in parts))


def _digest(queries: Tensor, tolerance: float) -> int:
    """A number that tells different queries apart."""
    content = queries.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() + repr(tolerance).encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=7).digest(), "little")
