# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Observation of attention classes that compute softmax themselves: `SparseSoftmax` while observed."""

import dataclasses
from types import TracebackType
from typing import Any

import torch

from ..backends import RetrievalProblem
from ..backends.masks import MASKED_BELOW, canonical_mask
from ..observation import HeadSettings, Look
from .families import Kind
from .patches import SparseSoftmax


_MATRIX_PRODUCTS = (
    torch.matmul,
    torch.bmm,
    torch.Tensor.matmul,
    torch.Tensor.bmm,
    torch.Tensor.__matmul__,
)


_DENSE = HeadSettings(1.0, 1.0)


@dataclasses.dataclass
class _Pending:
    """Weights that have not met their values yet, what they come from, and whether they are softmax."""

    weights: torch.Tensor
    scores: torch.Tensor
    dim: int
    dense: bool


class ObservedSoftmax(SparseSoftmax):
    """
    Takes the place of `SparseSoftmax`: records the scores and the values that the weights are multiplied with.

    Args:
        look ([`Look`]): The observers.
        kind ([`Kind`]): Where the attention class has its heads, and which of its softmaxes are over keys.
        num_heads (`int`): Number of heads.
    """

    def __init__(self, look: Look, kind: Kind, num_heads: int) -> None:
        super().__init__(_DENSE, kind, look.name)
        self.look, self.num_heads = look, num_heads
        self.pending: _Pending | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        if error is None:
            self.show_pending(None)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if self.pending is not None and func in _MATRIX_PRODUCTS and len(args) > 1:
            weights = self.pending.weights
            # dropout, which does nothing in evaluation, and views may come in between: the memory is the same
            if isinstance(args[0], torch.Tensor) and args[0].data_ptr() == weights.data_ptr():
                self.show_pending(_value_of(args[0], args[1], weights))
        return super().__torch_function__(func, types, args, kwargs)

    def retrieve(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, mask: torch.Tensor | None, **options: Any
    ) -> Any:
        if mask is not None and mask.is_floating_point():
            shape = (*query.shape[:-1], key.shape[-2])
            mask, bias = canonical_mask(mask, None, shape)
            if bias is not None:
                # The beta that an observer chooses multiplies the whole score: unit vectors as keys read the bias
                # from the query.
                scaling = options.pop("scaling", None) or query.shape[-1] ** -0.5
                query = torch.cat([query * scaling, bias.expand(shape).to(query.dtype)], -1)
                key = torch.cat([key, _unit_vectors(key)], -1)
                options["scaling"] = 1.0
        return self.look.retrieve(query, key, value, mask=mask, **options)

    def normalised(self, scores: torch.Tensor, dim: int) -> torch.Tensor:
        self.show_pending(None)
        chosen = self.look.chosen(scores.device)
        weights = self.weights(scores, dim, chosen or _DENSE)
        self.pending = _Pending(weights, scores.detach(), dim, chosen is None)
        return weights

    def show_pending(self, value: torch.Tensor | None) -> None:
        """Show the observers the last scores, with their values if these are known."""
        if self.pending is None:
            return
        pending, self.pending = self.pending, None
        problem = self.problem(pending.scores, pending.dim)
        if value is not None:
            value = self.canonical(value.float())
            if value.shape[:3] == problem.key.shape[:3]:
                problem = dataclasses.replace(problem, value=value)
        self.look.show(problem)
        if not pending.dense or value is None or torch.is_grad_enabled():
            return
        chosen = self.look.chosen(pending.scores.device)
        if chosen is not None:
            # The observer chooses after it has seen the values. Nothing has read the weights yet.
            pending.weights.copy_(self.weights(pending.scores, pending.dim, chosen))

    def problem(self, scores: torch.Tensor, dim: int) -> RetrievalProblem:
        """A retrieval with these scores: they are the queries, and the keys and values are unit vectors."""
        scores = self.canonical(scores.movedim(dim, -1).float())
        allowed = scores > MASKED_BELOW
        units = _unit_vectors(scores.mT)
        return RetrievalProblem(
            query=scores.masked_fill(~allowed, 0), key=units, value=units, scaling=1.0, alpha=1.0, mask=allowed
        )

    def canonical(self, tensor: torch.Tensor) -> torch.Tensor:
        """Scores or values in the layout of this attention class as `(batch, heads, ., .)`."""
        if self.kind.heads is None:
            return tensor.reshape(-1, 1, *tensor.shape[-2:])
        axis = 1
        if self.kind.heads == "flat":
            tensor = tensor.unflatten(0, (-1, self.num_heads))
        else:
            axis = int(self.kind.heads.removeprefix("axis "))
        tensor = tensor.movedim(axis, -3)
        return tensor.reshape(-1, *tensor.shape[-3:])


def _unit_vectors(key: torch.Tensor) -> torch.Tensor:
    """As many unit vectors as there are keys, for each head."""
    keys = key.shape[-2]
    return torch.eye(keys, dtype=key.dtype, device=key.device).expand(*key.shape[:-1], keys)


def _value_of(factor: torch.Tensor, value: Any, weights: torch.Tensor) -> torch.Tensor | None:
    """The values that the weights multiply, in the weights' layout. The weights may have flattened leading dimensions."""
    if not isinstance(value, torch.Tensor) or factor.shape[-2:] != weights.shape[-2:] or factor.ndim != value.ndim:
        return None
    if factor.numel() != weights.numel() or value.shape[-2] != weights.shape[-1]:
        return None
    value = value.detach().expand(*factor.shape[:-2], *value.shape[-2:])
    return value.reshape(*weights.shape[:-2], *value.shape[-2:])
