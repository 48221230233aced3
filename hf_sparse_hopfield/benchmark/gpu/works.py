# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What is timed on a GPU."""

from ..work import Work
from .devices import TimingDevice


# batch, heads, length, width of heads
SIZES = ((8, 32, 1024, 64), (8, 32, 4096, 64), (4, 32, 4096, 128), (1, 32, 16384, 128), (1, 32, 65536, 128))
QUICK_SIZES = ((8, 32, 1024, 64), (4, 16, 2048, 128))
TINY_SIZES = ((1, 1, 20, 16),)
KEYS = (4096, 16384, 65536, 131072)
DTYPES = ("bfloat16", "float32")
ALPHAS = (2.0, 1.5)
_LONGEST_BLOCKED = 1024


def works(device: TimingDevice, quick: bool = False) -> list[tuple[Work, list[str]]]:
    """
    The work that the benchmark times, each with the methods to compare.

    Args:
        device ([`TimingDevice`]): The device.
        quick (`bool`, *optional*, defaults to `False`): Small sizes only.
    """
    sizes = TINY_SIZES if device.tiny else QUICK_SIZES if quick else SIZES
    inputs = ("sharp", "local", "plain")[: 1 if device.tiny else 2 if quick else 3]
    dtypes, alphas = (DTYPES[1:], ALPHAS[:1]) if device.tiny else (DTYPES, ALPHAS)
    result = []
    for kind in ("forward", "training"):
        for batch, heads, length, width in sizes:
            for dtype in dtypes:
                for alpha in alphas:
                    options = {"alpha": alpha, "dtype": dtype, "head_dim": width}
                    chosen = [Work(kind, batch, heads, length, is_causal=True, inputs=x, **options) for x in inputs]  # type: ignore[arg-type]
                    if length <= 4096 and not (device.tiny or quick):
                        chosen.append(Work(kind, batch, heads, length, is_causal=False, **options))  # type: ignore[arg-type]
                    result += [(work, _methods(work)) for work in chosen]
    return result + [(work, _methods(work)) for work in decodes(device, quick)]


def decodes(device: TimingDevice, quick: bool = False) -> list[Work]:
    """The decodes among them: one query of 32 heads, which share 8 heads of keys."""
    if device.tiny:
        return [Work("decode", 1, 2, 40, kv_heads=1, head_dim=16)]
    result = []
    for keys in KEYS[:2] if quick else KEYS:
        for batch in (1, 8) if keys <= 16384 and not quick else (1,):
            for dtype in DTYPES:
                for alpha in ALPHAS:
                    for inputs in ("sharp", "plain")[: 1 if quick else 2]:
                        work = Work(
                            "decode", batch, 32, keys, alpha, kv_heads=8, head_dim=128, dtype=dtype, inputs=inputs
                        )
                        result.append(work)
    return result


def _methods(work: Work) -> list[str]:
    names = ["triton"]
    if work.kind == "decode":
        names.append("screened")
    else:
        names.append("adasplash")
        if work.length <= _LONGEST_BLOCKED:
            names.append("blocked")
    # alpha and the inputs are nothing to softmax
    return [*names, "flex"] if work.alpha == ALPHAS[0] and work.inputs == "sharp" else names
