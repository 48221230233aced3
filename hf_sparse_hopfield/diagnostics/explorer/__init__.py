# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""One self-contained HTML page that shows what every head of a model reads."""

from .page import write_explorer


__all__ = ["write_explorer"]
