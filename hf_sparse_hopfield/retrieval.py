# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`retrieve`: the entry point of one-step and multi-step attention. Checks, canonical form, choice of a backend."""

import logging
import math
import sys
from typing import Any

import torch

from .backends import KeyScreen, RetrievalProblem, RetrievalResult, select_backend
from .backends.dispatcher_bypass import can_bypass_dispatcher
from .backends.lengths import with_row_beta
from .backends.masks import canonical_mask
from .backends.places import at_places
from .backends.registry import find_backend
from .checks import check_flag, check_integer
from .functional.checks import check_alpha, check_beta, check_length_power


logger = logging.getLogger(__name__)

_LARGEST = sys.float_info.max
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)

_AXES = {
    "query": "(batch, heads, queries, head_dim)",
    "key": "(batch, kv_heads, keys, head_dim)",
    "value": "(batch, kv_heads, keys, value_dim)",
}


def _common_batch(query: int, key: int, value: int) -> int:
    """The batch of tensors that broadcast: a batch of 1 is that of every other."""
    return value if value != 1 else key if key != 1 else query


def _check_tensors(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, torch.Tensor) or not tensor.dtype.is_floating_point:
            raise TypeError(f"{name} must be a floating point tensor, got {getattr(tensor, 'dtype', type(tensor))}.")
        if tensor.ndim != 4:
            raise ValueError(f"{name} must have the four dimensions {_AXES[name]}, got shape {tuple(tensor.shape)}.")
    if not query.dtype == key.dtype == value.dtype:
        raise TypeError(f"query, key and value must share one dtype, got {query.dtype}, {key.dtype}, {value.dtype}.")
    query_batch, heads, _, head_dim = query.shape
    key_batch, kv_heads, keys, key_dim = key.shape
    value_batch, value_heads, values, _ = value.shape
    batch = _common_batch(query_batch, key_batch, value_batch)
    if key_batch not in (1, batch) or kv_heads != value_heads or keys != values:
        raise ValueError(
            f"key of shape {tuple(key.shape)} and value of shape {tuple(value.shape)} must agree in batch (or have "
            "a batch of 1), heads and keys."
        )
    if query_batch not in (1, batch) or head_dim != key_dim:
        raise ValueError(
            f"query of shape {tuple(query.shape)} and key of shape {tuple(key.shape)} must agree in batch (or have "
            "a batch of 1) and head_dim."
        )
    if kv_heads == 0 or heads % kv_heads:
        raise ValueError(f"query has {heads} heads, which is not a multiple of the {kv_heads} heads of key and value.")


def _broadcast_batch(problem: RetrievalProblem) -> None:
    """Expand a batch of 1, as SDPA does. Nothing is copied."""
    batch = _common_batch(problem.query.shape[0], problem.key.shape[0], problem.value.shape[0])
    for name in ("query", "key", "value"):
        setattr(problem, name, getattr(problem, name).expand(batch, -1, -1, -1))


def _canonical_setting(name: str, setting: float | torch.Tensor, query: torch.Tensor) -> float | torch.Tensor:
    """A float, or a tensor broadcastable to `(batch, heads, queries, 1)`; one dimension means one value per head."""
    if not isinstance(setting, torch.Tensor):
        return float(setting)
    batch, heads, queries, _ = query.shape
    shape = setting.shape
    if len(shape) <= 1:
        setting = setting.reshape(1, -1, 1, 1)
    if setting.ndim != 4 or any(
        s not in (1, n) for s, n in zip(setting.shape, (batch, heads, queries, 1), strict=True)
    ):
        raise ValueError(
            f"{name} of shape {tuple(shape)} must be a scalar, hold one value per head ({heads},), or broadcast to "
            f"(batch, heads, queries, 1) = {(batch, heads, queries, 1)}."
        )
    return setting if setting.device == query.device else setting.to(query.device)


def _check_number(name: str, value: float, least: float, most: float, meaning: str) -> None:
    """Check for a number in `[least, most]`, by comparisons alone, so that torch.compile may make it symbolic."""
    if type(value) is not float and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise TypeError(f"{name} must be {meaning}, got {value!r}.")
    if not least <= value <= most:
        raise ValueError(f"{name} must be {meaning}, got {value!r}.")


def _options_are_plain(problem: RetrievalProblem) -> bool:
    """Whether the options are as most calls have them, of the right types and within their limits: one look at all."""
    return (
        type(problem.steps) is int
        and problem.steps > 0
        and type(problem.scaling) is type(problem.tolerance) is type(problem.dropout) is float
        and -_LARGEST <= problem.scaling <= _LARGEST
        and 0.0 <= problem.tolerance <= _LARGEST
        and 0.0 <= problem.dropout <= 1.0
        and type(problem.is_causal) is bool
        and problem.softcap is problem.sliding_window is problem.sinks is None
        and not problem.return_trace
    )


def _check_options(problem: RetrievalProblem) -> None:
    check_integer("steps", problem.steps)
    _check_number("tolerance", problem.tolerance, 0, _LARGEST, "a finite number of at least 0 (0: no row stops early)")
    _check_number("dropout", problem.dropout, 0, 1, "a probability in [0, 1]")
    check_flag("is_causal", problem.is_causal)
    _check_number("scaling", problem.scaling, -_LARGEST, _LARGEST, "a finite float (tensors go into beta)")
    if problem.softcap is not None:
        _check_number("softcap", problem.softcap, sys.float_info.min, _LARGEST, "a positive finite float or None")
    if problem.return_trace and (problem.softcap is not None or problem.scaling <= 0):
        raise ValueError(
            "return_trace needs scaling > 0 and no softcap: otherwise retrieval does not descend an energy."
        )
    window = problem.sliding_window
    check_integer("sliding_window", window, optional=True)
    if window is not None and not problem.is_causal:
        raise ValueError(
            f"sliding_window={window} needs is_causal=True; express a two-sided window as a boolean mask."
        )
    heads = problem.query.shape[1]
    if problem.sinks is not None:
        if not isinstance(problem.sinks, torch.Tensor) or not problem.sinks.is_floating_point():
            given = getattr(problem.sinks, "dtype", type(problem.sinks).__name__)
            raise TypeError(f"sinks must be a floating point tensor of shape ({heads},), got {given}.")
        if problem.sinks.shape != (heads,):
            raise ValueError(
                f"sinks must hold one logit per head, shape ({heads},), got {tuple(problem.sinks.shape)}."
            )


def _check_places(problem: RetrievalProblem) -> None:
    places, rows, batch = problem.places, problem.key.shape[2], problem.query.shape[0]
    if not isinstance(places, torch.Tensor) or places.dtype != torch.long or places.ndim != 2:
        given = (places.dtype, tuple(places.shape)) if isinstance(places, torch.Tensor) else type(places).__name__
        raise TypeError(f"places must be a torch.long tensor of shape (batch or 1, keys), got {given}.")
    if places.shape[0] not in (1, batch) or places.device != problem.key.device:
        raise ValueError(
            f"places of shape {tuple(places.shape)} on {places.device} must have a batch of 1 or {batch}, and be on "
            f"{problem.key.device} as key is."
        )
    if places.device.type == "cpu" and places.numel() and not 0 <= int(places.min()) <= int(places.max()) < rows:
        raise ValueError(
            f"places must be rows of key, from 0 to {rows - 1}, got {int(places.min())} to {int(places.max())}."
        )
    problem.places = places if places.stride(1) == 1 else places.contiguous()


def _check_screen(problem: RetrievalProblem) -> None:
    screen, key = problem.screen, problem.key
    if not isinstance(screen, KeyScreen):
        raise TypeError(f"screen must be a KeyScreen or a bool, got {type(screen).__name__}.")
    if problem.places is not None:
        raise ValueError("screen and places do not go together: bring the keys together first.")
    if not screen.fits(key):
        raise ValueError(
            f"screen of keys of shape {tuple(screen.shape)} on {screen.device} does not fit key of shape "
            f"{tuple(key.shape)} on {key.device}."
        )


def _check_segments(problem: RetrievalProblem) -> None:
    segments, query = problem.segments, problem.query
    keys = problem.key.shape[2] if problem.places is None else problem.places.shape[1]
    if not isinstance(segments, (tuple, list)) or len(segments) != 2:
        given = f"{len(segments)} of them" if isinstance(segments, (tuple, list)) else type(segments).__name__
        raise TypeError(f"segments must be two tensors, the numbers of the queries and of the keys, got {given}.")
    found = []
    for name, numbers, length in zip(("queries", "keys"), segments, (query.shape[2], keys), strict=True):
        if not isinstance(numbers, torch.Tensor) or numbers.dtype not in _INTEGERS:
            given = getattr(numbers, "dtype", type(numbers).__name__)
            raise TypeError(f"segments of {name} must be a tensor of integers, got {given}.")
        if numbers.ndim != 2 or numbers.shape[0] not in (1, query.shape[0]) or numbers.shape[1] != length:
            raise ValueError(
                f"segments of {name} must have the shape ({query.shape[0]} or 1, {length}), one number for each of the {name}, "
                f"got {tuple(numbers.shape)}."
            )
        if numbers.device != query.device:
            raise ValueError(f"segments of {name} are on {numbers.device}, but query is on {query.device}.")
        found.append(_as_int32(name, numbers).contiguous())
    problem.segments = (found[0], found[1])


def _as_int32(name: str, numbers: torch.Tensor) -> torch.Tensor:
    narrow = numbers.to(torch.int32)
    # on a GPU the look would wait for all work before it, and a tracer has no numbers
    looks = numbers.dtype == torch.int64 and numbers.device.type == "cpu" and can_bypass_dispatcher(numbers)
    if looks and not torch.equal(narrow.long(), numbers):
        raise ValueError(
            f"segments of {name} must fit 32 bits, got numbers from {int(numbers.min())} to {int(numbers.max())}."
        )
    return narrow


def _bring_together(problem: RetrievalProblem) -> None:
    assert problem.places is not None
    for name in ("key", "value"):
        together = at_places(getattr(problem, name), problem.places)
        setattr(problem, name, together.expand(problem.query.shape[0], -1, -1, -1))
    problem.places = None


def canonical(problem: RetrievalProblem) -> RetrievalProblem:
    """
    Check a problem and bring it, in place, to the form that backends take.

    Args:
        problem ([`RetrievalProblem`]): The arguments of [`retrieve`] as the user gave them.

    Returns:
        [`RetrievalProblem`]: The same object, whose `length_power` is in `beta`.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.backends import RetrievalProblem
    >>> from hf_sparse_hopfield.retrieval import canonical

    >>> problem = canonical(RetrievalProblem(*torch.randn(3, 1, 2, 5, 4), alpha=torch.tensor([1.5, 2.0])))
    >>> problem.scaling, problem.alpha.shape
    (0.5, torch.Size([1, 2, 1, 1]))
    ```
    """
    query, key, value = problem.query, problem.key, problem.value
    _check_tensors(query, key, value)
    if not query.shape[0] == key.shape[0] == value.shape[0]:
        _broadcast_batch(problem)
        query, key = problem.query, problem.key
    if problem.places is not None:
        _check_places(problem)
    if type(problem.screen) is not bool:
        _check_screen(problem)
    if problem.segments is not None:
        _check_segments(problem)
    alpha, beta = problem.alpha, problem.beta
    if type(alpha) is not float or not 1.0 <= alpha <= 2.0:
        check_alpha(alpha)
        problem.alpha = _canonical_setting("alpha", alpha, query)
    if type(beta) is not float or not 0.0 < beta < _LARGEST:
        check_beta(beta)
        problem.beta = _canonical_setting("beta", beta, query)
    if problem.scaling is None:
        problem.scaling = 1 / math.sqrt(query.shape[3]) if query.shape[3] else 1.0
    if not _options_are_plain(problem):
        _check_options(problem)
        problem.scaling, problem.tolerance, problem.dropout = (
            float(problem.scaling),
            float(problem.tolerance),
            float(problem.dropout),
        )
    if problem.mask is not None or problem.bias is not None:
        shape = (*query.shape[:3], key.shape[2] if problem.places is None else problem.places.shape[1])
        problem.mask, problem.bias = canonical_mask(problem.mask, problem.bias, shape)
    power = problem.length_power
    if type(power) is not float or power != 0.0:
        check_length_power(power)
        problem.length_power = _canonical_setting("length_power", power, query)
        problem.beta, problem.length_power = with_row_beta(problem).beta, 0.0
    return problem


def retrieve(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    scaling: float | None = None,
    beta: float | torch.Tensor = 1.0,
    alpha: float | torch.Tensor = 2.0,
    steps: int = 1,
    tolerance: float = 0.0,
    mask: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    is_causal: bool = False,
    sliding_window: int | None = None,
    softcap: float | None = None,
    sinks: torch.Tensor | None = None,
    dropout: float = 0.0,
    return_weights: bool = False,
    return_trace: bool = False,
    places: torch.Tensor | None = None,
    screen: KeyScreen | bool = True,
    segments: tuple[torch.Tensor, torch.Tensor] | None = None,
    length_power: float | torch.Tensor = 0.0,
    backend: str = "auto",
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor] | RetrievalResult:
    """
    Sparse Hopfield retrieval: attention with alpha-entmax instead of softmax, in one or several steps.

        state_0 = query
        state_u = entmax(beta * scaling * state_{u-1} key^T + bias) key        u = 1 ... steps - 1
        output  = entmax(beta * scaling * state_{steps-1} key^T + bias) value

    Args:
        query (`torch.Tensor` of shape `(batch, heads, queries, head_dim)`): The states.
        key (`torch.Tensor` of shape `(batch, kv_heads, keys, head_dim)`):
            The stored patterns. `heads` is a multiple of `kv_heads` (grouped-query attention); do not repeat the keys.
            A batch of 1, here or in `query` or `value`, broadcasts.
        value (`torch.Tensor` of shape `(batch, kv_heads, keys, value_dim)`): The patterns to read out.
        scaling (`float`, *optional*, defaults to `1 / sqrt(head_dim)`): The model's own factor on the scores.
        beta (`float` or `torch.Tensor`, *optional*, defaults to 1.0):
            Positive multiplier on `scaling`. A tensor has one value per head, `(heads,)`, or broadcasts to
            `(batch, heads, queries, 1)`.
        alpha (`float` or `torch.Tensor`, *optional*, defaults to 2.0):
            Member of the entmax family, in [1, 2]: 1 is softmax, 1.5 entmax15, 2 sparsemax. Tensors as for `beta`.
        steps (`int`, *optional*, defaults to 1): Number of evaluations of the normalizer, including the read-out.
        tolerance (`float`, *optional*, defaults to 0.0):
            A row whose state moved by less than this (Euclidean norm) is no longer updated. Each row stops
            independently of the others.
        mask (`torch.Tensor` broadcastable to `(batch, heads, queries, keys)`, *optional*):
            Boolean (`True` = may attend), or floats that are added to the scores; -9000 or less masks.
        bias (`torch.Tensor` broadcastable to `(batch, heads, queries, keys)`, *optional*): Added to the scaled scores.
        is_causal (`bool`, *optional*, defaults to `False`):
            Query `i` sees key `j` only if `j <= i + keys - queries`: aligned bottom right, as needed with a cache.
        sliding_window (`int`, *optional*): With `is_causal`, a query sees only its last `sliding_window` keys.
        softcap (`float`, *optional*):
            Scores become `softcap * tanh(score / softcap)` before `beta` and `bias`.
        sinks (`torch.Tensor` of shape `(heads,)`, *optional*):
            Logits of one extra column that takes weight and whose key and value are zero.
        dropout (`float`, *optional*, defaults to 0.0): Probability of dropping a weight of the read-out.
        return_weights (`bool`, *optional*, defaults to `False`): Also return the weights of the read-out.
        return_trace (`bool`, *optional*, defaults to `False`):
            Return a [`RetrievalResult`] with output, weights, steps used by each row, states and energies.
        places (`torch.LongTensor` of shape `(batch or 1, keys)`, *optional*):
            Rows of `key` and `value` to retrieve from, in this order, if they hold more, as a paged cache does. The compiled
            core reads single queries' keys where they are; other backends bring them together first.
        screen ([`KeyScreen`] or `bool`, *optional*, defaults to `True`):
            The int8 copy of `key`, made before. The compiled core then scores only keys that may have weight; the result is
            the same. `True`: it makes a copy for the call if that pays, which it does for many queries. `False`: it does not.
        segments (`tuple[torch.Tensor, torch.Tensor]` of shapes `(batch or 1, queries)` and `(batch or 1, keys)`, *optional*):
            Integers: a query sees only keys with its own number, as sequences do that are packed into one row. They must fit 32
            bits. Backends that do not read them make a mask of them.
        length_power (`float` or `torch.Tensor`, *optional*, defaults to 0.0):
            beta depends on the number of keys that a query sees: it is `beta * (keys / 256) ** length_power`. Below zero, longer
            rows have a smaller beta. Tensors as for `beta`.
        backend (`str`, *optional*, defaults to `"auto"`): `"auto"`, or the name of a backend.

    Returns:
        `torch.Tensor` of shape `(batch, heads, queries, value_dim)`; with `return_weights=True`, a tuple of it and the
        weights `(batch, heads, queries, keys)`; with `return_trace=True`, a [`RetrievalResult`]. The output of a query
        with nothing to attend to is zero.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield import retrieve

    >>> query, key, value = torch.randn(3, 2, 4, 10, 16).unbind()
    >>> retrieve(query, key, value, is_causal=True).shape
    torch.Size([2, 4, 10, 16])
    >>> output, weights = retrieve(query, key, value, alpha=1.5, steps=2, return_weights=True)
    >>> torch.allclose(weights.sum(-1), torch.ones(2, 4, 10))
    True
    ```
    """
    problem = RetrievalProblem(
        query,
        key,
        value,
        scaling,  # type: ignore[arg-type]  # `canonical` fills in the default
        beta,
        alpha,
        steps,
        tolerance,
        mask,
        bias,
        is_causal,
        sliding_window,
        softcap,
        sinks,
        dropout,
        return_weights,
        return_trace,
        places,
        screen,
        segments,
        length_power,
    )
    canonical(problem)
    chosen = find_backend(problem, backend)
    if not torch.compiler.is_compiling() and logger.isEnabledFor(logging.DEBUG):
        logger.debug("retrieve uses backend %s: %s", *_explained(problem, backend))
    if places is not None and not chosen.reads_places:
        _bring_together(problem)
    result = chosen.run(problem)
    if return_trace:
        return result
    if return_weights:
        return result.output, result.weights  # type: ignore[return-value]  # a backend without them would have refused
    return result.output


def explain_backend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options: Any) -> str:
    """
    Say which backend [`retrieve`] uses for these arguments, and why.

    Args:
        query, key, value, **options: As for [`retrieve`].

    Returns:
        `str`: One line that begins with the name of the backend.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.functional import explain_backend

    >>> explain_backend(*torch.randn(3, 1, 2, 8, 16), backend="reference")
    'reference: asked for by name'
    ```
    """
    name = options.pop("backend", "auto")
    return ": ".join(_explained(canonical(RetrievalProblem(query, key, value, **options)), name))


def _explained(problem: RetrievalProblem, backend: str) -> tuple[str, str]:
    chosen, reason = select_backend(problem, backend)
    return chosen.name, reason
