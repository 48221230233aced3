# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The course of every training script: arguments, training or going on with it, evaluation, summary, model card, the Hub.

What it is about: `data_loading.py`, `modelling.py`, `language_modelling.py`.
"""

import dataclasses
import json
import logging
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate.utils import broadcast_object_list
from data_loading import DataArguments, first_batches
from modelling import ModelArguments
from transformers import HfArgumentParser, PreTrainedModel, Trainer, TrainingArguments, set_seed
from transformers.utils import cached_file

from hf_sparse_hopfield.diagnostics import layer_sparsity
from hf_sparse_hopfield.files import write_text
from hf_sparse_hopfield.hub.cards import CARD_FILE, is_dense, model_card
from hf_sparse_hopfield.hub.push import push_folder
from hf_sparse_hopfield.hub.support import shares_of
from hf_sparse_hopfield.layers import RetrievalParameters
from hf_sparse_hopfield.models import standardization
from hf_sparse_hopfield.training import SparseHopfieldArguments, last_whole_checkpoint
from hf_sparse_hopfield.training.sparsity import layer_means, own_random_numbers


logger = logging.getLogger("examples")

EXPERIMENT_FILE = "_experiment.json"  # "_": it has local paths and is not pushed
SCALE_FILE = "standardization.json"
# What a run may go on with in another way: it has no influence on what is trained.
_MAY_CHANGE = ("cache_dir", "test_file", "max_test_samples", "num_beams", "sparsity_logging_steps")
# Support sizes are counted on so many batches of so many samples.
_COUNTED = (8, 4)

Scale = tuple[torch.Tensor, torch.Tensor]


class Arguments(NamedTuple):
    """What [`parse_arguments`] has read."""

    model: ModelArguments
    data: Any
    sparse: SparseHopfieldArguments
    training: Any
    command_line: str


def parse_arguments(
    data_class: type[DataArguments],
    smoke: Sequence[str],
    argv: Sequence[str] | None = None,
    training_class: type[TrainingArguments] = TrainingArguments,
) -> Arguments:
    """
    Read the command line (or, if it is nothing but the name of a JSON file, that file), set up logging, and the seed.

    Args:
        data_class (`type`): [`DataArguments`], or a subclass with what a script needs besides.
        smoke (`Sequence[str]`): Arguments that `--smoke` stands for; those given beside it win.
        argv (`Sequence[str]`, *optional*): The arguments, instead of `sys.argv`.
        training_class (`type`, *optional*): [`~transformers.TrainingArguments`] or a subclass.
    """
    parser = HfArgumentParser((ModelArguments, data_class, SparseHopfieldArguments, training_class))
    argv = list(sys.argv[1:] if argv is None else argv)
    scratch = "--smoke" in argv and not any(word.partition("=")[0] == "--output_dir" for word in argv)
    if len(argv) == 1 and argv[0].endswith(".json"):
        parsed = parser.parse_json_file(argv[0])
    else:
        if scratch:  # of several processes, the first one's; it tells the others below
            is_first = os.environ.get("RANK", "0") == "0"
            argv += ["--output_dir", tempfile.mkdtemp(prefix="smoke-") if is_first else "smoke"]
        if "--smoke" in argv:
            argv = [*smoke, "--do_train", "--do_eval", "--do_predict", *argv]
        parsed = parser.parse_args_into_dataclasses(argv, look_for_args_file=False)
    training = parsed[-1]
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes > 1 and training.world_size == 1:
        raise ValueError(
            f"{processes} processes were launched (WORLD_SIZE={processes}), but each would train on its own, into the same "
            "output_dir: on CPUs, give --use_cpu to the script too; or launch a single process."
        )
    if scratch:
        training.output_dir = broadcast_object_list([training.output_dir])[0]
    if not training.output_dir:
        raise ValueError("--output_dir is missing: where are the model and the results to go?")
    training.dataloader_pin_memory &= training.device.type != "cpu"  # a warning at every evaluation otherwise
    level = logging.INFO if training.process_index == 0 else logging.WARNING
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    logger.setLevel(level)
    set_seed(training.seed)
    return Arguments(*parsed, shlex.join([os.path.basename(sys.argv[0]), *_without_token(argv)]))


def _without_token(argv: Sequence[str]) -> list[str]:
    """The command goes into the summary and the card, which are published."""
    return [
        word
        for before, word in zip(["", *argv], argv, strict=False)
        if before != "--hub_token" and word.partition("=")[0] != "--hub_token"
    ]


def on_first_process(training: TrainingArguments, function: Callable, *args: Any) -> Any:
    """What a function gives, called in the first process only: all processes get its result, or its error."""
    if training.world_size == 1:
        return function(*args)
    result, error = None, None
    if training.process_index == 0:
        try:
            result = function(*args)
        except Exception as raised:  # otherwise the others would wait for ever
            error = raised
    result, error = broadcast_object_list([result, error])
    if error is not None:
        raise error
    return result


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Write a JSON file that appears complete or not at all."""
    write_text(path, json.dumps(value, indent=2) + "\n")


def load_scale(arguments: Arguments, rows: torch.Tensor | None) -> Scale | None:
    """
    Mean and deviation to standardise features with: those of what is trained on; without training, those that the model was
    trained with.

    Args:
        arguments ([`Arguments`]): Whether there is training, and the model.
        rows (`torch.Tensor` of shape `(rows, columns)`, *optional*): The training data.
    """
    name = arguments.model.model_name_or_path
    if name and not arguments.training.do_train:
        quiet = ("missing_entries", "connection_errors")
        path = cached_file(name, SCALE_FILE, **{f"_raise_exceptions_for_{what}": False for what in quiet})
        if path is not None:
            scale = json.loads(Path(path).read_text(encoding="utf-8"))
            return tuple(torch.tensor(scale[key], dtype=torch.float64) for key in ("mean", "deviation"))
        logger.warning("%s has no %s: it was trained on data as they are, or elsewhere", name, SCALE_FILE)
    return None if rows is None else standardization(rows)


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
    Train, evaluate and test as the arguments say; support sizes, the summary, the model card, the Hub.

    Args:
        trainer ([`~transformers.Trainer`]): What trains.
        arguments ([`Arguments`]): The arguments.
        splits (`dict[str, Dataset]`): Samples as the model takes them.
        task (`str`): Pipeline tag, such as `text-classification`.
        keep (`tuple[str, ...]`): How the names of the metrics end that tell the quality.
        test (`Callable`, *optional*): Metrics of the test split, where `trainer.predict` is not the way.
        scale (`tuple[torch.Tensor, torch.Tensor]`, *optional*): From [`load_scale`], to be saved with the model.

    Returns:
        `dict`: `quality`, `support`, `speed` and how the run was made. It is in `summary.json`, too.
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
        set_seed(training.seed)  # of what a collator draws: the same, whatever was trained before
        metrics = measure()
        trainer.save_metrics(name, metrics)
        quality |= {key: value for key, value in metrics.items() if key.endswith(keep)}
    return finish(trainer, arguments, splits, task, training_metrics, quality, scale)


def train(trainer: Trainer, arguments: Arguments, scale: Scale | None = None) -> dict[str, float]:
    """
    Train from the start or go on, see [`starting_point`]; save the model, and `scale` beside it. Returns Trainer's metrics;
    those of the run before, where that was finished and nothing is left to train.
    """
    training = arguments.training
    if not training.do_train:
        return {}
    checkpoint = on_first_process(training, starting_point, arguments)
    before = {"global_step": 0, "num_input_tokens_seen": 0}
    if checkpoint:  # read now: when there are enough newer ones, Trainer removes it
        before |= json.loads(Path(checkpoint, "trainer_state.json").read_text(encoding="utf-8"))
        logger.info("going on from %s", checkpoint)
    metrics = trainer.train(resume_from_checkpoint=checkpoint).metrics
    save(trainer, arguments, scale)
    if checkpoint and trainer.state.global_step == before["global_step"]:
        logger.info("%s is of the last step: there was nothing left to train", checkpoint)
        results = Path(training.output_dir, "train_results.json")
        return json.loads(results.read_text(encoding="utf-8")) if results.is_file() else {}
    if training.include_num_input_tokens_seen != "no":
        tokens = trainer.state.num_input_tokens_seen - before["num_input_tokens_seen"]
        metrics["train_tokens_per_second"] = tokens / metrics["train_runtime"]
    trainer.save_metrics("train", metrics)
    trainer.save_state()
    return metrics


def starting_point(arguments: Arguments) -> str | None:
    """
    The checkpoint to go on from, by `--resume_from_checkpoint`: the last whole one in the output directory if there is one
    (without it, or `last`), which there must be (`True`), a given one (its path), or none (`no`). The experiment is written
    down; if the checkpoints there are of another one, that is an error, except for `no`, which moves them aside.
    """
    training = arguments.training
    folder = Path(training.output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    asked = str(training.resume_from_checkpoint or "last")
    experiment, found = experiment_of(arguments), sorted(folder.glob("checkpoint-*"))
    checkpoint = None
    if asked.lower() in ("no", "false"):
        if found:  # Trainer would count them as its own when it removes old ones, and so would the next resume
            aside = Path(tempfile.mkdtemp(prefix="_earlier-", dir=folder))  # "_": not pushed
            for path in found:
                path.rename(aside / path.name)
            logger.info("%d checkpoints of an earlier run were moved to %s", len(found), aside)
    else:
        if found:
            _refuse_another_experiment(folder, experiment)
        if asked.lower() in ("last", "true"):
            checkpoint = last_whole_checkpoint(folder)
        elif os.path.isdir(asked):
            checkpoint = asked
        if checkpoint is None and asked != "last":
            raise ValueError(
                f"resume_from_checkpoint={asked!r}: there is no such checkpoint (output_dir={training.output_dir!r}); it must "
                "be the path of one, 'True' for the last whole one in output_dir, 'last' for that if there is one, or 'no'."
            )
    write_json(folder / EXPERIMENT_FILE, experiment)
    return checkpoint


def experiment_of(arguments: Arguments) -> dict[str, Any]:
    """What must be equal for a run to be the same experiment: model, data, retrieval and seed."""
    groups = (arguments.model, arguments.data, arguments.sparse)
    values = {name: value for group in groups for name, value in dataclasses.asdict(group).items()}
    values |= {"seed": arguments.training.seed, "data_seed": arguments.training.data_seed}
    return {name: value for name, value in values.items() if name not in _MAY_CHANGE}


def _refuse_another_experiment(folder: Path, experiment: dict[str, Any]) -> None:
    file = folder / EXPERIMENT_FILE
    if not file.is_file():
        logger.warning("%s has checkpoints, but no %s that says what of", folder, EXPERIMENT_FILE)
        return
    before = json.loads(file.read_text(encoding="utf-8"))
    other = [name for name, value in experiment.items() if before.get(name, value) != value]
    if other:
        differences = ", ".join(f"{name}={before[name]!r} there and {experiment[name]!r} here" for name in other)
        raise ValueError(
            f"output_dir={str(folder)!r} has checkpoints of another experiment: {differences}. Give another --output_dir, or "
            "start anew with --resume_from_checkpoint no, which moves these checkpoints into a directory of their own."
        )


def save(trainer: Trainer, arguments: Arguments, scale: Scale | None) -> None:
    """Save the model, and what its data were standardised with."""
    trainer.save_model(
        _internal_call=True
    )  # as called by itself, it would push: before there is anything to tell of it
    if scale is not None and trainer.is_world_process_zero():
        mean, deviation = (values.tolist() for values in scale)
        write_json(Path(arguments.training.output_dir, SCALE_FILE), {"mean": mean, "deviation": deviation})


def count_support(
    trainer: Trainer, model: PreTrainedModel, splits: dict[str, Any]
) -> tuple[dict[str, float], dict[str, list[float]] | None]:
    """
    How the model uses its keys, on the first samples of the validation data, or of others where there are none. Every process
    counts on all of them: however many there are, they find the same.

    Returns:
        `tuple`: Means for the summary, and the share of keys of each head for the card (`None` without a Hopfield layer).
    """
    if not any(isinstance(module, RetrievalParameters) for module in model.modules()):
        # softmax gives weight to every key; attention pooling with another alpha is not counted
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
    The end of every script: support sizes, the summary on the screen and in `summary.json`, the model card, and then, when
    all is on disk, the one push to the Hub.

    Args:
        trainer, arguments, splits, task, scale: As for [`run`].
        training_metrics (`dict`): From [`train`].
        quality (`dict`): The metrics that matter.
    """
    training = arguments.training
    model = trainer.accelerator.unwrap_model(trainer.model, keep_torch_compile=False)
    support, shares = count_support(trainer, model, splits)
    speed = {
        key: value for key, value in training_metrics.items() if key.endswith("_per_second") or key == "train_runtime"
    }
    summary = {
        "task": task,
        "quality": quality,
        "support": support,
        "speed": speed,
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
    print(f"\n{type(model).__name__}, {task}, {summary['parameters']:,} parameters, seed {training.seed}")
    for title in ("quality", "support", "speed"):
        for key, value in summary[title].items():
            shown = f"{value:.4f}" if isinstance(value, float) else value
            print(f"  {title:8} {key.replace('_', ' '):32} {shown}")
    print(f"  written  {training.output_dir}")
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
