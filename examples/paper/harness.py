# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What all experiments share: one command line, cells that are run once, tables made from their JSON.

An experiment is a dictionary of cells (a name, a function, its settings) and a function that turns the record of the
results into markdown and pictures:

    from harness import Cell, ExperimentArguments, parse, run, select, spread, table

    def train(model: str, seed: int) -> dict: ...                     # a dictionary that JSON can hold

    def report(record: dict, folder: Path) -> str:                    # from the record alone; pictures go into folder
        rows = [[model, spread(select(record, "accuracy", model=model))] for model in ("dense", "sparse")]
        return table(["model", "accuracy"], rows)

    def main(argv=None):
        arguments = parse(ExperimentArguments, argv)
        cells = {f"{model}/seed{seed}": Cell(train, {"model": model, "seed": seed}) for ...}
        return run("my_experiment", arguments, cells, report)

The markdown begins with a heading `## ...`, and [`claims`] makes its table of the paper's claims.

`OUTPUT_DIR/cells/my_experiment/dense/seed0.json` appears when that cell is done; a second call runs what is missing, and
several processes may share the work: each cell is run by one of them. `OUTPUT_DIR/my_experiment.json` holds all of it
(a later run knows the cells of either), `my_experiment.md` is what `report` wrote.
"""

import fcntl
import fnmatch
import io
import json
import math
import os
import platform
import re
import shlex
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm
from transformers import HfArgumentParser

from hf_sparse_hopfield import files


VERDICTS = ("reproduced", "partly", "not", "not run")
CLAIMS_HEADER = ("claim of the paper", "verdict", "explanation")


@dataclass
class ExperimentArguments:
    """Arguments of every experiment; one that needs more adds fields in a subclass."""

    data_dir: str | None = field(default=None, metadata={"help": "Folder of the real data (see examples/README.md)."})
    output_dir: str = field(default="paper_results", metadata={"help": "Where cells, tables and pictures go."})
    quick: bool = field(default=False, metadata={"help": "A small version that shows the course of the full one."})
    seeds: int | None = field(default=None, metadata={"help": "Number of seeds; as in the paper if not given."})
    only: str | None = field(default=None, metadata={"help": "Run only cells that match this pattern (* and ?)."})
    overwrite: bool = field(default=False, metadata={"help": "Run cells again that are done (use with --only)."})
    max_minutes: float | None = field(default=None, metadata={"help": "Begin no further cell after so many minutes."})
    report_only: bool = field(default=False, metadata={"help": "Run nothing: write table and plots from the JSON."})

    def __post_init__(self) -> None:
        if self.seeds is not None and self.seeds < 1:
            raise ValueError(f"--seeds must be at least 1, got {self.seeds}.")
        if self.max_minutes is not None and not self.max_minutes > 0:
            raise ValueError(f"--max_minutes must be positive, got {self.max_minutes}.")
        if self.data_dir is not None and not os.path.isdir(self.data_dir):
            raise ValueError(f"--data_dir={self.data_dir!r} is not a folder.")

    def seed_range(self, full: int, quick: int = 1) -> range:
        """The seeds to run: `--seeds`, or else `full` of them, `quick` with `--quick`."""
        return range(self.seeds if self.seeds is not None else quick if self.quick else full)

    def require_data(self, *paths: str) -> list[Path]:
        """Paths below `--data_dir`, checked before anything is run; a report alone needs no data."""
        if self.report_only:
            return [Path(path) for path in paths]
        if self.data_dir is None:
            raise ValueError(f"--data_dir is needed: the folder that holds {', '.join(paths)}.")
        found = [Path(self.data_dir) / path for path in paths]
        for path in found:
            if not path.exists():
                raise FileNotFoundError(f"--data_dir={self.data_dir!r} has no {path.relative_to(self.data_dir)}.")
        return found


@dataclass
class Cell:
    """
    One piece of work.

    Args:
        function (`Callable`): Called with `settings` and returns a dictionary that JSON can hold (tensors and arrays
            become lists).
        settings (`dict`): What `select` looks for. They are stored with the result, and a stored result with other
            settings is refused. Values that JSON can hold.
        context (`dict`, *optional*): More arguments, such as loaded data, that are not stored.
        fixed (`dict`, *optional*): Constants of the script that the result depends on, stored among the settings.
    """

    function: Callable[..., dict[str, Any]]
    settings: dict[str, Any]
    context: dict[str, Any] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)

    @property
    def stored(self) -> dict[str, Any]:
        """What is stored as its settings."""
        return {**self.fixed, **self.settings}


def parse(arguments_class: type, argv: Sequence[str] | None = None) -> Any:
    """Arguments from a command line; what is not known is an error."""
    (arguments,) = HfArgumentParser(arguments_class).parse_args_into_dataclasses(
        args=None if argv is None else list(argv)
    )
    return arguments


def run(
    name: str,
    arguments: ExperimentArguments,
    cells: dict[str, Cell],
    report: Callable[[dict[str, Any], Path], str] | None = None,
) -> dict[str, Any]:
    """
    Run the cells that are not done, then write the record and the report.

    Args:
        name (`str`): Name of the experiment and of its files.
        arguments ([`ExperimentArguments`]): Where to write and what to run.
        cells (`dict[str, Cell]`): The work. Names may have `/`, which make folders.
        report (`Callable`, *optional*):
            Makes markdown of the record, and pictures in the folder it is given, `OUTPUT_DIR`. It must do with missing
            cells: it is also called when a run stopped by `--only` or `--max_minutes`.

    Returns:
        `dict`: The record: `experiment`, `date`, `command`, `versions`, `seconds` (sum over all cells), `missing` (names)
        and `cells`, name to `settings`, `result`, `seconds`, `date` (and `command` and `versions`, if others than above).
    """
    for cell in cells:
        if not re.fullmatch(r"[\w.+=,-]+(/[\w.+=,-]+)*", cell) or ".." in cell:
            raise ValueError(
                f"cells has the name {cell!r}; letters, digits, _ . + = , - and / between them are allowed."
            )
    folder = Path(arguments.output_dir)
    store = _Store(folder / f"{name}.json", folder / "cells" / name, arguments.quick)
    begin = time.monotonic()
    wanted = [] if arguments.report_only else [c for c in cells if fnmatch.fnmatch(c, arguments.only or "*")]
    if arguments.only is not None and not wanted and not arguments.report_only:
        raise ValueError(f"--only={arguments.only!r} matches none of the cells {', '.join(list(cells)[:20])} ...")
    bar = tqdm(wanted, desc=name, unit="cell", mininterval=1.0)
    for cell in bar:
        bar.set_postfix_str(cell, refresh=False)
        if arguments.max_minutes is not None and time.monotonic() - begin > 60 * arguments.max_minutes:
            print(f"{name}: stopped after --max_minutes={arguments.max_minutes}; the same command goes on from here.")
            break
        with store.claimed(cell) as mine:
            if mine and (arguments.overwrite or not store.has(cell, cells[cell].stored)):
                started = time.perf_counter()
                result = cells[cell].function(**cells[cell].settings, **cells[cell].context)
                store.write(cell, cells[cell].stored, result, time.perf_counter() - started)
    record = store.record(name, cells)
    if record["cells"]:
        write_text(folder / f"{name}.json", to_json(record))
        if report is not None:
            write_text(folder / f"{name}.md", report(record, folder).rstrip() + "\n" + provenance(record))
    print(
        f"{name}: {len(record['cells'])} cells done, {len(record['missing'])} missing; {time.monotonic() - begin:.0f} s "
        f"now, {record['seconds']:.0f} s for all cells; {folder / name}.json"
    )
    return record


_COMMON = ("command", "versions")


class _Store:
    """Finished cells on disk: one file for each, and the merged record of an earlier run."""

    def __init__(self, merged: Path, folder: Path, quick: bool) -> None:
        self.folder, self.quick = folder, quick
        self.merged: dict[str, Any] = {}
        if merged.exists():
            whole = _read(merged)
            common = {key: whole[key] for key in _COMMON}
            self.merged = {cell: {**common, **entry} for cell, entry in whole["cells"].items()}

    def _path(self, cell: str) -> Path:
        return self.folder / f"{cell}.json"

    def _get(self, cell: str) -> dict[str, Any] | None:
        path = self._path(cell)
        return _read(path) if path.exists() else self.merged.get(cell)

    def has(self, cell: str, settings: dict[str, Any]) -> bool:
        stored = self._get(cell)
        if stored is None:
            return False
        before, now = {**stored["settings"], "quick": stored["quick"]}, {**settings, "quick": self.quick}
        now = json.loads(to_json(now))
        missing = "nothing"
        different = [
            f"{name}={before.get(name, missing)!r}, now {now.get(name, missing)!r}"
            for name in {**before, **now}
            if before.get(name, missing) != now.get(name, missing)
        ]
        if different:
            raise ValueError(
                f"the stored result of cell {cell!r} was made with {'; '.join(different)} is asked for: choose another "
                "--output_dir, or run it again with --overwrite --only."
            )
        return True

    def claimed(self, cell: str) -> "_Claim":
        return _Claim(self.folder / ".locks" / (cell.replace("/", "~") + ".lock"))

    def write(self, cell: str, settings: dict[str, Any], result: dict[str, Any], seconds: float) -> None:
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        entry = {
            "settings": settings,
            "quick": self.quick,
            "result": result,
            "seconds": round(seconds, 3),
            "date": now,
        }
        entry |= {"command": command(), "versions": versions()}
        write_text(self._path(cell), to_json(entry))

    def record(self, name: str, cells: dict[str, Cell]) -> dict[str, Any]:
        # Cells of an earlier, larger run (more seeds) stay in the record; what is asked for comes first, in its order.
        known = [*cells, *(cell for cell in self.merged if cell not in cells)]
        stored = {cell: entry for cell in known if (entry := self._get(cell)) is not None}
        last = max((entry["date"] for entry in stored.values()), default="")
        # the command of most cells: a few may have been made again, or by a run of a part
        made_by = Counter(entry["command"] for entry in stored.values()).most_common(1)
        typical = next((entry for entry in stored.values() if entry["command"] == made_by[0][0]), {})
        common = {"command": command(), "versions": versions()} | {key: typical[key] for key in _COMMON if typical}
        # what most cells have in common is said once
        stored = {
            cell: {key: value for key, value in entry.items() if common.get(key) != value or key not in _COMMON}
            for cell, entry in stored.items()
        }
        return {
            "experiment": name,
            "date": last,
            **common,
            "seconds": round(sum(entry["seconds"] for entry in stored.values()), 1),
            "missing": [cell for cell in cells if cell not in stored],
            "cells": stored,
        }


class _Claim:
    """A lock that ends with the process that holds it, however that ends."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> bool:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.file = open(self.path, "w")
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def __exit__(self, *_: object) -> None:
        self.file.close()


def select(record: dict[str, Any], key: str | None = None, **settings: Any) -> list[Any]:
    """
    Results of the cells with these settings, in the order of the record.

    Args:
        record (`dict`): From [`run`] or [`load`].
        key (`str`, *optional*): One entry of each result; the whole results if not given.
        settings: What the settings of a cell must be; those not named may be anything.
    """
    found = [
        entry["result"]
        for entry in record["cells"].values()
        if all(name in entry["settings"] and entry["settings"][name] == value for name, value in settings.items())
    ]
    return found if key is None else [result[key] for result in found]


def spread(values: Iterable[float], digits: int = 2, scale: float = 1.0) -> str:
    """Mean ± standard deviation (over n - 1) as text, `-` if there are no values."""
    values = [scale * value for value in values]
    if not values:
        return "-"
    mean = f"{statistics.fmean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean


def median_range(values: Iterable[float], digits: int = 2) -> str:
    """Median and quartiles as text, `-` if there are no values."""
    values = list(values)
    if not values:
        return "-"
    low, middle, high = (quantile(values, q) for q in (0.25, 0.5, 0.75))
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def quantile(values: Sequence[float], q: float) -> float:
    """A quantile by linear interpolation."""
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def table(header: Sequence[Any], rows: Iterable[Sequence[Any]]) -> str:
    """A markdown table."""
    lines = [list(map(str, header)), ["---"] * len(header), *(list(map(str, row)) for row in rows)]
    for line in lines:
        if len(line) != len(header):
            raise ValueError(f"a row of the table has {len(line)} entries, its header {len(header)}: {line}.")
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def claims(rows: Iterable[tuple[str, str, str]]) -> str:
    """
    The paper's claims that an experiment tests, as the section that `report.py` collects into RESULTS.md.

    Args:
        rows (iterable of `(claim, verdict, explanation)`): The verdict is `reproduced`, `partly`, `not` or `not run`.
    """
    rows = list(rows)
    for claim, verdict, _ in rows:
        if verdict not in VERDICTS:
            raise ValueError(f"the verdict on {claim!r} must be one of {', '.join(VERDICTS)}, got {verdict!r}.")
    return "### Claims\n\n" + table(CLAIMS_HEADER, rows) + "\n"


def verdict(agree: Iterable[bool | None]) -> str:
    """
    The verdict on a claim that is made of several.

    Args:
        agree (iterable of `bool` or `None`): Whether each part holds; None, if it was not run or remains open. "reproduced" needs all.
    """
    agree = list(agree)
    if all(part is None for part in agree):
        return "not run"
    return "reproduced" if all(agree) else "partly" if any(agree) else "not"


def sign(differences: Sequence[float]) -> int:
    """
    1 or -1 where the mean of paired differences is above or below 0, 0 where it cannot be told (t-test, two-sided, 5 %).

    Args:
        differences (sequence of `float`): One for each seed. From a single one nothing can be told.
    """
    from hf_sparse_hopfield.extras import require

    mean = statistics.fmean(differences)
    if len(differences) < 2 or mean == 0:
        return 0
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    bound = error * require("scipy.stats", "examples").t.ppf(0.975, len(differences) - 1)
    return 0 if abs(mean) <= bound else 1 if mean > 0 else -1


def figure(columns: int = 1, lines: int = 1, width: float = 4.2, height: float = 3.2) -> tuple[Any, Any]:
    """A matplotlib figure and its axes, `(lines, columns)`; save it with [`save_figure`]."""
    from hf_sparse_hopfield.extras import require

    made = require("matplotlib.figure", "cli").Figure(figsize=(width * columns, height * lines), layout="constrained")
    return made, made.subplots(lines, columns, squeeze=False)


def save_figure(made: Any, path: Path, dpi: int = 100) -> None:
    """Write a picture beside its place and rename it."""
    from PIL import Image  # matplotlib brings it

    path.parent.mkdir(parents=True, exist_ok=True)
    content = io.BytesIO()
    made.savefig(content, dpi=dpi, format="png")
    # a palette: a third of the size, and no difference that one sees
    with files.new_file(path) as file:
        Image.open(content).convert("RGB").quantize(160).save(file, format="png", optimize=True)


def load(path: str | os.PathLike) -> dict[str, Any]:
    """A record that [`run`] wrote."""
    return _read(Path(path))


def provenance(record: dict[str, Any]) -> str:
    """One paragraph: when, with what and how long."""
    versions_used = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    state = f"; {len(record['missing'])} cells not run yet" if record["missing"] else ""
    entries = record["cells"].values()
    quick = " (some with --quick)" if any(entry["quick"] for entry in entries) else ""
    first, last = (extreme(entry["date"] for entry in entries)[:10] for extreme in (min, max))
    days = first if first == last else f"{first} to {last}"
    # What runs a part leaves out more than it says; the JSON has the command of every cell.
    whole, _, part = record["command"].partition(" --only ")
    parts = " in parts (`--only`)" if part or any(" --only " in entry.get("command", "") for entry in entries) else ""
    return (
        f"\n{len(record['cells'])} cells{quick}, {record['seconds'] / 60:.1f} minutes in all{state}; {days} by "
        f"`{whole}`{parts} ({versions_used}).\n"
    )


def command() -> str:
    """How this program was called; the script relative to the working directory."""
    script = os.path.relpath(sys.argv[0]) if os.path.exists(sys.argv[0]) else sys.argv[0]
    return shlex.join(["python", script, *sys.argv[1:]])


def versions() -> dict[str, str]:
    """What a result may depend on."""
    packages = {package: version(package) for package in ("torch", "transformers", "hf-sparse-hopfield")}
    return {"python": platform.python_version(), **packages, "threads": str(torch.get_num_threads())}


def to_json(content: Any) -> str:
    """JSON; tensors, arrays and numpy numbers as lists and numbers."""

    def plain(value: Any) -> Any:
        if hasattr(value, "tolist"):
            return value.tolist()
        raise TypeError(f"a result or setting must be something that JSON can hold, got {type(value).__name__}.")

    text = json.dumps(content, indent=1, default=plain)
    # innermost lists on one line; no string holds a line break as such, so that this touches none
    return re.sub(r"\[\n\s+[^\[\]{}]*?\n\s*\]", lambda found: re.sub(r"\n\s*", "", found[0]), text) + "\n"


def write_text(path: Path, content: str) -> None:
    """Write a file that appears complete or not at all, and its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(path, content)


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is damaged ({error}); delete it to run its cells again.") from error
