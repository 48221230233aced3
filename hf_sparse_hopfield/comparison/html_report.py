# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`write_comparison`: a comparison as one self-contained HTML file."""

import html
import os

from ..files import write_text
from .report import FOOTNOTE, ComparisonReport


_STYLE = """:root{color-scheme:light dark}body{font-family:sans-serif;margin:2em auto;max-width:50em;padding:0 1em}
table{border-collapse:collapse;display:block;overflow-x:auto}td,th{padding:4px 12px;text-align:right;border-bottom:1px solid #8886}
td:first-child,th:first-child{text-align:left}p,dl{line-height:1.5}dt{float:left;clear:left;width:7em}dd{margin-left:7em;overflow-wrap:anywhere}"""


def write_comparison(report: ComparisonReport, path: str | os.PathLike) -> None:
    """
    Write a comparison to one self-contained HTML file.

    Args:
        report ([`ComparisonReport`]): From [`compare`].
        path (`str`): The file.
    """
    described = {"dense": report.dense, "sparse": report.sparse, **report.settings}
    terms = "".join(f"<dt>{name.replace('_', ' ')}</dt><dd>{_text(value)}</dd>" for name, value in described.items())
    header = "".join(f"<th>{name}</th>" for name in ("", "dense", "sparse", "difference or ratio"))
    lines = ("".join(f"<td>{_text(cell)}</td>" for cell in line) for line in report.lines())
    write_text(
        path,
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width,initial-scale=1'>"
        f"<title>{_text(report.title)}</title><style>{_STYLE}</style><h1>Dense and sparse</h1><p>{_text(report.title)}</p>"
        f"<table><tr>{header}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
        f"<p>{_text(FOOTNOTE)}</p><dl>{terms}</dl></html>\n",
    )


def _text(value: object) -> str:
    return html.escape(str(value))
