# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`SparseHopfieldTrainer`: transformers' `Trainer`, with the callbacks and optimizer groups of sparse Hopfield retrieval."""

from typing import Any

import torch
from accelerate.utils import broadcast_object_list, extract_model_from_parallel
from torch import nn
from transformers import Seq2SeqTrainer, Trainer

from ..evaluation import evaluating
from ..layers import RetrievalParameters
from .arguments import SparseHopfieldArguments
from .checkpoints import last_whole_checkpoint
from .sparsity import SparsityLoggingCallback, own_random_numbers


def learned_parameter_names(model: nn.Module) -> list[str]:
    """
    Names of the learned alphas and betas of a model, converted or made of Hopfield layers.

    Args:
        model (`torch.nn.Module`): The model; it may be wrapped for distributed training.
    """
    return [
        f"{name}.{parameter}" if name else parameter
        for name, module in model.named_modules()
        if isinstance(module, RetrievalParameters)
        for parameter, _ in module.named_parameters(recurse=False)
    ]


class SparseHopfieldTrainerMixin:
    """
    Makes any trainer one for sparse Hopfield retrieval: put it before the trainer's class.

    - Learned alpha and beta get no weight decay (it would pull beta to 1 and alpha to 1.5) and, with
      `hopfield_learning_rate`, a learning rate of their own, which follows the same schedule as that of the others.
    - The callbacks of the arguments are added.
    - `train(resume_from_checkpoint=True)` passes over checkpoints that are not whole; a checkpoint of the last step is loaded
      and nothing trained (transformers 5.22 would train one step more if that was in the middle of an epoch).
    - In several processes, `train` after `evaluate` is distributed (transformers 5.22 trains every process on its own then).
    - The loss of a model that takes `num_items_in_batch` and does not use it, as many classifiers do, is a mean over the
      samples of one process. transformers takes it for a share of the whole batch: in several processes, or with gradient
      accumulation, loss and gradients would be too large by that factor. One look at the first batch tells.

    Args:
        sparse_hopfield_args ([`SparseHopfieldArguments`], *optional*): The arguments.
        *args, **kwargs: Those of the trainer.

    Example:

    ```python
    >>> from transformers import Trainer
    >>> from hf_sparse_hopfield.training import SparseHopfieldTrainerMixin

    >>> class MyTrainer(SparseHopfieldTrainerMixin, Trainer):
    ...     pass

    ```
    """

    def __init__(self, *args, sparse_hopfield_args: SparseHopfieldArguments | None = None, **kwargs) -> None:
        if sparse_hopfield_args is not None and not isinstance(sparse_hopfield_args, SparseHopfieldArguments):
            raise TypeError(
                f"sparse_hopfield_args must be SparseHopfieldArguments or None, got {sparse_hopfield_args!r}."
            )
        self.sparse_hopfield_args = sparse_hopfield_args
        self._loss_was_looked_at = False
        super().__init__(*args, **kwargs)
        if sparse_hopfield_args is not None:
            present = {type(callback) for callback in self.callback_handler.callbacks}
            for callback in sparse_hopfield_args.callbacks():
                if type(callback) not in present:
                    self.add_callback(callback)
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, SparsityLoggingCallback) and callback.trainer is None:
                callback.trainer = self

    def train(self, resume_from_checkpoint: str | bool | None = None, *args, **kwargs) -> Any:
        """As that of the trainer; `True` means the last whole checkpoint in the output directory."""
        if resume_from_checkpoint is True:
            resume_from_checkpoint = last_whole_checkpoint(self.args.output_dir)
            if resume_from_checkpoint is None:
                raise ValueError(
                    f"resume_from_checkpoint=True: there is no whole checkpoint in output_dir={self.args.output_dir!r}."
                )
        self._forget_evaluation()
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _run_epoch(self, *args, **kwargs) -> None:
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
        else:
            super()._run_epoch(*args, **kwargs)

    def _forget_evaluation(self) -> None:
        # accelerate prepares a model once. If that was for `evaluate`, it would take it as it is for training too: without
        # DistributedDataParallel, every process on its own.
        sharded = self.is_fsdp_enabled or self.is_deepspeed_enabled
        if not sharded and not isinstance(self.model_wrapped, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            self.model_wrapped = self.model
            vars(self.model).pop("_is_accelerate_prepared", None)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Names of the parameters with weight decay: learned alpha and beta are none of them."""
        learned = set(learned_parameter_names(model))
        return [name for name in super().get_decay_parameter_names(model) if name not in learned]

    def create_optimizer(self, *args, **kwargs) -> torch.optim.Optimizer:
        """The trainer's optimizer; with `hopfield_learning_rate`, learned alpha and beta are a group of their own."""
        if self.optimizer is not None:
            return self.optimizer
        optimizer = super().create_optimizer(*args, **kwargs)
        arguments = self.sparse_hopfield_args
        if arguments is not None and arguments.sparse_hopfield and arguments.hopfield_learning_rate is not None:
            model = args[0] if args else kwargs.get("model")
            _regroup(optimizer, self.model if model is None else model, arguments.hopfield_learning_rate)
        return optimizer

    def _get_num_items_in_batch(self, batch_samples: list, device: torch.device) -> Any:
        """The trainer's number of items, in training and evaluation; none if the model's loss does not use it."""
        count = super()._get_num_items_in_batch(batch_samples, device)
        parts = self.args.world_size * max(1, self.args.n_gpu) * self.args.gradient_accumulation_steps
        if count is not None and batch_samples and parts > 1 and not self._loss_was_looked_at:
            self._loss_was_looked_at = True
            self.model_accepts_loss_kwargs &= self._loss_uses_count(batch_samples[0], count)
        uses_count = self.model_accepts_loss_kwargs or self.compute_loss_func is not None
        return count if uses_count else None

    def _loss_uses_count(self, batch: dict[str, Any], count: Any) -> bool:
        model = extract_model_from_parallel(self.model, keep_torch_compile=False)
        with (
            own_random_numbers(self.args.seed),
            evaluating(model),
            torch.no_grad(),
            self.compute_loss_context_manager(),
        ):
            losses = [
                self.compute_loss(model, dict(self._prepare_inputs(batch)), num_items_in_batch=items)
                for items in (count, 2 * count)
            ]
        verdict = [bool((losses[0] != losses[1]).any())]
        # the processes see different batches, and all must agree: from now on they talk about counts, or they do not
        return broadcast_object_list(verdict)[0] if self.args.world_size > 1 else verdict[0]


def _regroup(optimizer: torch.optim.Optimizer, model: nn.Module, learning_rate: float) -> None:
    names = set(learned_parameter_names(model))
    learned = {id(parameter) for name, parameter in model.named_parameters() if name in names}
    moved = []
    for group in optimizer.param_groups:
        moved += [parameter for parameter in group["params"] if id(parameter) in learned]
        group["params"] = [parameter for parameter in group["params"] if id(parameter) not in learned]
    if not moved:
        raise ValueError(
            f"hopfield_learning_rate={learning_rate}, but the model has no learned alpha or beta that the optimizer trains."
        )
    optimizer.add_param_group({"params": moved, "lr": learning_rate, "weight_decay": 0.0})


class SparseHopfieldTrainer(SparseHopfieldTrainerMixin, Trainer):
    """
    [`~transformers.Trainer`] for sparse Hopfield retrieval, see [`SparseHopfieldTrainerMixin`].

    Example:

    ```python
    >>> import torch
    >>> from transformers import BertConfig, BertForSequenceClassification, TrainingArguments
    >>> from hf_sparse_hopfield.training import SparseHopfieldArguments, SparseHopfieldTrainer

    >>> arguments = SparseHopfieldArguments(alpha_schedule="linear", learn_beta=True, hopfield_learning_rate=1e-2)
    >>> model = BertForSequenceClassification(
    ...     BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=100)
    ... )
    >>> trainer = SparseHopfieldTrainer(
    ...     arguments.prepare(model),
    ...     TrainingArguments("output", max_steps=4, report_to="none", disable_tqdm=True, save_strategy="no", use_cpu=True),
    ...     train_dataset=[{"input_ids": torch.arange(8), "labels": i % 2} for i in range(16)],
    ...     sparse_hopfield_args=arguments,
    ... )
    >>> trainer.train().global_step, trainer.model.config.sparse_hopfield.alpha
    {'train_runtime'...}
    (4, 2.0)

    ```
    """


class SparseHopfieldSeq2SeqTrainer(SparseHopfieldTrainerMixin, Seq2SeqTrainer):
    """[`~transformers.Seq2SeqTrainer`] for sparse Hopfield retrieval, see [`SparseHopfieldTrainerMixin`]."""
