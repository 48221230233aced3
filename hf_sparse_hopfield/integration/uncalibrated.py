# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Pretrained weights that run sparse without calibration: one warning that says what to do.

Weights that were trained with softmax need another beta under alpha > 1; with beta = 1 a language model writes nonsense. A
layer is *uncalibrated* (`LayerRetrieval.uncalibrated`) from the moment that both are known:

- it retrieves with alpha > 1 and beta = 1, which nobody chose for it, and
- the weights around it were loaded from a checkpoint, and not from a sparse one. transformers marks loaded weights; a model
  that is made from a configuration has none. A layer that is made before its weights are loaded waits for them
  (`LayerRetrieval.awaits_weights`).

It stops being uncalibrated when its alpha or beta is set ([`calibrate`], a schedule), when the model is put into training
mode (then the weights learn to live with it), or when an adapter that was trained on it is loaded.

The first retrieval of an uncalibrated layer warns, once in a process. Retrievals that are observed do not count: calibration
and diagnostics look at uncalibrated models. The cost is one attribute per layer and call. Under `torch.compile` and
`torch.export` the warning comes while the model is traced, and is no part of the graph.

The config.json of an uncalibrated model contains `"sparse_hopfield_calibrated": false`, so the checkpoint warns in the next
process as well. A checkpoint without this entry was calibrated or trained, or was written before there was such an
entry, and does not warn.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from torch import nn

from .upstream import ATTENTION_NAME, is_initialized


if TYPE_CHECKING:
    from .binding import LayerRetrieval

logger = logging.getLogger(__name__)

CALIBRATED = "sparse_hopfield_calibrated"  # entry of config.json; only `False` is written

ADVICE = (
    "weights that were trained with softmax run with alpha > 1 and without calibration, so the outputs may be far off. "
    "Calibrate with `hf_sparse_hopfield.calibrate(model, batches)` or `hf-sparse-hopfield convert ... --text file`, or "
    "fine-tune the model."
)


_said = threading.Lock()  # taken by the first warning and never given back
_silenced: ContextVar[bool] = ContextVar("silenced", default=False)


def warn() -> None:
    """Log the warning, once in a process and not inside [`silenced`]."""
    if not _silenced.get() and _said.acquire(blocking=False):
        logger.warning("Uncalibrated sparse retrieval: %s", ADVICE)


# torch calls the function while it traces, once, and does not look inside. `torch.compiler.assume_constant_result` sets the
# same mark, but imports the compiler, which takes a second.
warn._dynamo_marked_constant = True  # type: ignore[attr-defined]


@contextmanager
def silenced() -> Iterator[None]:
    """Log no warning in the block: the caller prints one of its own."""
    token = _silenced.set(True)
    try:
        yield
    finally:
        _silenced.reset(token)


def note_weights(module: nn.Module) -> None:
    """
    Find out whether an attention module is uncalibrated, once its weights are there.

    Args:
        module (`torch.nn.Module`): An attention module, or any other one, which is left alone.
    """
    retrieval: Any = vars(module).get("_modules", {}).get(ATTENTION_NAME)
    if getattr(retrieval, "awaits_weights", False) and any(map(is_initialized, module.parameters())):
        retrieval.awaits_weights = False
        retrieval.uncalibrated = has_default_beta(retrieval)


def has_default_beta(retrieval: "LayerRetrieval") -> bool:
    """Whether a layer retrieves with alpha > 1 and the default beta. A beta for each head was chosen by someone."""
    alpha = retrieval.configured("alpha")
    return retrieval.configured("beta") == 1.0 and max(alpha if isinstance(alpha, tuple) else (alpha,)) > 1.0


def await_weights(model: nn.Module) -> None:
    """
    Have the layers of a new model wait for their weights, unless they will come from a checkpoint of a sparse model.

    Args:
        model ([`~transformers.PreTrainedModel`]): The outermost model, while it is built.
    """
    config: Any = model.config
    # every sparse checkpoint names its family
    trained_sparse = hasattr(config, "base_model_type") and vars(config).pop(CALIBRATED, True)
    for retrieval in _layers(model):
        retrieval.awaits_weights = not trained_sparse


def settle(model: nn.Module) -> None:
    """Note that all layers of a model are used with weights that fit them."""
    for retrieval in _layers(model):
        retrieval.awaits_weights = retrieval.uncalibrated = False


@contextmanager
def noted_in_config(model: nn.Module) -> Iterator[None]:
    """
    Within the context, the configuration of a model says if the model is uncalibrated.

    Args:
        model ([`~transformers.PreTrainedModel`]): A sparse model that is saved.
    """
    config: Any = model.config
    if any(retrieval.uncalibrated for retrieval in _layers(model)):
        setattr(config, CALIBRATED, False)
    try:
        yield
    finally:
        vars(config).pop(CALIBRATED, None)


def _layers(model: nn.Module) -> list["LayerRetrieval"]:
    from .binding import LayerRetrieval

    return [module for module in model.modules() if isinstance(module, LayerRetrieval)]
