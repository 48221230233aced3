# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The file saved with a configuration that lets `trust_remote_code=True` load it, without importing this package first."""

import os
from pathlib import Path


REMOTE_CODE_FILE = "configuration_sparse_hopfield.py"
_REMOTE_CODE = '''"""Loads this checkpoint with `trust_remote_code=True`. It needs the package: pip install hf_sparse_hopfield"""

from {module} import {name}  # noqa: F401
'''


def auto_map(name: str) -> dict[str, str]:
    """
    The `auto_map` of a configuration that is saved with [`write_remote_code`].

    Args:
        name (`str`): Name of the configuration class.

    Example:

    ```python
    >>> from hf_sparse_hopfield.remote_code import auto_map

    >>> auto_map("MyConfig")
    {'AutoConfig': 'configuration_sparse_hopfield.MyConfig'}

    ```
    """
    return {"AutoConfig": f"{REMOTE_CODE_FILE.removesuffix('.py')}.{name}"}


def write_remote_code(directory: str | os.PathLike, module: str, name: str) -> None:
    """
    Write the file that imports a configuration class from this package.

    Args:
        directory (`str` or `os.PathLike`): Where the configuration is saved; created if missing.
        module (`str`): Module of the configuration class.
        name (`str`): Name of the configuration class.
    """
    Path(directory).mkdir(parents=True, exist_ok=True)
    Path(directory, REMOTE_CODE_FILE).write_text(_REMOTE_CODE.format(module=module, name=name), encoding="utf-8")
