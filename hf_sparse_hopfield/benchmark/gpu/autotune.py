# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Measures which tiles are fastest on a GPU, for `HF_SPARSE_HOPFIELD_TILES`."""

import contextlib
import itertools
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...backends.triton import tiles
from ...backends.triton.tiles import Tile, device_kind, tile_for
from ...files import new_file
from ...retrieval import retrieve
from ..report import table
from ..timing import time_in_turns
from ..work import Work
from .devices import TimingDevice
from .measuring import reason_of


VARIABLE = "HF_SPARSE_HOPFIELD_TILES"
WIDTHS = (64, 128, 256)
SHAPES = ((16, 16), (32, 16), (32, 32), (32, 64), (64, 32), (64, 64), (128, 32), (64, 128), (128, 64), (128, 128))
_DTYPES = {2: "bfloat16", 4: "float32"}
_TOLERANCES = {2: 2e-2, 4: 1e-3}  # of the largest output


@dataclass(frozen=True)
class Plan:
    """
    What is tuned, and how.

    Args:
        classes (`list[tuple[int, str, int]]`): Bytes of a number, kind of work and width of heads.
        batch, heads, length (`int`): Size of the problem that is timed.
        shapes (`tuple[tuple[int, int], ...]`): Rows and keys of the tiles that are tried, with the warps and stages of the table.
        warps, stages (`tuple[int, ...]`): What is tried for the best shape.
        seconds (`float`): Approximate time of a measurement.
    """

    classes: list[tuple[int, str, int]]
    batch: int = 2
    heads: int = 16
    length: int = 4096
    shapes: tuple[tuple[int, int], ...] = SHAPES
    warps: tuple[int, ...] = (4, 8)
    stages: tuple[int, ...] = (1, 2, 3)
    seconds: float = 2.0


def default_plan(device: TimingDevice, quick: bool = False, seconds: float = 2.0) -> Plan:
    """
    What the command tunes.

    Args:
        device ([`TimingDevice`]): The device.
        quick (`bool`, *optional*, defaults to `False`): Only half precision, the usual options and widths, and few shapes.
        seconds (`float`, *optional*, defaults to 2.0): Approximate time of a measurement.
    """
    if device.tiny:
        return Plan([(4, "cheap", 64)], 1, 1, 20, ((16, 16), (24, 16), (16, 32)), (1,), (1,), seconds)
    if quick:
        shapes = ((64, 32), (64, 64), (128, 64))
        return Plan([(2, "cheap", 64), (2, "cheap", 128)], length=2048, shapes=shapes, seconds=seconds)
    return Plan(list(itertools.product(_DTYPES, tiles.WORKS, WIDTHS)), seconds=seconds)


@contextlib.contextmanager
def tiles_in_use(measured: dict[str, Tile]) -> Iterator[None]:
    """
    Let the kernels use these tiles, in the way in which they read a file of measured ones.

    Args:
        measured (`dict[str, Tile]`): Tiles by their names, such as `"sm90/2/cheap/64"`; any other one is that of the table.
    """
    before = os.environ.get(VARIABLE)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "tiles.json")
        file.write_text(json.dumps(measured))
        os.environ[VARIABLE] = str(file)
        tiles._measured.cache_clear()
        tiles._measured()
    try:
        yield
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before
        tiles._measured.cache_clear()


class Problem:
    """
    The retrieval that is timed for one class, and the one with the most options that must run as well.

    Args:
        plan ([`Plan`]): Sizes.
        device ([`TimingDevice`]): Where.
        size (`int`): Bytes of a number.
        work (`str`): `"cheap"`, `"general"` or `"heavy"`.
        width (`int`): Width of heads.
    """

    def __init__(self, plan: Plan, device: TimingDevice, size: int, work: str, width: int) -> None:
        alpha = 1.3 if work == "general" else 1.5
        timed = Work("training", plan.batch, plan.heads, plan.length, alpha, head_dim=width, dtype=_DTYPES[size])
        self.tensors = timed.tensors(device.place)
        self.options: dict[str, Any] = {"alpha": alpha, "is_causal": True, "backend": "triton"}
        if work == "heavy":
            self.options |= {"softcap": 30.0, "dropout": 0.1}
        self.full_options = self.options | self._every_option(plan, device, work)

    def _every_option(self, plan: Plan, device: TimingDevice, work: str) -> dict[str, Any]:
        """The options that stay within a kind of work: all that a model may come with later."""

        def numbers(*shape: int) -> Tensor:
            return torch.full(shape, 1.5, device=device.place, requires_grad=True)

        heads, length = plan.heads, plan.length
        options: dict[str, Any] = {
            "mask": torch.ones(plan.batch, 1, 1, length, dtype=torch.bool, device=device.place),
            "beta": numbers(heads),
            "sinks": numbers(heads),
            "sliding_window": length // 2,
        }
        if work == "cheap":
            return {**options, "alpha": 2.0}
        options["alpha"] = numbers(heads)
        if work == "heavy":
            numbered = torch.arange(length, device=device.place)[None] // max(1, length // 4)
            options["mask"] = torch.ones(1, 1, length, length, dtype=torch.bool, device=device.place)
            options |= {"bias": numbers(1, 1, length, length), "segments": (numbered, numbered)}
        return options

    def run(self, full: bool = False) -> Tensor:
        """Forward and backward; returns the output."""
        options = self.full_options if full else self.options
        leaves = [*self.tensors, *(x for x in options.values() if isinstance(x, Tensor) and x.requires_grad)]
        output = retrieve(*self.tensors, **options)
        assert isinstance(output, Tensor)
        torch.autograd.grad(output, leaves, torch.ones_like(output))
        return output.detach()


@dataclass
class Tuning:
    """
    The outcome for one class.

    Args:
        name (`str`): Kind of device, bytes, work and width, as the file has them.
        table (`Tile`): The tile of the table.
        tile (`Tile`, *optional*): The best one; `None` if none runs.
        seconds (`dict[Tile, float]`): The time of each tile that runs.
        skipped (`dict[Tile, str]`): Why the others were left out.
    """

    name: str
    table: Tile
    tile: Tile | None
    seconds: dict[Tile, float]
    skipped: dict[Tile, str]


def tune_class(plan: Plan, device: TimingDevice, size: int, work: str, width: int) -> Tuning:
    """
    Find the best tile of one class: first the shape, then the warps and stages of the best shape.

    Args:
        plan ([`Plan`]): What to try.
        device ([`TimingDevice`]): Where.
        size (`int`), work (`str`), width (`int`): The class.
    """
    kind = device_kind(device.place)
    name = f"{kind}/{size}/{work}/{width}"
    with tiles_in_use({}):
        usual = tile_for(kind, size, width, work)
    tuning = Tuning(name, usual, None, {}, {})
    problem = Problem(plan, device, size, work, width)
    right: list[Tensor] = []  # the output of the first tile that runs, which is that of the table unless it fails

    def runs(tile: Tile, full: bool = False) -> bool:
        try:
            torch.manual_seed(0)  # dropout
            with tiles_in_use({name: tile}):
                output = problem.run(full)
            device.seconds_of(lambda: None)  # waits
        except Exception as error:  # a compiler, a launch or memory: the other tiles may still run
            tuning.skipped[tile] = ("with every option: " if full else "") + reason_of(error)
            error.__traceback__ = None
            device.recover()
            return False
        if full:
            return True
        if not right:
            right.append(output)
        off = (output.float() - right[0].float()).abs().max().item()
        if not off <= _TOLERANCES[size] * max(1.0, right[0].abs().max().item()):
            tuning.skipped[tile] = f"its output is off by {off:.3g} from that of another tile"
            return False
        return True

    def seconds_of(tile: Tile) -> float:
        with tiles_in_use({name: tile}):
            return device.seconds_of(problem.run)

    def compare(candidates: list[Tile]) -> None:
        fresh = [tile for tile in dict.fromkeys(candidates) if tile not in tuning.skipped]
        running = {_words(tile): tile for tile in fresh if tile in tuning.seconds or runs(tile)}
        times = time_in_turns(running, seconds_of, plan.seconds, device.rounds)
        tuning.seconds.update({running[words]: spent for words, spent in times.items()})

    compare([usual, *(Tile(*shape, usual.warps, usual.stages, usual.piece) for shape in plan.shapes)])
    if not tuning.seconds:
        return tuning
    best = min(tuning.seconds, key=lambda tile: tuning.seconds[tile])
    compare(
        [
            best,
            usual,
            *(Tile(best.rows, best.keys, *rest, usual.piece) for rest in itertools.product(plan.warps, plan.stages)),
        ]
    )
    ranking = sorted(tuning.seconds, key=lambda tile: tuning.seconds[tile])
    tuning.tile = next((tile for tile in ranking if runs(tile, full=True)), None)
    return tuning


def tune_and_write(
    device: TimingDevice, plan: Plan, folder: Path, show: Callable[[str], None] = print
) -> dict[str, Any]:
    """
    Find the best tiles, and write `tiles.json` after each class, so that what is found is kept if the command is interrupted, and
    `tiles.md` with all times. Tiles of other GPUs that are in the file stay there.

    Args:
        device ([`TimingDevice`]): Where.
        plan ([`Plan`]): What to try.
        folder (`Path`): Where to write.
        show (`Callable`, *optional*, defaults to `print`): Called with a line for each class and each tile that is left out.

    Returns:
        `dict`: The `device`, the `tiles` as the file has them, and for each class its `times` and what was `skipped`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "tiles.json"
    found = _tiles_in(file)
    tunings = []
    for size, work, width in plan.classes:
        tuning = tune_class(plan, device, size, work, width)
        tunings.append(tuning)
        for tile, reason in tuning.skipped.items():
            show(f"{tuning.name}: {_words(tile)} left out ({reason})")
        show(_outcome(tuning))
        if tuning.tile is not None:
            found[tuning.name] = list(tuning.tile)
            with new_file(file) as path:
                path.write_text(json.dumps(found, indent=1))
        device.recover()
        (folder / "tiles.md").write_text(_markdown(device, plan, tunings))
    show(f"written to {folder}: tiles.json and tiles.md. To use them: export {VARIABLE}={file.resolve()}")
    return {
        "device": device.description(),
        "tiles": found,
        "classes": [
            {
                "name": tuning.name,
                "times": [[*tile, seconds] for tile, seconds in tuning.seconds.items()],
                "skipped": [[*tile, reason] for tile, reason in tuning.skipped.items()],
            }
            for tuning in tunings
        ],
    }


def _tiles_in(file: Path) -> dict[str, list[int]]:
    if not file.exists():
        return {}
    try:
        return json.loads(file.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{file} exists and is not JSON ({error}); remove it or choose another --output_dir."
        ) from error


def _words(tile: Tile) -> str:
    return f"{tile.rows} x {tile.keys}, warps {tile.warps}, stages {tile.stages}"


def _outcome(tuning: Tuning) -> str:
    if tuning.tile is None:
        return f"{tuning.name}: no tile runs; the table's stays"
    spent = tuning.seconds[tuning.tile]
    text = f"{tuning.name}: {_words(tuning.tile)}: {spent * 1e3:.3f} ms"
    if tuning.table not in tuning.seconds:
        return f"{text}; the table's tile ({_words(tuning.table)}) does not run"
    return f"{text}, {tuning.seconds[tuning.table] / spent:.2f} times as fast as the table's ({_words(tuning.table)})"


def _markdown(device: TimingDevice, plan: Plan, tunings: list[Tuning]) -> str:
    lines = [f"- {name}: {text}" for name, text in device.description().items()]
    size = f"({plan.batch}, {plan.heads}, {plan.length}, width)"
    parts = ["\n".join(lines), f"Forward and backward, causal, (batch, heads, length, width of heads) = {size}."]
    head = ["device/bytes/work/width", "tile", "ms", "note"]
    rows = []
    for tuning in tunings:
        for tile, seconds in sorted(tuning.seconds.items(), key=lambda item: item[1]):
            notes = [note for note, there in (("best", tile == tuning.tile), ("table", tile == tuning.table)) if there]
            notes += [tuning.skipped[tile]] if tile in tuning.skipped else []
            rows.append([tuning.name, _words(tile), f"{seconds * 1e3:.3f}", ", ".join(notes)])
        missing = [(tile, reason) for tile, reason in tuning.skipped.items() if tile not in tuning.seconds]
        rows += [[tuning.name, _words(tile), "", f"left out: {reason}"] for tile, reason in missing]
    return "\n\n".join([*parts, table(head, rows)]) + "\n"
