# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The count of tiles: against the definition, against the kernels themselves, and on a tiny model."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from hf_sparse_hopfield import entmax

from ..backends.triton.conditions import needs_triton
from ..processes import run_python
from .test_memory import write_encoder


PATH = Path(__file__).parents[2] / "examples" / "benchmarks" / "tile_shares.py"
BESIDE_KERNELS = f"""
import os
os.environ["TRITON_INTERPRET"] = "1"  # before triton is imported
import importlib.util, torch
specification = importlib.util.spec_from_file_location("tile_shares", {str(PATH)!r})
script = importlib.util.module_from_spec(specification)
specification.loader.exec_module(script)
from hf_sparse_hopfield.backends.triton import launch
from hf_sparse_hopfield.backends.triton.settings import Settings

torch.manual_seed(0)
query, key, value = torch.randn(3, 1, 1, 128, 16)
query, key = (x + 3 * torch.randn(8, 16).repeat_interleave(16, 0) for x in (query, key))
settings = dict.fromkeys(Settings._fields, None)
settings |= {{"scaling": 0.25, "beta_value": 4.0, "alpha_value": 1.5, "is_causal": True, "window": 0, "softcap": 0.0, "dropout": 0.0}}
_, kept = launch.forward(query, key, value, Settings(**settings), torch.float32, True)
scores = script.visible_scores(query[0, 0], key[0, 0], 0, 128, 0.25 * 4, True)
counts = script.count_tiles(scores, 1.5, script.TileShape(16, 16), 8)
listed = (counts["backward"] - 4 * counts["weight"]) // 5
print(kept.counts.sum().item() == listed, kept.flags.sum().item() == counts["weight"], counts["weight"] < counts["tiles"])
"""


@pytest.fixture(scope="module")
def script():
    specification = importlib.util.spec_from_file_location("tile_shares", PATH)
    module = importlib.util.module_from_spec(specification)
    sys.modules["tile_shares"] = module
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0])
@pytest.mark.parametrize("strength", [0.0, 0.1, 1.0])
def test_tiles_are_those_with_weight(script, alpha, strength):
    topics = 2 * torch.randn(8, 16).repeat_interleave(32, 0)  # neighbours are alike
    query, key = topics + torch.randn(256, 16), topics.flip(0) + torch.randn(256, 16)
    scores = script.visible_scores(query, key, 128, 256, strength, True)
    weights = entmax(scores.double(), alpha) > 0
    counts = script.count_tiles(scores, alpha, script.TileShape(64, 32), 8)
    assert counts["weight"] == weights.view(2, 64, 8, 32).any(3).any(1).sum()
    assert abs(counts["support"] - weights.sum()) <= 3  # rounding
    assert counts["visible"] == sum(range(129, 257)) and counts["tiles"] == 6 + 8
    assert counts["weight"] <= counts["bounded"] <= counts["surveyed"] <= counts["tiles"]
    assert counts["forward"] >= counts["tiles"] + counts["surveyed"]
    assert counts["backward"] >= 9 * counts["weight"]
    assert (counts["weight"] == 14) == (strength == 0)


def test_rows_with_few_candidates_collect_them(script):
    scores = torch.full((64, 512), -9.0)
    scores[torch.arange(64), torch.arange(64) * 8] = 0.0  # each row has one key, in many blocks
    counts = script.count_tiles(scores, 2.0, script.TileShape(64, 64), 8)
    assert counts["collecting"] == 1 and counts["support"] == 64 and counts["weight"] == 8
    assert counts["forward"] == 8 + 8 and counts["passes"] == 2
    flat = script.count_tiles(torch.zeros(64, 512), 2.0, script.TileShape(64, 64), 8)
    assert flat["collecting"] == 0 and flat["support"] == 64 * 512
    assert flat["forward"] == 8 * (1 + flat["passes"] + 2) and flat["backward"] == 9 * 8
    near = script.count_tiles(scores[:, :64].clone().fill_(0.0), 2.0, script.TileShape(64, 64), 8)
    assert near["collecting"] == 0  # one tile is no reason to collect


def test_the_survey_goes_from_the_last_key_to_the_first(script):
    rising = torch.arange(8.0).repeat_interleave(64).expand(64, -1)
    counts = script.count_tiles(rising, 2.0, script.TileShape(64, 64), 8)
    assert counts["surveyed"] == counts["weight"] == 1
    falling = script.count_tiles(rising.flip(1), 2.0, script.TileShape(64, 64), 8)
    assert falling["surveyed"] == 8 and falling["weight"] == 1  # each tile raises the maximum


@needs_triton
def test_the_kernels_visit_what_is_counted():
    assert run_python(BESIDE_KERNELS).split() == ["True", "True", "True"]


def test_the_command_counts_causal_and_full_attention(script, tmp_path, capsys):
    words = [f"word{number % 7} and{number % 11}" for number in range(3000)]
    (tmp_path / "text.txt").write_text(" ".join(words))
    write_encoder(tmp_path / "encoder", words)
    write_encoder(tmp_path / "decoder", words)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    config = LlamaConfig(vocab_size=99, **sizes, num_key_value_heads=2, max_position_embeddings=256)
    LlamaForCausalLM(config).save_pretrained(tmp_path / "decoder")
    arguments = ["--model", tmp_path / "encoder", "128", "--model", tmp_path / "decoder", "128", "256"]
    arguments += ["--text", tmp_path / "text.txt", "--output", tmp_path / "out", "--calibration_windows", "1"]
    arguments += ["--tiles", "64x32", "128x64", "--tokens", "256", "--spans", "1"]
    assert script.main([*map(str, arguments)]) == 0
    written = (tmp_path / "out" / "tile_shares.md").read_text()
    table = capsys.readouterr().out.strip()
    assert table in written and "--tokens 256" in written
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    assert len(rows) == 2 * 2 * 2 * 3  # betas, alphas, tiles; lengths of both models
    assert {(row[0], row[3]) for row in rows} == {("encoder", "128"), ("decoder", "128"), ("decoder", "256")}
    for row in rows:
        with_weight, surveyed, bounded = (float(row[place]) for place in (6, 7, 8))
        assert 0 < with_weight <= bounded <= surveyed <= 1

    arguments[2] = "1024"  # an encoder has 512 positions
    with pytest.raises(ValueError, match="windows of 512 tokens, not 1024"):
        script.main([*map(str, arguments)])


def test_lengths_that_are_not_whole_tiles_are_refused(script, capsys):
    with pytest.raises(SystemExit):
        script.parse_arguments(["--model", "x", "100", "--text", "y"])
    assert "multiples of 128" in capsys.readouterr().err
