# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Sequences packed into one row see only themselves.

Collators say in three ways which tokens belong together: by cumulative lengths (`cu_seq_lens_q`, `cu_seq_lens_k`), by a
number for each token (`seq_idx`), or by positions that start again (`position_ids`). transformers makes a mask from positions
only, and only for a causal model without a cache, so a model in evaluation mode would mix the sequences of a row.

The attention function gets all of this ([`Packing`]). Attention classes that compute softmax themselves get nothing but the
mask of their model, so [`refuse_mixing`] stands before models that do not make the right one.
"""

import ast
import functools
import inspect
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers.masking_utils import find_packed_sequence_indices

from .keywords import tree_of
from .upstream import ATTENTION_NAME


@dataclass
class Packing:
    """
    What a call says about the sequences in a row. All is optional.

    Args:
        cu_seq_lens_q, cu_seq_lens_k (`torch.Tensor` of shape `(sequences + 1,)`): Cumulative lengths.
        seq_idx (`torch.Tensor` of shape `(batch, tokens)`): The number of the sequence of each token.
        position_ids (`torch.Tensor` of shape `(batch, tokens)`): The positions of the tokens in their sequences.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.integration.packing import Packing

    >>> Packing(cu_seq_lens_q=torch.tensor([0, 2, 3])).segments(1, 3, 3)[1]
    tensor([[0, 0, 1]], dtype=torch.int32)

    ```
    """

    cu_seq_lens_q: torch.Tensor | None = None
    cu_seq_lens_k: torch.Tensor | None = None
    seq_idx: torch.Tensor | None = None
    position_ids: torch.Tensor | None = None

    def segments(self, batch: int, queries: int, keys: int) -> "Segments | None":
        """
        The number of the sequence of each query and of each key; `None` if each row is one sequence.

        Args:
            batch, queries, keys (`int`): Sizes of the scores.

        Returns:
            `tuple[torch.IntTensor, torch.IntTensor]` of shapes `(batch or 1, queries)` and `(batch or 1, keys)`, or `None`.
        """
        lengths = None if self.cu_seq_lens_q is None else self._by_lengths(batch, queries, keys)
        numbers = None if self.seq_idx is None else self._by_number(batch, queries, keys)
        found = both(lengths, numbers)
        return self._by_position(queries, keys) if found is None else found

    def _by_lengths(self, batch: int, queries: int, keys: int) -> "Segments":
        if batch > 1:
            raise ValueError(
                f"cu_seq_lens_q holds the lengths of the sequences in one row, but the batch has {batch} rows. Pass one row, "
                "as DataCollatorWithFlattening makes it."
            )
        starts_q: torch.Tensor = self.cu_seq_lens_q  # type: ignore[assignment]  # checked by the caller
        starts_k = starts_q if self.cu_seq_lens_k is None else self.cu_seq_lens_k
        return _numbers(starts_q, queries), _numbers(starts_k, keys)

    def _by_number(self, batch: int, queries: int, keys: int) -> "Segments":
        numbers: torch.Tensor = self.seq_idx  # type: ignore[assignment]  # checked by the caller
        numbers = numbers if numbers.ndim > 1 else numbers[None]
        if numbers.shape[0] not in (1, batch) or numbers.shape[1:] != (queries,) or queries != keys:
            raise ValueError(
                f"seq_idx of shape {tuple(numbers.shape)} must number the tokens of all {batch} rows, but there are {queries} "
                f"queries and {keys} keys. Packed sequences can use no cache: pass use_cache=False."
            )
        return numbers, numbers

    def _by_position(self, queries: int, keys: int) -> "Segments | None":
        positions = self.position_ids
        if positions is None or positions.ndim != 2 or queries != keys or positions.shape[1] != queries:
            return None
        numbers = _sequences_at(positions)
        return None if numbers is None else (numbers, numbers)


Segments = tuple[torch.Tensor, torch.Tensor]


def both(one: Segments | None, other: Segments | None) -> Segments | None:
    """
    Segments that say what two of them say: tokens belong together if both agree.

    Args:
        one, other (`tuple[torch.Tensor, torch.Tensor]`, *optional*): Numbers of the queries and of the keys.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield.integration.packing import both

    >>> one, other = torch.tensor([[7, 7, 7, 8]]), torch.tensor([[0, 0, 5, 5]])
    >>> both((one, one), (other, other))[0]
    tensor([[0, 0, 1, 2]], dtype=torch.int32)

    ```
    """
    if one is None or other is None:
        return other if one is None else one
    queries, keys = one[0].shape[1], one[1].shape[1]
    first, second = (_ranks(torch.cat(numbers, 1)) for numbers in (one, other))
    together = _ranks(first * (queries + keys) + second).int()
    return together[:, :queries], together[:, queries:]


def _ranks(numbers: torch.Tensor) -> torch.Tensor:
    """Small numbers that are equal where these are. Unlike `torch.unique`, this does not wait for the device."""
    ordered, order = numbers.sort(-1)
    ranks = F.pad(ordered.diff(dim=-1) != 0, (1, 0)).cumsum(-1)
    return torch.empty_like(ranks).scatter_(-1, order, ranks)


def _sequences_at(positions: torch.Tensor) -> torch.Tensor | None:
    """The number of the sequence of each token, `None` for one sequence. All layers get the same positions: ask once."""
    if torch.compiler.is_compiling() or positions.is_inference():  # the latter do not tell whether they have changed
        return _found_sequences(positions)
    known = vars(positions).get(_KNOWN)
    if known is None or known[0] != positions._version:
        known = vars(positions)[_KNOWN] = positions._version, _found_sequences(positions)
    return known[1]


_KNOWN = "sparse_hopfield_sequences"


def _found_sequences(positions: torch.Tensor) -> torch.Tensor | None:
    numbers = find_packed_sequence_indices(positions)
    return None if numbers is None else numbers.int()


def _numbers(starts: torch.Tensor, length: int) -> torch.Tensor:
    """The number of the sequence of each token, from cumulative lengths."""
    position = torch.arange(length, device=starts.device, dtype=starts.dtype)
    return torch.bucketize(position, starts[1:].contiguous(), right=True, out_int32=True)[None]


def refuse_mixing(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """
    A forward pre-hook of models with patched attention: refuse packed sequences that the model would mix.

    Args:
        model (`torch.nn.Module`): The model.
        args, kwargs: Its arguments.
    """
    starts, numbers = kwargs.get("cu_seq_lens_q"), kwargs.get("seq_idx")
    told = [] if starts is None or starts.numel() <= 2 else ["cu_seq_lens_q"]
    told += [] if numbers is None or not _differ(numbers) else ["seq_idx"]
    positions = None if kwargs.get("attention_mask") is not None else kwargs.get("position_ids")
    by_position = positions is not None and positions.ndim == 2 and _start_again(positions)
    if not told and not by_position:
        return
    use_cache = kwargs.get("use_cache")
    if use_cache is None:
        use_cache = getattr(getattr(model, "config", None), "use_cache", False)
    cached = use_cache or kwargs.get("past_key_values") is not None
    for part, name in _patched_text_models(model):
        masks_by_position = _masks_by_position(type(part))  # type: ignore[arg-type]  # classes are hashable
        if by_position and not cached and masks_by_position:
            continue
        advice = "pass use_cache=False and position_ids" if masks_by_position else "pad them instead"
        raise ValueError(
            f"{', '.join(told) or 'position_ids'} packs several sequences into a row, which {type(part).__name__} (layer "
            f"{name!r}) would mix: {advice}. If each row is one sequence, pass an attention_mask."
        )


def _differ(numbers: torch.Tensor) -> bool:
    return torch.compiler.is_compiling() or bool((numbers != numbers[..., :1]).any())


def _start_again(positions: torch.Tensor) -> bool:
    return not torch.compiler.is_compiling() and find_packed_sequence_indices(positions) is not None


def _patched_text_models(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """The innermost models around patched attention that take tokens, each with the name of an attention module."""
    from transformers import PreTrainedModel  # here: its import leads back to this module

    found: dict[nn.Module, str] = {}
    owners: dict[str, PreTrainedModel] = {}
    for name, module in model.named_modules():
        if isinstance(module, PreTrainedModel):
            owners[name] = module
        if getattr(getattr(module, ATTENTION_NAME, None), "patched_class", None) is not None:
            around = [prefix for prefix in owners if not prefix or name == prefix or name.startswith(f"{prefix}.")]
            owner = owners[max(around, key=len)]
            if owner.main_input_name == "input_ids":
                found.setdefault(owner, name)
    return list(found.items())


@functools.cache
def _masks_by_position(cls: type) -> bool:
    """Whether a model class lets transformers make its mask from the positions."""
    tree = tree_of(inspect.unwrap(cls.forward))  # type: ignore[attr-defined]  # a model class
    return tree is not None and any(
        isinstance(node, ast.Call)
        and ast.unparse(node.func).startswith("create_")
        and any(keyword.arg == "position_ids" for keyword in node.keywords)
        for node in ast.walk(tree)
    )
