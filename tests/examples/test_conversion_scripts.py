# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The scripts that compare converted models, on tiny ones."""

import importlib
import json
import sys

import numpy as np
import pytest
import torch
from scipy.io import wavfile
from transformers import AutoModelForCausalLM, ViTConfig, ViTForImageClassification, ViTImageProcessor

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.demo import make_tokenizer
from hf_sparse_hopfield.demo.text import TEXT

from ..tiny_models import tiny_model
from .conftest import EXAMPLES


@pytest.fixture
def conversion(monkeypatch):
    """Imports a script of `examples/conversion`."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "conversion"))
    names = []

    def imported(name):
        names.append(name)
        return importlib.import_module(name)

    yield imported
    for name in names:
        sys.modules.pop(name, None)


def _saved(tmp_path, family, **settings):
    tokenizer = make_tokenizer()
    tokenizer.pad_token = tokenizer.convert_ids_to_tokens(0)
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    dense = tiny_model(family, vocab_size=len(tokenizer))
    dense.save_pretrained(tmp_path / "dense")
    tokenizer.save_pretrained(tmp_path / "dense")
    to_sparse_hopfield(dense, settings).save_pretrained(tmp_path / "sparse")
    return ["--dense", str(tmp_path / "dense"), "--sparse", str(tmp_path / "sparse")]


def test_chat_compares_answers(conversion, tmp_path, capsys):
    chat = conversion("chat")
    assert len(set(chat.PROMPTS)) == 40
    models = _saved(tmp_path, "llama", alpha=2.0, beta=9.0)
    chat.main([*models, "--prompts", "2", "--tokens", "8", "--output", str(tmp_path / "answers")])
    assert "| sparse |" in capsys.readouterr().out
    figures = json.loads((tmp_path / "answers.json").read_text())
    assert set(figures) == {"dense", "sparse"} and len(figures["sparse"]["losses"]) == 2
    page = (tmp_path / "answers.md").read_text()
    assert page.count("\n## ") == 2 and page.count("**dense**") == 2 and page.count("**sparse**") == 2


def test_distillation_mixes_texts_and_lengths(conversion, tmp_path, capsys):
    models, text = _saved(tmp_path, "llama", alpha=2.0, beta=0.5), tmp_path / "text.txt"
    text.write_text(TEXT, encoding="utf-8")
    parts = ["--part", str(text), "16", "8", "--part", str(text), "64", "2"]
    parts += ["--tokenizer", models[1]]
    command = [*models[2:], *parts, "--tokens", "32", "--steps", "2", "--layer_steps", "1"]
    conversion("distillation").main([*command, "--output_dir", str(tmp_path / "distilled")])
    report = json.loads((tmp_path / "distilled" / "distillation.json").read_text())
    assert report["steps"] == 3 and report["tokens"] in (96, 128, 160), "three batches of 32 or 64 tokens"
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "distilled").config.sparse_hopfield.alpha == 2.0


def test_repeated_n_grams(conversion):
    repeated = conversion("chat").repeated
    assert repeated([1, 2, 3, 4, 5, 6]) == 0
    assert repeated([1, 2, 3, 4] * 3) == pytest.approx(5 / 9)
    assert repeated([1, 2]) == 0


def test_embeddings_are_compared(conversion, tmp_path, capsys):
    embeddings = conversion("embeddings")
    models = _saved(tmp_path, "bert", alpha=2.0)
    (tmp_path / "lines.txt").write_text("\n".join(TEXT.split(". ")[:20]))
    arguments = [*models, "--text", str(tmp_path / "lines.txt"), "--max_length", "16", "--batch_size", "8"]
    embeddings.main([*arguments, "--output", str(tmp_path / "figures.json")])
    found = json.loads((tmp_path / "figures.json").read_text())["sparse"]
    assert 0 < found["keys"] < 1 and 0 < found["cosine"] < 1 and 0 <= found["neighbours"] <= 1
    assert "| sparse |" in capsys.readouterr().out
    (tmp_path / "lines.txt").write_text("one\ntwo")
    with pytest.raises(ValueError, match="has 2 lines: 11 are needed"):
        embeddings.main([*arguments, "--output", str(tmp_path / "figures.json")])


def test_neighbours_in_common(conversion):
    overlap = conversion("embeddings").overlap
    points = torch.nn.functional.normalize(torch.randn(30, 8, generator=torch.Generator().manual_seed(0)), dim=-1)
    assert overlap(points, points) == 1
    assert overlap(points, points.flip(0)) < 0.9


def test_whisper_writes_down_what_it_heard(conversion, tmp_path):
    speech = conversion("speech")
    torch.manual_seed(0)
    torch.save({"dims": _SIZES, "model_state_dict": _openai_weights()}, tmp_path / "weights.pt")
    generator = np.random.default_rng(0)
    for name in ("train", "test"):
        wavfile.write(tmp_path / f"{name}.wav", 8000, generator.normal(0, 3000, 8000 * 6).astype("int16"))
    files = ["--weights", "weights.pt", "--train", "train.wav", "--test", "test.wav", "--output", "result.json"]
    arguments = [part if part.startswith("--") else str(tmp_path / part) for part in files]
    speech.main([*arguments, "--distill_steps", "2"])
    result = json.loads((tmp_path / "result.json").read_text())
    assert 0 < result["keys"] <= 1 and set(result["test.wav"]) == {"same", "dense", "sparse"}


_SIZES = {
    **{"n_mels": 80, "n_vocab": 50400, "n_audio_ctx": 1500, "n_audio_state": 8, "n_audio_head": 2, "n_audio_layer": 1},
    **{"n_text_ctx": 448, "n_text_state": 8, "n_text_head": 2, "n_text_layer": 1},
}


def _openai_weights():
    """Weights with OpenAI's names, as its checkpoints have them."""
    shapes = {
        "encoder.conv1.weight": (8, 80, 3),
        "encoder.conv1.bias": (8,),
        "encoder.conv2.weight": (8, 8, 3),
        "encoder.conv2.bias": (8,),
        "encoder.positional_embedding": (1500, 8),
        "decoder.positional_embedding": (448, 8),
        "decoder.token_embedding.weight": (50400, 8),
    }
    for block in ("encoder.blocks.0", "decoder.blocks.0"):
        for attention in ("attn", "cross_attn") if block.startswith("decoder") else ("attn",):
            for name in ("query", "key", "value", "out"):
                shapes[f"{block}.{attention}.{name}.weight"] = (8, 8)
                if name != "key":
                    shapes[f"{block}.{attention}.{name}.bias"] = (8,)
            shapes |= {f"{block}.{attention}_ln.{part}": (8,) for part in ("weight", "bias")}
        shapes |= {f"{block}.mlp_ln.{part}": (8,) for part in ("weight", "bias")}
        shapes |= {f"{block}.mlp.0.weight": (32, 8), f"{block}.mlp.0.bias": (32,)}
        shapes |= {f"{block}.mlp.2.weight": (8, 32), f"{block}.mlp.2.bias": (8,)}
    shapes |= {f"{name}.{part}": (8,) for name in ("encoder.ln_post", "decoder.ln") for part in ("weight", "bias")}
    return {name: torch.randn(shape).half() for name, shape in shapes.items()}


def test_image_classifiers_are_compared(conversion, tmp_path, capsys):
    vision = conversion("vision")
    generator = np.random.default_rng(0)
    images, labels = generator.integers(0, 255, (40, 8, 8), dtype=np.uint8), generator.integers(0, 3, 40)
    np.savez(tmp_path / "data.npz", x_train=images, y_train=labels, x_test=images[:12], y_test=labels[:12])
    sizes = {"image_size": 8, "patch_size": 2, "num_channels": 1, "num_labels": 3, "hidden_size": 16}
    sizes |= {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    ViTForImageClassification(ViTConfig(**sizes)).save_pretrained(tmp_path / "vit")
    ViTImageProcessor(image_mean=[0.5], image_std=[0.5]).save_pretrained(tmp_path / "vit")
    arguments = ["--model", str(tmp_path / "vit"), "--data", str(tmp_path / "data.npz"), "--batch_size", "8"]
    vision.main([*arguments, "--distill_steps", "4", "--output", str(tmp_path / "figures.json")])
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert figures["images"] == 12 and 0 < figures["distilled"]["keys"] <= 1
    assert figures["dense"]["difference"] == 0 and "| calibrated |" in capsys.readouterr().out
