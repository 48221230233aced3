# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""How long the Triton kernels should take on a GPU, by arithmetic. Nothing here was timed on a GPU.

The unit is a product: one matrix product over all visible scores. FlashAttention-2 takes 2 forward and 5 backward. The kernels take
one for the survey and the others only over tiles that can have weight. A product is assumed to run as fast as those of
FlashAttention-2 do by its publications: 73 % of the peak forward and 63 % backward on A100 (arXiv 2307.08691), 35 % on H100
(arXiv 2407.08608). Decoding is bound by bytes.

    python -m hf_sparse_hopfield.benchmark.gpu_model --at 4096 1.6 2.6 --at 8192 1.4 2.0 --decode 0.05 0.2

prints the predictions for lengths with their products forward and backward, as `examples/benchmarks/tile_shares.py` counts them,
and of a decode for a share of values with weight and a share of keys that the int8 copy cannot exclude.
"""

import argparse
from dataclasses import dataclass


FLASH_FORWARD, FLASH_BACKWARD = 2, 5  # products of FlashAttention-2
LAUNCH = 3e-6  # seconds between two kernels that wait for each other; an assumption
DECODE_LAUNCHES, FLASH_DECODE_LAUNCHES = 4, 2
_ROWS_BACKWARD, _KEYS_BACKWARD = 5, 4  # grad_rows: S, dP, then S, dP, dQ; grad_keys: S, dP, dV, dK


@dataclass(frozen=True)
class Gpu:
    """
    What a GPU can do.

    Args:
        name (`str`): Its name.
        flops (`float`): Peak of dense bfloat16 products, in operations a second.
        bandwidth (`float`): Of its memory, in bytes a second.
        forward, backward (`float`): Share of the peak that FlashAttention-2 reaches.
        cache (`int`), cache_bandwidth (`float`): Bytes of the second-level cache, and bytes a second from it.
        processor_bandwidth (`float`): Bytes a second that one multiprocessor can read.
    """

    name: str
    flops: float
    bandwidth: float
    forward: float
    backward: float
    cache: int
    cache_bandwidth: float
    processor_bandwidth: float


# 64 bytes a clock for each multiprocessor; the bandwidth of the cache is an estimate.
A100 = Gpu("A100", 312e12, 2039e9, 0.73, 0.63, 40_000_000, 5e12, 90e9)
H100 = Gpu("H100", 989e12, 3350e9, 0.35, 0.35, 50_000_000, 5.5e12, 112e9)


@dataclass(frozen=True)
class Attention:
    """
    The size of an attention, in bfloat16.

    Args:
        length (`int`): Number of keys; of queries too, unless it decodes.
        heads, kv_heads, head_dim, batch (`int`, *optional*): Its other sizes.
        causal (`bool`, *optional*, defaults to `True`): Whether a query sees only keys up to its own place.
    """

    length: int
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    batch: int = 1
    causal: bool = True

    @property
    def product(self) -> float:
        """Operations of one product over the visible scores."""
        visible = self.length * (self.length + 1) / 2 if self.causal else self.length**2
        return 2.0 * self.batch * self.heads * visible * self.head_dim


@dataclass(frozen=True)
class Prediction:
    """
    Seconds of the kernels and of FlashAttention-2.

    Args:
        forward, backward, flash_forward, flash_backward (`float`): The seconds.
    """

    forward: float
    backward: float
    flash_forward: float
    flash_backward: float

    @property
    def ratio(self) -> float:
        """Forward and backward together, over FlashAttention-2; below 1 is faster."""
        return (self.forward + self.backward) / (self.flash_forward + self.flash_backward)


def forward_products(
    share: float, *, surveyed: float | None = None, passes: float = 3.0, collecting: float = 0.0
) -> float:
    """
    Products of a forward pass: the survey, the first Newton pass over what it leaves, the others and the read-out (two
    products) over tiles with weight. Rows that collect candidates are done after the first Newton pass.

    Args:
        share (`float`): Share of the visible tiles that have weight.
        surveyed (`float`, *optional*): Share that the survey leaves; `share` if it leaves nothing else.
        passes (`float`, *optional*, defaults to 3.0): Newton passes.
        collecting (`float`, *optional*, defaults to 0.0): Share of the work in rows that collect candidates.

    Example:

    ```python
    >>> from hf_sparse_hopfield.benchmark.gpu_model import forward_products

    >>> forward_products(0.2)
    2.0
    >>> forward_products(0.8, surveyed=1.0, collecting=1.0)
    2.0

    ```
    """
    return 1 + (share if surveyed is None else surveyed) + (1 - collecting) * (passes + 1) * share


def backward_products(share: float, *, listed: float | None = None) -> float:
    """
    Products of a backward pass: five along the rows, four along the columns.

    Args:
        share (`float`): Share of the visible tiles that have weight.
        listed (`float`, *optional*): Share on the lists of the rows, if it is another one.

    Example:

    ```python
    >>> from hf_sparse_hopfield.benchmark.gpu_model import backward_products

    >>> backward_products(0.5)
    4.5

    ```
    """
    return _ROWS_BACKWARD * (share if listed is None else listed) + _KEYS_BACKWARD * share


def predict(
    attention: Attention, gpu: Gpu, forward: float, backward: float, *, utilisation: float = 1.0
) -> Prediction:
    """
    Seconds of a training step.

    Args:
        attention ([`Attention`]): Its size.
        gpu ([`Gpu`]): The GPU.
        forward, backward (`float`): Products, counted or from [`forward_products`] and [`backward_products`].
        utilisation (`float`, *optional*, defaults to 1.0): How well the kernels use the GPU, relative to FlashAttention-2.

    Example:

    ```python
    >>> from hf_sparse_hopfield.benchmark.gpu_model import A100, Attention, predict

    >>> result = predict(Attention(8192), A100, forward=2.0, backward=2.0)
    >>> round(result.ratio, 2), result.forward == result.flash_forward
    (0.55, True)

    ```
    """
    ahead, back = (attention.product / (gpu.flops * share) for share in (gpu.forward, gpu.backward))
    return Prediction(
        forward * ahead / utilisation, backward * back / utilisation, FLASH_FORWARD * ahead, FLASH_BACKWARD * back
    )


def parity_share(gpu: Gpu, *, passes: float = 3.0) -> float:
    """
    Share of tiles with weight at which forward and backward together take as long as FlashAttention-2.

    Args:
        gpu ([`Gpu`]): The GPU.
        passes (`float`, *optional*, defaults to 3.0): Newton passes.

    Example:

    ```python
    >>> from hf_sparse_hopfield.benchmark.gpu_model import H100, parity_share

    >>> round(parity_share(H100), 3)
    0.429

    ```
    """
    fixed = forward_products(0.0) / gpu.forward
    slope = (forward_products(1.0, passes=passes) - 1) / gpu.forward + backward_products(1.0) / gpu.backward
    return (FLASH_FORWARD / gpu.forward + FLASH_BACKWARD / gpu.backward - fixed) / slope


def decode_seconds(
    attention: Attention,
    gpu: Gpu,
    *,
    value_share: float,
    passes: float = 3.0,
    candidate_share: float | None = None,
) -> float:
    """
    Seconds of one new token: the keys or their int8 copy once, the scores in float32 several times, values with weight.

    Args:
        attention ([`Attention`]): Its size.
        gpu ([`Gpu`]): The GPU.
        value_share (`float`): Share of the keys in which some head that shares them has weight.
        passes (`float`, *optional*, defaults to 3.0): Newton passes.
        candidate_share (`float`, *optional*):
            With an int8 copy of the keys, the share of the keys that its bounds cannot exclude; `None` means no copy.

    Example:

    ```python
    >>> from hf_sparse_hopfield.benchmark.gpu_model import A100, Attention, decode_seconds, flash_decode_seconds

    >>> work = Attention(131072)
    >>> round(decode_seconds(work, A100, value_share=0.01) / flash_decode_seconds(work, A100), 2)
    0.63
    >>> round(decode_seconds(work, A100, value_share=0.01, candidate_share=0.04) / flash_decode_seconds(work, A100), 2)
    0.43

    ```
    """
    keys = attention.batch * attention.kv_heads * attention.length
    row = 2 * attention.head_dim
    read = keys * row * (1 + value_share)
    written, seen = 1.0, 1.0  # by the scoring, and for the values
    if candidate_share is not None:
        # an int8 key, its scale of two bytes, and three bounds for 256 keys; the scores are bounds first
        read = keys * (attention.head_dim + 2 + 12 / 256 + row * (candidate_share + value_share))
        written, seen = written + 1, seen + 1
    rows = attention.batch * attention.heads
    scores = rows * attention.length * 4
    speed = gpu.cache_bandwidth if scores <= gpu.cache / 2 else gpu.bandwidth
    alone = min(speed, rows * gpu.processor_bandwidth)  # one program solves a row
    return read / gpu.bandwidth + scores * ((written + seen) / speed + passes / alone) + DECODE_LAUNCHES * LAUNCH


def flash_decode_seconds(attention: Attention, gpu: Gpu) -> float:
    """
    Seconds of one new token with dense attention: all keys and values once.

    Args:
        attention ([`Attention`]): Its size.
        gpu ([`Gpu`]): The GPU.

    Example:

    ```python
    >>> from hf_sparse_hopfield.benchmark.gpu_model import A100, Attention, flash_decode_seconds

    >>> round(flash_decode_seconds(Attention(131072), A100) * 1e6)
    269

    ```
    """
    keys = attention.batch * attention.kv_heads * attention.length
    return 4 * keys * attention.head_dim / gpu.bandwidth + FLASH_DECODE_LAUNCHES * LAUNCH


def training_table(points: list[tuple[int, float, float]]) -> str:
    """
    The predictions of [`predict`] as Markdown.

    Args:
        points (`list[tuple[int, float, float]]`): Length, and products forward and backward.
    """
    columns = ("forward + backward ms", "FlashAttention-2 ms", "ratio")
    names = [f"{gpu.name}: {column}" for gpu in (A100, H100) for column in columns]
    rows = []
    for length, forward, backward in points:
        cells = [str(length), f"{forward:g}, {backward:g}"]
        for gpu in (A100, H100):
            result = predict(Attention(length), gpu, forward, backward)
            both = (result.forward, result.backward), (result.flash_forward, result.flash_backward)
            cells += [f"{_short(ahead * 1e3)} + {_short(back * 1e3)}" for ahead, back in both]
            cells.append(f"{result.ratio:.2f}")
        rows.append(cells)
    return _markdown(["length", "products", *names], rows)


def decode_table(lengths: list[int], value_share: float, candidate_share: float) -> str:
    """
    The predictions of [`decode_seconds`] as Markdown.

    Args:
        lengths (`list[int]`): Numbers of keys.
        value_share, candidate_share (`float`): As for [`decode_seconds`].
    """
    columns = ("dense µs", "ours / dense", "with the int8 copy / dense")
    rows = []
    for length in lengths:
        cells, work = [str(length)], Attention(length)
        for gpu in (A100, H100):
            dense = flash_decode_seconds(work, gpu)
            ours = (
                decode_seconds(work, gpu, value_share=value_share, candidate_share=c) for c in (None, candidate_share)
            )
            cells += [f"{dense * 1e6:.0f}", *(f"{seconds / dense:.2f}" for seconds in ours)]
        rows.append(cells)
    return _markdown(["keys", *(f"{gpu.name}: {column}" for gpu in (A100, H100) for column in columns)], rows)


def _short(number: float) -> str:
    return f"{number:.2f}" if number < 10 else f"{number:.0f}"


def _markdown(names: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (names, ["---"] * len(names), *rows))


def main(argv: list[str] | None = None) -> None:
    """Print the predictions that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at", nargs=3, action="append", type=float, required=True,
                        metavar=("LENGTH", "FORWARD", "BACKWARD"), help="a length and its products")  # fmt: skip
    parser.add_argument("--decode", nargs=2, type=float, metavar=("VALUES", "CANDIDATES"),
                        help="also decode: share of values with weight, and of keys that the copy cannot exclude")  # fmt: skip
    arguments = parser.parse_args(argv)
    points = [(int(length), forward, backward) for length, forward, backward in arguments.at]
    print(training_table(points))
    if arguments.decode:
        print(f"\n{decode_table([length for length, *_ in points], *arguments.decode)}")


if __name__ == "__main__":
    main()
