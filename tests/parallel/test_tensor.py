# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Tensor parallelism and FSDP2 of transformers, in real processes."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM, GraniteSWAConfig

from tests.roads.table import road

from . import run_tensor
from .checkpoints import write
from .launch import torchrun


TENSOR, SHARDED, BOTH = {"tp_size": 2}, {"fsdp_size": 2}, {"tp_size": 2, "fsdp_size": 2}
TOLERANCE = 1e-6


class Runs:
    """Runs cases of `run_tensor.py` in several processes at once, and one by one in this process."""

    def __init__(self, folder, cases, processes=2):
        self.folder, self.cases, self.processes = folder, cases, processes
        (folder / "cases.json").write_text(json.dumps(self._of("several"), default=str))
        torchrun("run_tensor.py", folder, processes=processes)

    def _of(self, which):
        """The cases, with the place where each saves its model."""
        saving = {
            n: {"output": self.folder / which / n} if f != "run_late" else {} for n, (f, _) in self.cases.items()
        }
        return {name: (function, {**given, **saving[name]}) for name, (function, given) in self.cases.items()}

    def one(self, name):
        """The result of one process."""
        function, arguments = self._of("one")[name]
        arguments = {key: value for key, value in arguments.items() if key not in ("sizes", "legacy")}
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return getattr(run_tensor, function)(**arguments)
        finally:
            torch.set_num_threads(threads)

    def several(self, name):
        """The result of each of the processes."""
        return [torch.load(self.folder / f"{name}.{i}.pt", weights_only=False) for i in range(self.processes)]

    def check_saved(self, name):
        """Both saved the same model, which loads in this process."""
        one, several = (
            AutoModelForCausalLM.from_pretrained(self.folder / which / name).state_dict()
            for which in ("one", "several")
        )
        assert one.keys() == several.keys()
        for key in one:
            torch.testing.assert_close(several[key], one[key], rtol=0, atol=TOLERANCE, msg=key)

    def check(self, name):
        """The processes computed, trained and saved what one process does."""
        one = self.one(name)
        for several in self.several(name):
            torch.testing.assert_close(several["logits"], one["logits"], rtol=0, atol=TOLERANCE)
            # the weights, compared below, may have moved apart by as much as the tolerance each
            torch.testing.assert_close(several["trained"], one["trained"], rtol=0, atol=20 * TOLERANCE)
            assert torch.equal(several["tokens"], one["tokens"])
            assert several["losses"] == pytest.approx(one["losses"], abs=TOLERANCE)
            for layer, quantities in one["report"].items():
                for quantity, heads in quantities.items():
                    # a weight of nearly zero may count or not
                    assert several["report"][layer][quantity] == pytest.approx(heads, abs=0.05), (layer, quantity)
        assert one["losses"][0] > one["losses"][-2] + 1e-3
        self.check_saved(name)

    def check_trainer(self, name):
        """The Trainer logged and saved the same."""
        one = self.one(name)
        assert any("sparsity/support" in entry for entry in one)
        for entry, several in zip(one, self.several(name)[0], strict=True):
            assert several == pytest.approx(entry, rel=1e-2 if "sparsity/support" in entry else 1e-5)
        self.check_saved(name)


# transformers 5.20 gives each process the sinks of all heads.
SHARDS_SINKS = "layers.*.self_attn" in GraniteSWAConfig.base_model_tp_plan


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tensor")
    paths = {name: write(name, folder / "checkpoints") for name in ("llama", "phi", "granite_swa", "one_key")}
    dense = write("llama", folder / "dense", sparse=False)
    sinks = {"sinks": ("run", {"checkpoint": paths["granite_swa"], "sizes": TENSOR})} if SHARDS_SINKS else {}
    return Runs(
        folder,
        {
            **sinks,
            "grouped": ("run", {"checkpoint": paths["llama"], "sizes": TENSOR}),
            "plan": ("run", {"checkpoint": paths["phi"], "sizes": TENSOR, "legacy": True}),
            "one_key": ("run", {"checkpoint": paths["one_key"], "sizes": TENSOR}),
            "trainer": ("run_trainer", {"checkpoint": paths["llama"], "sizes": TENSOR}),
            "sharded": ("run", {"checkpoint": paths["llama"], "sizes": SHARDED}),
            "late_tensor": ("run_late", {"dense": dense, "sizes": TENSOR}),
            "late_sharded": ("run_late", {"dense": dense, "sizes": SHARDED}),
        },
    )


@road("tensor parallel, `DistributedConfig(tp_size=2)`, alpha and beta per head or learned", "equal")
def test_tensor_parallel_equals_one_process(runs):
    """Logits, generate, sparsity report, training with accumulation and the saved checkpoint, in two processes and in one."""
    runs.check("grouped")
    if SHARDS_SINKS:
        runs.check("sinks")


@road('tensor parallel, `tp_plan="auto"`', "equal")
def test_tp_plan_equals_one_process(runs):
    """Logits, generate, training and the saved checkpoint of a model with multi-head attention, in two processes."""
    runs.check("plan")


@road("tensor parallel with fewer key and value heads than processes", "refused")
def test_too_few_key_heads_are_refused(runs):
    """transformers splits the one key head between two processes, and raises."""
    for result in runs.several("one_key"):
        assert isinstance(result, RuntimeError) and "is invalid for input of size" in str(result)


@road("tensor parallel training by the Trainer (accelerate's `ParallelismConfig(tp_size=2)`)", "equal")
def test_the_trainer_trains_a_tensor_parallel_model(runs):
    """Losses, gradient norms, sparsity logs and the saved checkpoint, in two processes and in one."""
    runs.check_trainer("trainer")


@road("FSDP2 of transformers, `DistributedConfig(fsdp_size=2)`", "equal")
def test_fsdp2_of_transformers_equals_one_process(runs):
    """Logits, generate, training with half of each batch per process and the saved checkpoint, in two processes and in one."""
    runs.check("sharded")


@road("tensor parallel of a dense checkpoint that becomes sparse while it is loaded, or afterwards", "equal")
def test_a_model_may_become_sparse_after_it_is_tensor_parallel(runs):
    """Logits and the gradient of a learned beta, in two processes and in one."""
    one = runs.one("late_tensor")
    for several in runs.several("late_tensor"):
        for name, value in one.items():
            torch.testing.assert_close(several[name], value, rtol=0, atol=TOLERANCE, msg=name)


@road("FSDP2 of a dense checkpoint that learns beta, made sparse after it is sharded", "refused")
def test_learned_settings_must_be_there_before_fsdp2(runs):
    """Made sparse while it loads, it has equal logits; made sparse later, it raises: FSDP2 would miss the new parameters."""
    one = runs.one("late_sharded")
    for several in runs.several("late_sharded"):
        torch.testing.assert_close(several["while loaded"], one["while loaded"], rtol=0, atol=TOLERANCE)
        assert "Make the model sparse before it is sharded" in several["afterwards"]


@pytest.mark.slow
@road("FSDP2 with tensor parallel, `DistributedConfig(fsdp_size=2, tp_size=2)`", "equal")
def test_fsdp2_with_tensor_parallel_equals_one_process(tmp_path):
    """Logits, generate, training (a loop and the Trainer) and the saved checkpoints, in four processes and in one."""
    path = str(write("llama", tmp_path / "checkpoints"))
    cases = {
        "both": ("run", {"checkpoint": path, "sizes": BOTH}),
        "trainer": ("run_trainer", {"checkpoint": path, "sizes": BOTH}),
    }
    runs = Runs(tmp_path, cases, processes=4)
    runs.check("both")
    runs.check_trainer("trainer")


@pytest.mark.slow
def test_projections_that_are_gathered_and_norms_of_heads(tmp_path):
    # in float64, because their norms of small numbers make rounding errors of float32 large
    folder = tmp_path / "checkpoints"
    paths = {name: str(write(name, folder, dtype=torch.float64)) for name in ("olmo2", "qwen3")}
    cases = {name: ("run_trainer", {"checkpoint": path, "sizes": TENSOR}) for name, path in paths.items()}
    runs = Runs(tmp_path, cases)
    for name in cases:
        runs.check_trainer(name)
