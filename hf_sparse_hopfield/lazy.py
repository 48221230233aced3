# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Names of a package that load on first use, so that importing the package costs next to nothing (PEP 562)."""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """
    Make the `__getattr__` and `__dir__` of a package.

    Args:
        package (`str`): Name of the package, `__name__`.
        modules (`dict[str, str]`): Each lazy name and the module below the package that defines it. A name that starts
            with dots is relative to a parent package.

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
        setattr(sys.modules[package], name, value)  # the next access does not come here
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return load, names
