# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A model that is spread over two GPUs."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from hf_sparse_hopfield import retrieve

from ..tiny_models import tiny_inputs, tiny_model, tiny_output
from .comparing import assert_same, moved


pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("exact")]


def test_device_map(devices, tmp_path):
    first, second = devices
    model = tiny_model("llama", "sparse_hopfield", sparse_hopfield={"alpha": 1.5})
    model.save_pretrained(tmp_path)
    inputs = tiny_inputs("llama", length=40)
    expected = tiny_output(model, inputs).detach()
    places = {"model.embed_tokens": first, "model.rotary_emb": first, "model.layers.0": first}
    places |= {"model.layers.1": second, "model.norm": second, "lm_head": second}
    spread = AutoModelForCausalLM.from_pretrained(tmp_path, device_map=places, dtype=torch.float32)
    assert str(spread.model.layers[1].mlp.up_proj.weight.device) == second
    logits = tiny_output(spread, moved(inputs, first))
    assert_same(logits, expected, "logits", 5e-3)
    logits.square().mean().backward()
    assert all(p.grad is not None for p in spread.parameters())
    options = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False}
    assert torch.equal(spread.generate(**moved(inputs, first), **options).cpu(), model.generate(**inputs, **options))


def test_the_kernels_run_where_the_tensors_are(devices):
    """The current device is the first one; the tensors are on the second."""
    tensors = torch.randn(3, 1, 2, 100, 32)
    there = [tensor.to(devices[1]).requires_grad_() for tensor in tensors]
    output = retrieve(*there, alpha=1.5)
    assert str(output.device) == devices[1]
    assert_same(output, retrieve(*tensors, alpha=1.5), "", 1e-4)
    assert all(str(g.device) == devices[1] for g in torch.autograd.grad(output.sum(), there))
