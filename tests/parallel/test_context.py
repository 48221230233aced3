# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Context parallelism: the sequence sharded over processes.

`context_cases.py` is what the processes do; one launch serves all tests, as starting processes is what takes long.
"""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from hf_sparse_hopfield.parallel import context_parallel, retrieve_context_parallel
from hf_sparse_hopfield.parallel.active import activate, active
from hf_sparse_hopfield.parallel.context import sharded_positions

from ..roads.table import road
from ..tiny_models import tiny_model
from . import context_cases


QUICK = [
    *("double", "single", "bfloat16", "blocks", "disagreement", "models", "training", "refusals"),
    *("accelerated", "trained"),
]


def launch(processes: int, folder: Path, cases: list[str]) -> list[dict]:
    """The results of each process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={processes}", f"--master_port={port}"]
    done = subprocess.run(
        [*command, context_cases.__file__, str(folder), *cases],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        cwd=root,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    files = [folder / f"{rank}.json" for rank in range(processes)]
    assert done.returncode == 0 and all(file.exists() for file in files), done.stderr[-6000:]
    results = [json.loads(file.read_text()) for file in files]
    for result in results:
        for name in cases:
            assert "failed" not in result.get(name, {"failed": "not run"}), result.get(name)
    return results


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("context")


@pytest.fixture(scope="module")
def both(folder):
    """Results of two processes."""
    return launch(2, folder, QUICK)


def check(results: list[dict], case: str, limit: float) -> None:
    """Output and gradients are closer than `limit`."""
    for result in results:
        for name, worst in result[case].items():
            if "block" not in name:
                assert worst < limit, (case, name)


@road("Tensors sharded over processes: `retrieve_context_parallel`", "equal")
def test_tensors(both):
    """Two processes, random shards (uneven, empty, in any order), masks and settings; output and all gradients are those of one process."""
    check(both, "double", 1e-12)
    check(both, "single", 1e-6)
    check(both, "bfloat16", 1e-6)
    for result in both:  # the random problems are not all without them
        assert result["double"].keys() == {"output", "query", "key", "value", "alpha", "beta", "bias", "sinks"}


def test_no_process_holds_more_than_a_block_of_scores(both):
    check(both, "blocks", 1e-12)
    for result in both:
        assert 0 < result["blocks"]["largest block"] <= 256 + 64  # the sinks are one more column
        assert result["blocks"]["blocks"] > 50


def test_processes_that_disagree_raise_all(both):
    for rank, result in enumerate(both):
        for name in ("alpha", "heads"):
            assert (
                f"must pass equal arguments, up to the number of queries and keys; process {rank} has"
                in (result["disagreement"][name])
            )
        assert "positions must be a LongTensor with one position for each" in result["disagreement"]["positions"]
        assert "mask of shape (4, 4) does not broadcast" in result["disagreement"]["mask"]


@road("A model on its part of each sequence: `context_parallel(model, batch)`", "equal")
def test_models(both):
    """Two processes run llama, mistral, gpt-oss, gpt2, gemma2 and bert, padded, recomputed, half dense; loss and gradients are those of one process."""
    for result in both:
        for name, worst in result["models"].items():
            assert max(worst) < 1e-6, (name, worst)


@road("Training with `context_parallel` and DistributedDataParallel, then saving", "equal")
def test_training_and_loading(both, folder):
    """Two processes train a llama; losses are those of one process, and the saved model loads in another process with equal logits."""
    for result in both:
        losses = result["training"]
        assert losses["several"] == pytest.approx(losses["one"], abs=1e-6)
        assert losses["one"][0] - losses["one"][-1] > 0.5
    one, several = (AutoModelForCausalLM.from_pretrained(folder / name).eval() for name in ("one", "several"))
    tokens = context_cases.batch()["input_ids"]
    with torch.no_grad():
        torch.testing.assert_close(several(tokens).logits, one(tokens).logits, rtol=1e-5, atol=1e-5)


@road(
    "Whatever context parallelism does not support: packed sequences, dropout, own softmax, generation, ...", "refused"
)
def test_refusals(both):
    """Fourteen cases in two processes; each process raises, and none waits for the other."""
    expected = {
        "dropout": "does not support dropout",
        "output_attentions": "does not support output_attentions",
        "cu_seq_lens": "does not support cu_seq_lens of packed sequences",
        "packed": "context_parallel does not support packed sequences",
        "own mask": r"attention_mask of shape \(2, 1, 19, 19\) cannot be split",
        "own softmax": "self_attention compute their weights themselves",
        "encoder-decoder": "it is an encoder-decoder",
        "masked language model": "BertForMaskedLM does not compute transformers' loss of causal language models",
        "no sequence": r"labels of shape \(2,\) cannot be split",
        "dense": "it has no layer that retrieves sparsely",
        "outside": "Call `backward` inside the context",
        "observed": "does not support observation",
        "nested": "parallel contexts do not nest",
        "generate": "Generation is not supported",
    }
    for result in both:
        assert result["refusals"].keys() == expected.keys()
        for name, message in expected.items():
            assert re.search(message, result["refusals"][name]), (name, result["refusals"][name])


@road("accelerate: `ParallelismConfig(cp_size=2)` and `maybe_context_parallel`", "equal")
def test_accelerate(both):
    """Two processes, FSDP2, three ways in which torch splits a sequence; loss and gradients are those of one process."""
    for result in both:
        for name in ("balanced", "contiguous", "uneven", "right"):
            assert max(result["accelerated"][name]) < 1e-6, name


@road(
    "accelerate's context parallelism with padding on the left, packed sequences, or outside of its context", "refused"
)
def test_accelerate_drops_no_mask_silently(both):
    """Two processes; accelerate's hook drops the mask of a padded batch, and positions start anew."""
    for result in both:
        assert (
            "accelerate's context parallelism drops attention masks. Pad on the right" in result["accelerated"]["left"]
        )
        assert "packed sequences are not supported" in result["accelerated"]["packed"]
        assert "drops attention masks, but runs outside of its context" in result["accelerated"]["outside"]


@road("Trainer with `TrainingArguments(parallelism_config=ParallelismConfig(cp_size=2))`", "equal")
def test_trainer(both, tmp_path):
    """The real Trainer, two processes, FSDP2, three steps and an evaluation; losses are those of one process."""
    trainer = context_cases.make_trainer(tmp_path)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    evaluated = trainer.evaluate()["eval_loss"]
    assert len(losses) == 3 and losses[0] != losses[-1]
    assert both[0]["trained"]["losses"] == pytest.approx(losses, rel=1e-6)
    for result in both:
        assert result["trained"]["evaluated"] == pytest.approx(evaluated, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("processes", [3, 4])
@road("Context parallelism over three and four processes", "equal")
def test_more_processes(processes, tmp_path):
    """A hundred random problems and all models; output, loss and gradients are those of one process."""
    results = launch(processes, tmp_path, ["many", "blocks", "models"])
    check(results, "many", 1e-12)
    check(results, "blocks", 1e-12)
    for result in results:
        for name, worst in result["models"].items():
            assert max(worst) < 1e-6, (name, worst)


# ---- In this process ----


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("length, size", [(16, 2), (19, 3), (1, 4), (0, 2)])
def test_every_position_has_one_process(length, size, balanced):
    parts = sharded_positions(length, size, balanced)
    assert len(parts) == size
    assert torch.cat(parts).sort().values.tolist() == list(range(length))
    assert all((part.diff() > 0).all() for part in parts)  # so that what causality hides need not be computed


def test_without_processes():
    with pytest.raises(RuntimeError, match="need `torch.distributed.init_process_group` first"):
        retrieve_context_parallel(*torch.randn(3, 1, 2, 4, 8))
    with (
        pytest.raises(TypeError, match="needs a model of transformers, got Linear"),
        context_parallel(torch.nn.Linear(1, 1), {}),
    ):
        pass


def test_own_softmax_never_runs_on_a_part_of_the_keys():
    model = tiny_model("bloom", "sparse_hopfield")
    with activate(object()), pytest.raises(ValueError, match="BloomAttention computes its weights itself"):
        model(torch.randint(3, 90, (1, 8)))
    assert active() is None
    model(torch.randint(3, 90, (1, 8)))
