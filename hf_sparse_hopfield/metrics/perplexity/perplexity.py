# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Perplexity, as a metric of evaluate."""

import math

import datasets
import evaluate
import numpy as np


_DESCRIPTION = """The exponential of the mean loss per token: the number of tokens between which a model is as undecided as between equally
likely ones. It comes from the losses of a model that has run already, so that one run gives loss, perplexity and time."""
_INPUTS = """
Args:
    losses (`list` of `float`): Mean negative log-likelihood per token, in nats, of each text, window or batch.
    tokens (`list` of `int`): How many tokens each of these means is over. Long texts count more than short ones.

Returns:
    `dict`: `perplexity`; `loss`, the mean over all tokens; `tokens`, their number.

Example:

    >>> perplexity = evaluate.load("metrics/perplexity")
    >>> perplexity.compute(losses=[2.0, 3.0], tokens=[100, 300])
    {'perplexity': 15.642631884188171, 'loss': 2.75, 'tokens': 400}
"""


class Perplexity(evaluate.Metric):
    """Exponential of the mean loss per token."""

    def _info(self):
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation="",
            inputs_description=_INPUTS,
            features=datasets.Features({"losses": datasets.Value("float64"), "tokens": datasets.Value("int64")}),
        )

    def _compute(self, losses, tokens):
        losses, tokens = np.asarray(losses), np.asarray(tokens)
        if tokens.min(initial=0) < 0 or not tokens.sum():
            raise ValueError(f"tokens must be counts with a sum above 0, got {tokens[:5].tolist()}.")
        some = tokens > 0  # the loss of a text without tokens is not a number
        loss = float(np.average(losses[some], weights=tokens[some]))
        try:
            perplexity = math.exp(loss)
        except OverflowError:
            perplexity = math.inf
        return {"perplexity": perplexity, "loss": loss, "tokens": int(tokens.sum())}
