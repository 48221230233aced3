# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""RESULTS.md from the sections that the experiments wrote: a table of all claims, then every section.

python examples/paper/report.py
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from harness import CLAIMS_HEADER, VERDICTS, parse, table, write_text


HERE = Path(__file__).parent
SECTIONS = ("memory", "bit_pattern", "multiple_instance", "time_series", "translation", "energy")


@dataclass
class ReportArguments:
    """Where the sections are and where the report goes."""

    results_dir: str = field(default=str(HERE / "results"), metadata={"help": "Folder of the sections, NAME.md."})
    output: str = field(default=str(HERE / "RESULTS.md"), metadata={"help": "The report."})


def claims_of(section: str) -> list[tuple[str, str, str]]:
    """Rows of the tables that `harness.claims` wrote into a section: claim, verdict, explanation."""
    header = "| " + " | ".join(CLAIMS_HEADER) + " |"
    rows, inside = [], False
    for line in section.splitlines():
        inside = line == header or (inside and line.startswith("|"))
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if inside and line != header and len(cells) == 3 and cells[1] in VERDICTS:
            rows.append((cells[0], cells[1], cells[2]))
    return rows


def make_report(results: Path, place: Path) -> str:
    """
    The text of the report.

    Args:
        results (`Path`): Folder with the sections.
        place (`Path`): Where the report will stand, for the addresses of pictures.
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
            raise ValueError(f"{path} has no heading `## ...` to name it in the report.")
        found = claims_of(text)
        if not found:
            raise ValueError(f"{path} has no table of claims; make it with harness.claims.")
        anchor = re.sub(r"[^\w\- ]", "", title[1].lower()).replace(" ", "-")
        overview += [[f"[{title[1]}](#{anchor})", claim, f"**{verdict}**"] for claim, verdict, _ in found]
        bodies.append(re.sub(r"\]\((?!https?://|#|/)([^)]+)\)", rf"]({prefix}/\1)", text.strip()))
    counts = ", ".join(
        f"{sum(verdict.strip('*') == name for *_, verdict in overview)} {name}"
        for name in VERDICTS
        if any(verdict.strip("*") == name for *_, verdict in overview)
    )
    return "\n\n".join(
        [
            "# The paper's results and ours",
            "Hu et al., *On Sparse Modern Hopfield Model* (NeurIPS 2023), experiment by experiment: the paper's figures, ours with "
            "their spread, and for each claim whether it holds here and why. Each section ends with the date and the command "
            "that made it; the numbers are in `results/*.json`, from which `--report_only` makes the tables and pictures again, "
            "and `python examples/paper/report.py` this page. Everything ran on two shared CPU cores, so that the largest of "
            "the paper's settings are missing where a section says so.",
            "## Claims",
            f"{counts}. Explanations are in the sections.",
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
