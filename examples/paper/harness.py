# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The harness of all experiments: one command line, cells that run once, and a report made from their JSON.

An experiment is a dictionary of cells (a name, a function, its settings) and a function that turns the record of the
results into Markdown and figures:

    from harness import Cell, ExperimentArguments, parse, run
    from reporting import select, spread, table

    def train(model: str, seed: int) -> dict: ...                     # a dictionary that JSON can hold

    def report(record: dict, folder: Path) -> str:                    # from the record alone; figures go into folder
        rows = [[model, spread(select(record, "accuracy", model=model))] for model in ("dense", "sparse")]
        return table(["model", "accuracy"], rows)

    def main(argv=None):
        arguments = parse(ExperimentArguments, argv)
        cells = {f"{model}/seed{seed}": Cell(train, {"model": model, "seed": seed}) for ...}
        return run("my_experiment", arguments, cells, report)

The Markdown begins with a heading `## ...` and has a section that [`reporting.claims`] makes from the paper's claims.

`OUTPUT_DIR/cells/my_experiment/dense/seed0.json` appears when that cell is done. A second call runs the missing cells, and
several processes can share the work: each cell is run by only one of them. `OUTPUT_DIR/my_experiment.json` holds all cells
(a later run uses either file), and `my_experiment.md` holds the report.
"""

import fcntl
import fnmatch
import json
import os
import platform
import re
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm
from transformers import HfArgumentParser

from hf_sparse_hopfield.files import write_text


@dataclass
class ExperimentArguments:
    """Arguments of every experiment. An experiment that needs more adds fields in a subclass."""

    data_dir: str | None = field(default=None, metadata={"help": "Folder of the real data (see examples/README.md)."})
    output_dir: str = field(default="paper_results", metadata={"help": "Folder for cells, tables and figures."})
    quick: bool = field(default=False, metadata={"help": "Run a small version of the experiment."})
    seeds: int | None = field(default=None, metadata={"help": "Number of seeds (default: as in the paper)."})
    only: str | None = field(default=None, metadata={"help": "Run only the cells that match this pattern (* and ?)."})
    overwrite: bool = field(default=False, metadata={"help": "Run finished cells again (use with --only)."})
    max_minutes: float | None = field(default=None, metadata={"help": "Start no new cell after this many minutes."})
    report_only: bool = field(default=False, metadata={"help": "Run nothing; write tables and figures from the JSON."})

    def __post_init__(self) -> None:
        if self.seeds is not None and self.seeds < 1:
            raise ValueError(f"--seeds must be at least 1, got {self.seeds}.")
        if self.max_minutes is not None and not self.max_minutes > 0:
            raise ValueError(f"--max_minutes must be positive, got {self.max_minutes}.")
        if self.data_dir is not None and not os.path.isdir(self.data_dir):
            raise ValueError(f"--data_dir={self.data_dir!r} is not a folder.")

    def seed_range(self, full: int, quick: int = 1) -> range:
        """The seeds to run: `--seeds` of them if given, else `full`, or `quick` with `--quick`."""
        return range(self.seeds if self.seeds is not None else quick if self.quick else full)

    def require_data(self, *paths: str) -> list[Path]:
        """Return paths below `--data_dir` after checking that they exist. `--report_only` needs no data."""
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
    One unit of work.

    Args:
        function (`Callable`): Called with `settings` and `context`. Returns a dictionary that JSON can hold (tensors and
            arrays become lists).
        settings (`dict`): Arguments that identify the cell; values that JSON can hold. They are stored with the result,
            `select` finds results by them, and a stored result with other settings is refused.
        context (`dict`, *optional*): Further arguments that are not stored, such as loaded data.
        fixed (`dict`, *optional*): Constants of the script that the result depends on, stored with the settings.
    """

    function: Callable[..., dict[str, Any]]
    settings: dict[str, Any]
    context: dict[str, Any] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)

    @property
    def stored(self) -> dict[str, Any]:
        """The settings as stored with the result."""
        return {**self.fixed, **self.settings}


def parse(arguments_class: type, argv: Sequence[str] | None = None) -> Any:
    """Parse a command line. Unknown arguments are an error."""
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
    Run the missing cells, then write the record and the report.

    Args:
        name (`str`): Name of the experiment and of its files.
        arguments ([`ExperimentArguments`]): Where to write and what to run.
        cells (`dict[str, Cell]`): The cells by name. A `/` in a name makes a folder.
        report (`Callable`, *optional*):
            Turns the record into Markdown and writes figures to the folder it is given, `OUTPUT_DIR`. It must cope with
            missing cells, because it is also called after `--only` or `--max_minutes` has stopped a run.

    Returns:
        `dict`: The record: `experiment`, `date`, `command`, `versions`, `seconds` (sum over all cells), `missing` (names)
        and `cells`, which maps each name to `settings`, `result`, `seconds` and `date` (and to `command` and `versions`
        where they differ from those above).
    """
    for cell in cells:
        if not re.fullmatch(r"[\w.+=,-]+(/[\w.+=,-]+)*", cell) or ".." in cell:
            raise ValueError(
                f"cells has the name {cell!r}; only letters, digits and _ . + = , - are allowed, with / between parts."
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
            print(
                f"{name}: stopped after --max_minutes={arguments.max_minutes}; the same command continues from here."
            )
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
    """Finished cells on disk: one file per cell, and the merged record of an earlier run."""

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
                "--output_dir, or run the cell again with --overwrite --only."
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
        # Cells of an earlier, larger run (more seeds) stay in the record, after the cells of this run.
        known = [*cells, *(cell for cell in self.merged if cell not in cells)]
        stored = {cell: entry for cell in known if (entry := self._get(cell)) is not None}
        last = max((entry["date"] for entry in stored.values()), default="")
        # The command of most cells: a few may come from a second or a partial run.
        made_by = Counter(entry["command"] for entry in stored.values()).most_common(1)
        typical = next((entry for entry in stored.values() if entry["command"] == made_by[0][0]), {})
        common = {"command": command(), "versions": versions()} | {key: typical[key] for key in _COMMON if typical}
        # Values that most cells share are stored once.
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
    """A lock that is released when its process ends, for whatever reason."""

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


def load(path: str | os.PathLike) -> dict[str, Any]:
    """Read a record that [`run`] wrote."""
    return _read(Path(path))


def provenance(record: dict[str, Any]) -> str:
    """A paragraph on when the results were made, with which command and versions, and how long it took."""
    versions_used = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    state = f"; {len(record['missing'])} cells not run yet" if record["missing"] else ""
    entries = record["cells"].values()
    quick = " (some with --quick)" if any(entry["quick"] for entry in entries) else ""
    first, last = (extreme(entry["date"] for entry in entries)[:10] for extreme in (min, max))
    days = first if first == last else f"{first} to {last}"
    # A partial command would not describe the whole run; the JSON has the command of every cell.
    whole, _, part = record["command"].partition(" --only ")
    parts = " in parts (`--only`)" if part or any(" --only " in entry.get("command", "") for entry in entries) else ""
    return (
        f"\n{len(record['cells'])} cells{quick}, {record['seconds'] / 60:.1f} minutes in total{state}; {days} by "
        f"`{whole}`{parts} ({versions_used}).\n"
    )


def command() -> str:
    """The command of this process, with the script relative to the working directory."""
    script = os.path.relpath(sys.argv[0]) if os.path.exists(sys.argv[0]) else sys.argv[0]
    return shlex.join(["python", script, *sys.argv[1:]])


def versions() -> dict[str, str]:
    """The versions that a result may depend on."""
    packages = {package: version(package) for package in ("torch", "transformers", "hf-sparse-hopfield")}
    return {"python": platform.python_version(), **packages, "threads": str(torch.get_num_threads())}


def to_json(content: Any) -> str:
    """Convert to JSON, with tensors, arrays and NumPy numbers as lists and numbers."""

    def plain(value: Any) -> Any:
        if hasattr(value, "tolist"):
            return value.tolist()
        raise TypeError(f"results and settings must be values that JSON can hold, got {type(value).__name__}.")

    text = json.dumps(content, indent=1, default=plain)
    # Put innermost lists on one line. JSON strings contain no raw line breaks, so none is affected.
    return re.sub(r"\[\n\s+[^\[\]{}]*?\n\s*\]", lambda found: re.sub(r"\n\s*", "", found[0]), text) + "\n"


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is damaged ({error}); delete it to run its cells again.") from error
