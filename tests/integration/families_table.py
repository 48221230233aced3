# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The list of families: every model type in transformers, run or refused.

`python -m tests.integration.families_table` runs them all and writes `docs/families.md`; with names of model types it runs
only those and keeps the other rows. `test_families.py` checks the file. It needs timm (`pip install -e ".[timm]"`).
"""

import importlib
import importlib.util
import multiprocessing
import re
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES, model_type_to_module_name

import hf_sparse_hopfield  # noqa: F401  (registers the attention)
from hf_sparse_hopfield.integration.families import classify
from hf_sparse_hopfield.integration.sites import attention_sites

from ..tiny_families import family_config, model_class_of
from .sweep import exercise, exercise_attention_alone, unexplained


TABLE = Path(__file__).parents[2] / "docs" / "families.md"

# Model types that need timm, and how their attention is reached. Towers of convolutions have none: RepViT of EdgeTAM.
TIMM = {
    **dict.fromkeys(("gemma3n_vision", "timm_backbone", "timm_wrapper"), "patched"),
    **dict.fromkeys(("fast_vlm", "gemma3n", "pe_audio_video", "pe_audio_video_encoder"), "registry and patched"),
    **dict.fromkeys(("pe_video", "pe_video_encoder", "perception_lm"), "registry and patched"),
    **dict.fromkeys(("edgetam", "edgetam_video"), "registry"),
    "edgetam_vision_model": "no softmax attention",
}


@dataclass
class Row:
    """
    The result for one model type.

    Args:
        model_type (`str`): As in config.json.
        route (`str`):
            `"registry"`, `"patched"` or `"registry and patched"`; `"refused"`; `"no softmax attention"`; `"not run"`.
        note (`str`): Why it is refused, why it was not run, or which of its attention classes were not reached.
        dense (`str`): Classes in which a softmax stayed dense without a reason. Must be empty.
    """

    model_type: str
    route: str
    note: str = ""
    dense: str = ""


def sweep_one(model_type: str) -> Row:
    """Make a tiny model of a model type, run it, and check whether its attention retrieves sparsely."""
    torch.manual_seed(0)
    try:
        model_class = model_class_of(model_type)
        try:
            model = model_class._from_config(family_config(model_type), attn_implementation="sparse_hopfield").eval()
            run = exercise
        except Exception as error:  # a configuration may be hard to shrink in any way
            if isinstance(error, ImportError) or _is_refusal(error):
                raise
            with torch.device("meta"):
                config = CONFIG_MAPPING[model_type]()
                model = model_class._from_config(config, attn_implementation="sparse_hopfield").eval()
            run = exercise_attention_alone
    except Exception as error:  # see above
        if _is_refusal(error):
            if "no softmax attention" in str(error):
                return Row(model_type, "no softmax attention")
            return Row(model_type, "refused", str(error).split("cannot retrieve sparsely: ")[1].split(". Name the")[0])
        return Row(model_type, "not run", f"{_routes_by_source(model_type)}; {_short(error)}")
    sites = attention_sites(model)
    watch, reached, _ = run(model)
    classes = {type(site.module): site.kind.route for site in sites}
    missed = set(classes) - {type(site.module) for site in sites if site.name in reached}
    route = " and ".join(sorted(set(classes.values()), reverse=True))
    note = f"not reached: {', '.join(sorted(cls.__name__ for cls in missed))}" if missed else ""
    return Row(model_type, route, note, ", ".join(sorted(unexplained(watch))))


def _is_refusal(error: Exception) -> bool:
    return "cannot retrieve sparsely: " in str(error) or "no softmax attention" in str(error)


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    for library in ("timm", "natten", "torchaudio", "detectron2"):
        if f"{library} library" in text:
            return f"needs {library}"
    return "transformers' default configuration makes no model"


def _routes_by_source(model_type: str) -> str:
    try:
        return _routes_of_package(model_type)
    except ImportError:
        return "unknown"


def _routes_of_package(model_type: str) -> str:
    package = importlib.import_module(f"transformers.models.{model_type_to_module_name(model_type)}")
    modules = [
        importlib.import_module(f"{package.__name__}.{path.stem}")
        for path in Path(package.__file__).parent.glob("modeling_*.py")
    ]
    classes = [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, torch.nn.Module) and value.__module__ == module.__name__
    ]
    routes = sorted({kind.route for kind in map(classify, classes) if kind is not None}, reverse=True)
    return " and ".join(routes) or "no attention class of its own"


def model_types() -> list[str]:
    """Return the model types that have a model, from the names in transformers' tables and without imports."""
    tables = [table for name, table in vars(modeling_auto).items() if name.endswith("_MAPPING_NAMES")]
    tables = [table for table in tables if table is not CONFIG_MAPPING_NAMES]
    return [model_type for model_type in CONFIG_MAPPING_NAMES if any(model_type in table for table in tables)]


def counted(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """Return the model types that are sparse throughout, and all with softmax attention."""
    softmax = [row for row in rows if row.route not in ("no softmax attention", "refused")]
    return [row for row in softmax if row.route != "not run" and not row.note], softmax


TITLES = {
    "registry": ("On the attention registry", "`retrieve()` computes the attention. All settings apply."),
    "patched": ("Patched", "Their own attention, with entmax in place of softmax. One step only."),
    "registry and patched": ("Both", "On the registry in some layers, patched in others."),
    "not run": (
        "Not run here",
        "They need a package that was not installed, or have no default configuration that works.",
    ),
    "no softmax attention": ("Without softmax attention", "There is nothing to make sparse. Converting them raises."),
    "refused": ("Refused", "Their attention is not a softmax over keys. Converting them raises."),
}


def render(rows: list[Row]) -> str:
    """Format the lists of families as Markdown."""
    lists: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.model_type):
        lists.setdefault(row.route, []).append(row)
    sparse, softmax = counted(rows)
    lines = [
        "# Supported families",
        "",
        f"<!-- Written by tests/integration/families_table.py with transformers {transformers.__version__}. -->",
        "",
        f"Of the {len(softmax)} model types of transformers {transformers.__version__} with softmax attention, "
        f"{len(sparse)} ({len(sparse) / len(softmax):.1%}) run and retrieve sparsely in every class of attention they "
        "have; the others have a note. None runs dense or mixed silently.",
        "",
        f"{len(TIMM)} of the model types build a tower with timm: {', '.join(sorted(TIMM))}. A tower is patched if timm's model "
        "has attention (`pip install timm`). `.ci/timm` tests them, and over 50 models and layers of timm.",
    ]
    for route, (title, explanation) in TITLES.items():
        found = lists.get(route, [])
        lines += ["", f"## {title} ({len(found)})", "", explanation, ""]
        if route == "refused":
            lines += [f"- {row.model_type}: {row.note}" for row in found]
        else:
            lines.append(", ".join(f"{row.model_type} ({row.note})" if row.note else row.model_type for row in found))
    return "\n".join(lines) + "\n"


_ROW = re.compile(r"([\w.-]+)(?: \(([^()]*)\))?(?:, |$)")


def recorded() -> dict[str, Row]:
    """The rows of `docs/families.md`, by model type."""
    routes = {title: route for route, (title, _) in TITLES.items()}
    rows = []
    for section in TABLE.read_text(encoding="utf-8").split("\n## ")[1:]:
        lines = section.strip().split("\n")
        route = routes[lines[0].rpartition(" (")[0]]
        if route == "refused":
            rows += [Row(name, route, note) for name, note in (line[2:].split(": ", 1) for line in lines[4:])]
        else:
            rows += [Row(name, route, note) for name, note in _ROW.findall(lines[-1])]
    return {row.model_type: row for row in rows}


def _quietly(model_type: str) -> Row:
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity(60)
    torch.set_num_threads(1)
    return sweep_one(model_type)


def sweep(processes: int | None = None, only: list[str] | None = None) -> list[Row]:
    """Run all model types, or some, in several processes. Those that need timm keep their row if it is not installed."""
    known = recorded()
    skipped = set(TIMM) if importlib.util.find_spec("timm") is None else set()
    skipped |= set(model_types()) - set(only or model_types())
    with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=40) as pool:
        run = [model_type for model_type in model_types() if model_type not in skipped]
        rows = pool.map(_quietly, run, chunksize=4)
    return [*rows, *(known[model_type] for model_type in model_types() if model_type in skipped)]


def main() -> None:
    """Write the table, unless a softmax stayed dense without a reason."""
    if importlib.util.find_spec("timm") is None:
        raise SystemExit('the table needs timm: pip install -e ".[timm]"')
    rows = sweep(only=sys.argv[1:])
    left = [f"{row.model_type}: {row.dense}" for row in rows if row.dense]
    if left:
        raise SystemExit("softmax stayed dense without a reason:\n" + "\n".join(left))
    TABLE.write_text(render(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
