# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json

import pytest

from hf_sparse_hopfield.extras import require


def test_imports_a_module():
    assert require("json", "cli") is json
    assert require("json.decoder", "cli") is json.decoder


def test_a_missing_package_names_the_extra():
    message = r"needs the package 'no_such_package': pip install 'hf-sparse-hopfield\[cli\]'"
    with pytest.raises(ImportError, match=message) as caught:
        require("no_such_package.part", "cli")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
