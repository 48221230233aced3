# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A sentence or a picture that the user gives as the inputs of a model."""

import inspect
import os
from typing import Any

import torch
from transformers import GenerationMixin, PreTrainedModel

from ..extras import require
from ..model_running import on_device


_WRITTEN = 64  # tokens that the decoder of an encoder-decoder writes, at most


@torch.no_grad()
def given_inputs(
    model: PreTrainedModel, processor: Any, *, prompt: str | None = None, image: str | os.PathLike | None = None
) -> dict[str, torch.Tensor]:
    """
    Make model inputs of a text, a picture, or both. An encoder-decoder writes the text of its decoder itself.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model that takes the inputs.
        processor: Its tokenizer or processor.
        prompt (`str`, *optional*): The text.
        image (`str`, *optional*): The file of the picture.
    """
    given: dict[str, Any] = {}
    if prompt is not None:
        given["text"] = prompt
    if image is not None:
        given["images"] = require("PIL.Image", "cli").open(image).convert("RGB")
    try:
        made = processor(**given, return_tensors="pt")
    except (TypeError, ValueError, AttributeError) as error:
        names = " and ".join({"text": "prompt", "images": "image"}[name] for name in given)
        raise ValueError(
            f"{names}: the {type(processor).__name__} of {type(model).__name__} makes no inputs of it "
            f"({' '.join(str(error).split())})."
        ) from error
    taken = inspect.signature(type(model).forward).parameters
    inputs = {name: value for name, value in made.items() if name in taken}
    writes = isinstance(model, GenerationMixin) and model.can_generate()
    if writes and getattr(model.config, "is_encoder_decoder", False):
        writer: Any = model  # whose types torch does not know
        written = writer.generate(**on_device(inputs, model), max_new_tokens=_WRITTEN, do_sample=False, num_beams=1)
        inputs["decoder_input_ids"] = written.cpu()
    return inputs
