# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Settings of the pure PyTorch backend for its tests."""

from hf_sparse_hopfield.backends.blocked.settings import Settings


PLAIN = Settings(
    scaling=0.5,
    factor=1.0,
    beta=None,
    alpha=None,
    alpha_value=2.0,
    mask=None,
    bias=None,
    sinks=None,
    is_causal=False,
    window=0,
    softcap=0.0,
    dropout=0.0,
    seed=None,
)
