# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The accelerate configurations of the examples, as far as they can be checked without a GPU.

accelerate itself reads them, makes the command that it would start, and its plugins; where FSDP2 and DeepSpeed can do on CPUs what
they do on GPUs, two processes train. accelerate knows both for accelerators only; `run_cases.py` overrides that one check.
"""

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from accelerate import DeepSpeedPlugin, FullyShardedDataParallelPlugin
from accelerate.commands import launch as accelerate_launch
from accelerate.commands.config.config_args import load_config_from_file
from accelerate.utils import compare_versions
from accelerate.utils.fsdp_utils import fsdp2_prepare_auto_wrap_policy
from safetensors.torch import load_file
from torch.distributed.fsdp import StateDictType

from hf_sparse_hopfield import (
    SparseHopfieldCrossformerConfig,
    SparseHopfieldCrossformerForPrediction,
    to_sparse_hopfield,
)
from hf_sparse_hopfield.retrieval_parameters import RetrievalParameters
from tests.roads.table import road
from tests.tiny_models import tiny_model

from . import launch
from .test_distributed import LEARNED, check_equal, in_processes


FILES = sorted(launch.CONFIGS.glob("*.yaml"))
each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
wraps_layers_by_class = pytest.mark.skipif(
    compare_versions("accelerate", "<", "1.14"), reason="accelerate 1.13 wraps only layers that are named to it"
)

# Of each file: the number of processes, and some of the environment that its processes get.
MEANING = {
    "cpu_multi_process": (2, {"ACCELERATE_MIXED_PRECISION": "no"}),
    "deepspeed_zero2": (2, {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2"}),
    "deepspeed_zero3": (2, {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3"}),
    "fsdp": (2, {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}),
    "multi_gpu": (2, {}),
    "single_gpu": (1, {"CUDA_VISIBLE_DEVICES": "0"}),
}


@pytest.fixture
def launched(monkeypatch):
    """A function that runs `accelerate launch` up to the start of processes: their number, command line and environment."""
    started = []

    def run(arguments) -> None:
        script = [arguments.training_script, *arguments.training_script_args]
        started.append((int(arguments.nproc_per_node), script, dict(os.environ)))

    def popen(command, env):
        started.append((1, command[1:], env))
        return SimpleNamespace(wait=lambda: None, returncode=0)

    monkeypatch.setattr("torch.distributed.run.run", run)
    monkeypatch.setattr(accelerate_launch, "subprocess", SimpleNamespace(Popen=popen))
    if importlib.util.find_spec("deepspeed") is None:  # the launcher takes one name from it, for several machines
        monkeypatch.setattr(accelerate_launch, "is_deepspeed_available", lambda: True)
        for name in ("deepspeed", "deepspeed.launcher", "deepspeed.launcher.runner"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        sys.modules["deepspeed.launcher.runner"].DEEPSPEED_ENVIRONMENT_NAME = ""

    def launched(file: Path, *options: str) -> tuple[int, list[str], dict[str, str]]:
        parser = accelerate_launch.launch_command_parser()
        command = ["--config_file", str(file), *options, "train.py", "--output_dir", "out"]
        accelerate_launch.launch_command(parser.parse_args(command))
        return started.pop()

    return launched


@each_file
def test_accelerate_knows_every_key(file):
    config = load_config_from_file(str(file))  # refuses unknown keys, but does not look into dicts
    known = {action.dest for action in accelerate_launch.launch_command_parser()._actions}
    for name in ("fsdp_config", "deepspeed_config", "parallelism_config", "dynamo_config"):
        assert getattr(config, name).keys() <= known, name


@each_file
def test_accelerate_launches_what_the_file_says(file, launched):
    processes, script, environment = launched(file)
    expected, variables = MEANING[file.stem]
    assert processes == expected
    assert script == ["train.py", "--output_dir", "out"]
    assert environment.items() >= {"ACCELERATE_MIXED_PRECISION": "bf16", **variables}.items()
    # the number of GPUs is the one thing that everybody has to change
    if expected > 1:
        assert launched(file, "--num_processes", "8")[0] == 8


@pytest.fixture
def fsdp_plugin(launched, monkeypatch):
    """The plugin that accelerate makes of fsdp.yaml in each process, with more options of the launcher."""

    def plugin(*options: str) -> FullyShardedDataParallelPlugin:
        for name, value in launched(launch.CONFIGS / "fsdp.yaml", *options)[2].items():
            monkeypatch.setenv(name, value)
        return FullyShardedDataParallelPlugin()

    return plugin


def test_fsdp_shards_in_bfloat16_and_saves_whole_checkpoints(fsdp_plugin):
    plugin = fsdp_plugin()
    assert plugin.fsdp_version == 2 and plugin.reshard_after_forward is True
    assert plugin.state_dict_type == StateDictType.FULL_STATE_DICT
    assert not plugin.activation_checkpointing and not plugin.cpu_ram_efficient_loading
    plugin.set_mixed_precision(os.environ["ACCELERATE_MIXED_PRECISION"])
    policy = plugin.mixed_precision_policy
    assert policy.param_dtype == policy.reduce_dtype == torch.bfloat16
    assert fsdp_plugin("--fsdp_activation_checkpointing", "true").activation_checkpointing


MARIAN = ("--fsdp_transformer_layer_cls_to_wrap", "MarianEncoderLayer,MarianDecoderLayer")


@wraps_layers_by_class
@pytest.mark.parametrize(
    ("name", "options"),
    [*((name, ()) for name in ("llama", "gpt2", "bert", "vit", "t5", "bart", "crossformer")), ("marian", MARIAN)],
)
def test_fsdp_wraps_each_layer_with_its_alpha_and_beta(name, options, fsdp_plugin):
    """The layers that the classes of the models name, or that the README names for them."""
    if name == "crossformer":
        model = SparseHopfieldCrossformerForPrediction(
            SparseHopfieldCrossformerConfig(learn_alpha=True, learn_beta=True)
        )
    else:
        model = to_sparse_hopfield(tiny_model(name), LEARNED)
    is_wrapped = fsdp2_prepare_auto_wrap_policy(fsdp_plugin(*options), model)
    wrapped = [path for path, module in model.named_modules() if is_wrapped(module)]
    learned = [path for path, module in model.named_modules() if isinstance(module, RetrievalParameters)]
    assert learned
    around = {path: [layer for layer in wrapped if path.startswith(f"{layer}.")] for path in learned}
    assert all(len(layers) == 1 for layers in around.values()), around
    assert len({layers[0] for layers in around.values()}) > 1  # not the whole model in one piece


def test_marian_names_no_layers(fsdp_plugin):
    """What the README says: without the option, FSDP takes the model as one piece."""
    model = tiny_model("marian")
    is_wrapped = fsdp2_prepare_auto_wrap_policy(fsdp_plugin(), model)
    assert not any(map(is_wrapped, model.modules()))


@pytest.mark.parametrize("stage", [2, 3])
def test_deepspeed_gets_what_the_file_says(stage, launched, monkeypatch):
    for name, value in launched(launch.CONFIGS / f"deepspeed_zero{stage}.yaml")[2].items():
        monkeypatch.setenv(name, value)
    plugin = DeepSpeedPlugin()
    plugin.set_mixed_precision(os.environ["ACCELERATE_MIXED_PRECISION"])
    found = plugin.deepspeed_config
    assert found["zero_optimization"]["stage"] == stage and found["bf16"] == {"enabled": True}
    assert found["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] is (stage == 3)
    # the Trainer fills these in, and makes the optimizer: its parameter groups are ours
    for name in ("gradient_accumulation_steps", "gradient_clipping", "train_micro_batch_size_per_gpu"):
        assert found[name] == "auto"
    assert "optimizer" not in found and not plugin.zero3_init_flag


def changed(file: str, folder: Path, **changes: str) -> Path:
    """A copy of a configuration with other values."""
    lines = (launch.CONFIGS / file).read_text().splitlines()
    for key, value in changes.items():
        (place,) = (number for number, line in enumerate(lines) if line.strip().startswith(f"{key}:"))
        lines[place] = f"{lines[place].partition(key)[0]}{key}: {value}"
    (folder / file).write_text("\n".join(lines))
    return folder / file


def alone(case: dict, folder: Path) -> dict:
    """The case in one process."""
    (folder / "one").mkdir()
    return launch.here(in_processes([case], 1), folder / "one")[case["name"]]


@wraps_layers_by_class
def test_fsdp2_trains_in_bfloat16_with_activation_checkpointing(tmp_path):
    """fsdp.yaml with checkpointing, two processes; six steps have the losses of one process in bfloat16."""
    config = changed("fsdp.yaml", tmp_path, use_cpu="true", fsdp_activation_checkpointing="true")
    case = {"name": "sharded", "model": "llama", "sparse": LEARNED}
    one = alone({**case, "training": {"bf16": True}}, tmp_path)
    two = launch.together(in_processes([case], 2), tmp_path, config, "--fsdp_on_cpus")
    first = two[0]["sharded"]
    assert first["wrapper"].startswith("FSDP")
    check_equal({**case, "training": {"bf16": True}}, one, [results["sharded"] for results in two])
    learned = [name for name in first["parameters"] if "sparse_hopfield" in name]
    assert learned and all("_checkpoint_wrapped_module" in name for name in learned)
    # computed in bfloat16, whose numbers from 2 to 4 are 1 / 64 apart (each loss is the mean of two), but kept in float32
    assert all((loss * 128).is_integer() for loss in first["losses"].values())
    weights = torch.tensor([number for numbers in first["parameters"].values() for number in numbers])
    assert not torch.equal(weights, weights.bfloat16().float())


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="needs the package deepspeed")
@pytest.mark.parametrize("stage", [2, 3])
@road("DeepSpeed ZeRO-2 and ZeRO-3, `accelerate launch` with two processes", "equal")
def test_deepspeed_trains_like_one_process(stage, tmp_path):
    """Two processes on CPUs, in float32 and in bfloat16; losses are those of one process, and the checkpoint has its weights."""
    case = {"name": "plain", "model": "llama", "sparse": {**LEARNED, "sparsity_logging_steps": 3}}
    config = changed(f"deepspeed_zero{stage}.yaml", tmp_path, mixed_precision='"no"')
    sharded = {**case, "training": {"use_cpu": False, "save_strategy": "steps", "save_steps": 6}}
    one = alone({**case, "training": {"save_strategy": "steps", "save_steps": 6}}, tmp_path)
    two = launch.together(in_processes([sharded], 2), tmp_path, config, "--deepspeed_on_cpus")
    for results in two:
        assert results["plain"]["wrapper"] == "DeepSpeedEngine" and results["plain"]["world_size"] == 2
        assert results["plain"]["losses"] == pytest.approx(one["losses"], rel=1e-5)
    assert two[0]["plain"]["sparsity"].keys() == one["sparsity"].keys()
    saved, expected = (
        load_file(folder / "plain" / "checkpoint-6" / "model.safetensors") for folder in (tmp_path, tmp_path / "one")
    )
    torch.testing.assert_close(saved, expected, atol=1e-4, rtol=1e-3)

    half = {**sharded, "name": "half", "training": {"use_cpu": False, "bf16": True, "gradient_checkpointing": True}}
    config = launch.CONFIGS / f"deepspeed_zero{stage}.yaml"
    two = launch.together(in_processes([half], 2), tmp_path, config, "--deepspeed_on_cpus")
    assert two[0]["half"]["losses"] == pytest.approx(one["losses"], rel=5e-3)

    half["training"]["bf16"] = False  # what the README says: script and file must agree
    with pytest.raises(AssertionError, match="ds bf16.enabled=True vs hf bf16"):
        launch.together(in_processes([half], 2), tmp_path, config, "--deepspeed_on_cpus")
