# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Batches to calibrate on, and an observer that keeps what it sees."""

from hf_sparse_hopfield.observation import Observer

from ..tiny_models import tiny_inputs


def batches_for(name, count=2):
    return [tiny_inputs(name, seed=seed, length=12) for seed in range(count)]


class Recorder(Observer):
    def __init__(self):
        self.problems = {}

    def observe(self, name, problem):
        self.problems[name] = problem
