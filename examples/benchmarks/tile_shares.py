# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Count, on the attention of real models, the tiles that the Triton kernels visit. No GPU is needed.

Each model is converted for each alpha, with calibrated betas (searched, not refined) and with beta 1, and runs over windows of a text.
For some blocks of rows of every head, the script does what `backends/triton/kernels/forward.py` does and counts tiles:
those left by the survey, by the lower bound of the threshold, by every Newton pass, and those with weight.

python examples/benchmarks/tile_shares.py --model path/to/SmolLM2-135M 512 1024 2048 4096 8192 --model path/to/MiniLM 128 256 512 \
  --text wikitext2.test.txt.gz --calibration_text wikitext2.valid.txt.gz --output_dir examples/benchmarks/results
"""

import argparse
import datetime
import itertools
import platform
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoModel, AutoTokenizer, PreTrainedModel

from hf_sparse_hopfield import calibrate, to_sparse_hopfield
from hf_sparse_hopfield.backends import RetrievalProblem
from hf_sparse_hopfield.backends.triton.tiles import CANDIDATES, MIN_BLOCKS
from hf_sparse_hopfield.model_running import evaluating
from hf_sparse_hopfield.observation import OwnSettings, observed
from hf_sparse_hopfield.retrieval_parameters import RetrievalParameters
from hf_sparse_hopfield.sample_inputs import read_text, text_batches


INFINITY = float("inf")
TURNS = 60  # of Newton's method after its first pass, at most
BETAS = ("calibrated", "1")
CALIBRATED_ON = 512  # tokens of a window
FLASH = (2, 5)  # matrix products of FlashAttention-2 over the visible scores, forward and backward


class TileShape(NamedTuple):
    """Queries and keys of a tile."""

    rows: int
    keys: int

    def __str__(self) -> str:
        return f"{self.rows} x {self.keys}"


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", action="append", required=True, metavar=("MODEL", "LENGTH"),
                        help="folder of a model, and the lengths of its windows; may be repeated")  # fmt: skip
    parser.add_argument("--text", type=Path, required=True, help="text to read, may be .gz")
    parser.add_argument("--calibration_text", type=Path, help="text to calibrate on (default: --text)")
    parser.add_argument("--calibration_windows", type=int, default=8, help="windows to calibrate on")
    parser.add_argument("--betas", nargs="+", choices=BETAS, default=list(BETAS), help="searched for each head, or 1")
    parser.add_argument("--alphas", type=float, nargs="+", default=[1.5, 2.0], help="alphas of entmax")
    parser.add_argument("--tiles", nargs="+", default=["64x32", "64x64", "128x64"], help="rows and keys of tiles")
    parser.add_argument("--tokens", type=int, default=1024, help="tokens at each length, at least one window")
    parser.add_argument("--spans", type=int, default=4, help="blocks of rows of a head that are looked at in a window")
    parser.add_argument("--seed", type=int, default=0, help="chooses windows and blocks of rows")
    parser.add_argument("--threads", type=int, help="number of torch threads")
    parser.add_argument("--output_dir", type=Path, help="folder for tile_shares.md")
    arguments = parser.parse_args(argv)
    arguments.tiles = [TileShape(*map(int, shape.split("x"))) for shape in arguments.tiles]
    arguments.models = [(path, [int(length) for length in lengths]) for path, *lengths in arguments.model]
    span = max(shape.rows for shape in arguments.tiles)
    if any(span % size for shape in arguments.tiles for size in shape):
        parser.error(f"--tiles: sizes must divide {span}, the largest number of rows")
    if any(length % span for _, lengths in arguments.models for length in lengths):
        parser.error(f"--model: lengths must be multiples of {span}")
    return arguments


def raised(shift: torch.Tensor, y: torch.Tensor, alpha: float) -> torch.Tensor:
    """A step of Newton's method on the shift of each row, as in `kernels/entmax.py`; `y` is the score minus the maximum."""
    eps = alpha - 1
    base = (1 + eps * (y - shift)).clamp_min_(0)
    slopes = (base > 0).float() if alpha == 2 else base if alpha == 1.5 else base.pow(1 / eps - 1)
    total, slope = (base * slopes).sum(-1, keepdim=True), slopes.sum(-1, keepdim=True)
    return shift + torch.expm1(eps * total.log()) / eps * total.pow(1 - eps) / slope


def lower_bound(y: torch.Tensor, lanes: int, alpha: float) -> torch.Tensor:
    """The shift of the maxima of strided lanes, which is at most that of the row."""
    tops = y.unflatten(-1, (-1, lanes)).amax(-2)
    shift = torch.zeros_like(y[:, :1])
    for _ in range(4):
        shift = raised(shift, tops, alpha)
    return shift * (1 - 4e-7)


def shifts(y: torch.Tensor, shift: torch.Tensor, alpha: float) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Newton's method from below: the shift before each pass, and which rows the pass moves."""
    for turn in range(TURNS + 1):
        new = torch.maximum(raised(shift, y, alpha), shift)
        moves = new - shift > 1e-6 * shift.clamp_min(1)
        yield shift, moves[:, 0]
        shift = new
        if turn and not moves.any():
            return


def count_tiles(scores: torch.Tensor, alpha: float, shape: TileShape, blocks: int) -> Counter:
    """
    Count the tiles that the kernels visit for some rows.

    Args:
        scores (`torch.Tensor` of shape `(rows, keys)`):
            Scores times beta, -inf where a query does not see a key. Both sizes are multiples of those of the tile.
        alpha (`float`): Member of the entmax family.
        shape ([`TileShape`]): The size of a tile.
        blocks (`int`): Key blocks of the whole problem; with few of them, the kernels do not collect candidates.
    """
    reach = 1 / (alpha - 1)
    maximum = scores.amax(-1, keepdim=True)
    y = scores - maximum
    tops = y.unflatten(-1, (-1, shape.keys)).amax(-1)  # of the rows in each key block

    def alive(least: torch.Tensor) -> torch.Tensor:
        """Tiles that have a score above `least`."""
        return (tops > least).unflatten(0, (-1, shape.rows)).any(1)

    running = tops.flip(1).cummax(1).values.flip(1)  # the survey goes from the last key block to the first
    seen, listed = alive(torch.tensor(-INFINITY)), alive(running - reach)
    start = lower_bound(y, shape.keys, alpha)
    bounded = alive(start - reach)
    found = (y > start - reach).sum(-1).unflatten(0, (-1, shape.rows)).amax(1)
    collects = (found <= CANDIDATES) & (bounded.sum(1) > 2) & (blocks >= MIN_BLOCKS)

    visits, passes, before = torch.zeros_like(found), torch.zeros_like(found), listed
    moving = torch.ones_like(collects)
    shift = start
    for turn, (shift, moves) in enumerate(shifts(y, start, alpha)):
        left = before & alive(shift - reach)
        visits += before.sum(1) * moving * (~collects | (turn == 0))
        passes += moving
        before = torch.where(moving[:, None], left, before)
        if turn:  # the kernel does not ask whether its first pass moved anything
            moving &= moves.unflatten(0, (-1, shape.rows)).any(1)
    weight = alive(shift - reach)
    last = torch.where(collects[:, None], bounded, before)  # the list that the backward pass goes over
    return Counter(
        visible=int((scores > -INFINITY).sum()),
        support=int((y > shift - reach).sum()),
        tiles=int(seen.sum()),
        weight=int(weight.sum()),
        surveyed=int(listed.sum()),
        bounded=int(bounded.sum()),
        row_blocks=len(found),
        passes=int(passes.sum()),
        collecting=int(collects.sum()),
        # in tiles; reading out computes the scores once more
        forward=int(seen.sum() + visits.sum() + 2 * (before.sum(1) * ~collects).sum()),
        backward=int(5 * last.sum() + 4 * weight.sum()),
    )


class TileCounter(OwnSettings):
    """Counts tiles while a model runs with its own settings."""

    def __init__(self, shapes: list[TileShape], spans: int, seed: int) -> None:
        self.shapes, self.spans = shapes, spans
        self.span = max(shape.rows for shape in shapes)
        self.generator = torch.Generator().manual_seed(seed)
        self.parameters: dict[str, RetrievalParameters] = {}
        self.counts: dict[TileShape, Counter] = {shape: Counter() for shape in shapes}

    def observe(self, name: str, problem: RetrievalProblem) -> None:
        others = (problem.mask, problem.bias, problem.sinks, problem.sliding_window, problem.softcap, problem.segments)
        if any(other is not None for other in others) or problem.query.shape[2] != problem.key.shape[2]:
            raise ValueError(f"{name}: only causal or full self-attention without a mask or other options is counted.")
        beta, alpha = self.parameters[name]()
        heads = problem.query.shape[1]
        betas = torch.as_tensor(beta * problem.beta).reshape(-1).expand(heads).tolist()
        alphas = torch.as_tensor(alpha).reshape(-1).expand(heads).tolist()
        groups = heads // problem.key.shape[1]
        for sample in range(problem.query.shape[0]):
            for head in range(heads):
                query, key = problem.query[sample, head], problem.key[sample, head // groups]
                factor = betas[head] * problem.scaling
                for first in self.chosen(len(query)):
                    scores = visible_scores(query, key, first, first + self.span, factor, problem.is_causal)
                    for shape in self.shapes:
                        counts = count_tiles(scores, alphas[head], shape, len(key) // shape.keys)
                        self.counts[shape].update(counts)  # unlike +=, it keeps what is zero

    def chosen(self, length: int) -> list[int]:
        """First rows of the blocks to look at: evenly spread, from a random start."""
        there = length // self.span
        count = min(self.spans, there)
        offset = torch.rand((), generator=self.generator).item()
        return [int((number + offset) * there / count) * self.span for number in range(count)]


def visible_scores(
    query: torch.Tensor, key: torch.Tensor, first: int, stop: int, factor: float, causal: bool
) -> torch.Tensor:
    """Scores of the rows from `first` to `stop`, -inf where a query does not see a key."""
    scores = query[first:stop].float() @ key[: stop if causal else None].float().T * factor
    if causal:
        unseen = torch.ones(stop - first, stop - first, dtype=torch.bool).triu(1)
        scores[:, first:].masked_fill_(unseen, -INFINITY)
    return scores


def sparse_model(path: str, alpha: float, beta: str, tokenizer: Any, arguments: argparse.Namespace) -> PreTrainedModel:
    """A model converted to `alpha`, with beta as one of `BETAS` says."""
    model = AutoModel.from_pretrained(path, dtype=torch.float32, attn_implementation="sdpa")
    if beta == "1":
        return to_sparse_hopfield(model, {"alpha": alpha})
    text = read_text(arguments.calibration_text or arguments.text)
    batches = text_batches(
        model, tokenizer, text, length=CALIBRATED_ON, count=arguments.calibration_windows, seed=arguments.seed
    )
    return calibrate(model, batches, alpha=alpha, refine_steps=0, seed=arguments.seed, progress=False)[0]


@torch.no_grad()
def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One record for each model, beta, alpha, length and tile."""
    text = read_text(arguments.text)
    for path, lengths in arguments.models:
        tokenizer = AutoTokenizer.from_pretrained(path)
        for beta, alpha in itertools.product(arguments.betas, arguments.alphas):
            with torch.enable_grad():
                model = sparse_model(path, alpha, beta, tokenizer, arguments)
            for length in lengths:
                start = time.monotonic()
                windows = max(1, arguments.tokens // length)
                batches = text_batches(model, tokenizer, text, length=length, count=windows, seed=arguments.seed)
                there = batches[0]["input_ids"].shape[1]
                if there != length:
                    raise ValueError(f"{path} and the text give windows of {there} tokens, not {length}.")
                counter = TileCounter(arguments.tiles, arguments.spans, arguments.seed)
                with evaluating(model), observed(model, counter) as counter.parameters:
                    for batch in batches:
                        model(**batch)
                seconds = time.monotonic() - start
                settings = {"model": path, "beta": beta, "alpha": alpha, "length": length}
                print(f"{settings}: {seconds:.0f} s", file=sys.stderr, flush=True)
                for shape, counts in counter.counts.items():
                    yield {**settings, "tile": shape, **counts}


def table(records: list[dict[str, Any]]) -> str:
    """The records as Markdown."""
    lines = [
        "| model | beta | alpha | length | tile | keys with weight | tiles: with weight | after the survey | after the lower bound | "
        "Newton passes | row blocks with candidate lists | products: forward | backward | all / FlashAttention-2 |",
        "| --- " * 14 + "|",
    ]
    for record in records:
        tiles = record["tiles"]
        shares = [record["support"] / record["visible"]]
        shares += [record[name] / tiles for name in ("weight", "surveyed", "bounded")]
        forward, backward = record["forward"] / tiles, record["backward"] / tiles
        cells = [_name(record["model"]), record["beta"], f"{record['alpha']:g}", record["length"], record["tile"]]
        cells += [f"{share:.3f}" for share in shares]
        cells += [f"{record['passes'] / record['row_blocks']:.1f}"]
        cells += [f"{record['collecting'] / record['row_blocks']:.2f}"]
        cells += [f"{forward:.2f}", f"{backward:.2f}", f"{(forward + backward) / sum(FLASH):.2f}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def report(records: list[dict[str, Any]], arguments: argparse.Namespace, argv: list[str], seconds: float) -> str:
    """The table, with what one needs to know to read it and to make it again."""
    return f"""# Tiles with weight in real attention

Counted, not timed: what the Triton kernels would visit, in float32, by `examples/benchmarks/tile_shares.py`. Shares are of the visible
keys, and of the tiles with a visible key. A product is one matrix product over all visible scores; FlashAttention-2 takes {FLASH[0]} forward
and {FLASH[1]} backward. Rows that collect candidates (at most {CANDIDATES} each) take no product after the first Newton pass.

- Machine: {_processor()}, {torch.get_num_threads()} thread(s), torch {torch.__version__}; {datetime.date.today()}; {seconds / 60:.0f} minutes.
- Command: `python examples/benchmarks/tile_shares.py {shlex.join(argv)}`
- Conversion: for each alpha, the beta of each head was searched (not refined) on {arguments.calibration_windows} windows of {CALIBRATED_ON} tokens. Beta 1 is a
  conversion without calibration: sparser, but its outputs may be far off.
- Seed: {arguments.seed}, for calibration, windows and rows.
- Sample: all layers and heads; windows of {arguments.tokens} tokens together at each length, or one; of each head and window
  {arguments.spans} blocks of {max(shape.rows for shape in arguments.tiles)} rows, evenly spread from a random start.

{table(records)}
"""


def _name(path: str) -> str:
    """What a folder of a model is called."""
    folder = Path(path).resolve()
    return folder.parent.name if folder.name == "model" else folder.name


def _processor() -> str:
    """The name of the processor."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def main(argv: list[str] | None = None) -> int:
    """Count, and print and write the table."""
    argv = sys.argv[1:] if argv is None else argv
    arguments = parse_arguments(argv)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    start = time.monotonic()
    records = list(measure(arguments))
    text = report(records, arguments, argv, time.monotonic() - start)
    print(table(records))
    if arguments.output_dir:
        arguments.output_dir.mkdir(parents=True, exist_ok=True)
        (arguments.output_dir / "tile_shares.md").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
