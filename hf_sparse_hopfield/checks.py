# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Checks of plain arguments, with errors that name the argument, its value and what is expected.

This module imports neither torch nor transformers.
"""

import math
import reprlib
from collections.abc import Iterable
from typing import Any, TypeGuard


_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxlong, _SHORT.maxother = 3, 100, 100, 300


def shown(value: Any) -> str:
    """
    A value for an error message: as `repr` shows it, shortened if it is long.

    Args:
        value (`Any`): The value.

    Example:

    ```python
    >>> from hf_sparse_hopfield.checks import shown

    >>> shown("sdpa"), shown(list(range(1_000_000)))
    ("'sdpa'", '[0, 1, 2, 3, 4, 5, ...]')

    ```
    """
    text = _SHORT.repr(value)
    return text if len(text) <= 300 else f"{text[:200]}...{text[-60:]}"


def is_integer(value: Any) -> TypeGuard[int]:
    """Whether `value` is an integer. A boolean is not, although Python counts it as one."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> TypeGuard[float]:
    """Whether `value` is an integer or a float. A boolean is not, although Python counts it as an integer."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_integer(name: str, value: Any, least: int = 1, *, optional: bool = False) -> None:
    """
    Raise `ValueError` unless `value` is an integer of at least `least`.

    Args:
        name (`str`): Name of the argument, for the error.
        value (`Any`): Value of the argument.
        least (`int`, *optional*, defaults to 1): Smallest valid value.
        optional (`bool`, *optional*, defaults to `False`): Accept `None` too.

    Example:

    ```python
    >>> from hf_sparse_hopfield.checks import check_integer

    >>> check_integer("num_heads", 8)
    >>> check_integer("num_heads", 0)
    Traceback (most recent call last):
    ...
    ValueError: num_heads must be an integer of at least 1, got 0.

    ```
    """
    if value is None and optional:
        return
    if not is_integer(value) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}{_or_none(optional)}, got {shown(value)}.")


def check_number(name: str, value: Any, *, positive: bool = False, optional: bool = False) -> None:
    """
    Raise `ValueError` unless `value` is a finite number of at least 0, or above 0.

    Args:
        name (`str`): Name of the argument, for the error.
        value (`Any`): Value of the argument.
        positive (`bool`, *optional*, defaults to `False`): Refuse 0.
        optional (`bool`, *optional*, defaults to `False`): Accept `None` too.

    Example:

    ```python
    >>> from hf_sparse_hopfield.checks import check_number

    >>> check_number("tolerance", 0.0)
    >>> check_number("learning_rate", 0.0, positive=True)
    Traceback (most recent call last):
    ...
    ValueError: learning_rate must be a positive, finite number, got 0.0.

    ```
    """
    if value is None and optional:
        return
    if not is_number(value) or not 0 <= value < math.inf or (positive and value == 0):
        expected = "a positive, finite number" if positive else "a finite number of at least 0"
        raise ValueError(f"{name} must be {expected}{_or_none(optional)}, got {shown(value)}.")


def check_dropout(name: str, value: Any) -> None:
    """
    Raise `ValueError` unless `value` is a probability below 1: dropping everything leaves nothing to train.

    Args:
        name (`str`): Name of the argument, for the error.
        value (`Any`): Value of the argument.

    Example:

    ```python
    >>> from hf_sparse_hopfield.checks import check_dropout

    >>> check_dropout("dropout", 0.1)

    ```
    """
    if not is_number(value) or not 0.0 <= value < 1.0:
        raise ValueError(f"{name} must be a probability in [0, 1), got {shown(value)}.")


def check_flag(name: str, value: Any, *, optional: bool = False) -> None:
    """
    Raise `TypeError` unless `value` is a boolean.

    Args:
        name (`str`): Name of the argument, for the error.
        value (`Any`): Value of the argument.
        optional (`bool`, *optional*, defaults to `False`): Accept `None` too.

    Example:

    ```python
    >>> from hf_sparse_hopfield.checks import check_flag

    >>> check_flag("normalize", True)

    ```
    """
    if value is None and optional:
        return
    if not isinstance(value, bool):
        raise TypeError(
            f"{name} must be {'True, False or None' if optional else 'True or False'}, got {shown(value)}."
        )


def check_choice(name: str, value: Any, choices: Iterable[str], *, optional: bool = False) -> None:
    """
    Raise `ValueError` unless `value` is one of `choices`.

    Args:
        name (`str`): Name of the argument, for the error.
        value (`Any`): Value of the argument.
        choices (iterable of `str`): The valid values.
        optional (`bool`, *optional*, defaults to `False`): Accept `None` too.

    Example:

    ```python
    >>> from hf_sparse_hopfield.checks import check_choice

    >>> check_choice("objective", "error", ("error", "support"))
    >>> check_choice("objective", "loss", ("error", "support"))
    Traceback (most recent call last):
    ...
    ValueError: objective must be one of 'error', 'support', got 'loss'.

    ```
    """
    if value is None and optional:
        return
    choices = tuple(choices)
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(map(repr, choices))
        raise ValueError(f"{name} must be one of {listed}{_or_none(optional)}, got {shown(value)}.")


def _or_none(optional: bool) -> str:
    return " or None" if optional else ""
