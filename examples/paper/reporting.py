# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What the reports of all experiments share: results selected from a record, statistics, tables, verdicts and figures."""

import io
import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


VERDICTS = ("reproduced", "partly", "not", "not run")
CLAIMS_HEADER = ("", "claim of the paper", "verdict")


def select(record: dict[str, Any], key: str | None = None, **settings: Any) -> list[Any]:
    """
    Select the results of the cells with these settings, in the order of the record.

    Args:
        record (`dict`): From [`harness.run`] or [`harness.load`].
        key (`str`, *optional*): Return this entry of each result instead of the whole result.
        settings: Required settings of a cell. Others may have any value.
    """
    found = [
        entry["result"]
        for entry in record["cells"].values()
        if all(name in entry["settings"] and entry["settings"][name] == value for name, value in settings.items())
    ]
    return found if key is None else [result[key] for result in found]


def spread(values: Iterable[float], digits: int = 2, scale: float = 1.0) -> str:
    """Format mean ± standard deviation (over n - 1); `-` if there are no values."""
    values = [scale * value for value in values]
    if not values:
        return "-"
    mean = f"{statistics.fmean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


def median_range(values: Iterable[float], digits: int = 2) -> str:
    """Format median and quartiles; `-` if there are no values."""
    values = list(values)
    if not values:
        return "-"
    low, middle, high = (quantile(values, q) for q in (0.25, 0.5, 0.75))
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def quantile(values: Sequence[float], q: float) -> float:
    """Compute a quantile by linear interpolation."""
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def table(header: Sequence[Any], rows: Iterable[Sequence[Any]]) -> str:
    """Format a Markdown table."""
    lines = [list(map(str, header)), ["---"] * len(header), *(list(map(str, row)) for row in rows)]
    for line in lines:
        if len(line) != len(header):
            raise ValueError(f"a row of the table has {len(line)} entries, its header {len(header)}: {line}.")
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def claims(rows: Iterable[tuple[str, str, str]]) -> str:
    """
    Format the paper's claims that an experiment tests: a table of verdicts, which `report.py` collects into RESULTS.md,
    and the numbered explanations below it.

    Args:
        rows (iterable of `(claim, verdict, explanation)`): The verdict is `reproduced`, `partly`, `not` or `not run`.
    """
    rows = list(rows)
    for claim, verdict, _ in rows:
        if verdict not in VERDICTS:
            raise ValueError(f"the verdict on {claim!r} must be one of {', '.join(VERDICTS)}, got {verdict!r}.")
    verdicts = table(CLAIMS_HEADER, [(number, *row[:2]) for number, row in enumerate(rows, 1)])
    explanations = "".join(f"{number}. {explanation}\n" for number, (_, _, explanation) in enumerate(rows, 1))
    return f"### Claims\n\n{verdicts}\n{explanations}"


def verdict(agree: Iterable[bool | None]) -> str:
    """
    The verdict on a claim that has several parts.

    Args:
        agree (iterable of `bool` or `None`):
            Whether each part holds; `None` if it was not run or remains open. "reproduced" requires all parts to hold.
    """
    agree = list(agree)
    if all(part is None for part in agree):
        return "not run"
    return "reproduced" if all(agree) else "partly" if any(agree) else "not"


def sign(differences: Sequence[float]) -> int:
    """
    Return 1 or -1 if the mean of paired differences is significantly above or below 0 (two-sided t-test, 5 %), else 0.

    Args:
        differences (sequence of `float`): One per seed. A single difference is never significant.
    """
    from hf_sparse_hopfield.extras import require

    mean = statistics.fmean(differences)
    if len(differences) < 2 or mean == 0:
        return 0
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    bound = error * require("scipy.stats", "examples").t.ppf(0.975, len(differences) - 1)
    return 0 if abs(mean) <= bound else 1 if mean > 0 else -1


def figure(columns: int = 1, lines: int = 1, width: float = 4.2, height: float = 3.2) -> tuple[Any, Any]:
    """Create a matplotlib figure and its axes, `(lines, columns)`. Save it with [`save_figure`]."""
    from hf_sparse_hopfield.extras import require

    made = require("matplotlib.figure", "cli").Figure(figsize=(width * columns, height * lines), layout="constrained")
    return made, made.subplots(lines, columns, squeeze=False)


def save_figure(made: Any, path: Path, dpi: int = 100) -> None:
    """Write a PNG that appears complete or not at all."""
    from PIL import Image  # matplotlib brings it

    from hf_sparse_hopfield.files import new_file

    content = io.BytesIO()
    made.savefig(content, dpi=dpi, format="png")
    with new_file(path) as file:
        # A palette takes a third of the space, without a visible difference.
        Image.open(content).convert("RGB").quantize(160).save(file, format="png", optimize=True)
