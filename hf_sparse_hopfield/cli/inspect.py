# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`inspect`: settings and support sizes of every head of a sparse checkpoint."""

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..extras import require
from ..files import new_file
from .arguments import (
    TERMS,
    add_input_arguments,
    check_file,
    check_text,
    given,
    input_options,
    make_batches,
    show_progress,
)
from .messages import note
from .output import console


if TYPE_CHECKING:
    from ..diagnostics import SparsityReport


HELP = "alpha, beta, steps, support size, entropy and dead heads of a checkpoint"
DESCRIPTION = """Run a checkpoint on a text (or random inputs) and report how many keys every layer and head uses, and the perplexity
of a language model. A dense checkpoint is shown as it would be with --alpha. --html writes an explorer, one page to look into: a map of
all heads, and for each token (or patch of a picture) exactly what a head reads, beside dense attention (docs/explorer.md)."""
EXAMPLES = """examples:
  %(prog)s ./smollm2-sparse --text wikitext.valid.txt --html explorer.html
  %(prog)s ./smollm2-sparse --prompt "The cat sat on the mat because it was warm." --html explorer.html
  %(prog)s ./smollm2-sparse --text wikitext.test.txt --batches all --rows 16   (perplexity on a whole text)
  %(prog)s ./vit-sparse --image cat.jpg --html explorer.html
  %(prog)s ./vit-sparse --png heads.png
  %(prog)s ./bert-sparse --json > report.json

"""
EXAMPLES += TERMS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("source", help="local directory or Hub id of the checkpoint")
    parser.add_argument("--alpha", type=float, help="for a dense checkpoint (default: 1, softmax)")
    add_input_arguments(parser, "run it")
    sample = parser.add_argument_group("or on one sample of your own")
    sample.add_argument("--prompt", help="a text; the decoder of an encoder-decoder writes its part itself")
    sample.add_argument("--image", metavar="FILE", help="a picture, for models that take one")
    parser.add_argument("--rows", type=int, default=256, help="queries to count per batch (default: %(default)s)")
    parser.add_argument("--heads", action="store_true", help="show one line per head instead of one per layer")
    parser.add_argument("--png", help="write heat maps to this file")
    parser.add_argument(
        "--html", help="write the explorer to this file: it shows the first window of text, or the sample"
    )


def run(arguments: argparse.Namespace) -> None:
    """Inspect."""
    from ..checkpoints.loading import load_model, load_tokenizer
    from ..diagnostics import plot_sparsity, sparsity_report, write_explorer
    from ..integration.binding import has_bound_attention
    from ..integration.convert import to_sparse_hopfield

    for path in (arguments.png, arguments.html):
        check_file(path)
    check_text(arguments)
    _check_sample(arguments)
    model, tokenizer = load_model(arguments.source), load_tokenizer(arguments.source)
    if not has_bound_attention(model):
        model = to_sparse_hopfield(model, {"alpha": 1.0 if arguments.alpha is None else arguments.alpha})
    elif arguments.alpha is not None:
        raise ValueError(
            f"{arguments.source!r} is sparse and has its own alpha: --alpha {arguments.alpha} is for dense checkpoints."
        )
    batches = _batches(arguments, model, tokenizer)
    if arguments.html:
        with new_file(arguments.html) as path:
            title = f"Heads of {Path(arguments.source).name or arguments.source}"
            write_explorer(
                model, batches[0], path, processor=tokenizer, title=title, progress=show_progress(arguments)
            )
    report = sparsity_report(
        model, batches, rows=arguments.rows, seed=input_options(arguments).seed, progress=show_progress(arguments)
    )
    if arguments.png:
        with new_file(arguments.png) as path:
            plot_sparsity(report, path)
    if arguments.json:
        print(report.to_json_string(), end="")
        return
    _print(report, arguments)


def _check_sample(arguments: argparse.Namespace) -> None:
    """Refuse a sample that cannot be used, before any work."""
    for name, value in given(arguments, ("prompt", "image")).items():
        for other in given(arguments, ("text", "random")):
            raise ValueError(f"--{name} and --{other} are two things to run on: give one of them.")
        if name == "image" and not Path(value).is_file():
            raise FileNotFoundError(f"--image {value!r} is not a file.")


def _batches(arguments: argparse.Namespace, model: Any, tokenizer: Any) -> list[dict[str, Any]]:
    """What to run the model on."""
    from ..sample_inputs import given_inputs

    sample = given(arguments, ("prompt", "image"))
    if not sample:
        if arguments.text is None and not arguments.random:
            note(arguments, "inspecting on random inputs; use --text FILE to see what the heads do on a text.")
        return make_batches(arguments, model, tokenizer, arguments.batches)
    if tokenizer is None:
        raise ValueError(f"the checkpoint has no tokenizer or processor for --{next(iter(sample))}.")
    return [given_inputs(model, tokenizer, **sample)]


def _print(report: "SparsityReport", arguments: argparse.Namespace) -> None:
    columns = ("alpha", "beta", "steps", "support", "share", "entropy")
    # without lines between the columns, the table fits a terminal of 80 characters
    table = require("rich.table", "cli").Table(
        title=f"{arguments.source}: mean over heads, or lowest–highest",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("attention module", overflow="fold", min_width=24)
    for column in (*(["head"] if arguments.heads else []), *columns, "dead"):
        table.add_column(column, no_wrap=True, justify="right")
    for name, layer in report.layers.items():
        heads = range(len(layer["alpha"]))
        if arguments.heads:
            for head in heads:
                numbers = (f"{layer[column][head]:.3g}" for column in columns)
                table.add_row(name, str(head), *numbers, "dead" if layer["dead"][head] else "")
        else:
            spans = (_span(layer[column]) for column in columns[:3])
            means = (f"{sum(layer[column]) / len(heads):.3g}" for column in columns[3:])
            table.add_row(name, *spans, *means, str(sum(layer["dead"])))
    out = console()
    out.print(table)
    out.print(
        f"{report.share:.2%} of the visible keys get weight; {len(report.dead_heads)} dead heads; "
        f"{report.rows} rows counted in each attention module."
    )
    if report.loss is not None:
        out.print(f"loss {report.loss:.4f}, perplexity {math.exp(report.loss):.2f}")
    for path in (arguments.png, arguments.html):
        if path:
            out.print(f"written: {path}")


def _span(values: list[float]) -> str:
    low, high = f"{min(values):.2g}", f"{max(values):.2g}"
    return low if low == high else f"{low}–{high}"
