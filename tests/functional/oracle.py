"""Independent float64 definitions, written for clarity: the support from a sort, the threshold by bisection on it."""

import numpy as np


def entmax_row(scores: np.ndarray, alpha: float) -> np.ndarray:
    """alpha-entmax of one row in float64."""
    scores = np.asarray(scores, dtype=np.float64)
    weights = np.zeros_like(scores)
    finite = np.isfinite(scores)
    if not finite.any():
        return weights
    z = scores[finite] - scores[finite].max()
    if alpha == 1:
        weights[finite] = np.exp(z) / np.exp(z).sum()
        return weights
    ordered = np.sort(z)[::-1]
    if alpha == 2:
        size = max(k for k in range(1, z.size + 1) if 1 + k * ordered[k - 1] > ordered[:k].sum())
        weights[finite] = np.maximum(z - (ordered[:size].sum() - 1) / size, 0)
        return weights
    eps = alpha - 1
    power = 1 / eps

    def total(tau, k):
        return (np.maximum(eps * ordered[:k] - tau, 0) ** power).sum()

    # k + 1 entries belong to the support if the first k do not fill the simplex with the threshold at the next one
    size = max(k for k in range(1, z.size + 1) if total(eps * ordered[k - 1], k) < 1)
    low, high = eps * ordered[0] - 1, eps * ordered[size - 1]
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if total(middle, size) > 1 else (low, middle)
    weights[finite] = np.maximum(eps * z - (low + high) / 2, 0) ** power
    return weights


def entmax(scores: np.ndarray, alpha) -> np.ndarray:
    """alpha-entmax over the last axis; alpha broadcasts to the rows."""
    scores = np.asarray(scores, dtype=np.float64)
    rows = scores.reshape(-1, scores.shape[-1])
    alphas = np.broadcast_to(alpha, (*scores.shape[:-1], 1)).reshape(-1)
    return np.stack([entmax_row(r, float(a)) for r, a in zip(rows, alphas, strict=True)]).reshape(scores.shape)
