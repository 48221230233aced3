# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Training of causal and masked language models, which share everything but the model class and the collator."""

from collections.abc import Callable
from typing import Any

from data_checks import check_texts
from data_splits import first_batches, load_splits, wanted_splits
from model_loading import load_config, load_model
from script_arguments import Arguments
from text_blocks import smoke_text, text_blocks
from tokenizer_loading import load_tokenizer, token_values
from training_run import run
from transformers.trainer_utils import EvalLoopOutput

from hf_sparse_hopfield.metrics import load_metric
from hf_sparse_hopfield.training import SparseHopfieldTrainer


class LanguageModelTrainer(SparseHopfieldTrainer):
    """A trainer that reports perplexity beside the loss."""

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        """As Trainer's, with perplexity among the metrics."""
        output = super().evaluation_loop(*args, **kwargs)
        losses = {name: value for name, value in output.metrics.items() if name.endswith("_loss")}
        for name, loss in losses.items():  # one mean, over all tokens
            found = load_metric("perplexity").compute(losses=[loss], tokens=[1])
            output.metrics[f"{name.removesuffix('loss')}perplexity"] = found["perplexity"]
        return output


def run_language_model(
    arguments: Arguments,
    auto_class: type,
    default_type: str,
    task: str,
    make_collator: Callable[[Any], Callable],
    template: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """
    Train, evaluate and test a language model. Returns the summary.

    Args:
        arguments ([`Arguments`]): The arguments; the data are [`TextArguments`].
        auto_class (`type`): Auto class of the model.
        default_type (`str`): Type of a new model if none is named.
        task (`str`): Pipeline tag.
        make_collator (`Callable`): Makes the collator for a tokenizer.
        template (`str`, *optional*): Special tokens around a text, for a tokenizer trained on the data.
        **options: Arguments for the trainer.
    """
    model_arguments, data, sparse, training, _ = arguments
    splits = load_splits(data, smoke_text, wanted=wanted_splits(training), in_order=True)
    check_texts(splits, {"text_column": data.text_column}, may_be_empty=True)
    tokenizer = load_tokenizer(model_arguments, next(iter(splits.values()))[data.text_column], template)
    collator = make_collator(tokenizer)
    blocks = {split: text_blocks(splits[split], split, data, tokenizer) for split in splits}
    config = load_config(model_arguments, default_type, **token_values(model_arguments, tokenizer))
    model = load_model(model_arguments, config, auto_class)
    model = sparse.prepare(model, first_batches(blocks.get("train"), collator, sparse.calibration_batches, 4))
    training.include_num_input_tokens_seen = "all"
    training.prediction_loss_only = "compute_metrics" not in options
    trainer = LanguageModelTrainer(
        model=model,
        args=training,
        train_dataset=blocks.get("train"),
        eval_dataset=blocks.get("validation"),
        data_collator=collator,
        processing_class=tokenizer,
        sparse_hopfield_args=sparse,
        **options,
    )
    return run(trainer, arguments, blocks, task, keep=("loss", "perplexity", "accuracy"))
