# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Choosing alpha and beta of every head, so that a sparse model does what the dense model did."""

from .calibrate import CalibrationReport, calibrate


__all__ = ["CalibrationReport", "calibrate"]
