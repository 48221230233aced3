# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What queries and keys stand for: the tokens of a text, the patches of a picture, or numbered positions."""

import re
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


_LARGEST_PICTURE = 448  # pixels of a side; larger pictures lose pixels
_MOST_PREFIXES = 16  # positions before the patches, such as a class token and registers
_VISION = re.compile("vision|visual|image|pixel")
_CROSS = re.compile("cross|encoder_attn|EncDecAttention")


@dataclass(eq=False)
class Stream:
    """
    A sequence of positions.

    Args:
        name (`str`): What the page calls it.
        labels (`list[str]`): One for each position.
        ids (`list[int]`, *optional*): Its tokens, if it is a text.
        special (`list[int]`, *optional*): The positions of special tokens.
        grid (`tuple[int, int]`, *optional*): Rows and columns of patches, if it is a picture; they are its last positions.
        pixels (`torch.ByteTensor` of shape `(height, width, 3)`, *optional*): The picture.
    """

    name: str
    labels: list[str]
    ids: list[int] | None = None
    special: list[int] = field(default_factory=list)
    grid: tuple[int, int] | None = None
    pixels: torch.Tensor | None = None


class Streams:
    """
    The streams of the inputs of a model, and those that its layers read.

    Args:
        model (`torch.nn.Module`): The model.
        inputs (`dict`): Its inputs, one sample.
        processor (*optional*): Its tokenizer or processor.
    """

    def __init__(self, model: nn.Module, inputs: dict[str, Any], processor: Any = None) -> None:
        tokenizer = getattr(processor, "tokenizer", processor)
        tokenizer = tokenizer if hasattr(tokenizer, "convert_ids_to_tokens") else None
        self.used: list[Stream] = []
        self.text: Stream | None = None
        self.decoder: Stream | None = None
        self.picture: Stream | None = None
        has_decoder = inputs.get("decoder_input_ids") is not None
        if _is_text(inputs.get("input_ids")):
            self.text = _text("encoder text" if has_decoder else "text", inputs["input_ids"][0].tolist(), tokenizer)
        if has_decoder and _is_text(inputs["decoder_input_ids"]):
            self.decoder = _text("decoder text", inputs["decoder_input_ids"][0].tolist(), tokenizer)
        if isinstance(inputs.get("pixel_values"), torch.Tensor) and inputs["pixel_values"].ndim == 4:
            self.picture = _picture(model, inputs["pixel_values"][0], processor)

    def of_layer(self, name: str, queries: int, keys: int) -> tuple[Stream, Stream]:
        """
        What the queries and the keys of a layer are. Where a length fits two streams, the name of the layer decides.

        Args:
            name (`str`): Path of the layer.
            queries, keys (`int`): How many there are.
        """
        in_decoder = self.decoder is not None and "decoder" in name.split(".")
        order: list[Stream | None] = [self.text, self.picture]
        order = order[::-1] if _VISION.search(name) else order
        order = [self.decoder, *order] if in_decoder else [*order, self.decoder]
        query = self._fitting(order, queries, "positions")
        if queries == keys and not _CROSS.search(name):
            return query, query
        return query, self._fitting(order, keys, "keys", query if in_decoder else None)

    def _fitting(
        self, order: list[Stream | None], length: int, otherwise: str, other_than: Stream | None = None
    ) -> Stream:
        for stream in (*order, *self.used):
            if stream is not None and stream is not other_than:
                fits = _with_prefixes(stream, length)
                if fits is not None:
                    return self._once(fits)
        return self._once(Stream(otherwise, [str(number) for number in range(length)]))

    def _once(self, stream: Stream) -> Stream:
        """The stream in the list of those that are used."""
        for other in self.used:
            if (other.name, other.labels) == (stream.name, stream.labels):
                return other
        self.used.append(stream)
        return stream


def _is_text(ids: Any) -> bool:
    return isinstance(ids, torch.Tensor) and ids.ndim == 2 and not ids.is_floating_point()


def _with_prefixes(stream: Stream, length: int) -> Stream | None:
    """A stream if it has so many positions; a picture may have positions before its patches."""
    if len(stream.labels) == length:
        return stream
    more = length - len(stream.labels)
    if stream.grid is None or stream.special or not 0 < more <= _MOST_PREFIXES:
        return None
    prefixes = ["[CLS]", *(f"[{number}]" for number in range(1, more))]
    return Stream(
        stream.name,
        [*prefixes, *stream.labels],
        special=list(range(more)),
        grid=stream.grid,
        pixels=stream.pixels,
    )


def _text(name: str, ids: list[int], tokenizer: Any) -> Stream:
    """A text. Without a tokenizer, the labels are the numbers of the tokens."""
    if tokenizer is None:
        return Stream(name, [f" {token}" for token in ids], ids)
    special = set(tokenizer.all_special_ids)
    pieces = [_piece(tokenizer, token) for token in ids]
    if not any(piece != piece.strip() for piece in pieces):  # the tokenizer splits at spaces and drops them
        pieces = [piece[2:] if piece.startswith("##") else f" {piece}" for piece in pieces]
    return Stream(name, pieces, ids, [place for place, token in enumerate(ids) if token in special])


def _piece(tokenizer: Any, token: int) -> str:
    """The text of a token, with the spaces around it."""
    name = tokenizer.convert_ids_to_tokens(token)
    if name is None:  # beyond the vocabulary
        return str(token)
    name = str(name)
    if token in tokenizer.all_special_ids or name.startswith("##"):
        return name
    if "▁" in name:  # of SentencePiece, which drops it at the beginning of a text
        return name.replace("▁", " ")
    text = tokenizer.decode([token])
    return name if not text or "\ufffd" in text else text


def _picture(model: nn.Module, pixels: torch.Tensor, processor: Any) -> Stream | None:
    """A picture, cut into patches as the configuration of the model says; `None` if it does not."""
    config = getattr(model, "config", None)
    patch = next(
        (
            size
            for part in (config, getattr(config, "vision_config", None), getattr(config, "encoder", None))
            if (size := getattr(part, "patch_size", None)) is not None
        ),
        None,
    )
    if patch is None:
        return None
    height, width = (patch, patch) if isinstance(patch, int) else tuple(patch)[-2:]
    grid = pixels.shape[-2] // height, pixels.shape[-1] // width
    labels = [f"row {row + 1}, column {column + 1}" for row in range(grid[0]) for column in range(grid[1])]
    return Stream("picture", labels, grid=grid, pixels=_as_seen(pixels, processor))


def _as_seen(pixels: torch.Tensor, processor: Any) -> torch.Tensor:
    """The colours of a picture, as they were before the processor normalised them."""
    pixels = pixels.detach().float().cpu()
    processor = getattr(processor, "image_processor", processor)
    mean, std = getattr(processor, "image_mean", None), getattr(processor, "image_std", None)
    channels = len(pixels)
    if mean is not None and std is not None and len(mean) == len(std) == channels:
        pixels = pixels * torch.tensor(std)[:, None, None] + torch.tensor(mean)[:, None, None]
    else:
        low, high = pixels.min(), pixels.max()
        pixels = (pixels - low) / (high - low).clamp_min(1e-12)
    pixels = pixels[:3] if channels >= 3 else pixels[:1].expand(3, -1, -1)
    step = -(-max(pixels.shape[-2:]) // _LARGEST_PICTURE)
    return (pixels[:, ::step, ::step].clamp(0, 1) * 255).round().byte().movedim(0, -1).contiguous()
