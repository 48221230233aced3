# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import typing

from torch import Tensor

from hf_sparse_hopfield.backends.native.settings import SCHEMA, Settings


TYPES = {"Tensor?": Tensor | None, "float": float, "int": int, "bool": bool}


def test_the_schema_has_the_fields_in_their_order():
    schema = dict(reversed(part.split()) for part in SCHEMA.split(", "))
    assert list(schema) == list(Settings._fields)
    assert {name: TYPES[kind] for name, kind in schema.items()} == typing.get_type_hints(Settings)
