# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Import of optional packages, with an error that names the extra to install."""

import importlib
from types import ModuleType


def require(module: str, extra: str) -> ModuleType:
    """
    Import an optional package.

    Args:
        module (`str`): Name of the module to import.
        extra (`str`): Extra of this package that installs it.

    Example:

    ```python
    >>> from hf_sparse_hopfield.extras import require

    >>> require("json", "cli").dumps([1])
    '[1]'
    ```
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"this needs the package {module.partition('.')[0]!r}: pip install 'hf-sparse-hopfield[{extra}]'."
        ) from error
