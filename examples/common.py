# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What the training scripts share: arguments, reading and checking data, fresh or pretrained models, training, the summary."""

import itertools
import json
import logging
import os
import shlex
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset, DatasetDict, Value, load_dataset, load_dataset_builder
from datasets.exceptions import DatasetGenerationError
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoConfig,
    AutoTokenizer,
    HfArgumentParser,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

from hf_sparse_hopfield.demo_text import TEXT
from hf_sparse_hopfield.layers import RetrievalParameters
from hf_sparse_hopfield.training import SparseHopfieldArguments, last_whole_checkpoint
from hf_sparse_hopfield.training.sparsity import sparsity_metrics


logger = logging.getLogger("examples")

SPLITS = ("train", "validation", "test")
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
# How `datasets` reads a file. A tab-separated file has no quoting, and no word in it ("NA", "null") means "missing".
_READERS = {
    ".csv": ("csv", {"keep_default_na": False}),
    ".tsv": ("csv", {"keep_default_na": False, "sep": "\t", "quoting": 3}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
    ".txt": ("text", {}),
    ".parquet": ("parquet", {}),
}
_SUPPORT = ("support", "entropy", "zero_share", "alpha", "beta")
# What reading a damaged file raises: in `datasets`, in decompression, in numpy.
_UNREADABLE = (DatasetGenerationError, OSError, EOFError, ValueError, KeyError, zlib.error, zipfile.BadZipFile)


@dataclass
class ModelArguments:
    """Which model to train: a pretrained one, or a fresh one from a configuration."""

    model_name_or_path: str | None = field(default=None, metadata={"help": "pretrained model: Hub id or directory"})
    config_name: str | None = field(default=None, metadata={"help": "fresh model from this configuration: id or path"})
    model_type: str | None = field(default=None, metadata={"help": "fresh model of this type, such as bert or marian"})
    config_overrides: str | None = field(
        default=None, metadata={"help": "changes to the configuration: hidden_size=256,num_hidden_layers=4"}
    )
    tokenizer_name: str | None = field(
        default=None, metadata={"help": "tokenizer: id or path (default: the model's; trained here for a fresh model)"}
    )
    vocab_size: int = field(default=8000, metadata={"help": "tokens of a tokenizer that is trained here"})

    def __post_init__(self) -> None:
        given = [name for name in ("model_name_or_path", "config_name", "model_type") if getattr(self, name)]
        if len(given) > 1:
            raise ValueError(f"give one of model_name_or_path, config_name and model_type, got {given}.")


@dataclass
class DataArguments:
    """Where the samples come from: the Hub, local files, or `--smoke`."""

    dataset_name: str | None = field(default=None, metadata={"help": "dataset on the Hub"})
    dataset_config_name: str | None = field(default=None, metadata={"help": "its configuration"})
    data_dir: str | None = field(
        default=None, metadata={"help": "directory that the files are in, or that `datasets` finds the splits of"}
    )
    train_file: str | None = field(
        default=None, metadata={"help": "csv, tsv, json, jsonl, txt or parquet, may be .gz"}
    )
    validation_file: str | None = field(default=None, metadata={"help": "the same for validation"})
    test_file: str | None = field(default=None, metadata={"help": "the same for the test"})
    column_names: str | None = field(
        default=None, metadata={"help": "names of the columns of csv and tsv files without a header: label,text"}
    )
    split_column: str | None = field(
        default=None, metadata={"help": "column that says which split a row belongs to, where one file has several"}
    )
    validation_share: float = field(
        default=0.1, metadata={"help": "share of the training data to validate on, where there is no validation data"}
    )
    max_train_samples: int | None = field(
        default=None, metadata={"help": "train on so many samples, drawn with seed 0"}
    )
    max_eval_samples: int | None = field(default=None, metadata={"help": "the same for validation"})
    max_test_samples: int | None = field(default=None, metadata={"help": "the same for the test"})
    cache_dir: str | None = field(default=None, metadata={"help": "where `datasets` keeps what it has read"})
    smoke: bool = field(default=False, metadata={"help": "a tiny run on generated data, to see that everything works"})

    def __post_init__(self) -> None:
        local = any(getattr(self, f"{split}_file") for split in SPLITS)
        if not (self.smoke or self.dataset_name or self.data_dir or local):
            raise ValueError("there is no data: give --dataset_name, --train_file, --data_dir or --smoke.")
        if self.dataset_name and local:
            raise ValueError(f"give dataset_name or files, not both; got dataset_name={self.dataset_name!r}.")
        if not 0 < self.validation_share < 1:
            raise ValueError(f"validation_share must lie in (0, 1), got {self.validation_share}.")

    def files(self) -> dict[str, str]:
        """Path of the file of each split that has one; in `data_dir`, if that is given."""
        names = {split: getattr(self, f"{split}_file") for split in SPLITS}
        return {split: os.path.join(self.data_dir or "", name) for split, name in names.items() if name}


@dataclass
class TextArguments(DataArguments):
    """Data of language modelling."""

    text_column: str = field(default="text", metadata={"help": "column with the text, one line or document a row"})
    block_size: int = field(default=256, metadata={"help": "tokens in a sample: the text is cut into such blocks"})


def parse_arguments(
    data_class: type[DataArguments],
    smoke: Sequence[str],
    argv: Sequence[str] | None = None,
    training_class: type[TrainingArguments] = TrainingArguments,
) -> tuple[ModelArguments, Any, SparseHopfieldArguments, Any]:
    """
    Read the command line (or, if it is nothing but the name of a JSON file, that file), set up logging, and the seed.

    Args:
        data_class (`type`): [`DataArguments`], or a subclass with what a script needs besides.
        smoke (`Sequence[str]`): Arguments that `--smoke` stands for; those given beside it win.
        argv (`Sequence[str]`, *optional*): The arguments, instead of `sys.argv`.
        training_class (`type`, *optional*): [`~transformers.TrainingArguments`] or a subclass.

    Returns:
        `tuple`: [`ModelArguments`], the `data_class`, [`SparseHopfieldArguments`], the `training_class`.
    """
    parser = HfArgumentParser((ModelArguments, data_class, SparseHopfieldArguments, training_class))
    argv = list(sys.argv[1:] if argv is None else argv)
    if len(argv) == 1 and argv[0].endswith(".json"):
        arguments = parser.parse_json_file(argv[0])
    else:
        if "--smoke" in argv:
            scratch = [] if "--output_dir" in argv else ["--output_dir", tempfile.mkdtemp(prefix="smoke-")]
            argv = [*smoke, "--do_train", "--do_eval", "--do_predict", *scratch, *argv]
        arguments = parser.parse_args_into_dataclasses(argv, look_for_args_file=False)
    _, data, _, training = arguments
    data.command_line = shlex.join([os.path.basename(sys.argv[0]), *argv])
    if not training.output_dir:
        raise ValueError("--output_dir is missing: where are the model and the results to go?")
    training.dataloader_pin_memory &= training.device.type != "cpu"  # a warning at every evaluation otherwise
    level = logging.INFO if training.process_index == 0 else logging.WARNING
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.WARNING)
    logger.setLevel(level)
    set_seed(training.seed)
    return arguments


def load_splits(
    data: DataArguments,
    smoke: Callable[[], dict[str, Dataset]],
    readers: dict[str, Callable[[str, str], Dataset]] | None = None,
    test: bool = True,
) -> DatasetDict:
    """
    Read the data of all splits. Without validation data, some of the training data is taken for it.

    Args:
        data ([`DataArguments`]): Where it is.
        smoke (`Callable`): Makes the splits for `--smoke`.
        readers (`dict[str, Callable]`, *optional*):
            For endings that `datasets` does not read (such as `.npz`): a function of path and split.
        test (`bool`, *optional*, defaults to `True`):
            Read the test data, too. Where nothing is to be tested, they need not even have labels.

    Returns:
        [`~datasets.DatasetDict`]: With some of `train`, `validation`, `test`, none of them empty.
    """
    wanted = SPLITS if test else SPLITS[:2]
    files = {split: path for split, path in data.files().items() if split in wanted}
    if data.smoke:
        splits = DatasetDict(smoke())
    elif files:
        splits = DatasetDict({split: _read(data, path, split, readers or {}) for split, path in files.items()})
    else:
        source = {"path": data.dataset_name, "name": data.dataset_config_name, "data_dir": data.data_dir}
        source = source if data.dataset_name else {"path": data.data_dir}
        loaded = load_dataset(**source, cache_dir=data.cache_dir)
        splits = DatasetDict({split: loaded[split] for split in wanted if split in loaded})
        if not splits:
            raise ValueError(f"{source['path']} has none of the splits {wanted}, only {list(loaded)}.")
    for split, dataset in splits.items():
        if len(dataset) == 0:
            raise ValueError(
                f"the split {split!r} is empty: {files.get(split) or data.dataset_name or data.data_dir}."
            )
    if "validation" not in splits and "train" in splits:
        logger.info("no validation data: %.0f %% of the training data are taken for it", 100 * data.validation_share)
        # a text stays in its order
        is_text = isinstance(data, TextArguments)
        parts = splits["train"].train_test_split(
            data.validation_share, shuffle=not is_text, seed=None if is_text else 0
        )
        splits |= {"train": parts["train"], "validation": parts["test"]}
    # A language model's samples are the blocks that are cut of the whole text later.
    return (
        splits if isinstance(data, TextArguments) else {split: limited(splits[split], split, data) for split in splits}
    )


def limited(dataset: Dataset, split: str, data: DataArguments) -> Dataset:
    """At most as many samples of a split as the arguments say."""
    limits = {"train": data.max_train_samples, "validation": data.max_eval_samples, "test": data.max_test_samples}
    limit = limits[split]
    return dataset if limit is None or limit >= len(dataset) else dataset.shuffle(seed=0).select(range(limit))


def _read(data: DataArguments, path: str, split: str, readers: dict[str, Callable[[str, str], Dataset]]) -> Dataset:
    stem, ending = os.path.splitext(path)
    if ending in _COMPRESSED:
        ending = os.path.splitext(stem)[1]
    if ending not in _READERS and ending not in readers:
        raise ValueError(f"{split}_file {path!r} must end in one of {[*_READERS, *readers]}.")
    try:
        if ending in readers:
            dataset = readers[ending](path, split)
        elif not os.path.isfile(path):
            raise FileNotFoundError("there is no such file")
        else:
            kind, options = _READERS[ending]
            if kind == "csv" and data.column_names:
                options = {**options, "column_names": data.column_names.split(",")}
            builder = load_dataset_builder(kind, data_files={split: path}, cache_dir=data.cache_dir, **options)
            builder.download_and_prepare()
            if builder.info.splits[split].num_examples == 0:  # which `as_dataset` would refuse in words of its own
                return Dataset.from_dict({})
            dataset = builder.as_dataset(split)
    except _UNREADABLE as error:
        reason = error.__cause__ if isinstance(error, DatasetGenerationError) and error.__cause__ else error
        raise ValueError(f"cannot read {split}_file {path!r}: {type(reason).__name__}: {reason}") from error
    if data.split_column is not None:
        check_columns({split: dataset}, {"split_column": data.split_column})
        own = np.asarray(dataset[data.split_column]) == split
        dataset = dataset.select(np.flatnonzero(own)).remove_columns(data.split_column)
    return dataset


def check_columns(splits: dict[str, Dataset], columns: dict[str, str | None]) -> None:
    """
    Every split must have these columns, with a value in each row.

    Args:
        splits (`dict[str, Dataset]`): The data.
        columns (`dict[str, str]`): Name of an argument to the column it names; `None` stands for none.
    """
    for split, dataset in splits.items():
        for argument, column in columns.items():
            if column is None:
                continue
            if column not in dataset.column_names:
                raise ValueError(
                    f"the split {split!r} has no column {column!r}, only {dataset.column_names}; --{argument} names it."
                )
            values = dataset.with_format("arrow")[column]
            if values.null_count:
                row = next(i for i, value in enumerate(values) if not value.is_valid)
                raise ValueError(f"row {row} of the split {split!r} has no value in the column {column!r}.")


def check_labels(splits: dict[str, Dataset], column: str, num_labels: int | None = None) -> list[str]:
    """
    Names of the classes. Labels that are numbers must be 0, 1, ... below `num_labels` (or the largest one in the training
    data); labels that are words must occur in the training data.

    Args:
        splits (`dict[str, Dataset]`): The data.
        column (`str`): The column with the labels.
        num_labels (`int`, *optional*): How many classes there are, where the labels are numbers.
    """
    first = next(iter(splits.values()))
    feature = first.features[column]
    if hasattr(feature, "names"):
        names: list[Any] = list(range(len(feature.names)))
        labels = feature.names
    else:
        found = first.unique(column)
        if all(isinstance(label, int) and not isinstance(label, bool) for label in found):
            names = list(range(num_labels or max(found) + 1))
        elif all(isinstance(label, (str, bool)) for label in found):
            names = sorted(found)
        else:
            kinds = sorted({type(label).__name__ for label in found})
            raise ValueError(f"labels in the column {column!r} must be integers or words, got {kinds}.")
        labels = [str(name) for name in names]
    if len(names) < 2:
        raise ValueError(f"the column {column!r} has the one label {labels}: there is nothing to tell apart.")
    known = set(names)
    for split, dataset in splits.items():
        for row, label in enumerate(dataset[column]):
            if label not in known:
                right = f"0 to {len(names) - 1}" if isinstance(names[0], int) else labels
                raise ValueError(
                    f"row {row} of the split {split!r} has the label {label!r} in {column!r}, not {right}."
                )
    return labels


def label_numbers(dataset: Dataset, column: str, labels: list[str]) -> list[int]:
    """The labels of a checked split as numbers."""
    if isinstance(dataset.features[column], Value) and dataset.features[column].dtype in (
        "string",
        "large_string",
        "bool",
    ):
        numbers = {name: i for i, name in enumerate(labels)}
        return [numbers[str(label)] for label in dataset[column]]
    return list(dataset[column])


def load_config(model: ModelArguments, default_type: str, **values: Any) -> PreTrainedConfig:
    """
    The configuration, of a pretrained or a fresh model.

    Args:
        model ([`ModelArguments`]): Which.
        default_type (`str`): Type of a fresh model where none is named.
        values: What the data determine (labels, tokens). `--config_overrides` have the last word.
    """
    name = model.model_name_or_path or model.config_name
    config = AutoConfig.from_pretrained(name) if name else AutoConfig.for_model(model.model_type or default_type)
    for key, value in values.items():
        setattr(config, key, value)
    if model.config_overrides:
        config.update_from_string(model.config_overrides)
    return config


def load_model(model: ModelArguments, config: PreTrainedConfig, auto_class: type) -> PreTrainedModel:
    """The model: weights of `--model_name_or_path`, or fresh ones."""
    if model.model_name_or_path:
        return auto_class.from_pretrained(model.model_name_or_path, config=config)
    return auto_class.from_config(config)


def load_tokenizer(model: ModelArguments, texts: Iterable[str], template: str | None = "<s> $A </s>") -> Any:
    """
    The tokenizer of the model, or one trained here: byte-level BPE with `<pad>`, `<s>`, `</s>`, `<unk>` and `<mask>`.

    Args:
        model ([`ModelArguments`]): Which.
        texts (`Iterable[str]`): To train it on.
        template (`str`, *optional*): What stands around a text.
    """
    name = model.tokenizer_name or model.model_name_or_path
    if name:
        return AutoTokenizer.from_pretrained(name)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=model.vocab_size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    if template:
        pairs = [(token, special.index(token)) for token in ("<s>", "</s>")]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=template, pair=template.replace("$A", "$A </s> $B"), special_tokens=pairs
        )
    names = dict(zip(("pad", "bos", "eos", "unk", "mask"), special, strict=True))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **{f"{name}_token": token for name, token in names.items()},
        cls_token="<s>",
        sep_token="</s>",
        model_input_names=["input_ids", "attention_mask"],
    )


def token_values(model: ModelArguments, tokenizer: Any) -> dict[str, int]:
    """What a tokenizer that was trained here determines of the configuration."""
    if model.model_name_or_path:
        return {}
    names = ("pad_token_id", "bos_token_id", "eos_token_id")
    return {"vocab_size": len(tokenizer), **{name: getattr(tokenizer, name) for name in names}}


def smoke_text() -> dict[str, Dataset]:
    """The text that the package has embedded, for language models."""
    lines = [line for line in TEXT.splitlines() if line.strip()] * 8
    parts = {"train": lines, "validation": lines[: len(lines) // 4], "test": lines[: len(lines) // 4]}
    return {split: Dataset.from_dict({"text": part}) for split, part in parts.items()}


def special_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The tokens that a tokenizer puts before and after a text."""
    text = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a")["input_ids"]
    start = next(i for i in range(len(whole)) if whole[i : i + len(text)] == text)
    return whole[:start], whole[start + len(text) :]


def text_blocks(dataset: Dataset, split: str, data: TextArguments, tokenizer: Any) -> Dataset:
    """
    A text, its rows joined by newlines, as blocks of `block_size` tokens (what is left over at the end is dropped).

    Args:
        dataset ([`~datasets.Dataset`]): The text.
        split (`str`): What it is called.
        data ([`TextArguments`]): Its column, and the length of a block.
        tokenizer: Where it puts tokens around a text, these go around every block.
    """
    before, after = special_tokens(tokenizer)
    length = data.block_size - len(before) - len(after)
    encoded = dataset.select_columns(data.text_column).map(
        lambda rows: tokenizer(
            [f"{text}\n" for text in rows[data.text_column]], add_special_tokens=False, return_attention_mask=False
        ),
        batched=True,
        remove_columns=data.text_column,
    )
    tokens = list(itertools.chain.from_iterable(encoded["input_ids"]))
    if len(tokens) < length:
        raise ValueError(f"the split {split!r} has {len(tokens)} tokens, less than one block of {data.block_size}.")
    starts = range(0, len(tokens) - length + 1, length)
    blocks = [[*before, *tokens[start : start + length], *after] for start in starts]
    return limited(Dataset.from_dict({"input_ids": blocks, "labels": blocks}), split, data)


def first_batches(
    dataset: Dataset | None, collator: Callable, count: int, size: int, labels: bool = True
) -> list[dict]:
    """
    Batches to calibrate on.

    Args:
        dataset ([`~datasets.Dataset`]): Samples as the model takes them; the first ones are used.
        collator (`Callable`): Makes a batch of samples.
        count (`int`): How many batches.
        size (`int`): Samples in a batch.
        labels (`bool`, *optional*, defaults to `True`): Leave the labels in.
    """
    if not count:
        return []
    if dataset is None:
        raise ValueError("calibration needs training data: give --train_file, or --calibration_batches 0.")
    rows = [dataset[i] for i in range(min(count * size, len(dataset)))]
    batches = [dict(collator(rows[start : start + size])) for start in range(0, len(rows), size)]
    return [{key: value for key, value in batch.items() if labels or key != "labels"} for batch in batches]


def train(trainer: Trainer) -> dict[str, float]:
    """
    Train from the start or, if there is one, from the last whole checkpoint in the output directory
    (`--resume_from_checkpoint no` starts anew); save the model. Returns Trainer's metrics.
    """
    arguments = trainer.args
    if not arguments.do_train:
        return {}
    checkpoint = arguments.resume_from_checkpoint
    if checkpoint in (None, "last"):
        checkpoint = last_whole_checkpoint(arguments.output_dir)
    elif checkpoint == "no":
        checkpoint = None
    if checkpoint:
        logger.info("going on from %s", checkpoint)
    metrics = trainer.train(resume_from_checkpoint=checkpoint and str(checkpoint)).metrics
    if checkpoint:  # Trainer divides the steps of all runs by the time of this one
        state = json.loads(Path(checkpoint, "trainer_state.json").read_text(encoding="utf-8"))
        share = 1 - state["global_step"] / max(trainer.state.global_step, 1)
        for key in metrics:
            metrics[key] *= share if key.endswith("_per_second") or key == "num_input_tokens_seen" else 1
    if "num_input_tokens_seen" in metrics:
        metrics["train_tokens_per_second"] = metrics["num_input_tokens_seen"] / metrics["train_runtime"]
    trainer.save_model()
    trainer.save_metrics("train", metrics)
    trainer.save_state()
    return metrics


def finish(
    trainer: Trainer,
    training: dict[str, float],
    quality: dict[str, Any],
    task: str,
    data: DataArguments,
    base: str | None,
) -> dict[str, Any]:
    """
    The end of every script: support sizes, the summary on the screen and in `summary.json`, the model card, the Hub.

    Args:
        trainer ([`~transformers.Trainer`]): What has trained, with an `eval_dataset` to count the support on.
        training (`dict`): From [`train`].
        quality (`dict`): The metrics that matter.
        task (`str`): Pipeline tag, such as `text-classification`.
        data ([`DataArguments`]): Where the samples came from.
        base (`str`, *optional*): The pretrained model.

    Returns:
        `dict`: `quality`, `support`, `speed` and how the run was made.
    """
    model = trainer.accelerator.unwrap_model(trainer.model)
    support = {"share_of_keys": 1.0}  # softmax gives weight to every key
    sparse = any(isinstance(module, RetrievalParameters) for module in model.modules())
    if sparse:
        looks = [sparsity_metrics(model, batch) for batch in itertools.islice(trainer.get_eval_dataloader(), 8)]
        means = {key: float(np.mean([look[f"sparsity/{key}"] for look in looks])) for key in _SUPPORT}
        support = {"share_of_keys": 1 - means.pop("zero_share"), **means}
    speed = {key: value for key, value in training.items() if key.endswith("_per_second") or key == "train_runtime"}
    arguments = trainer.args
    summary = {
        "task": task,
        "quality": quality,
        "support": support,
        "speed": speed,
        "model": type(model).__name__,
        "parameters": model.num_parameters(),
        "seed": arguments.seed,
        "steps": trainer.state.global_step,
        "threads": torch.get_num_threads(),
        "command": data.command_line,
    }
    if trainer.is_world_process_zero():
        write_json(os.path.join(arguments.output_dir, "summary.json"), summary)
        print(f"\n{type(model).__name__}, {task}, {summary['parameters']:,} parameters, seed {arguments.seed}")
        for title in ("quality", "support", "speed"):
            for key, value in summary[title].items():
                shown = f"{value:.4f}" if isinstance(value, float) else value
                print(f"  {title:8} {key.replace('_', ' '):32} {shown}")
        print(f"  written  {arguments.output_dir}")
    card: dict[str, Any] = {"tasks": task, "tags": ["sparse-hopfield"] if sparse else None}
    if base and not os.path.exists(base):
        card["finetuned_from"] = base
    if data.dataset_name:
        card |= {"dataset": data.dataset_name, "dataset_tags": data.dataset_name}
    card = {key: value for key, value in card.items() if value is not None}
    if arguments.push_to_hub:
        trainer.push_to_hub(**card)
    else:
        trainer.create_model_card(**card)
    return summary


def write_json(path: str | os.PathLike, value: Any) -> None:
    """Write JSON beside the file, then rename, so that no half-written file is ever there."""
    part = Path(f"{path}.part")
    part.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    os.replace(part, path)
