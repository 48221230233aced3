# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The benchmark of continuous batching."""

import importlib.util
from pathlib import Path

from ..tiny_models import tiny_model


PATH = Path(__file__).parents[2] / "examples" / "benchmarks" / "serving.py"


def load_script():
    specification = importlib.util.spec_from_file_location("serving_benchmark", PATH)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_both_attentions_take_turns(tmp_path):
    benchmark = load_script()
    tiny_model("llama").save_pretrained(tmp_path)
    options = "--requests 2 --prompt 3 9 --new 4 --rounds 1 --batch_tokens 16"
    arguments = benchmark.parse_arguments(["--model", str(tmp_path), *options.split()])
    models = {attention: benchmark.load(arguments, attention) for attention in benchmark.ATTENTIONS}
    assert [model.config._attn_implementation for model in models.values()] == list(benchmark.ATTENTIONS)
    assert benchmark.serve(models["sdpa"], arguments) != benchmark.serve(models["sparse_hopfield"], arguments)
    assert all(wall > 0 and processor > 0 for wall, processor in benchmark.measure(models, arguments).values())
