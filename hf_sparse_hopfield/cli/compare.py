# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`compare`: a sparse checkpoint beside the dense one, on a task."""

import argparse
from typing import TYPE_CHECKING

from ..comparison.options import TASKS, CompareOptions
from ..extras import require
from ..files import new_file
from .arguments import TERMS, add_options, check_file, given, option_names, show_progress
from .output import console


if TYPE_CHECKING:
    from ..comparison import ComparisonReport


HELP = "quality, speed, memory and support of a dense and a sparse checkpoint, side by side"
DESCRIPTION = """Run a dense checkpoint and a sparse one on the same samples, in turns, and print quality, speed, memory and support
side by side, with the standard errors of the paired differences. Metrics are modules of evaluate in files of this package."""
EXAMPLES = """examples:
  %(prog)s HuggingFaceTB/SmolLM2-135M ./smollm2-sparse --task text-generation --data wikitext.test.txt
  %(prog)s ./bert-sst2 ./bert-sst2-sparse --task text-classification --data sst2.test.csv --html report.html
  %(prog)s ./minilm ./minilm-sparse --task feature-extraction --data fancyzhx/ag_news --samples 2000
  %(prog)s ./vit ./vit-sparse --task image-classification --data ./images --split train --json

docs/compare.md says what each task measures and how to read the table.

"""
EXAMPLES += TERMS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("dense", help="local directory or Hub id of the dense checkpoint")
    parser.add_argument("sparse", help="local directory or Hub id of the sparse checkpoint")
    parser.add_argument("--task", choices=sorted(TASKS), required=True, help="what the models do")
    parser.add_argument(
        "--data",
        required=True,
        help=".txt, .csv, .jsonl or .parquet file, may be .gz; a folder that datasets reads, or a dataset on the Hub",
    )
    add_options(parser.add_argument_group("samples"), CompareOptions)
    parser.add_argument("--html", help="write the table to this file, too")


def run(arguments: argparse.Namespace) -> None:
    """Compare."""
    from ..comparison import compare, write_comparison

    check_file(arguments.html)
    report = compare(
        arguments.dense,
        arguments.sparse,
        arguments.task,
        arguments.data,
        CompareOptions(**given(arguments, option_names(CompareOptions))),
        progress=show_progress(arguments),
    )
    if arguments.html:
        with new_file(arguments.html) as path:
            write_comparison(report, path)
    if arguments.json:
        print(report.to_json_string(), end="")
        return
    _print(report, arguments)


def _print(report: "ComparisonReport", arguments: argparse.Namespace) -> None:
    from ..comparison.report import FOOTNOTE

    table = require("rich.table", "cli").Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("")
    for column in ("dense", "sparse", "difference or ratio"):
        table.add_column(column, justify="right", no_wrap=True)
    for line in report.lines():
        table.add_row(*line)
    out = console()
    settings = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in report.settings.items())
    for text in (report.title, settings, f"dense: {report.dense}", f"sparse: {report.sparse}"):
        out.print(text)
    out.print(table)
    out.print(FOOTNOTE)
    if arguments.html:
        out.print(f"written: {arguments.html}")
