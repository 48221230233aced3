# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The reference of the public names, from their docstrings.

`python -m tests.docs.reference` writes `docs/reference.md`; `test_reference.py` checks that the file is up to date.
"""

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any


PAGE = Path(__file__).parents[2] / "docs" / "reference.md"
GROUPS = {
    "Models": (
        "hf_sparse_hopfield",
        ["to_sparse_hopfield", "to_dense", "SparseHopfieldConfig", "SparseHopfieldCache"],
    ),
    "Calibration and distillation": (
        "hf_sparse_hopfield",
        ["calibrate", "CalibrationOptions", "distill", "DistillationOptions"],
    ),
    "Retrieval": ("hf_sparse_hopfield", ["retrieve", "explain_backend", "KeyScreen"]),
    "Mathematics": ("hf_sparse_hopfield", ["entmax", "sparsemax", "energy", "conjugate"]),
    "Layers": ("hf_sparse_hopfield", ["SparseHopfield", "SparseHopfieldPooling", "SparseHopfieldLayer"]),
    "Memories": ("hf_sparse_hopfield", ["HopfieldMemory", "PolynomialMemory"]),
    "Built-in models": (
        "hf_sparse_hopfield",
        [
            "SparseHopfieldMultipleInstanceConfig",
            "SparseHopfieldForMultipleInstanceClassification",
            "SparseHopfieldCrossformerConfig",
            "SparseHopfieldCrossformerForPrediction",
        ],
    ),
    "Comparison": ("hf_sparse_hopfield.comparison", ["compare", "CompareOptions", "ComparisonReport"]),
    "Metrics": ("hf_sparse_hopfield.metrics", ["load_metric"]),
    "Training": ("hf_sparse_hopfield.training", ["SparseHopfieldArguments", "SparseHopfieldTrainer"]),
}
NAMES = [name for _, names in GROUPS.values() for name in names]

INTRODUCTION = """\
# Reference

The public names, with an example for each. `python -m tests.docs.reference` writes this page from the docstrings.
"""

_SECTIONS = {"Args": "Arguments", "Returns": "Returns", "Yields": "Yields", "Raises": "Raises", "Example": "Example"}
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def render() -> str:
    """The text of `docs/reference.md`."""
    parts = [INTRODUCTION]
    for title, (_, names) in GROUPS.items():
        parts.append(f"**{title}**: {', '.join(f'[`{name}`](#{name.lower()})' for name in names)}\n")
    for title, (module, names) in GROUPS.items():
        parts.append(f"\n## {title}\n")
        for name in names:
            parts += _entry(f"### {name}", name, getattr(importlib.import_module(module), name))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def _entry(heading: str, name: str, value: Any) -> Iterator[str]:
    yield f"{heading}\n"
    yield f"```python\n{_signature(name, value)}\n```\n"
    yield markdown(value.__doc__ or "")
    if not inspect.isclass(value):
        return
    for method, found in vars(value).items():
        function = getattr(found, "__func__", getattr(found, "fget", found))
        if method[0] != "_" and inspect.isfunction(function) and function.__doc__:
            yield f"#### {name}.{method}\n"
            if not isinstance(found, property):
                yield f"```python\n{_signature(method, function)}\n```\n"
            yield markdown(function.__doc__)


def _signature(name: str, value: Any) -> str:
    """As in the source: annotations stay out, the docstring has the types. One argument a line if it is long."""
    try:
        signature = inspect.signature(value)
    except ValueError:
        return name
    empty = inspect.Parameter.empty
    parameters = [p.replace(annotation=empty) for p in signature.parameters.values() if p.name not in ("self", "cls")]
    text = str(inspect.Signature(parameters))
    line = _ADDRESS.sub("", f"{name}{text}")
    return line if len(line) <= 100 else "\n".join(textwrap.wrap(line, 100, subsequent_indent="    "))


def markdown(docstring: str) -> str:
    """
    A docstring in the style of transformers as Markdown.

    Args:
        docstring (`str`): With sections such as this one.
    """
    lines, section, result = inspect.cleandoc(docstring).splitlines(), "", []
    for line in lines:
        title = _SECTIONS.get(line[:-1]) if line.endswith(":") else None
        if title is not None:
            section = title
            result += [f"**{title}**", ""]
            continue
        if section and line and not line.startswith(" "):
            section = ""
        if section == "Arguments":
            line = line[4:]
            item = re.match(r"(\*{0,2}\w+(?:, \w+)*)( \(.*?\))?: ?(.*)", line) if not line.startswith(" ") else None
            if item is not None:
                line = f"- **`{item[1]}`**{item[2] or ''}: {item[3]}".rstrip()
            elif line.strip():
                line = f"  {line.strip()}"
        elif section:
            line = line[4:]
        result.append(line)
    return _linked("\n".join(result)) + "\n"


def _linked(text: str) -> str:
    """References such as [`calibrate`] become links within the page, or plain names."""

    def shown(match: re.Match) -> str:
        name = match[1].split(".")[-1] if match[1].startswith("~") else match[1]
        target = match[1].removeprefix("~hf_sparse_hopfield.")
        return f"[`{name}`](#{target.lower()})" if target in NAMES else f"`{name}`"

    return re.sub(r"\[`([~\w.]+)`\](?!\()", shown, text)


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
