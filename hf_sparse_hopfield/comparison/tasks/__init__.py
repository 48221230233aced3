# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The tasks on which models are compared: what the models run on, and what is computed from their outputs."""

import importlib

from ..options import TASKS
from .task import Case, Task


__all__ = ["Case", "Task", "task_class"]


def task_class(name: str) -> type[Task]:
    """The class of a task, by its name in `TASKS`."""
    module, class_name = TASKS[name]
    return getattr(importlib.import_module(f".{module}", __name__), class_name)
