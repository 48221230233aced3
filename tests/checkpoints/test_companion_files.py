# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import json

from hf_sparse_hopfield.checkpoints import convert_checkpoint, dense_checkpoint


def test_what_other_libraries_keep_beside_is_kept(source, tmp_path):
    """Files of sentence-transformers, as MiniLM has them."""
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "secret").write_text("not of the checkpoint")
    modules = [{"idx": 0, "path": "", "type": "Transformer"}, {"idx": 1, "path": "1_Pooling", "type": "Pooling"}]
    modules += [{"idx": 3, "path": "../beside", "type": "Dense"}, {"idx": 4, "path": "..", "type": "Dense"}]
    kept = {
        "modules.json": json.dumps([*modules, {"idx": 2, "path": "2_Dense", "type": "Dense"}]),
        "sentence_bert_config.json": '{"max_seq_length": 256}',
        "config_sentence_transformers.json": "{}",
        "1_Pooling/config.json": '{"pooling_mode_mean_tokens": true}',
        "2_Dense/model.safetensors": "weights",
        "LICENSE": "free",
    }
    left = {"pytorch_model.bin": "old", "onnx/model.onnx": "dense", "README.md": "# MiniLM", ".hidden": "x"}
    for name, text in {**kept, **left}.items():
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text(text)
    convert_checkpoint(str(source), tmp_path / "new" / "sparse", {"alpha": 1.5})
    dense_checkpoint(str(tmp_path / "new" / "sparse"), tmp_path / "new" / "again")
    for directory in ("sparse", "again"):
        for name, text in kept.items():
            assert (tmp_path / "new" / directory / name).read_text() == text
        assert not any((tmp_path / "new" / directory / name).exists() for name in left if name != "README.md")
    assert not (tmp_path / "new" / "again" / "README.md").exists()  # it was about the sparse model
    assert not list((tmp_path / "new" / "again").glob("*.py"))
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["again", "sparse"]
