# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Embeddings of texts: whether the sparse model embeds them where the dense one does."""

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedModel

from ...metrics import load_metric
from ...sample_inputs import dataset_rows
from ..estimates import Estimate, jackknife
from .columns import check_column, encode_texts, parts
from .task import Case, Sample, Task


_NEIGHBOURS = 10


class FeatureExtraction(Task):
    """Means of the last hidden states, as most models of sentence-transformers have them."""

    @classmethod
    def check(cls, model: PreTrainedModel, path: str, task: str) -> None:
        if model.main_input_name != "input_ids" or model.config.is_encoder_decoder:
            raise ValueError(
                f"{path!r} is a {type(model).__name__}, which cannot do {task}: that needs an encoder of texts."
            )

    def cases(self, data: str) -> list[Case]:
        rows = dataset_rows(data, split=self.options.split, count=self.samples_wanted, seed=self.options.seed)
        if len(rows) <= _NEIGHBOURS:
            raise ValueError(
                f"there are {len(rows)} texts: {_NEIGHBOURS + 1} are needed at least, for {_NEIGHBOURS} neighbours of each."
            )
        check_column(rows, "text_column", self.options.text_column)
        texts = list(rows[self.options.text_column])
        return [Case(encode_texts(self, batch)) for batch in parts(texts, self.batch_size)]

    @staticmethod
    def run(model: PreTrainedModel, inputs: dict[str, Any]) -> Any:
        return model.base_model(**inputs)  # without the head of a language model

    def samples(self, case: Case, output: Any) -> list[Sample]:
        mask = case.inputs["attention_mask"][..., None]
        means = (output.last_hidden_state.float() * mask).sum(1) / mask.sum(1)
        return [{"embedding_similarity": {"predictions": [mean.tolist()]}} for mean in means]

    def agreement(self, pairs: Sequence[tuple[Sample, Sample]]) -> dict[str, Estimate]:
        dense, sparse = (
            [sample["embedding_similarity"]["predictions"][0] for sample in part] for part in zip(*pairs, strict=True)
        )
        found = load_metric("embedding_similarity").compute(
            predictions1=dense, predictions2=sparse, neighbours=_NEIGHBOURS
        )
        each = [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]
        means = jackknife(lambda some: {name: sum(one[name] for one in some) / len(some) for name in found}, each)
        return {**means, "smallest_cosine": Estimate(min(found["cosine"]))}
