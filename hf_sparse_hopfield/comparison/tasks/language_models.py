# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Language models: the loss on windows of a text, of each next token or of masked ones."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from ...sample_inputs import dataset_text, is_text_file, read_text, text_batches
from .task import Case, Measure, Sample, Task


_CHARACTERS = 10  # at most, of a token on average
_PERPLEXITY = Measure("perplexity", {"perplexity": "perplexity", "loss": "loss"})
_MASKED = 0.15  # share of the tokens, as in the training of BERT
_NOT_PREDICTED = -100


class _LanguageModel(Task):
    usual_samples, usual_batch_size = 64, 1

    def windows(self, data: str) -> torch.Tensor:
        """Windows of the text, chosen at random."""
        if is_text_file(data):
            if self.options.split is not None:
                raise ValueError(f"split={self.options.split!r} is for a dataset with several: {data!r} has none.")
            text = read_text(data)
        else:
            text = dataset_text(
                data,
                split=self.options.split or "test",
                column=self.options.text_column,
                characters=self.samples_wanted * self.options.length * _CHARACTERS,
            )
        batches = text_batches(
            self.model,
            self.processor,
            text,
            length=self.options.length,
            count=self.samples_wanted,
            seed=self.options.seed,
        )
        return torch.cat([batch["input_ids"] for batch in batches])

    def measures(self, samples: Sequence[Sample]) -> list[Measure]:
        return [_PERPLEXITY]


class TextGeneration(_LanguageModel):
    """Perplexity of a causal language model."""

    auto_class = "AutoModelForCausalLM"

    def cases(self, data: str) -> list[Case]:
        return [Case({"input_ids": batch}, batch[:, 1:]) for batch in self.windows(data).split(self.batch_size)]

    @staticmethod
    def run(model: PreTrainedModel, inputs: dict[str, Any]) -> Any:
        return model(**inputs, use_cache=False)

    def samples(self, case: Case, output: Any) -> list[Sample]:
        return [_losses(logits[:-1], labels) for logits, labels in zip(output.logits, case.expected, strict=True)]


class FillMask(_LanguageModel):
    """Loss and accuracy of a masked language model on the tokens that are masked."""

    auto_class = "AutoModelForMaskedLM"

    def cases(self, data: str) -> list[Case]:
        tokenizer = getattr(self.processor, "tokenizer", self.processor)
        if tokenizer.mask_token_id is None:
            raise ValueError("the tokenizer has no mask token, which fill-mask needs.")
        windows = self.windows(data)
        generator = torch.Generator().manual_seed(self.options.seed)
        special = torch.isin(windows, torch.tensor(tokenizer.all_special_ids))
        order = torch.rand(windows.shape, generator=generator).masked_fill(special, 2).argsort(1)
        masked = torch.zeros_like(special)
        masked.scatter_(1, order[:, : max(1, round(_MASKED * int((~special).sum(1).min())))], True)
        inputs = windows.masked_fill(masked, tokenizer.mask_token_id)
        labels = windows.masked_fill(~masked, _NOT_PREDICTED)
        return [
            Case({"input_ids": part}, right)
            for part, right in zip(inputs.split(self.batch_size), labels.split(self.batch_size), strict=True)
        ]

    def samples(self, case: Case, output: Any) -> list[Sample]:
        found = []
        for logits, labels in zip(output.logits, case.expected, strict=True):
            masked = labels != _NOT_PREDICTED
            logits, labels = logits[masked], labels[masked]
            predicted = {"predictions": logits.argmax(-1).tolist(), "references": labels.tolist()}
            found.append({**_losses(logits, labels), "accuracy": predicted})
        return found

    def measures(self, samples: Sequence[Sample]) -> list[Measure]:
        return [_PERPLEXITY, Measure("accuracy", {"accuracy": "accuracy"})]


def _losses(logits: torch.Tensor, labels: torch.Tensor) -> Sample:
    loss = F.cross_entropy(logits.float(), labels).item()
    return {"perplexity": {"losses": [loss], "tokens": [len(labels)]}}
