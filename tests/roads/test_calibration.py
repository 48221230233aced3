# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Pretrained weights without calibration."""

import threading

import pytest
import torch
from transformers import AutoModelForCausalLM, pipeline

from hf_sparse_hopfield import calibrate, to_sparse_hopfield
from hf_sparse_hopfield.checkpoints import convert_checkpoint
from hf_sparse_hopfield.demo import make_tokenizer
from hf_sparse_hopfield.integration import uncalibrated

from ..processes import run_python
from ..tiny_models import tiny_model
from .table import road


# What a user sees of it: logging without any handler writes to stderr.
RUN = """
    import contextlib, io, sys
    import torch, transformers, hf_sparse_hopfield
    options = {"attn_implementation": sys.argv[1]} if sys.argv[1] else {}
    with contextlib.redirect_stderr(io.StringIO()) as stderr, torch.no_grad():
        for folder in sys.argv[2:]:
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, **options)
            for _ in range(2):
                model.generate(torch.tensor([[5, 6, 7, 8]]), max_new_tokens=2, do_sample=False)
    print(stderr.getvalue().count("without calibration"), "hf_sparse_hopfield.calibrate(" in stderr.getvalue())
"""


@pytest.fixture(scope="module")
def dense(tmp_path_factory):
    """A folder with pretrained weights."""
    folder = tmp_path_factory.mktemp("pretrained") / "dense"
    tokenizer = make_tokenizer()
    tiny_model("llama", vocab_size=len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def unwarned(monkeypatch):
    """As in a process that has not warned yet."""
    monkeypatch.setattr(uncalibrated, "_said", threading.Lock())


@road('`from_pretrained(dense, attn_implementation="sparse_hopfield")`, then `generate`', "warned")
def test_by_name(dense):
    """A new process generates twice; one warning says to calibrate or to fine-tune."""
    assert run_python(RUN, "sparse_hopfield", dense) == "1 True"


@road("`to_sparse_hopfield(pretrained)`, then `generate`", "warned")
def test_converted_in_memory(dense, caplog, unwarned):
    """The model generates twice; one warning says to calibrate or to fine-tune."""
    model = to_sparse_hopfield(AutoModelForCausalLM.from_pretrained(dense))
    for _ in range(2):
        model.generate(torch.tensor([[5, 6, 7, 8]]), max_new_tokens=2, do_sample=False)
    assert sum("without calibration" in message for message in caplog.messages) == 1


@road("a checkpoint that was converted without text", "warned")
def test_converted_on_disk(dense, tmp_path):
    """`convert` writes the checkpoint; a new process that loads it and generates is warned once."""
    convert_checkpoint(str(dense), tmp_path / "sparse", {"alpha": 1.5})
    assert run_python(RUN, "", tmp_path / "sparse") == "1 True"


@road("a checkpoint that was calibrated, or fine-tuned", "equal")
def test_calibrated_and_trained(dense, tmp_path):
    """A new process loads both and generates; there is no warning."""
    batches = [{"input_ids": torch.randint(3, 20, (2, 8))}]
    model, _ = calibrate(AutoModelForCausalLM.from_pretrained(dense), batches, refine_steps=0, progress=False)
    model.save_pretrained(tmp_path / "calibrated")
    trained = to_sparse_hopfield(AutoModelForCausalLM.from_pretrained(dense)).train()
    trained(**batches[0], labels=batches[0]["input_ids"]).loss.backward()
    trained.save_pretrained(tmp_path / "trained")
    assert run_python(RUN, "", tmp_path / "calibrated", tmp_path / "trained") == "0 False"


@road('`pipeline(model=dense, model_kwargs={"attn_implementation": "sparse_hopfield"})`', "warned")
def test_pipeline(dense, caplog, unwarned):
    """The pipeline writes two texts; one warning is logged."""
    options = {"attn_implementation": "sparse_hopfield"}
    generator = pipeline("text-generation", model=str(dense), model_kwargs=options, device="cpu")
    for _ in range(2):
        generator("sparse", max_new_tokens=2)
    assert sum("without calibration" in message for message in caplog.messages) == 1
