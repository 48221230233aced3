# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The steps that every training script shares: train or resume, evaluate, count supports, write the summary, push."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from data_splits import first_batches
from feature_scale import Scale, save_scale
from resuming import starting_point
from script_arguments import Arguments
from transformers import PreTrainedModel, Trainer, TrainingArguments, set_seed

from hf_sparse_hopfield.diagnostics import layer_sparsity
from hf_sparse_hopfield.files import write_json
from hf_sparse_hopfield.hub.cards import CARD_FILE, is_dense, model_card
from hf_sparse_hopfield.hub.push import push_folder
from hf_sparse_hopfield.hub.support_plot import shares_of
from hf_sparse_hopfield.layers import RetrievalParameters
from hf_sparse_hopfield.training.sparsity_logging import layer_means, own_random_numbers


logger = logging.getLogger("examples")

# Supports are counted on this many batches of this many samples.
_COUNTED = (8, 4)


def run(
    trainer: Trainer,
    arguments: Arguments,
    splits: dict[str, Any],
    task: str,
    keep: tuple[str, ...],
    test: Callable[[Any], dict[str, Any]] | None = None,
    scale: Scale | None = None,
) -> dict[str, Any]:
    """
    Train, evaluate and test as the arguments say; then count supports, write the summary and the model card, and push.

    Args:
        trainer ([`~transformers.Trainer`]): The trainer.
        arguments ([`Arguments`]): The arguments.
        splits (`dict[str, Dataset]`): Samples in the form the model takes.
        task (`str`): Pipeline tag, such as `text-classification`.
        keep (`tuple[str, ...]`): Endings of the names of the metrics that measure quality.
        test (`Callable`, *optional*): Computes the metrics of the test split, where `trainer.predict` does not.
        scale (`tuple[torch.Tensor, torch.Tensor]`, *optional*): From [`load_scale`], to save with the model.

    Returns:
        `dict`: `quality`, `support`, `speed` and the settings of the run, as written to `summary.json`.
    """
    training = arguments.training
    for flag, split in (("do_train", "train"), ("do_eval", "validation"), ("do_predict", "test")):
        if getattr(training, flag) and split not in splits:
            raise ValueError(f"--{flag} needs the split {split!r}, but the data have only {list(splits)}.")
    training_metrics = train(trainer, arguments, scale)
    measures = {}
    if training.do_eval:
        measures["eval"] = lambda: trainer.evaluate(splits["validation"])
    if training.do_predict:
        measures["test"] = lambda: test(splits["test"]) if test else trainer.predict(splits["test"]).metrics
    quality: dict[str, Any] = {}
    for name, measure in measures.items():
        set_seed(training.seed)  # a collator draws the same numbers whatever was trained before
        metrics = measure()
        trainer.save_metrics(name, metrics)
        quality |= {key: value for key, value in metrics.items() if key.endswith(keep)}
    return finish(trainer, arguments, splits, task, training_metrics, quality, scale)


def train(trainer: Trainer, arguments: Arguments, scale: Scale | None = None) -> dict[str, float]:
    """
    Train from the start or resume (see [`starting_point`]), then save the model and `scale`.

    Returns:
        `dict`: Trainer's metrics. If an earlier run was already finished, they are the metrics of that run.
    """
    training = arguments.training
    if not training.do_train:
        return {}
    checkpoint = on_first_process(training, starting_point, arguments)
    before = {"global_step": 0, "num_input_tokens_seen": 0}
    if checkpoint:  # read now: Trainer removes it once there are enough newer ones
        before |= json.loads(Path(checkpoint, "trainer_state.json").read_text(encoding="utf-8"))
        logger.info("resuming from %s", checkpoint)
    metrics = trainer.train(resume_from_checkpoint=checkpoint).metrics
    save(trainer, arguments, scale)
    if checkpoint and trainer.state.global_step == before["global_step"]:
        logger.info("%s is of the last step: there is nothing left to train", checkpoint)
        results = Path(training.output_dir, "train_results.json")
        return json.loads(results.read_text(encoding="utf-8")) if results.is_file() else {}
    if training.include_num_input_tokens_seen != "no":
        tokens = trainer.state.num_input_tokens_seen - before["num_input_tokens_seen"]
        metrics["train_tokens_per_second"] = tokens / metrics["train_runtime"]
    trainer.save_metrics("train", metrics)
    trainer.save_state()
    return metrics


def on_first_process(training: TrainingArguments, function: Callable, *args: Any) -> Any:
    """Call a function in the first process only. All processes get its result, or raise its error."""
    if training.world_size == 1:
        return function(*args)
    result, error = None, None
    if training.process_index == 0:
        try:
            result = function(*args)
        except Exception as raised:  # otherwise the other processes would wait forever
            error = raised
    result, error = broadcast_object_list([result, error])
    if error is not None:
        raise error
    return result


def save(trainer: Trainer, arguments: Arguments, scale: Scale | None) -> None:
    """Save the model and the scale of its features."""
    # An internal call does not push. The push comes at the end, with the summary and the model card.
    trainer.save_model(_internal_call=True)
    if scale is not None and trainer.is_world_process_zero():
        save_scale(arguments.training.output_dir, scale)


def count_support(
    trainer: Trainer, model: PreTrainedModel, splits: dict[str, Any]
) -> tuple[dict[str, float], dict[str, list[float]] | None]:
    """
    Count the keys that get weight, on the first samples of the validation data (or of the test or training data).

    Every process counts on all of these samples, so the result does not depend on the number of processes.

    Returns:
        `tuple`: Means for the summary, and the share of keys of each head for the card (`None` without Hopfield layers).
    """
    if not any(isinstance(module, RetrievalParameters) for module in model.modules()):
        # Softmax gives weight to every key. Attention pooling with another alpha is not counted.
        return ({"share_of_keys": 1.0} if is_dense(model) else {}), None
    dataset = next(splits[split] for split in ("validation", "test", "train") if split in splits)
    loader = trainer.get_eval_dataloader(dataset)
    with own_random_numbers(trainer.args.seed):
        batches = first_batches(loader.dataset, loader.collate_fn, *_COUNTED)
    layers = layer_sparsity(model, batches)
    means = layer_means(layers)
    return {"share_of_keys": 1 - means.pop("zero_share"), **means}, shares_of(layers)


def finish(
    trainer: Trainer,
    arguments: Arguments,
    splits: dict[str, Any],
    task: str,
    training_metrics: dict[str, float],
    quality: dict[str, Any],
    scale: Scale | None = None,
) -> dict[str, Any]:
    """
    End a script: count supports, print the summary, write `summary.json` and the model card, and push once at the end.

    Args:
        trainer, arguments, splits, task, scale: As for [`run`].
        training_metrics (`dict`): From [`train`].
        quality (`dict`): The metrics that measure quality.
    """
    training = arguments.training
    model = trainer.accelerator.unwrap_model(trainer.model, keep_torch_compile=False)
    support, shares = count_support(trainer, model, splits)
    summary = {
        "task": task,
        "quality": quality,
        "support": support,
        "speed": {
            key: value for key, value in training_metrics.items() if key.endswith(("_per_second", "train_runtime"))
        },
        "model": type(model).__name__,
        "parameters": model.num_parameters(),
        "seed": training.seed,
        "steps": trainer.state.global_step,
        "threads": torch.get_num_threads(),
        "command": arguments.command_line,
    }
    if training.push_to_hub and not training.do_train:
        save(trainer, arguments, scale)
    if not trainer.is_world_process_zero():
        return summary
    write_json(Path(training.output_dir, "summary.json"), summary)
    _print_summary(summary, training.output_dir)
    if training.do_train or training.push_to_hub:
        card = model_card(
            model,
            repo_id=trainer.hub_model_id if training.push_to_hub else None,
            base_model=arguments.model.model_name_or_path,
            support=shares,
            metrics=quality or None,
            dataset=arguments.data.dataset_name,
            command=arguments.command_line,
            pipeline_tag=task,
        )
        card.save(Path(training.output_dir, CARD_FILE))
    if training.push_to_hub:
        push_folder(
            training.output_dir,
            trainer.hub_model_id,
            training.hub_private_repo,
            token=training.hub_token,
            revision=training.hub_revision,
            commit_message="End of training",
        )
    return summary


def _print_summary(summary: dict[str, Any], output_dir: str) -> None:
    print(f"\n{summary['model']}, {summary['task']}, {summary['parameters']:,} parameters, seed {summary['seed']}")
    for title in ("quality", "support", "speed"):
        for key, value in summary[title].items():
            shown = f"{value:.4f}" if isinstance(value, float) else value
            print(f"  {title:8} {key.replace('_', ' '):32} {shown}")
    print(f"  written  {output_dir}")
