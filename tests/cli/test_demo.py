# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
from transformers import AutoModelForCausalLM

from hf_sparse_hopfield.cli import main


def test_demo(demo, capsys):
    for name in ("digits.png", "heads.png", "associations.png"):
        assert (demo / name).stat().st_size > 1000
    model = AutoModelForCausalLM.from_pretrained(demo / "model")
    assert type(model).__name__ == "SparseHopfieldLlamaForCausalLM"
    assert main(["demo", "--output_dir", str(demo)]) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert main(["demo", "--output_dir", str(demo.parent), "--overwrite"]) == 1
    assert "did not write, or that have changed since: out/" in capsys.readouterr().err
