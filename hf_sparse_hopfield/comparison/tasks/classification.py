# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Classification of texts and images: accuracy, F1, and how often both models choose the same label."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from datasets import Dataset, Image
from transformers import PreTrainedModel

from ...extras import require
from ...sample_inputs import dataset_rows
from ..estimates import Estimate, jackknife
from .columns import check_column, encode_texts, label_numbers, model_labels, parts
from .task import Case, Measure, Sample, Task, compute


_AGREEMENT = Measure("accuracy", {"same_label": "accuracy"})


class _Classification(Task):
    @classmethod
    def check(cls, model: PreTrainedModel, path: str, task: str) -> None:
        super().check(model, path, task)
        kind = getattr(model.config, "problem_type", None)
        labels = len(model_labels(model.config))
        if labels < 2 or kind not in (None, "single_label_classification"):
            raise ValueError(
                f"{path!r} has num_labels={labels} and problem_type={kind!r}: {task} is for models that "
                "choose one of several labels."
            )

    def cases(self, data: str) -> list[Case]:
        rows = dataset_rows(data, split=self.options.split, count=self.samples_wanted, seed=self.options.seed)
        labels = label_numbers(rows, self.options.label_column or "label", model_labels(self.model.config))
        batches = parts(self.content(rows), self.batch_size)
        expected = parts(labels, self.batch_size)
        return [Case(self.encode(batch), right) for batch, right in zip(batches, expected, strict=True)]

    @abstractmethod
    def content(self, rows: Dataset) -> Sequence[Any]:
        """The texts or images."""

    @abstractmethod
    def encode(self, batch: Sequence[Any]) -> dict[str, Any]:
        """Make model inputs."""

    def samples(self, case: Case, output: Any) -> list[Sample]:
        chosen = output.logits.argmax(-1).tolist()
        pairs = [{"predictions": [p], "references": [r]} for p, r in zip(chosen, case.expected, strict=True)]
        return [{"accuracy": pair, "f1": pair} for pair in pairs]

    def measures(self, samples: Sequence[Sample]) -> list[Measure]:
        # Both models are averaged over the same labels: those that occur.
        labels = sorted({label for sample in samples for label in sample["f1"]["references"]})
        return [
            Measure("accuracy", {"accuracy": "accuracy"}),
            Measure("f1", {"macro_f1": "f1"}, {"average": "macro", "labels": labels}),
        ]

    def agreement(self, pairs: Sequence[tuple[Sample, Sample]]) -> dict[str, Estimate]:
        chosen = [[sample["accuracy"]["predictions"] for sample in pair] for pair in pairs]
        both: list[Sample] = [{"accuracy": {"references": dense, "predictions": sparse}} for dense, sparse in chosen]
        return jackknife(lambda some: compute(_AGREEMENT, some), both)


class TextClassification(_Classification):
    """Classification of texts."""

    auto_class = "AutoModelForSequenceClassification"

    def content(self, rows: Dataset) -> Sequence[Any]:
        check_column(rows, "text_column", self.options.text_column)
        return rows[self.options.text_column]

    def encode(self, batch: Sequence[Any]) -> dict[str, Any]:
        return encode_texts(self, batch)


class ImageClassification(_Classification):
    """Classification of images."""

    auto_class = "AutoModelForImageClassification"

    def content(self, rows: Dataset) -> Sequence[Any]:
        require("PIL", "compare")
        column = self.options.image_column
        check_column(rows, "image_column", column)
        if not isinstance(rows.features[column], Image):
            rows = rows.cast_column(column, Image())
        return rows[column]

    def encode(self, batch: Sequence[Any]) -> dict[str, Any]:
        mode = "L" if getattr(self.model.config, "num_channels", 3) == 1 else "RGB"
        images = [image.convert(mode) for image in batch]
        return dict(self.processor(images=images, return_tensors="pt"))
