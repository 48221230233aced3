# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Dicts and lists that cannot be changed, for settings that are saved as JSON.

They are real dicts and lists, so that `json`, transformers and comparisons with plain ones work; every method that would
change them raises.
"""

from collections.abc import Iterable, Mapping
from dataclasses import FrozenInstanceError
from typing import Any, NoReturn, TypeVar


Key = TypeVar("Key")
Value = TypeVar("Value")


class _Frozen:
    """
    Common part of frozen containers.

    A container is filled in `__new__`, because `__init__` can be called again. Copies share the container.
    """

    __slots__ = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(self._refusal)

    @property
    def _refusal(self) -> str:
        return (
            f"a {type(self).__name__} cannot be changed; make a new one: `config.replace(alpha=...)`, or change the plain "
            "dict of `config.to_dict()` and pass it to `SparseHopfieldConfig.from_dict`."
        )

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise FrozenInstanceError(self._refusal)

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(self._refusal)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (thaw(self),)


class FrozenList(_Frozen, list[Value]):
    """
    A list that cannot be changed, nor can the dicts and lists in it. Slices, sums and `copy()` are plain lists.

    Args:
        content (iterable, *optional*): The elements.

    Example:

    ```python
    >>> from hf_sparse_hopfield.frozen import FrozenList

    >>> numbers = FrozenList([1.0, 2.0])
    >>> numbers == [1.0, 2.0], type(numbers + [3.0])
    (True, <class 'list'>)

    ```
    """

    __slots__ = ()

    def __new__(cls, content: Iterable[Value] = ()) -> "FrozenList[Value]":
        self = super().__new__(cls)
        list.extend(self, map(freeze, content))
        return self

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _Frozen._refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _Frozen._refuse


class FrozenDict(_Frozen, dict[Key, Value]):
    """
    A dict that cannot be changed, nor can the dicts and lists in it. `|` and `copy()` give plain dicts.

    Args:
        content (`dict`, *optional*): The content.

    Example:

    ```python
    >>> from hf_sparse_hopfield.frozen import FrozenDict

    >>> settings = FrozenDict({"beta": [1.0, 2.0]})
    >>> settings | {"alpha": 1.5}
    {'beta': [1.0, 2.0], 'alpha': 1.5}

    ```
    """

    __slots__ = ()

    def __new__(cls, content: Mapping[Key, Value] = {}) -> "FrozenDict[Key, Value]":  # noqa: B006 (only read)
        self = super().__new__(cls)
        dict.update(self, {key: freeze(value) for key, value in content.items()})
        return self

    __setitem__ = __delitem__ = __ior__ = _Frozen._refuse
    clear = popitem = setdefault = update = _Frozen._refuse

    def pop(self, key: Any, *default: Any) -> Any:
        """Raise, unless nothing would change: transformers pops internal names from every dict that it saves."""
        if default and key not in self:
            return default[0]
        self._refuse()


def freeze(value: Any) -> Any:
    """
    Make dicts and lists unchangeable, at every depth.

    Args:
        value (`Any`): A dict, a list or anything else, which is returned as it is.
    """
    if isinstance(value, _Frozen):
        return value
    if isinstance(value, dict):
        return FrozenDict(value)
    return FrozenList(value) if isinstance(value, list) else value


def thaw(value: Any) -> Any:
    """
    A copy with plain dicts and lists at every depth, the opposite of [`freeze`].

    Args:
        value (`Any`): A dict, a list or anything else, which is returned as it is.
    """
    if isinstance(value, dict):
        return {key: thaw(entry) for key, entry in value.items()}
    return [thaw(entry) for entry in value] if isinstance(value, list) else value
