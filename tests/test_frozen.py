# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import copy
import json
import pickle
import types

import pytest

from hf_sparse_hopfield.frozen import FrozenDict, FrozenList, freeze, thaw


PLAIN = {"a": [1, [2, {"b": 3}]], "c": {"d": []}}


def mutators(kind):
    """Methods of `kind` that its immutable sibling does not have, and those that change in place."""
    immutable = {list: tuple, dict: types.MappingProxyType}[kind]
    names = {name for name in vars(kind) if name not in dir(immutable)} | {"__ior__"} & set(vars(kind))
    return sorted(names - {"__init__", "__reversed__", "__class_getitem__", "fromkeys", "copy"})


@pytest.mark.parametrize(
    ("container", "method"),
    [(FrozenList([1, 2]), name) for name in mutators(list)]
    + [(FrozenDict({"a": 1}), name) for name in mutators(dict)],
    ids=str,
)
def test_no_method_changes_it(container, method):
    before = thaw(container)
    arguments = {"__setitem__": (0, 1), "insert": (0, 1), "clear": (), "popitem": (), "reverse": (), "sort": ()}
    with pytest.raises(TypeError, match=f"a {type(container).__name__} cannot be changed"):
        getattr(container, method)(*arguments.get(method, ([],)))
    assert container == before


def test_at_every_depth():
    frozen = freeze(PLAIN)
    with pytest.raises(TypeError):
        frozen["a"][1][1]["b"] = 4
    with pytest.raises(TypeError):
        frozen["c"]["d"].append(4)
    assert frozen == PLAIN


def test_copies():
    frozen = freeze(PLAIN)
    assert copy.copy(frozen) is copy.deepcopy(frozen) is freeze(frozen) is frozen
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(frozen, protocol))
        assert again == PLAIN and type(again) is FrozenDict and type(again["a"][1]) is FrozenList
    assert json.loads(json.dumps(frozen, sort_keys=True)) == PLAIN
    assert repr(frozen) == repr(PLAIN)


def test_thaw_gives_plain_containers():
    plain = thaw(freeze(PLAIN))
    plain["a"][1][1]["b"] = 4
    plain["c"]["d"].append(4)
    assert plain == {"a": [1, [2, {"b": 4}]], "c": {"d": [4]}}
    assert type(freeze(PLAIN) | {}) is dict and type(freeze(PLAIN["a"]) + []) is type(freeze([1])[:]) is list
