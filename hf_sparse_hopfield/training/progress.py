# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The progress of a Trainer in our own bar."""

from typing import Any

from tqdm.std import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


class TrainerProgress(TrainerCallback):
    """
    Moves a bar with the steps of a Trainer. Give the Trainer `disable_tqdm=True`, and remove its `PrinterCallback`.

    Args:
        bar (`tqdm`): From [`~hf_sparse_hopfield.progress.progress_bar`], with the number of steps as total.
    """

    def __init__(self, bar: tqdm) -> None:
        self.bar = bar

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.bar.initial = self.bar.n = state.global_step  # more than 0 if it resumes

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.bar.update(state.global_step - self.bar.n)
