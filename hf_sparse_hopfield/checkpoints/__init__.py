# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Checkpoints from disk to disk: dense to sparse and back, hflayers, GGUF."""
