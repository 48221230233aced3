# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`write_html_report`: a sparsity report as one self-contained HTML file."""

import base64
import html
import io
import os

from ..files import write_text
from .plots import plot_sparsity
from .sparsity import SparsityReport


def write_html_report(report: SparsityReport, path: str | os.PathLike, title: str) -> None:
    """
    Write the heat maps and a table of every head to one self-contained HTML file.

    Args:
        report ([`SparsityReport`]): From [`sparsity_report`].
        path (`str`): The file.
        title (`str`): Its heading.
    """
    picture = io.BytesIO()
    plot_sparsity(report).savefig(picture, format="png", dpi=110)
    columns = ("alpha", "beta", "steps", "support", "keys", "share", "entropy", "sink", "dead")
    lines = []
    for name, layer in report.layers.items():
        for head in range(len(layer["alpha"])):
            cells = [html.escape(name), str(head), *(_cell(layer[column][head]) for column in columns)]
            lines.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    header = "".join(f"<th>{column}</th>" for column in ("layer", "head", *columns))
    encoded = base64.b64encode(picture.getvalue()).decode()
    write_text(
        path,
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{html.escape(title)}</title>"
        "<style>body{font-family:sans-serif;margin:2em}table{border-collapse:collapse}"
        "td,th{padding:2px 10px;text-align:right;border-bottom:1px solid #ddd}td:first-child{text-align:left}</style>"
        f"<h1>{html.escape(title)}</h1><p>{report.share:.2%} of the visible keys get weight; "
        f"{len(report.dead_heads)} dead heads; {report.rows} rows counted in each layer.</p>"
        f"<img style='max-width:100%' alt='heat maps of all heads' src='data:image/png;base64,{encoded}'>"
        f"<table><tr>{header}</tr>{''.join(lines)}</table></html>\n",
    )


def _cell(value: float | bool) -> str:
    if isinstance(value, bool):
        return "dead" if value else ""
    return f"{value:.4g}"
