# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Make RESULTS.md from the sections that the experiments wrote: a table of all claims, then every section.

python examples/paper/report.py
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from harness import parse, write_text
from reporting import CLAIMS_HEADER, VERDICTS, table


HERE = Path(__file__).parent
SECTIONS = ("memory", "bit_pattern", "multiple_instance", "time_series", "translation", "energy")


@dataclass
class ReportArguments:
    """Where to read the sections and where to write the report."""

    results_dir: str = field(default=str(HERE / "results"), metadata={"help": "Folder with the sections, NAME.md."})
    output: str = field(default=str(HERE / "RESULTS.md"), metadata={"help": "Path of the report."})


def claims_of(section: str) -> list[tuple[str, str]]:
    """Read claims and verdicts from the table that `reporting.claims` wrote into a section."""
    header = "| " + " | ".join(CLAIMS_HEADER) + " |"
    rows, inside = [], False
    for line in section.splitlines():
        inside = line == header or (inside and line.startswith("|"))
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if inside and line != header and len(cells) == 3 and cells[2] in VERDICTS:
            rows.append((cells[1], cells[2]))
    return rows


def make_report(results: Path, place: Path) -> str:
    """
    Make the text of the report.

    Args:
        results (`Path`): Folder with the sections.
        place (`Path`): Path of the report, which links to figures are relative to.
    """
    prefix = Path(os.path.relpath(results, place.parent)).as_posix()
    overview, bodies = [], []
    for name in SECTIONS:
        path = results / f"{name}.md"
        if not path.exists():
            overview.append([name.replace("_", " "), "-", "**not run**"])
            continue
        text = path.read_text(encoding="utf-8")
        title = re.search(r"^## (.*)$", text, re.MULTILINE)
        if title is None:
            raise ValueError(f"{path} has no heading `## ...` for the report.")
        found = claims_of(text)
        if not found:
            raise ValueError(f"{path} has no table of claims; make it with reporting.claims.")
        anchor = re.sub(r"[^\w\- ]", "", title[1].lower()).replace(" ", "-")
        overview += [[f"[{title[1]}](#{anchor})", claim, f"**{verdict}**"] for claim, verdict in found]
        bodies.append(re.sub(r"\]\((?!https?://|#|/)([^)]+)\)", rf"]({prefix}/\1)", text.strip()))
    counts = ", ".join(
        f"{sum(verdict.strip('*') == name for *_, verdict in overview)} {name}"
        for name in VERDICTS
        if any(verdict.strip("*") == name for *_, verdict in overview)
    )
    return "\n\n".join(
        [
            "# The paper's results and ours",
            "This page compares our results with those of Hu et al., *On Sparse Modern Hopfield Model* (NeurIPS 2023). For each "
            "experiment it gives the paper's figures, our figures with their spread, and whether and why each claim holds here. "
            "Each section ends with the date and the command that made it. The numbers are in `results/*.json`; `--report_only` "
            "makes the tables and figures from them, and `python examples/paper/report.py` makes this page. Everything ran on "
            "two shared CPU cores, so some of the paper's largest settings are missing; the sections say which.",
            "## Claims",
            f"{counts}. The sections explain each verdict.",
            table(["experiment", "claim of the paper", "verdict"], overview).strip(),
            *bodies,
        ]
    )


def main(argv: list[str] | None = None) -> None:
    """Write the report."""
    arguments = parse(ReportArguments, argv)
    results, output = Path(arguments.results_dir), Path(arguments.output)
    if not results.is_dir():
        raise ValueError(f"--results_dir={arguments.results_dir!r} is not a folder.")
    write_text(output, make_report(results, output) + "\n")
    print(f"written {output}")


if __name__ == "__main__":
    main()
