# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Translation and summarisation: BLEU of texts that both models generate greedily."""

from collections.abc import Sequence
from typing import Any, ClassVar

from transformers import PreTrainedModel

from ...sample_inputs import dataset_rows
from .columns import check_column, encode_texts, parts, text_length
from .task import Case, Measure, Sample, Task


_GREEDY = {"do_sample": False, "num_beams": 1}


class _Generation(Task):
    auto_class = "AutoModelForSeq2SeqLM"
    usual_samples, usual_batch_size = 100, 8
    target_column: ClassVar[str]

    def cases(self, data: str) -> list[Case]:
        rows = dataset_rows(data, split=self.options.split, count=self.samples_wanted, seed=self.options.seed)
        columns = {
            "text_column": self.options.text_column,
            "label_column": self.options.label_column or self.target_column,
        }
        for argument, column in columns.items():
            check_column(rows, argument, column)
        sources, targets = (list(rows[column]) for column in columns.values())
        sources = [(self.options.prefix or "") + text for text in sources]
        cases = []
        for texts, right in zip(parts(sources, self.batch_size), parts(targets, self.batch_size), strict=True):
            inputs = encode_texts(self, texts, text_target=list(right))
            labels = inputs.pop("labels")
            longest = {"max_new_tokens": text_length(self) - 1}  # the first token is given
            cases.append(Case({**inputs, **longest}, list(right), forward={**inputs, "labels": labels}))
        return cases

    @staticmethod
    def run(model: PreTrainedModel, inputs: dict[str, Any]) -> Any:
        generating: Any = model
        return generating.generate(**inputs, **_GREEDY)

    def samples(self, case: Case, output: Any) -> list[Sample]:
        texts = self.processor.batch_decode(output, skip_special_tokens=True)
        return [
            {"sacrebleu": {"predictions": [text.strip()], "references": [right]}}
            for text, right in zip(texts, case.expected, strict=True)
        ]

    def measures(self, samples: Sequence[Sample]) -> list[Measure]:
        return [Measure("sacrebleu", {"bleu": "score"})]


class Summarization(_Generation):
    """Summaries of texts."""

    target_column = "summary"


class Translation(_Generation):
    """Translations of texts."""

    target_column = "translation"
