# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""An associative memory of a million patterns against brute-force search: that of faiss, and a matrix product of torch."""

import importlib.util

import torch
import torch.nn.functional as F

from ..layers import HopfieldMemory
from .timing import time_interleaved


def search_records(patterns: int = 1_000_000, width: int = 128, seconds: float = 10.0) -> list[dict]:
    """
    Time retrieval from a memory, `IndexFlatIP` of faiss, and `(queries @ patterns.T).topk(10)` on the same patterns and queries:
    unit vectors, and some of them with noise. The others return the ten best patterns; the memory the retrieved one.

    Args:
        patterns, width (`int`, *optional*): Size of the memory.
        seconds (`float`, *optional*, defaults to 10.0): Approximate time of each measurement.

    Returns:
        `list[dict]`: A record for each number of queries; none if faiss is not installed.
    """
    if importlib.util.find_spec("faiss") is None:
        return []
    import faiss

    generator = torch.Generator().manual_seed(0)
    stored = F.normalize(torch.randn(patterns, width, generator=generator), dim=1)
    index = faiss.IndexFlatIP(width)
    index.add(stored.numpy())
    faiss.omp_set_num_threads(torch.get_num_threads())
    records = []
    for queries in (1, 64):
        chosen = torch.randint(patterns, (queries,), generator=generator)
        noisy = F.normalize(stored[chosen] + 0.05 * torch.randn(queries, width, generator=generator), dim=1)
        for alpha, beta in ((2.0, 20.0), (1.5, 60.0)):
            memory = HopfieldMemory(stored, alpha=alpha, beta=beta)
            # the first call makes the screen
            same = memory.retrieve(noisy)
            if not torch.equal(same.argmax(-1), stored[chosen].argmax(-1)):  # type: ignore[union-attr]
                raise RuntimeError("the memory does not retrieve the patterns it was asked for.")
            times = time_interleaved(
                {
                    "faiss": lambda noisy=noisy: index.search(noisy.numpy(), 10),  # type: ignore[misc]
                    "torch": lambda noisy=noisy: (noisy @ stored.T).topk(10),  # type: ignore[misc]
                    "memory": lambda memory=memory, noisy=noisy: memory.retrieve(noisy),  # type: ignore[misc]
                },
                seconds,
            )
            records.append(
                {
                    "label": f"memory {patterns} x {width}, {queries} queries",
                    "queries": queries,
                    "alpha": alpha,
                    "seconds": times["memory"],
                    "faiss": times["faiss"],
                    "torch": times["torch"],
                    "ratio": times["faiss"] / times["memory"],
                }
            )
    return records
