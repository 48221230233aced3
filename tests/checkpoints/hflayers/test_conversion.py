# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from conversion import convert_hflayers
from hf_sparse_hopfield import (
    SparseHopfield,
    SparseHopfieldForMultipleInstanceClassification,
    SparseHopfieldLayer,
    SparseHopfieldMultipleInstanceConfig,
    SparseHopfieldPooling,
)
from hf_sparse_hopfield.checkpoints import load_layers
from hf_sparse_hopfield.cli import run_script

from ...layers.formula import hopfield_formula, scramble, sparsemax


CASES = {
    "joint weights": (SparseHopfield, {"input_size": 12, "num_heads": 3, "alpha": 1.0}, []),
    "separate weights": (
        SparseHopfield,
        {"input_size": 12, "hidden_size": 5, "stored_pattern_size": 8, "pattern_projection_size": 6, "num_heads": 2},
        ["--alpha", "2"],
    ),
    "widths": (
        SparseHopfield,
        {"input_size": 12, "hidden_size": 5, "output_size": 9, "pattern_size": 7, "num_heads": 2, "alpha": 1.0},
        [],
    ),
    "pooling, three updates": (
        SparseHopfieldPooling,
        {"input_size": 12, "num_heads": 3, "quantity": 2, "alpha": 1.0, "update_steps_max": 3},
        ["--options", '{"update_steps_max": 3}'],
    ),
    "lookup": (SparseHopfieldLayer, {"input_size": 12, "quantity": 5, "alpha": 1.0}, []),
    "another epsilon": (
        SparseHopfield,
        {"input_size": 12, "num_heads": 3, "alpha": 1.0, "normalize_stored_pattern_eps": 0.3},
        ["--options", '{"normalize_stored_pattern_eps": 0.3}'],
    ),
    "norms without parameters": (
        SparseHopfield,
        {"input_size": 12, "num_heads": 3, "alpha": 1.0, "normalize_state_pattern_affine": False},
        ["--options", '{"normalize_state_pattern": true, "normalize_state_pattern_affine": false}'],
    ),
    "until convergence, a scaling for each head": (
        SparseHopfield,
        {"input_size": 12, "num_heads": 2, "alpha": 1.0, "scaling": [0.1, 0.3], "update_steps_max": -1},
        ["--options", '{"scaling": [0.1, 0.3], "update_steps_max": -1}'],
    ),
    "lookup, bare": (
        SparseHopfieldLayer,
        {"input_size": 12, "quantity": 5, "input_bias": False, "normalize_state_pattern": False}
        | {"lookup_weights_as_separated": True},
        ["--alpha", "2"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_layers_come_back_with_their_outputs(case, tmp_path, capsys):
    layer_class, arguments, options = CASES[case]
    layer = layer_class(**arguments).eval()
    scramble(layer)
    state = {f"encoder.{name}": value for name, value in layer.state_dict().items()}
    torch.save({"state_dict": {**state, "classifier.weight": torch.ones(2, 3)}}, tmp_path / "old.pt")
    heads = ["--num_heads", str(arguments.get("num_heads", 1))]
    command = [str(tmp_path / "old.pt"), str(tmp_path / "new"), *heads, *options]
    assert run_script(convert_hflayers, argv=command) == 0, capsys.readouterr().err
    loaded = load_layers(tmp_path / "new")
    assert list(loaded) == ["encoder."]
    bag = torch.randn(2, 7, 12)
    if layer_class is SparseHopfield:
        widths = (arguments.get("stored_pattern_size", 12), 12, arguments.get("pattern_projection_size", 12))
        bag = tuple(torch.randn(2, 3 if i == 1 else 7, width) for i, width in enumerate(widths))
    torch.testing.assert_close(loaded["encoder."](bag), layer(bag))


def test_sparse_fork_equals_the_formula(tmp_path):
    layer = SparseHopfield(12, hidden_size=4, num_heads=2)
    scramble(layer)
    torch.save(layer.state_dict(), tmp_path / "old.pt")
    argv = [str(tmp_path / "old.pt"), str(tmp_path / "new"), "--num_heads", "2", "--alpha", "2"]
    assert run_script(convert_hflayers, argv=argv) == 0
    (again,) = load_layers(tmp_path / "new").values()
    stored, state = torch.randn(2, 6, 12), torch.randn(2, 3, 12)
    expected, _, _ = hopfield_formula(
        layer.state_dict(), stored, state, stored, normalizer=sparsemax, num_heads=2, hidden_size=4
    )
    torch.testing.assert_close(again((stored, state, stored)).double(), expected, rtol=1e-4, atol=1e-5)


def test_wrong_head_count_is_found(tmp_path, capsys):
    layer = SparseHopfield(12, hidden_size=4, num_heads=2, alpha=1.0)
    scramble(layer)
    torch.save(layer.state_dict(), tmp_path / "old.pt")
    # the shapes fit one head of twice the size, too: that is for the user to know, and the formula agrees with it
    assert (
        run_script(convert_hflayers, argv=[str(tmp_path / "old.pt"), str(tmp_path / "new"), "--num_heads", "5"]) == 1
    )
    assert not (tmp_path / "new").exists()
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize("pooling", [True, False])
@pytest.mark.parametrize("embedding_layers", [0, 2])
def test_a_multiple_instance_classifier(pooling, embedding_layers, tmp_path, capsys):
    config = SparseHopfieldMultipleInstanceConfig(
        **{
            "input_size": 6,
            "embedding_layers": embedding_layers,
            "embedding_size": 12,
            "num_heads": 3,
            "head_size": 4,
        },
        **{"aggregation": "pooling" if pooling else "hopfield", "alpha": 1.0, "normalize": True, "num_labels": 4},
        **{"scaling": 0.3, "quantity": 2 if pooling else 1},
    )
    model = SparseHopfieldForMultipleInstanceClassification(config).eval()
    scramble(model)
    names = {"embedding": "emb", "aggregation": "pool", "classifier": "out"}
    state = {f"{names[name.split('.')[0]]}.{name.split('.', 1)[1]}": v for name, v in model.state_dict().items()}
    torch.save(state, tmp_path / "old.pt")
    argv = [str(tmp_path / "old.pt"), str(tmp_path / "new"), "--num_heads", "3", "--options", '{"scaling": 0.3}']
    renamed = ["pool.=aggregation.", "out.=classifier.", *(["emb.=embedding."] if embedding_layers else [])]
    assert run_script(convert_hflayers, argv=[*argv, "--model"]) == 1
    assert "--rename" in capsys.readouterr().err
    assert run_script(convert_hflayers, argv=[*argv, "--model", "--rename", *renamed]) == 0, capsys.readouterr().err
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "new").eval()
    assert type(loaded) is type(model)
    bags = torch.randn(2, 5, 6)
    torch.testing.assert_close(loaded(bags).logits, model(bags).logits)
    del state["out.bias"]
    torch.save(state, tmp_path / "old.pt")
    argv = [*argv, "--overwrite", "--model", "--rename", *renamed]
    assert run_script(convert_hflayers, argv=argv) == 1 and "classifier.bias" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, code, match",
    [
        (["--options", "[]"], 2, "JSON object"),
        (["--options", "{broken"], 2, "JSON object"),
        (["--num_heads", "0"], 1, "num_heads must be at least 1, got 0"),
        (["--options", '{"nonsense": 1}'], 1, "nonsense"),
        (["--rename", "x.=y."], 1, "OLD=NEW"),
    ],
)
def test_wrong_arguments(arguments, code, match, tmp_path, capsys):
    torch.save(SparseHopfield(12, alpha=1.0).state_dict(), tmp_path / "old.pt")
    argv = [str(tmp_path / "old.pt"), str(tmp_path / "new"), *arguments]
    if code == 2:
        with pytest.raises(SystemExit) as stop:
            run_script(convert_hflayers, argv=argv)
        assert stop.value.code == 2
    else:
        assert run_script(convert_hflayers, argv=argv) == 1
    error = capsys.readouterr().err
    assert match in error and "Traceback" not in error and not (tmp_path / "new").exists()
