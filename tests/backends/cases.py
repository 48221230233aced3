# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Retrieval problems for the tests of backends: hypothesis strategies, and the comparison with `reference` in float64.

@given(case=cases())
def test_equals_reference(case):
    check(backend.run, case)
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import torch
from hypothesis import assume
from hypothesis import strategies as st

from hf_sparse_hopfield.backends import RetrievalProblem, RetrievalResult, reference


Run = Callable[[RetrievalProblem], RetrievalResult]

# Relative to the largest entry of the tensor: backends compute in float32 or better, whatever the input dtype.
TOLERANCES = {torch.float64: 1e-9, torch.float32: 2e-4, torch.bfloat16: 2e-2, torch.float16: 4e-3}


@dataclass(frozen=True)
class Case:
    """
    The recipe of a retrieval problem: shapes, settings and a seed. [`Case.problem`] draws the tensors from it.

    Args:
        batch, kv_heads, groups, queries, keys, head_dim, value_dim (`int`): Shapes; `groups` heads share a kv head.
        alpha, beta (`float` or `str`): A number, or `"head"` / `"row"` / `"scalar"`: a tensor of that granularity.
        sharpness (`float`): Standard deviation of the scores; large means sparse, small means dense.
        mask (`str`, *optional*): `"full"`, `"padding"`, `"head"` or `"empty_rows"`: a boolean mask of that kind.
        bias (`str`, *optional*): `"full"`, `"head"`, `"key"`, `"row"` or `"holes"` (with -inf): a bias of that shape.
        layout (`str`): `"contiguous"`, `"transposed"` (as models give it) or `"strided"`.
        ties (`bool`): Keys come in identical pairs.
        segments (`str`, *optional*): `"row"` or `"batch"`: three sequences share a row, in every row the same way or not.
        seed (`int`): Seed of all numbers.
    """

    batch: int = 1
    kv_heads: int = 1
    groups: int = 1
    queries: int = 5
    keys: int = 7
    head_dim: int = 8
    value_dim: int = 8
    alpha: float | str = 2.0
    beta: float | str = 1.0
    sharpness: float = 2.0
    steps: int = 1
    tolerance: float = 0.0
    mask: str | None = None
    bias: str | None = None
    is_causal: bool = False
    sliding_window: int | None = None
    softcap: float | None = None
    sinks: bool = False
    layout: str = "contiguous"
    ties: bool = False
    segments: str | None = None
    seed: int = 0

    @property
    def heads(self) -> int:
        return self.kv_heads * self.groups

    def problem(
        self, dtype: torch.dtype, compute: torch.dtype | None = None, device: str = "cpu", requires_grad: bool = True
    ) -> tuple[RetrievalProblem, dict[str, torch.Tensor]]:
        """
        The problem and the leaves that receive gradients.

        Args:
            dtype (`torch.dtype`): Precision that all numbers are rounded to.
            compute (`torch.dtype`, *optional*, defaults to `dtype`): Precision that the tensors are then cast to.
            device (`str`, *optional*, defaults to `"cpu"`): Where the tensors are.
            requires_grad (`bool`, *optional*, defaults to `True`): Whether the leaves require gradients.
        """
        generator = torch.Generator().manual_seed(self.seed)
        leaves = {}

        def leaf(name: str, numbers: torch.Tensor, own: torch.dtype = dtype) -> torch.Tensor:
            # settings stay in float32 or better, like parameters under autocast
            numbers = numbers.to(own).to(compute or own).to(device)
            leaves[name] = numbers.requires_grad_(requires_grad)
            return leaves[name]

        def patterns(
            name: str, heads: int, length: int, width: int, scale: float, pairs: bool = False
        ) -> torch.Tensor:
            numbers = torch.randn(self.batch, heads, length, width, generator=generator, dtype=torch.float64) * scale
            if pairs and length > 1:
                half = length // 2
                numbers[:, :, half : 2 * half] = numbers[:, :, :half]
            if self.layout == "transposed":
                return leaf(name, numbers.transpose(1, 2).contiguous()).transpose(1, 2)
            if self.layout == "strided":
                return leaf(name, numbers.repeat_interleave(2, -1))[..., ::2]
            return leaf(name, numbers)

        setting_dtype = torch.promote_types(dtype, torch.float32)
        settings = {}
        # drawn from a wider range and clamped, so that both ends of alpha, and values close to them, occur
        for name, setting, low, high in (("alpha", self.alpha, 0.7, 2.2), ("beta", self.beta, 0.5, 1.5)):
            shape = {
                "scalar": (1, 1, 1, 1),
                "head": (1, self.heads, 1, 1),
                "row": (self.batch, self.heads, self.queries, 1),
            }.get(setting)
            if shape is None:
                settings[name] = setting
            else:
                numbers = torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low
                settings[name] = leaf(name, numbers.clamp(1, 2) if name == "alpha" else numbers, setting_dtype)
        shape = (self.batch, self.heads, self.queries, self.keys)
        query = patterns("query", self.heads, self.queries, self.head_dim, self.sharpness)
        key = patterns("key", self.kv_heads, self.keys, self.head_dim, 1.0, pairs=self.ties)
        value = patterns("value", self.kv_heads, self.keys, self.value_dim, 1.0)
        mask = bias = sinks = None
        if self.mask:
            mask = torch.rand(
                {
                    "full": shape,
                    "padding": (self.batch, 1, 1, self.keys),
                    "head": (1, self.heads, 1, self.keys),
                    "empty_rows": (self.batch, 1, self.queries, self.keys),
                }[self.mask],
                generator=generator,
            )
            mask = mask > 0.4
            if self.mask == "empty_rows":
                mask[:, :, ::2] = False
            mask = mask.to(device)
        if self.bias:
            bias = torch.randn(
                {
                    "full": shape,
                    "head": (1, self.heads, self.queries, self.keys),
                    "key": (self.batch, 1, 1, self.keys),
                    "row": (1, 1, self.queries, 1),
                    "holes": (self.batch, 1, self.queries, self.keys),
                }[self.bias],
                generator=generator,
                dtype=torch.float64,
            )
            if self.bias == "holes":
                bias = bias.masked_fill(torch.rand(bias.shape, generator=generator) > 0.6, -torch.inf)
            bias = leaf("bias", bias)
        segments = None
        if self.segments:
            rows = self.batch if self.segments == "batch" else 1
            drawn = [torch.randint(3, (rows, n), generator=generator) for n in (self.queries, self.keys)]
            segments = tuple(numbers.int().to(device) for numbers in drawn)
        if self.sinks:
            sinks = leaf("sinks", torch.randn(self.heads, generator=generator, dtype=torch.float64))
        problem = RetrievalProblem(
            query=query,
            key=key,
            value=value,
            scaling=self.head_dim**-0.5,
            steps=self.steps,
            tolerance=self.tolerance,
            mask=mask,
            bias=bias,
            is_causal=self.is_causal,
            sliding_window=self.sliding_window if self.is_causal else None,
            softcap=self.softcap,
            sinks=sinks,
            segments=segments,
            **settings,
        )
        return problem, leaves


@st.composite
def cases(draw, max_length: int = 40, max_head_dim: int = 24, alphas: tuple = (1.2, 1.5, 2.0), **fixed) -> Case:
    """
    Strategy of [`Case`]s: every option, alone and with others.

    Args:
        max_length (`int`, *optional*, defaults to 40): Bound of queries and keys; zero length is included.
        max_head_dim (`int`, *optional*, defaults to 24): Bound of the key and value dimensions, odd ones included.
        alphas (`tuple`, *optional*): Plain alphas to draw from, beside drawn ones in [1.02, 2] and tensors.
        **fixed: Fields of `Case` with a fixed value or a strategy to use instead. There are no segments without.
    """
    length = st.one_of(st.integers(1, min(5, max_length)), st.integers(0, max_length))
    width = st.one_of(st.sampled_from([1, 8, 16]), st.integers(1, max_head_dim))
    option = {
        "batch": st.integers(1, 3),
        "kv_heads": st.integers(1, 3),
        "groups": st.sampled_from([1, 1, 2, 3]),
        "queries": length,
        "keys": length,
        "head_dim": width,
        "value_dim": width,
        "alpha": st.one_of(
            st.sampled_from(alphas), st.floats(1.02, 2.0, allow_nan=False), st.sampled_from(["scalar", "head", "row"])
        ),
        "beta": st.sampled_from([1.0, 1.0, 0.3, "scalar", "head", "row"]),
        "sharpness": st.sampled_from([1e-3, 0.3, 2.0, 8.0, 50.0]),
        "steps": st.sampled_from([1, 1, 1, 2, 3]),
        "tolerance": st.sampled_from([0.0, 0.0, 0.5, 3.0]),
        "mask": st.sampled_from([None, None, "full", "padding", "head", "empty_rows"]),
        "bias": st.sampled_from([None, None, "full", "head", "key", "row", "holes"]),
        "is_causal": st.booleans(),
        "sliding_window": st.sampled_from([None, None, 1, 3, 17]),
        "softcap": st.sampled_from([None, None, None, 1.5]),
        "sinks": st.sampled_from([False, False, False, True]),
        "layout": st.sampled_from(["contiguous", "transposed", "strided"]),
        "ties": st.sampled_from([False, False, True]),
        "seed": st.integers(0, 2**20),
    }
    option |= {
        name: value if isinstance(value, st.SearchStrategy) else st.just(value) for name, value in fixed.items()
    }
    return Case(**{name: draw(strategy) for name, strategy in option.items()})


@st.composite
def retrieve_arguments(draw) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, dict]:
    """Strategy of small arguments of `retrieve` in float64: query, key, value and options."""
    kv_heads, group = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    batch, queries, keys = draw(st.integers(1, 2)), draw(st.integers(1, 6)), draw(st.integers(1, 7))
    dim, value_dim, heads = draw(st.integers(1, 5)), draw(st.integers(1, 4)), kv_heads * group
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))

    def randn(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64) * 2

    options = {
        "alpha": draw(st.sampled_from([1.0, 1.3, 1.5, 2.0])),
        "beta": draw(st.sampled_from([0.3, 1.0, 4.0])),
        "steps": draw(st.integers(1, 4)),
        "tolerance": draw(st.sampled_from([0.0, 0.3])),
    }
    if draw(st.booleans()):
        options["alpha"] = 1 + torch.rand(heads, generator=generator, dtype=torch.float64)
    if draw(st.booleans()):
        options["beta"] = 0.1 + torch.rand(heads, generator=generator, dtype=torch.float64)
    if draw(st.booleans()):
        options["bias"] = randn(1, heads, queries, keys)
    if draw(st.booleans()):
        options["mask"] = torch.rand(batch, 1, queries, keys, generator=generator) < 0.6
    options["is_causal"] = draw(st.booleans())
    return (
        randn(batch, heads, queries, dim),
        randn(batch, kv_heads, keys, dim),
        randn(batch, kv_heads, keys, value_dim),
        options,
    )


def evaluate(run: Run, problem: RetrievalProblem, leaves: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """
    The output, the gradient of every leaf for an upstream gradient that depends only on the shape, and the output
    without gradients, for which backends may take a shortcut.
    """
    output = run(problem).output
    with torch.no_grad():
        alone = run(problem).output
    numbers = torch.Generator().manual_seed(7)
    upstream = torch.randn(output.shape, generator=numbers, dtype=torch.float64).to(output.dtype).to(output.device)
    gradients = torch.autograd.grad(output, list(leaves.values()), upstream, allow_unused=True, materialize_grads=True)
    return {
        "output": output.detach(),
        "output without gradients": alone,
        **dict(zip(leaves, gradients, strict=True)),
    }


def difference(
    actual: dict[str, torch.Tensor],
    expected: dict[str, torch.Tensor],
    tolerance: float,
    peer: dict[str, torch.Tensor] | None = None,
) -> str | None:
    """
    The first quantity that disagrees, as a sentence; `None` if all agree.

    Args:
        actual, expected (`dict`): The computed and the correct tensors.
        tolerance (`float`): Allowed error, relative to the largest entry or 1.
        peer (`dict`, *optional*):
            Results of the definition in the precision of `actual`; eight times their errors are allowed.
    """
    for name, right in expected.items():
        got = actual[name]
        if got.shape != right.shape:
            return f"{name} has shape {tuple(got.shape)}, expected {tuple(right.shape)}"
        if not got.isfinite().all():
            return f"{name} is not finite"
        if right.numel():
            error = (got.double() - right).abs().max().item()
            allowed = tolerance * max(1.0, right.abs().max().item())
            if peer is not None:
                allowed = max(allowed, 8 * (peer[name].double() - right).abs().max().item())
            if error > allowed:
                return f"{name} is off by {error:.3g} (allowed {allowed:.3g})"
    return None


def check(run: Run, case: Case, dtype: torch.dtype = torch.float32, tolerance: float | None = None) -> None:
    """
    Compare output and gradients of a backend with `reference` in float64 on the same numbers.

    Where two scores tie at the edge of the support, rounding decides which gradient is right. To recognise such a
    case, the query is moved by a few roundings: if that changes the reference as much, the case proves nothing.
    """
    tolerance = tolerance or TOLERANCES[dtype]
    problem, leaves = case.problem(dtype)
    expected_problem, expected_leaves = case.problem(dtype, torch.float64)
    actual = evaluate(run, problem, leaves)
    expected = evaluate(reference.run, expected_problem, expected_leaves)
    message = difference(actual, expected, tolerance)
    if message is not None:  # rare: the problem amplifies rounding
        message = difference(actual, expected, tolerance, peer=evaluate(reference.run, *case.problem(dtype)))
    if message is None:
        return
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(expected_problem.query.shape, generator=generator, dtype=torch.float64)
        rounding = 8 * torch.finfo(torch.promote_types(dtype, torch.float32)).eps
        moved = dataclasses.replace(expected_problem, query=expected_problem.query * (1 + rounding * noise))
        assume(difference(evaluate(reference.run, moved, expected_leaves), expected, tolerance / 4) is None)
    raise AssertionError(f"{message} for {case}")
