# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The figures that the project promises, and whether a machine meets them."""

from collections.abc import Mapping
from dataclasses import dataclass


EVERY_SUPPORT = (0, 2**20)


@dataclass(frozen=True)
class Bar:
    """
    A promise: the worst ratio among the records that match is at least `least`.

    Args:
        text (`str`): What is promised.
        method, kind (`str`): Which records count.
        least (`float`): The least time of `against` divided by that of `method`.
        alphas (`tuple[float, ...]`), lengths, supports (`tuple[int, int]`): Of which works; bounds are included.
        against (`str`): The method to compare with.
        shapes (`tuple[str, ...]`, *optional*): Labels of the works, instead of all with these lengths.
        vnni (`bool`): Promised only for processors that multiply bytes (AVX-512 VNNI, AVX-VNNI).
    """

    text: str
    method: str
    kind: str
    least: float
    alphas: tuple[float, ...]
    lengths: tuple[int, int]
    supports: tuple[int, int] = (1, 16)
    against: str = "sdpa"
    shapes: tuple[str, ...] = ()
    vnni: bool = False
    dtype: str = "float32"

    def worst(self, records: list[dict]) -> tuple[float, str] | None:
        """The smallest ratio and where it occurred; `None` if nothing matches."""
        seconds = {((r["label"], r["alpha"], r["support"]), r["method"]): r["seconds"] for r in records}
        found = []
        for record in records:
            place = (record["label"], record["alpha"], record["support"])
            if (
                record["method"] == self.method
                and record["kind"] == self.kind
                and record["alpha"] in self.alphas
                and self.lengths[0] <= record["length"] <= self.lengths[1]
                and self.supports[0] <= record["support"] <= self.supports[1]
                and record.get("dtype", "float32") == self.dtype
                and (not self.shapes or record["label"] in self.shapes)
                and (place, self.against) in seconds
            ):
                where = f"{record['label']}, alpha {record['alpha']}, support {record['support'] or 'all'}"
                found.append((seconds[place, self.against] / record["seconds"], where))
        return min(found, default=None)


def _bars() -> list[Bar]:
    bars = []
    for backend, alpha, lengths, least in (
        ("native", 2.0, (512, 512), {"forward": 1.3, "training": 3.0}),
        ("native", 2.0, (1024, 4096), {"forward": 1.5, "training": 3.5, "decode": 3.0}),
        ("native", 1.5, (1024, 4096), {"forward": 1.2, "training": 2.8, "decode": 2.5}),
        ("blocked", 2.0, (1024, 4096), {"forward": 0.5, "training": 1.0, "decode": 1.2}),
    ):
        span = f"{lengths[0]}" if lengths[0] == lengths[1] else f"{lengths[0]}-{lengths[1]}"
        for kind, ratio in least.items():
            keys = (4096, 2**20) if kind == "decode" else lengths
            span_ = "4096 keys and more" if kind == "decode" else span
            method = "unscreened" if (backend, kind) == ("native", "decode") else backend  # one query makes no screen
            bars.append(Bar(f"{backend}, alpha {alpha}, {span_}, {kind}", method, kind, ratio, (alpha,), keys))
    every = (1.2, 1.5, 2.0)
    for kind, ratio in {"forward": 0.5, "training": 0.6, "decode": 0.8}.items():
        text = f"auto, any density, 256-4096, {kind}"
        bars.append(Bar(text, "auto", kind, ratio, every, (256, 4096), (0, 2**20)))
    for kind in ("forward", "training"):
        text = f"auto against entmax eager, 1024, {kind}"
        bars.append(Bar(text, "auto", kind, 25.0, every, (1024, 1024), against="entmax"))
    return bars + _screening_bars()


def _screening_bars() -> list[Bar]:
    bars = []
    for alpha, dtype, least in (
        (2.0, "float32", (8.0, 15.0, 20.0)),
        (1.5, "float32", (6.0, 12.0, 16.0)),
        (2.0, "bfloat16", (4.0, 8.0, 10.0)),
        (1.5, "bfloat16", (4.0, 8.0, 10.0)),
    ):
        for keys, ratio in zip((4096, 16384, 65536), least, strict=True):
            text = f"decode with a screen, {dtype}, alpha {alpha}, {keys} keys"
            bars.append(Bar(text, "screened", "decode", ratio, (alpha,), (keys, keys), vnni=True, dtype=dtype))
    shapes = ("4, 12, 1024, 64", "1, 16, 4096, 64", "1, 8, 16384, 64")
    for kind, ratios in (("forward", (2.5, 3.5, 3.5)), ("training", (6.0, 7.0, 8.0))):
        for shape, ratio in zip(shapes, ratios, strict=True):
            label = f"{kind} {shape}"
            bars.append(
                Bar(f"native, {label}", "native", kind, ratio, (2.0, 1.5), (0, 2**20), shapes=(label,), vnni=True)
            )
    every = (1.2, 1.5, 2.0)
    for kind, method in (("decode", "screened"), ("forward", "native"), ("training", "native")):
        text = f"{kind} where screening does not pay, against none"
        bars.append(Bar(text, method, kind, 0.9, every, (256, 2**20), EVERY_SUPPORT, against="unscreened"))
    return bars


def check_bars(results: Mapping[str, list[dict]], vnni: bool = True) -> list[dict]:
    """
    Compare the results with the promises.

    Args:
        results (`Mapping[str, list[dict]]`): Lists of `records`, and of what there is of `memory`, `reads` and `search`.
        vnni (`bool`, *optional*, defaults to `True`): Whether the processor multiplies bytes.

    Returns:
        `list[dict]`:
            One entry per promise: `text`, `promised`, `measured` (`None`: not measured), `met` (`None`: not measured, or not
            promised for this processor) and `where`.
    """
    records, memory, reads, search = (results.get(name, []) for name in ("records", "memory", "reads", "search"))
    outcome = []

    def add(
        text: str, promised: str, measured: float | None, met: bool, where: str = "", applies: bool = True
    ) -> None:
        known = None if measured is None or not applies else met
        outcome.append({"text": text, "promised": promised, "measured": measured, "met": known, "where": where})

    for bar in _bars():
        worst = bar.worst(records)
        ratio, where = worst or (None, "")
        applies = vnni or not bar.vnni
        promised = f">= {bar.least:g}{' with VNNI' if bar.vnni else ''}"
        add(bar.text, promised, ratio, ratio is not None and ratio >= bar.least, where, applies)
    for queries, least in ((1, 3), (64, 2)):
        found = min(((r["ratio"], r["label"]) for r in search if r["queries"] == queries), default=(None, ""))
        met = found[0] is not None and found[0] >= least
        add(f"memory against faiss, {queries} queries", f">= {least} with VNNI", found[0], met, found[1], vnni)
    long = [r for r in reads if r["support"] <= 16 and r["length"] >= 4096]
    most_read = max(((r["share"], r["label"]) for r in long), default=(None, ""))
    met = most_read[0] is not None and most_read[0] <= 1.15
    add("bytes that decode reads, against int8 keys, 4096 keys and more", "<= 1.15", most_read[0], met, most_read[1])
    size = {(r["kind"], r["method"]): r["bytes"] for r in memory if r["bytes"]}
    for kind, most in (("forward", 2.5), ("training", 1.3)):
        for name in ("native", "blocked"):
            dense, sparse = size.get((kind, "sdpa")), size.get((kind, name))
            ratio, where = None, ""
            if dense and sparse:
                ratio, where = sparse / dense, f"{sparse / 2**20:.0f} MB against {dense / 2**20:.0f} MB"
            text = f"{name}, peak extra memory, {kind}, against sdpa"
            add(text, f"<= {most:g}", ratio, ratio is not None and ratio <= most, where)
    return outcome
