# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Names of a package that load on first use (PEP 562), so that importing the package is cheap."""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """
    Make the `__getattr__` and `__dir__` of a package.

    Args:
        package (`str`): Name of the package, `__name__`.
        modules (`dict[str, str]`):
            Maps each lazy name to the module that defines it, relative to the package. Leading dots, as in `..layers`, go
            up to a parent package.

    Example:

    ```python
    >>> from hf_sparse_hopfield.lazy import lazy_names

    >>> load, _ = lazy_names("hf_sparse_hopfield", {"sparsemax": "functional"})
    >>> load("sparsemax").__name__
    'sparsemax'

    ```
    """

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        path = modules[name]
        value = getattr(importlib.import_module(path if path.startswith(".") else f".{path}", package), name)
        setattr(sys.modules[package], name, value)  # later accesses find it there
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return load, names
