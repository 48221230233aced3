# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The KL divergence of logits, a few rows at a time: with 50,000 tokens in a vocabulary, whole copies of logits cost more than a model."""

from typing import Any

import torch
from torch.autograd.function import once_differentiable


_AT_ONCE = 2**21  # logits that are held in float32: they fit into the cache of a core


def kl_divergence(dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
    """
    Return the KL divergence of the distribution of each row of `sparse` from that of `dense`, in nats and float32.

    Args:
        dense (`torch.Tensor` of shape `(..., classes)`): Logits; they get no gradient.
        sparse (`torch.Tensor` of the same shape): Logits.
    """
    return _KLDivergence.apply(dense.detach(), sparse)


class _KLDivergence(torch.autograd.Function):
    """The gradient, `softmax(sparse) - softmax(dense)`, is known in the forward pass, where both are at hand."""

    @staticmethod
    def forward(ctx: Any, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        classes = sparse.shape[-1]
        rows = max(1, _AT_ONCE // classes)
        grad = torch.empty_like(sparse).view(-1, classes) if ctx.needs_input_grad[1] else None
        each = []
        parts = zip(dense.reshape(-1, classes).split(rows), sparse.reshape(-1, classes).split(rows), strict=True)
        for number, (dense_part, sparse_part) in enumerate(parts):
            dense_log, sparse_log = (part.float().log_softmax(-1) for part in (dense_part, sparse_part))
            probabilities = dense_log.exp()
            # a class that is ruled out on both sides adds nothing: 0 * (-inf + inf) would be NaN
            terms = torch.where(probabilities == 0, 0, probabilities * (dense_log - sparse_log))
            each.append(terms.sum(-1))
            if grad is not None:
                torch.sub(sparse_log.exp_(), probabilities, out=grad[number * rows : number * rows + len(terms)])
        if grad is not None:
            ctx.save_for_backward(grad.view(sparse.shape))
        return torch.cat(each).view(sparse.shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[None, torch.Tensor]:
        (sparse_grad,) = ctx.saved_tensors
        return None, sparse_grad * grad[..., None].to(sparse_grad.dtype)
