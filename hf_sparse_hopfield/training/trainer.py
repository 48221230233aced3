# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`SparseHopfieldTrainer`: transformers' `Trainer` with the callbacks and optimizer groups for sparse Hopfield retrieval."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import torch
from accelerate.utils import broadcast_object_list, extract_model_from_parallel
from torch import nn
from transformers import Seq2SeqTrainer, Trainer

from ..integration.upstream import forget_preparation, prepared_inputs
from ..layers import RetrievalParameters
from ..model_running import evaluating
from .arguments import SparseHopfieldArguments
from .resuming import last_whole_checkpoint
from .sparsity_logging import SparsityLoggingCallback, own_random_numbers


if TYPE_CHECKING:
    _Base = Trainer  # the class that the mixin precedes
else:
    _Base = object


def learned_parameter_names(model: nn.Module) -> list[str]:
    """
    The names of the learned alphas and betas of a model, converted or made of Hopfield layers.

    Args:
        model (`torch.nn.Module`): The model, also wrapped for distributed training.
    """
    return [
        f"{name}.{parameter}" if name else parameter
        for name, module in model.named_modules()
        if isinstance(module, RetrievalParameters)
        for parameter, _ in module.named_parameters(recurse=False)
    ]


class SparseHopfieldTrainerMixin(_Base):
    """
    Adds sparse Hopfield retrieval to any trainer: put it before the trainer's class.

    - Learned alpha and beta get no weight decay (it would pull beta to 1 and alpha to 1.5) and, with
      `hopfield_learning_rate`, a learning rate of their own that follows the schedule of the others.
    - The callbacks of the arguments are added.
    - `train(resume_from_checkpoint=True)` skips incomplete checkpoints. A checkpoint of the last step is loaded and nothing
      is trained (transformers trains one more step if the run ended in the middle of an epoch).
    - With several processes, `train` after `evaluate` is distributed (transformers trains each process on its own).
    - Many classifiers accept `num_items_in_batch` and do not use it: their loss is a mean over the samples of one process.
      transformers treats it as a share of the whole batch, so with several processes or gradient accumulation loss and
      gradients would be too large by that factor. The first batch is run with two counts to find out.

    Args:
        sparse_hopfield_args ([`SparseHopfieldArguments`], *optional*): The arguments.
        *args, **kwargs: The arguments of the trainer.

    Example:

    ```python
    >>> from transformers import Trainer
    >>> from hf_sparse_hopfield.training import SparseHopfieldTrainerMixin

    >>> class MyTrainer(SparseHopfieldTrainerMixin, Trainer):
    ...     pass

    ```
    """

    def __init__(self, *args: Any, sparse_hopfield_args: SparseHopfieldArguments | None = None, **kwargs: Any) -> None:
        if sparse_hopfield_args is not None and not isinstance(sparse_hopfield_args, SparseHopfieldArguments):
            raise TypeError(
                f"sparse_hopfield_args must be SparseHopfieldArguments or None, got {sparse_hopfield_args!r}."
            )
        self.sparse_hopfield_args = sparse_hopfield_args
        self._loss_is_checked = False
        super().__init__(*args, **kwargs)
        if sparse_hopfield_args is not None:
            present = {type(callback) for callback in self.callback_handler.callbacks}
            for callback in sparse_hopfield_args.callbacks():
                if type(callback) not in present:
                    self.add_callback(callback)
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, SparsityLoggingCallback) and callback.trainer is None:
                callback.trainer = self

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """The trainer's `train`; `resume_from_checkpoint=True` is the last complete checkpoint in `args.output_dir`."""
        if resume_from_checkpoint is True:
            output_dir = self.args.output_dir
            resume_from_checkpoint = None if output_dir is None else last_whole_checkpoint(output_dir)
            if resume_from_checkpoint is None:
                raise ValueError(
                    f"resume_from_checkpoint=True: there is no whole checkpoint in output_dir={output_dir!r}."
                )
        self._forget_evaluation()
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _forget_evaluation(self) -> None:
        # accelerate prepares a model once. After `evaluate` it would train the model as it is: without
        # DistributedDataParallel, each process on its own.
        sharded = self.is_fsdp_enabled or self.is_deepspeed_enabled
        if not sharded and not isinstance(self.model_wrapped, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            self.model_wrapped = cast(nn.Module, self.model)
            forget_preparation(self.model_wrapped)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """The names of the parameters with weight decay, without learned alpha and beta."""
        learned = set(learned_parameter_names(model))
        return [name for name in super().get_decay_parameter_names(model) if name not in learned]

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """The trainer's optimizer; with `hopfield_learning_rate`, learned alpha and beta are a separate group."""
        if self.optimizer is not None:
            return self.optimizer
        optimizer = super().create_optimizer() if model is None else super().create_optimizer(model)
        arguments = self.sparse_hopfield_args
        if arguments is not None and arguments.sparse_hopfield and arguments.hopfield_learning_rate is not None:
            trained = cast(nn.Module, self.model if model is None else model)
            _regroup(optimizer, trained, arguments.hopfield_learning_rate)
        return optimizer

    def get_batch_samples(
        self, epoch_iterator: Iterator, num_batches: int, device: torch.device
    ) -> tuple[list, torch.Tensor | int | None]:
        """The batches of one step, none after the last step, and their number of items, if the loss uses it."""
        if self.state.global_step >= self.state.max_steps:  # resumed after the last step
            self.control.should_training_stop = True
            return [], None
        batches, count = super().get_batch_samples(epoch_iterator, num_batches, device)
        if batches and count is not None:
            self._check_loss(batches[0])
        uses_count = self.model_accepts_loss_kwargs or self.compute_loss_func is not None
        return batches, count if uses_count else None

    def prediction_step(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """The trainer's `prediction_step`, which counts the items of a batch only if the loss uses the number."""
        if "labels" in inputs:
            self._check_loss(inputs)
        return super().prediction_step(model, inputs, *args, **kwargs)

    def _check_loss(self, batch: dict[str, Any]) -> None:
        """Find out, once, whether the loss depends on `num_items_in_batch`, where that makes a difference."""
        parts = self.args.world_size * max(1, self.args.n_gpu) * self.args.gradient_accumulation_steps
        if self.model_accepts_loss_kwargs and parts > 1 and not self._loss_is_checked:
            self._loss_is_checked = True
            self.model_accepts_loss_kwargs = self._loss_uses_count(batch)

    def _loss_uses_count(self, batch: dict[str, Any]) -> bool:
        model = extract_model_from_parallel(self.model, keep_torch_compile=False)
        with (
            own_random_numbers(self.args.seed),
            evaluating(model),
            torch.no_grad(),
            self.compute_loss_context_manager(),
        ):
            losses: list[Any] = [
                self.compute_loss(model, prepared_inputs(self, batch), num_items_in_batch=count)
                for count in torch.tensor([1, 2], device=self.args.device)
            ]
        verdict = [bool((losses[0] != losses[1]).any())]
        # The processes see different batches, but must agree: from now on all of them exchange counts, or none does.
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
