# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`write_explorer`: the page."""

import base64
import hashlib
import html
import json
import os
import zlib
from importlib.resources import files
from string import Template
from typing import Any

import numpy as np
import torch
from torch import nn

from ...files import write_text
from ...progress import progress_bar
from ...version import __version__
from ..head_counter import DEAD_FIRST, DEAD_SINK, DEAD_UNIFORM
from .copying import COPYING, ROWS, copying
from .recording import Retrieved, first_sample, retrievals
from .rows import COARSE_UNITS, UNITS, most_per_row
from .streams import Stream, Streams


# Keys that are listed, of all rows of all heads together. They keep a page of 1000 tokens and 30 layers below 20 MB.
SPARSE_BUDGET = 12_000_000
DENSE_BUDGET = 1_500_000
_FINE = 5_000_000  # sparse ones up to which weights are not coarse


def write_explorer(
    model: nn.Module,
    inputs: dict[str, Any],
    path: str | os.PathLike,
    *,
    processor: Any = None,
    title: str | None = None,
    progress: bool = False,
) -> None:
    """
    Write one self-contained HTML page that shows what every head of a model reads on one sample: a map of all heads, and for a
    head the tokens (or patches, or positions) that each token reads, with their weights, beside those of dense attention. The page
    loads nothing from the network.

    Args:
        model (`torch.nn.Module`): A converted model, or one made of Hopfield layers; not wrapped.
        inputs (`dict`): Model inputs. Of a batch, the first sample is shown.
        path (`str`): The file.
        processor (*optional*): The tokenizer or processor of the model, for the words and colours of the inputs.
        title (`str`, *optional*): Heading of the page. Defaults to the class of the model.
        progress (`bool`, *optional*, defaults to `False`): Show a progress bar.

    Example:

    ```python
    >>> import torch
    >>> from transformers import BertConfig, BertModel
    >>> from hf_sparse_hopfield import to_sparse_hopfield
    >>> from hf_sparse_hopfield.diagnostics import write_explorer

    >>> model = BertModel(BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=100))
    >>> model = to_sparse_hopfield(model, {"alpha": 1.5})
    >>> write_explorer(model, {"input_ids": torch.arange(9)[None]}, "explorer.html")

    ```
    """
    inputs = first_sample(inputs)
    streams = Streams(model, inputs, processor)
    with progress_bar("exploring", total=0, enabled=progress) as bar:
        sparse = retrievals(model, inputs, streams, True, SPARSE_BUDGET, bar)
        dense = retrievals(model, inputs, streams, False, DENSE_BUDGET, bar)
    most = {
        side: most_per_row([one.rows for one in retrieved.values()], budget)
        for side, retrieved, budget in (("sparse", sparse, SPARSE_BUDGET), ("dense", dense, DENSE_BUDGET))
    }
    coarse = sum(len(one.rows.keys) for one in sparse.values()) > _FINE
    blobs: dict[str, bytes] = {}
    layers = []
    for number, (name, one) in enumerate(sparse.items()):
        for side, rows in (("sparse", one.rows), ("dense", dense[name].rows)):
            rows = rows.limited(most[side])
            blobs[f"rows-{side}-{number}"] = (rows.coarse() if coarse else rows).packed()
        if one.energies is not None:
            blobs[f"energies-{number}"] = _packed_energies(one.energies)
        layers.append(_layer(name, one, dense[name], streams.used))
    for number, stream in enumerate(streams.used):
        if stream.pixels is not None:
            blobs[f"pixels-{number}"] = zlib.compress(stream.pixels.numpy().tobytes(), 9)
    title = type(model).__name__ if title is None else title
    data = {
        "title": title,
        "model": type(model).__name__,
        "version": __version__,
        "units": COARSE_UNITS if coarse else UNITS,
        "cut": {
            "sparse": _longest(sparse.values()) > most["sparse"],
            "dense": _longest(dense.values()) > most["dense"],
        },
        "most": most,
        "criteria": {
            "first": DEAD_FIRST,
            "sink": DEAD_SINK,
            "uniform": DEAD_UNIFORM,
            "copying": COPYING,
            "rows": ROWS,
        },
        "streams": [_stream(stream) for stream in streams.used],
        "layers": layers,
    }
    write_text(path, _page(title, data, blobs))


def _longest(retrieved: Any) -> int:
    return max(int(one.rows.kept.max(initial=0)) for one in retrieved)


def _layer(name: str, sparse: Retrieved, dense: Retrieved, streams: list[Stream]) -> dict[str, Any]:
    """What the page knows of a layer without its weights."""
    energies = None
    if sparse.energies is not None:
        rows = sparse.energies.isfinite().all(0)  # a row that sees nothing has no energy
        energies = (sparse.energies.where(rows, 0).sum(-1) / rows.sum(-1).clamp_min(1)).T.tolist()
    sides = {"sparse": sparse, "dense": dense}
    return _rounded(
        {
            "name": name,
            "heads": len(sparse.settings["alpha"]),
            "queries": streams.index(sparse.queries),
            "keys": streams.index(sparse.keys),
            "steps": sparse.steps,
            **sparse.settings,
            "seen": sparse.seen.tolist(),
            "support": sparse.counted["support"],
            "visible": sparse.counted["keys"],
            "entropy": {side: one.counted["entropy"] for side, one in sides.items()},
            "first": {side: one.counted["sink"] for side, one in sides.items()},
            **{copy: {side: one.copied[copy] for side, one in sides.items()} for copy in sparse.copied},
            "dead": sparse.counted["dead"],
            "copying": copying(sparse.copied),
            "energy": energies,
        }
    )


def _rounded(value: Any) -> Any:
    """Numbers with six digits: more are noise, and the page grows."""
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_rounded(entry) for entry in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _stream(stream: Stream) -> dict[str, Any]:
    size = None if stream.pixels is None else [stream.pixels.shape[1], stream.pixels.shape[0]]
    return {
        "name": stream.name,
        "text": stream.ids is not None,
        "labels": stream.labels,
        "special": stream.special,
        "grid": stream.grid,
        "picture": size,
    }


def _packed_energies(energies: torch.Tensor) -> bytes:
    """The energies of all rows as compressed float32, with the 12 digits that a curve shows; NaN for a row without."""
    numbers = energies.masked_fill(~energies.isfinite(), torch.nan).contiguous().numpy()
    return zlib.compress((numbers.view(np.uint32) & np.uint32(0xFFFFF000)).tobytes(), 9)


def _page(title: str, data: dict[str, Any], blobs: dict[str, bytes]) -> str:
    folder = files(__package__)
    parts = {name: folder.joinpath(name).read_text(encoding="utf-8") for name in ("explorer.css", "explorer.js")}
    style, script = parts.values()
    # No text of a model or a tokenizer can leave its element: `<` is escaped in JSON, and base64 has none.
    content = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    encoded = "\n".join(
        f'<script type="application/octet-stream" id="{name}">{base64.b64encode(blob).decode()}</script>'
        for name, blob in blobs.items()
    )
    return Template(folder.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        title=html.escape(title),
        style=style,
        script=script,
        # The browser runs this script and loads nothing: neither injected code nor the network.
        policy=f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; "
        "form-action 'none'",
        data=content,
        blobs=encoded,
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
