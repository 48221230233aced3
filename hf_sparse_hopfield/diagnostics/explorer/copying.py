# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Copying heads: those that read almost only the key before, themselves, or keys equal to themselves."""

import torch


COPYING = 0.9  # share of its weight from which a head copies
ROWS = 5  # of which it must have at least so many, to say so


def copied_shares(
    weights: torch.Tensor, allowed: torch.Tensor, same: bool, query_ids: list[int] | None, key_ids: list[int] | None
) -> dict[str, list[float | None]]:
    """
    How much of its weight each head gives to itself, to the position before, and to tokens equal to its own. A query counts if it
    sees such a key, and at least one other.

    Args:
        weights (`torch.Tensor` of shape `(heads, queries, keys)`): The weights.
        allowed (`torch.BoolTensor` of shape `(1 or heads, queries, keys)`): Which keys each query sees.
        same (`bool`): Whether queries and keys are the same positions.
        query_ids, key_ids (`list[int]`, *optional*): Tokens of the queries and of the keys, if they are tokens.

    Returns:
        `dict[str, list[float | None]]`: `itself`, `previous` and `equal`, one entry per head; `None` where too few queries count.
        A query is not an equal of itself.
    """
    heads, queries, keys = weights.shape
    free = allowed.sum(-1) > 1
    shares: dict[str, list[float | None]] = {}
    for name, offset in (("itself", 0), ("previous", -1)):
        sees, given = (tensor.diagonal(offset, 1, 2) for tensor in (allowed, weights))
        counts = (sees & free[:, -offset:]) if same else sees[:, :0]
        shares[name] = _means(given[:, : counts.shape[1]], counts)
    if query_ids is None or key_ids is None:
        return shares | {"equal": [None] * heads}
    equal = (torch.tensor(query_ids)[:, None] == torch.tensor(key_ids)) & allowed
    if same:
        equal = equal & ~torch.eye(queries, dtype=torch.bool)
    given = (weights * equal).sum(-1)
    return shares | {"equal": _means(given, equal.any(-1) & free)}


def _means(given: torch.Tensor, counts: torch.Tensor) -> list[float | None]:
    """The mean weight of the queries that count, for each head; `None` if these are too few."""
    counts = counts.expand(len(given), -1)
    rows = counts.sum(-1)
    means = (given * counts).sum(-1) / rows.clamp_min(1)
    return [mean if enough else None for mean, enough in zip(means.tolist(), (rows >= ROWS).tolist(), strict=True)]


def copying(shares: dict[str, list[float | None]]) -> list[str | None]:
    """What each head copies: the largest of its `copied_shares`, if that is large enough; else `None`."""
    found: list[str | None] = []
    for values in zip(*shares.values(), strict=True):
        share, name = max((value or 0.0, name) for name, value in zip(shares, values, strict=True))
        found.append(name if share >= COPYING else None)
    return found
