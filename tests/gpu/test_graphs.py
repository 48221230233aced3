# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""torch.compile with CUDA graphs, and CUDA graphs by hand."""

import pytest
import torch

from hf_sparse_hopfield import KeyScreen, retrieve

from ..tiny_models import tiny_inputs, tiny_model, tiny_output
from .comparing import assert_same, moved


pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("exact")]


@pytest.fixture(autouse=True)
def _fresh(device):
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def assert_graphs_were_used(device):
    if device == "cuda":
        from torch._dynamo.utils import counters  # the only place that tells

        assert counters["inductor"]["cudagraph_skips"] == 0


def patterns(device, seed, length=200):
    numbers = torch.randn(3, 2, 4, length, 64, generator=torch.Generator().manual_seed(seed)).to(device)
    return [tensor.clone().requires_grad_() for tensor in numbers]


def test_retrieve_with_reduced_overhead(device):
    def work(query, key, value):
        return retrieve(3 * query, key, value, alpha=1.5, is_causal=True)

    compiled = torch.compile(work, mode="reduce-overhead", fullgraph=True)
    for seed in range(4):  # the first calls record
        leaves = patterns(device, seed)
        if device == "cuda":
            torch.compiler.cudagraph_mark_step_begin()
        output = compiled(*leaves)
        gradients = torch.autograd.grad(output.square().sum(), leaves)
        expected = work(*leaves)
        assert_same(output, expected, f"output {seed}", 1e-4)
        right = torch.autograd.grad(expected.square().sum(), leaves)
        for name, a, b in zip(("query", "key", "value"), gradients, right, strict=True):
            assert_same(a, b, f"{name} {seed}")
    assert_graphs_were_used(device)


@pytest.mark.parametrize("name", ["llama", "bert"])
def test_a_model_with_reduced_overhead(name, device):
    model = tiny_model(name, "sparse_hopfield").to(device)
    options = {"use_cache": False} if name == "llama" else {}
    compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    with torch.no_grad():
        for seed in range(3):
            inputs = moved(tiny_inputs(name, length=24, seed=seed), device)
            expected = tiny_output(model, inputs, **options)
            assert_same(tiny_output(compiled, inputs, **options).clone(), expected, f"seed {seed}")
    assert_graphs_were_used(device)


def test_generate_with_a_static_cache(device):
    """transformers compiles the decoding step of a static cache by itself, with CUDA graphs."""
    model = tiny_model("llama", "sparse_hopfield").to(device)
    inputs = moved(tiny_inputs("llama", length=5), device)
    options = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False}
    expected = model.generate(**inputs, **options)
    assert torch.equal(model.generate(**inputs, **options, cache_implementation="static"), expected)


@pytest.mark.parametrize("screened", [True, False])
def test_decode_in_a_graph(screened, device):
    query = 3 * torch.randn(2, 8, 1, 64, device=device)
    key, value = torch.randn(2, 2, 2, 1500, 64, device=device)
    screen = KeyScreen(key) if screened else False
    output = torch.empty_like(query)

    def step():
        with torch.no_grad():
            output.copy_(retrieve(query, key, value, alpha=1.5, screen=screen))

    replay = step
    if device == "cuda":
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        replay = graph.replay
    for seed in range(3):
        query.copy_(3 * torch.randn(query.shape, generator=torch.Generator().manual_seed(seed)))
        replay()
        expected = retrieve(query, key, value, alpha=1.5, backend="reference")
        assert_same(output, expected, f"seed {seed}", 1e-4)


def test_no_host_waits_for_the_device(device):
    leaves = patterns(device, 0)
    retrieve(*leaves, alpha=1.5).sum().backward()  # compiles
    if device == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    try:
        retrieve(*leaves, alpha=1.5, is_causal=True).sum().backward()
        with torch.no_grad():
            retrieve(leaves[0][:, :, :1], *leaves[1:], alpha=1.5)
    finally:
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("default")
