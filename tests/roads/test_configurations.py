# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Configurations on disk: damaged, hostile, or of earlier versions."""

import json
import shutil
import time

import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from hf_sparse_hopfield import to_sparse_hopfield

from ..tiny_models import VOCABULARY, tiny_model
from .converted import NAME, assert_equal
from .table import road


NESTED = json.loads("[" * 300 + "]" * 300)
DEEP = json.loads('{"a":' * 300 + "1" + "}" * 300)
MILLION = 1_000_000
SETTINGS = {
    "alpha": [
        *(0.5, 3, "x", None, True, [], {}, NESTED, DEEP, [1.5, "x"], 10**400),
        float("nan"),
        float("inf"),
        [1.5] * MILLION,
    ],
    "beta": [
        *(0, -1, "x", None, [], NESTED, [1.0, -1.0], 10**400),
        float("nan"),
        float("-inf"),
        [1.0] * MILLION,
        "x" * MILLION,
    ],
    "steps": [*(0, -1, 1.5, "1", None, [1], True, 10**9, 10**400, DEEP), float("nan")],
    "tolerance": [-1, "x", None, [0.0], float("nan"), float("inf"), 10**400, DEEP],
    "layers": [
        *(0, "x", {}, [], [-1], [1.5], [None], [[0]], [7], ["nowhere"], NESTED),
        [0] * MILLION,
        ["x" * MILLION],
        ["*a" * 400],
    ],
    "overrides": [
        *(
            None,
            [],
            "x",
            1,
            {"": {}},
            {"-1": {}},
            {"7": {}},
            {"0": None},
            {"0": {"layers": [0]}},
            {"0": {"alpha": 9}},
            DEEP,
        ),
        {str(i): {} for i in range(100_000)},
        {"0": {str(i): 0 for i in range(100_000)}},
        {"9" * 5000: {"beta": 2.0}},
        {"0": {"steps": 10**9}},
        {"0": {"backend": "no_such_backend"}},
    ],
    "learn_alpha": [0, 1, "true", None, []],
    "learn_beta": [0, "x", None, DEEP],
    "backend": [0, None, "", "no_such_backend", "os.system", [], "x" * MILLION],
    "unknown": [1],
}
ENTRIES = {
    "base_model_type": [
        *("sparse_hopfield", None, "", "no_such_family", "os.system", 1, [], {}, ["bert"], NESTED, "x" * MILLION),
        "sparse_hopfield_multiple_instance",
    ],
    "architectures": [
        ["os.system"],
        ["BertTokenizer"],
        ["BertConfig"],
        ["AutoModel"],
        ["pipeline"],
        "BertModel",
        {},
        [1],
        [""],
    ]
    + [["SparseHopfieldBertConfig"], [None], NESTED, ["x " * MILLION]],
    "sparse_hopfield": [None, [], "x", 1, True, NESTED, DEEP, [0] * MILLION, {str(i): 0 for i in range(100_000)}],
}
CASES = [(f"{NAME}.{field}", {NAME: {field: value}}) for field, values in SETTINGS.items() for value in values] + [
    (field, {field: value}) for field, values in ENTRIES.items() for value in values
]


def write_config(path, config, changes):
    changed = {**config, **changes}
    if isinstance(changes.get(NAME), dict):
        changed[NAME] = {**config[NAME], **changes[NAME]}
    (path / "config.json").write_text(json.dumps(changed))


@road("a damaged or hostile config.json", "refused")
def test_hostile_configurations(checkpoint, tmp_path):
    """Over a hundred wrong values on disk: types, ranges, NaN, names that are no models, nesting, lists of a million."""
    config = json.loads((checkpoint / "config.json").read_text())
    shutil.copy(checkpoint / "model.safetensors", tmp_path)
    for field, changes in CASES:
        write_config(tmp_path, config, changes)
        start = time.process_time()
        with pytest.raises((ValueError, TypeError)) as error:
            AutoModelForMaskedLM.from_pretrained(tmp_path)
        seconds = time.process_time() - start
        told = str(error.value)
        where = (field, told[:200])
        assert len(told) < 900 and (field.rpartition(".")[2] in told or "backend must be" in told), where
        assert seconds < 1, (seconds, *where)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["auto", "bert", "0"]),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(max_size=5), values, max_size=3),
    max_leaves=6,
)


@settings(max_examples=25)
@given(field=st.sampled_from([*SETTINGS, *ENTRIES]), value=json_values)
def test_any_json_is_read_or_refused_cleanly(checkpoint, field, value):
    """Whatever JSON a field holds: the configuration loads, or a ValueError or TypeError says why."""
    config = json.loads((checkpoint / "config.json").read_text())
    changed = {**config, field: value} if field in ENTRIES else {**config, NAME: {**config[NAME], field: value}}
    changed = json.loads(json.dumps(changed))
    try:
        loaded = transformers.CONFIG_MAPPING[NAME].from_dict(changed)
    except (ValueError, TypeError) as error:
        assert field in str(error) and len(str(error)) < 900
    else:
        assert loaded.sparse_hopfield is not None


@road("an empty or missing list of architectures, or one of an unknown class", "equal")
def test_architectures_that_name_nothing(checkpoint, converted, tmp_path):
    """The class that loads a checkpoint decides; logits are equal."""
    config = json.loads((checkpoint / "config.json").read_text())
    shutil.copy(checkpoint / "model.safetensors", tmp_path)
    for architectures in (None, [], ["SparseHopfieldMyModel"], ["BertForMaskedLM"]):
        write_config(tmp_path, config, {"architectures": architectures})
        assert_equal(AutoModelForMaskedLM.from_pretrained(tmp_path), converted)


@road("checkpoints saved by earlier versions", "equal")
def test_checkpoints_of_earlier_versions(checkpoint, converted, tmp_path):
    """A config.json as version 0.1 wrote it, without the name of the attention, loads; so do the default settings."""
    config = json.loads((checkpoint / "config.json").read_text())
    assert config.pop("attn_implementation") == NAME
    shutil.copy(checkpoint / "model.safetensors", tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    for cls in (AutoModelForMaskedLM, transformers.BertForMaskedLM):
        assert_equal(cls.from_pretrained(tmp_path), converted)
    default = to_sparse_hopfield(tiny_model("llama"))
    default.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())[NAME] == default.config.sparse_hopfield
    assert_equal(AutoModelForCausalLM.from_pretrained(tmp_path), default, "llama")
    assert default.config.vocab_size == VOCABULARY
