# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A training script for tests, to be launched in one or several processes: `run_cases.py CASES.json`.

One launch trains several cases one after the other (starting processes is what takes long). A case is a dict:

- `name`: its results go to `<name>.<rank>.json` beside CASES.json, checkpoints to the directory `<name>`
- `model`: `llama`, `bert` or `layers` (a model made of Hopfield layers); `dropout`
- `sparse`: `SparseHopfieldArguments`; `layers`: which layers are sparse; `training`: `TrainingArguments`
- `resume`: what `train(resume_from_checkpoint=...)` gets; `checkpoints_of`: start with a copy of another case's directory
- `evaluate`: also before training
- `kill_at`: SIGKILL in the middle of writing the checkpoint of this step
"""

import hashlib
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import torch
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    TrainingArguments,
    training_args,
)

from hf_sparse_hopfield import SparseHopfieldPooling, to_sparse_hopfield
from hf_sparse_hopfield.integration.model_settings import LiveSettings
from hf_sparse_hopfield.training import SparseHopfieldArguments, SparseHopfieldTrainer


VOCABULARY, LENGTH, SAMPLES = 40, 12, 48
SMALL = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}


class PoolingConfig(PreTrainedConfig):
    """Of a model made of a Hopfield layer."""

    model_type = "test_pooling"

    def __init__(self, alpha=2.0, beta=1.0, steps=1, tolerance=0.0, learn_alpha=False, learn_beta=False, **kwargs):
        self.alpha, self.beta, self.steps, self.tolerance = alpha, beta, steps, tolerance
        self.learn_alpha, self.learn_beta = learn_alpha, learn_beta
        super().__init__(**kwargs)


class PoolingClassifier(PreTrainedModel):
    """Token embeddings, pooled by a Hopfield layer, classified."""

    config_class = PoolingConfig

    def __init__(self, config: PoolingConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(VOCABULARY, 32)
        self.pooling = SparseHopfieldPooling(
            32,
            num_heads=4,
            update_steps_max=config.steps - 1,
            update_steps_eps=config.tolerance,
            alpha=config.alpha,
            beta=config.beta,
            learn_alpha=config.learn_alpha,
            learn_beta=config.learn_beta,
        )
        self.head = nn.Linear(32, 2)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        pass

    def forward(self, input_ids, attention_mask=None, labels=None, **kwargs):
        padding = None if attention_mask is None else attention_mask == 0
        logits = self.head(self.pooling(self.embedding(input_ids), stored_pattern_padding_mask=padding))
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


def make_model(case: dict, arguments: SparseHopfieldArguments) -> PreTrainedModel:
    """The same for the same case, in any process."""
    torch.manual_seed(1)
    dropout = case.get("dropout", 0.0)
    if case["model"] == "layers":
        model = PoolingClassifier(PoolingConfig(**arguments.layer_settings()))
    elif case["model"] == "llama":
        model = LlamaForCausalLM(LlamaConfig(**SMALL, num_hidden_layers=2, attention_dropout=dropout))
    else:
        config = BertConfig(
            **SMALL, num_hidden_layers=2, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout
        )
        model = BertForSequenceClassification(config)
    if case.get("layers") is not None:
        return to_sparse_hopfield(model, {**arguments.layer_settings(), "layers": case["layers"]})
    # each process has its own: they must agree on what comes out
    generator = torch.Generator().manual_seed(int(os.environ.get("RANK", "0")))
    inputs = torch.randint(1, VOCABULARY, (arguments.calibration_batches, 4, LENGTH), generator=generator)
    return arguments.prepare(model, [{"input_ids": tokens} for tokens in inputs])


def make_data(case: dict) -> list[dict]:
    """Sequences of different lengths, padded: processes do not see equally many tokens."""
    generator = torch.Generator().manual_seed(2)
    samples = []
    for number in range(SAMPLES):
        tokens = torch.randint(1, VOCABULARY, (LENGTH,), generator=generator)
        mask = torch.ones(LENGTH, dtype=torch.long)
        if number % 3 == 0:
            tokens[LENGTH // 2 :], mask[LENGTH // 2 :] = 0, 0
        labels = tokens.masked_fill(mask == 0, -100) if case["model"] == "llama" else torch.tensor(number % 2)
        samples.append({"input_ids": tokens, "attention_mask": mask, "labels": labels})
    return samples


class CaseTrainer(SparseHopfieldTrainer):
    """Dies on demand, half through writing a checkpoint."""

    kill_at: int | None = None

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.state.global_step == self.kill_at:
            file = Path(output_dir, "optimizer.pt")
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
            os.kill(os.getpid(), signal.SIGKILL)


def digest(tree) -> str:
    """A checksum of all numbers in a nest of tensors, dicts and lists: equal for equal bits."""
    sha = hashlib.sha256()

    def add(node) -> None:
        if isinstance(node, torch.Tensor):
            node = node.full_tensor() if hasattr(node, "full_tensor") else node
            sha.update(node.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        elif isinstance(node, dict):
            for key in node:
                sha.update(str(key).encode())
                add(node[key])
        elif isinstance(node, (list, tuple)):
            for child in node:
                add(child)
        else:
            sha.update(repr(node).encode())

    add(tree)
    return sha.hexdigest()


def run(case: dict, folder: Path) -> dict:
    """Train one case."""
    start = time.monotonic()
    output = folder / case["name"]
    training = TrainingArguments(
        str(output),
        **{
            **{"max_steps": 6, "learning_rate": 1e-2, "weight_decay": 0.01, "logging_steps": 1, "report_to": "none"},
            **{"save_strategy": "no", "use_cpu": True, "disable_tqdm": True, "seed": 3},
            "ddp_find_unused_parameters": False,  # then DDP fails on a parameter without a gradient
            **case.get("training", {}),
        },
    )
    if "checkpoints_of" in case:
        if training.process_index == 0:
            shutil.copytree(folder / case["checkpoints_of"], output)
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
    arguments = SparseHopfieldArguments(**case.get("sparse", {}))
    trainer = CaseTrainer(
        make_model(case, arguments), training, train_dataset=make_data(case), sparse_hopfield_args=arguments
    )
    trainer.kill_at = case.get("kill_at")
    resume = case.get("resume")
    evaluated = trainer.evaluate(make_data(case))["eval_loss"] if case.get("evaluate") else 0.0
    trainer.train(resume_from_checkpoint=str(output / resume) if isinstance(resume, str) else resume)
    history = trainer.state.log_history
    return {
        "evaluated": evaluated,
        "losses": {entry["step"]: entry["loss"] for entry in history if "loss" in entry},
        "sparsity": {
            entry["step"]: {key: value for key, value in entry.items() if key.startswith("sparsity")}
            for entry in history
            if "sparsity/support" in entry
        },
        "weights": digest(trainer.model.state_dict()),
        "optimizer": digest(trainer.optimizer.state_dict()),
        "scheduler": digest(trainer.lr_scheduler.state_dict()),
        "random": digest(torch.random.get_rng_state()),
        "settings": LiveSettings(trainer.model).read() if arguments.sparse_hopfield else None,
        "parameters": {
            name: (p.full_tensor() if hasattr(p, "full_tensor") else p).detach().float().flatten()[:4].tolist()
            for name, p in trainer.model.named_parameters()
        },
        "world_size": training.world_size,
        "wrapper": type(trainer.model_wrapped).__name__,
        "checkpoints": sorted(path.name for path in output.glob("checkpoint-*")),
        "seconds": time.monotonic() - start,
    }


def allow_fsdp_on_cpus() -> None:
    """accelerate knows FSDP for accelerators only; torch can do it on CPUs, and so can the rest of accelerate."""
    original = AcceleratorState.__init__

    def __init__(self, *args, fsdp_plugin=None, **kwargs):
        original(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
        if fsdp_plugin is not None and self.distributed_type == DistributedType.MULTI_CPU:
            self.distributed_type, self.fsdp_plugin = DistributedType.FSDP, fsdp_plugin
            if self._mixed_precision != "no":
                fsdp_plugin.set_mixed_precision(self._mixed_precision)

    AcceleratorState.__init__ = __init__


def allow_deepspeed_on_cpus() -> None:
    """The same for DeepSpeed, whose own way to say it is `DS_ACCELERATOR=cpu`."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    PartialState._prepare_backend = lambda self, *_: ("gloo", DistributedType.MULTI_CPU)
    training_args.is_torch_bf16_gpu_available = lambda: True


def main() -> None:
    cases = Path(sys.argv[1])
    if "--fsdp_on_cpus" in sys.argv:
        allow_fsdp_on_cpus()
    if "--deepspeed_on_cpus" in sys.argv:
        allow_deepspeed_on_cpus()
    for case in json.loads(cases.read_text()):
        result = run(case, cases.parent)
        (cases.parent / f"{case['name']}.{os.environ.get('RANK', '0')}.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
