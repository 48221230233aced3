# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""[`HopfieldMemory`]: an associative memory that needs no training."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...checks import check_flag, check_integer, check_number
from ...functional.checks import check_alpha, check_beta
from ...functional.energy import energy
from ...retrieval import retrieve
from ...retrieval_parameters import per_head_values
from ..association import check_backend
from .dataset_columns import column_batches
from .folder import is_folder, load_segments, read_manifest, save_folder
from .matches import Candidates, MemoryMatches, MemoryTrace, candidates_at, fitting_queries, match
from .segments import Segment, merged
from .single_file import SETTINGS, parsed_settings, read_file, save_file
from .vectors import checked_patterns, checked_queries, checked_rows, chosen_places, more_patterns, to_unit_length


if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset


_STORED_AS_IT_IS = 16  # up to this many queries, the compiled core reads half precision without a copy


class HopfieldMemory(nn.Module):
    """
    An associative memory: it stores patterns, millions of them, and completes queries to stored patterns.

    One step of retrieval from the patterns Xi (one per row) is

        T(x) = entmax(beta * x Xiᵀ) Xi

    where entmax is sparsemax for `alpha=2` and softmax for `alpha=1`. For `alpha > 1`, and `beta` large enough for the
    separation of the patterns, the retrieved pattern equals the stored one exactly, not only approximately.

    For `alpha > 1` on the CPU, the memory keeps an int8 copy of the patterns ([`KeyScreen`]). A query reads the copy and then
    only the patterns that may have weight; the result is exact. A memory that is saved to a folder, or loaded from one, maps
    its patterns from disk.

    Nothing is learned. The memory moves with `.to(device)`. The state dict of a model that holds a memory includes its
    patterns, their rows, alpha, beta and `normalize`. (Older state dicts have fewer of them; loading one keeps the others.)

    Args:
        patterns (`torch.Tensor` of shape `(M, d)`): Patterns to store; M may be 0 for a memory to be filled later.
        alpha (`float`, *optional*, defaults to 2.0): Member of the entmax family, in [1, 2].
        beta (`float`, *optional*, defaults to 1.0): Inverse temperature, positive. There is no other scaling.
        normalize (`bool`, *optional*, defaults to `False`):
            Scale stored patterns and queries to length 1, so that scores are cosines.
        backend (`str`, *optional*, defaults to `"auto"`): Backend of [`retrieve`].
        rows (`torch.LongTensor` of shape `(M,)`, *optional*, defaults to 0, 1, ...):
            A number that names each pattern, such as its row in a table. It stays when other patterns are removed.
        screen (`bool`, *optional*, defaults to `True`):
            Keep the int8 copy, which takes a quarter of the memory of float32 patterns, half of that of bfloat16 ones.

    Example:

    ```python
    >>> import torch
    >>> from hf_sparse_hopfield import HopfieldMemory
    >>> patterns = torch.randn(20, 64, generator=torch.Generator().manual_seed(0)).sign()
    >>> memory = HopfieldMemory(patterns, beta=0.5)
    >>> damaged = patterns[:3].clone()
    >>> damaged[:, 32:] = 0.0
    >>> torch.equal(memory.retrieve(damaged), patterns[:3])
    True
    >>> found = memory.search(damaged)
    >>> found.rows.tolist(), found.weights.tolist()
    ([[0], [1], [2]], [[1.0], [1.0], [1.0]])
    >>> trace = memory.retrieve(damaged, steps=3, return_trace=True)
    >>> trace.states.shape, trace.energies.shape
    (torch.Size([4, 3, 64]), torch.Size([4, 3]))
    >>> memory.add(-patterns[:2])
    range(20, 22)
    >>> memory.remove(0)
    >>> len(memory), memory.rows[0].item()
    (21, 1)

    ```

    Saving and loading. A name that ends in `.safetensors` is one file; any other is a folder, into which a save writes only
    what is new:

    ```python
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "memory")
    ...     memory.save(path)
    ...     again = HopfieldMemory.load(path)
    ...     _ = again.add(patterns[:1])
    ...     again.save(path)
    ...     len(HopfieldMemory.load(path))
    22

    ```
    """

    _version = (
        3  # of its part of a state dict, which includes the settings since version 2, and the rows since version 3
    )

    def __init__(
        self,
        patterns: Tensor,
        alpha: float = 2.0,
        beta: float = 1.0,
        normalize: bool = False,
        backend: str = "auto",
        rows: Tensor | None = None,
        screen: bool = True,
    ) -> None:
        super().__init__()
        check_flag("normalize", normalize)
        check_flag("screen", screen)
        self.normalize, self.screens = normalize, screen
        patterns = self._stored(checked_patterns(patterns))
        self._take(patterns, None if rows is None else checked_rows(rows, len(patterns)))
        self.alpha = _one_number("alpha", alpha)
        self.beta = _one_number("beta", beta)
        check_alpha(self.alpha)
        check_beta(self.beta)
        check_backend(backend)
        self.backend = backend
        # the folder that the memory was saved to or loaded from, and what it held then
        self._folder: tuple[str, str] | None = None

    def _take(self, patterns: Tensor, rows: Tensor | None) -> None:
        """Hold these patterns and no others."""
        self.dimension, self._next_row = patterns.shape[1], 0
        self._segments = [Segment(patterns, self._named(patterns, rows))]

    def _named(self, patterns: Tensor, rows: Tensor | None) -> Tensor:
        """The names of new patterns, beside them. Default names are made there: a copy or a look would wait for a GPU."""
        first = self._next_row
        if rows is None:
            self._next_row += len(patterns)
            return torch.arange(first, self._next_row, device=patterns.device)
        if len(rows):
            self._next_row = max(first, int(rows.max()) + 1)
        return rows.to(patterns.device)

    def _stored(self, patterns: Tensor) -> Tensor:
        return to_unit_length(patterns) if self.normalize else patterns.clone()

    def __len__(self) -> int:
        return sum(len(segment) for segment in self._segments)

    @property
    def patterns(self) -> Tensor:
        """All patterns, `(M, d)`. A copy if they come from several files, or if some are removed."""
        parts = [segment.remaining()[0] for segment in self._segments]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @property
    def rows(self) -> Tensor:
        """The names of the patterns, `(M,)`."""
        parts = [segment.remaining()[1] for segment in self._segments]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the patterns."""
        return self._segments[0].patterns.dtype

    @property
    def _on_cpu(self) -> bool:
        return self._segments[0].patterns.device.type == "cpu"

    @property
    def screen_nbytes(self) -> int:
        """Memory of the int8 copy in bytes; 0 before the first query."""
        return sum(segment.screen_nbytes for segment in self._segments)

    @classmethod
    def from_dataset(
        cls,
        dataset: "Dataset | IterableDataset",
        column: str,
        *,
        batch_size: int = 4096,
        dtype: torch.dtype = torch.float32,
        **settings: Any,
    ) -> "HopfieldMemory":
        """
        Store a column of a dataset, such as embeddings of its texts. [`~HopfieldMemory.search`] then names rows of the dataset.

        Args:
            dataset ([`~datasets.Dataset`] or [`~datasets.IterableDataset`]): The dataset.
            column (`str`): Its column of vectors, all of the same width.
            batch_size (`int`, *optional*, defaults to 4096): Rows to read at a time.
            dtype (`torch.dtype`, *optional*, defaults to `torch.float32`): Dtype of the patterns.
            **settings: As for [`HopfieldMemory`].

        Returns:
            `HopfieldMemory`: The memory; `rows` are those of the dataset.

        Example:

        ```python
        >>> import torch
        >>> from datasets import Dataset
        >>> from hf_sparse_hopfield import HopfieldMemory

        >>> dataset = Dataset.from_dict({"title": ["north", "east"], "embedding": [[0.0, 1.0], [1.0, 0.0]]})
        >>> memory = HopfieldMemory.from_dataset(dataset, "embedding", beta=4.0)
        >>> row = memory.search(torch.tensor([0.9, 0.2])).rows[0].item()
        >>> dataset[row]["title"]
        'east'

        ```
        """
        memory: HopfieldMemory | None = None
        for vectors in column_batches(dataset, column, batch_size, dtype):
            if memory is None:
                memory = cls(vectors, **settings)
            else:
                memory.add(vectors)
        if memory is None:
            raise ValueError(
                "dataset has no rows, so the width of its vectors is unknown. Use HopfieldMemory(patterns)."
            )
        return memory

    def add(self, patterns: Tensor, rows: Tensor | None = None) -> range:
        """
        Store more patterns.

        Args:
            patterns (`torch.Tensor` of shape `(n, d)` or `(d,)`): Patterns to store, in any floating point dtype.
            rows (`torch.LongTensor` of shape `(n,)`, *optional*):
                Their names. By default they continue after the largest one that was ever used.

        Returns:
            `range`: The indices of the new patterns. Removing patterns shifts the indices of later ones, but not their names.
        """
        last = self._segments[-1]
        patterns = self._stored(more_patterns(patterns, self.dimension, last.patterns))
        names = self._named(patterns, None if rows is None else checked_rows(rows, len(patterns)))
        first = len(self)
        if last.file is None or not self._on_cpu:  # the kernels of a GPU read one tensor
            last.extend(patterns, names)
        else:
            self._segments.append(Segment(patterns, names))
        return range(first, first + len(patterns))

    def remove(
        self, indices: int | Sequence[int] | Tensor | None = None, *, rows: Tensor | Sequence[int] | None = None
    ) -> None:
        """
        Forget patterns.

        Args:
            indices (`int`, sequence of `int`, or `torch.Tensor`, *optional*):
                The patterns to forget; negative indices count from the end. A boolean tensor of shape `(M,)` marks them.
            rows (`torch.Tensor` or sequence of `int`, *optional*): Or their names. Each has to be there.
        """
        if (indices is None) == (rows is None):
            raise TypeError("remove needs either indices or rows.")
        if rows is not None:
            indices = self._indices_of(torch.as_tensor(rows, dtype=torch.long).flatten())
        places = chosen_places(indices, len(self))  # type: ignore[arg-type]  # one of the two is given
        first = 0
        for segment in self._segments:
            last = first + len(segment)
            inside = places[(places >= first) & (places < last)] - first
            if len(inside):
                segment.remove(inside)
            first = last
        self._segments = [segment for segment in self._segments if len(segment)] or self._segments[:1]

    def _indices_of(self, rows: Tensor) -> Tensor:
        names = self.rows.cpu()
        lost = rows[~torch.isin(rows, names)]
        if len(lost):
            raise IndexError(f"rows contains {int(lost[0])}, which the memory does not hold.")
        return torch.isin(names, rows)

    def _checked_queries(self, queries: Tensor) -> Tensor:
        queries = checked_queries(queries, self.dimension, self.dtype, len(self))
        return to_unit_length(queries) if self.normalize else queries

    def share(self, index: int, count: int) -> "HopfieldMemory":
        """
        One of several memories of equal size that hold the patterns of this one between them, without a copy.

        Args:
            index, count (`int`): Which of them, and how many there are.
        """
        check_integer("count", count)
        if not 0 <= index < count:
            raise ValueError(f"index must be between 0 and {count - 1}, got {index}.")
        sizes = [len(segment.rows) for segment in self._segments]
        begin, end = sum(sizes) * index // count, sum(sizes) * (index + 1) // count
        share = HopfieldMemory(
            torch.empty(0, self.dimension, dtype=self.dtype, device=self._segments[0].patterns.device),
            self.alpha,
            self.beta,
            self.normalize,
            self.backend,
            screen=self.screens,
        )
        first, parts = 0, []
        for segment, size in zip(self._segments, sizes, strict=True):
            if first < end and begin < first + size:
                parts.append(segment.part(max(0, begin - first), min(size, end - first)))
            first += size
        share._segments, share._next_row = parts or share._segments, self._next_row
        return share

    def retrieve(
        self, queries: Tensor, steps: int = 1, tolerance: float = 0.0, return_trace: bool = False
    ) -> Tensor | MemoryTrace:
        """
        Complete queries to stored patterns.

        Args:
            queries (`torch.Tensor` of shape `(..., d)`): The initial states, in the dtype of the patterns.
            steps (`int`, *optional*, defaults to 1): Number of times to apply T.
            tolerance (`float`, *optional*, defaults to 0.0):
                A query whose state moves by less than this (Euclidean norm) takes only the last step after that. Each
                query stops on its own, so its result does not depend on the others.
            return_trace (`bool`, *optional*, defaults to `False`):
                Return a [`MemoryTrace`], with a weight for every pattern. For many patterns, use [`~HopfieldMemory.search`].

        Returns:
            `torch.Tensor` of shape `(..., d)`, or [`MemoryTrace`].
        """
        queries = self._checked_queries(queries)
        flat = queries.reshape(-1, self.dimension)
        if return_trace:
            return self._trace(queries, steps, tolerance)
        if self._reads_at_once(len(flat)):
            output: Any = self._retrieve(flat, self._segments, steps=steps, tolerance=tolerance)
        else:
            output = self._match(flat, steps, tolerance).output
        return output.reshape(queries.shape)

    def search(self, queries: Tensor, steps: int = 1, tolerance: float = 0.0) -> MemoryMatches:
        """
        Find the patterns that have weight for queries.

        Args:
            queries (`torch.Tensor` of shape `(..., d)`): The initial states, in the dtype of the patterns.
            steps, tolerance: As for [`~HopfieldMemory.retrieve`].

        Returns:
            [`MemoryMatches`]: Their names, weights, the retrieved patterns and energies.
        """
        queries = self._checked_queries(queries)
        if self.alpha == 1.0:
            raise ValueError(
                "alpha=1.0 gives every pattern weight, so there is nothing to search for: use `retrieve`, or alpha > 1."
            )
        if not torch.isfinite(queries).all():
            raise ValueError("queries must be finite: NaN or infinity is similar to nothing.")
        leading = queries.shape[:-1]
        found = self._match(queries.reshape(-1, self.dimension), steps, tolerance)
        return MemoryMatches(
            found.rows.reshape(*leading, found.rows.shape[-1]),
            found.weights.reshape(*leading, found.weights.shape[-1]),
            found.output.reshape(queries.shape),
            found.energies.reshape(steps, *leading),
        )

    def forward(self, queries: Tensor, steps: int = 1, tolerance: float = 0.0) -> Tensor:
        """The same as [`~HopfieldMemory.retrieve`], so that a memory can be used as a layer."""
        return self.retrieve(queries, steps, tolerance)  # type: ignore[return-value] # no trace: a tensor

    def _reads_at_once(self, queries: int) -> bool:
        """Whether one call of `retrieve` does: all patterns are in one tensor, which it reads without a copy."""
        if self.alpha == 1.0:
            return True
        precise = self.dtype in (torch.float32, torch.float64) or queries <= _STORED_AS_IT_IS
        return len(self._segments) == 1 and (precise or not self._on_cpu or torch.compiler.is_compiling())

    def _retrieve(self, queries: Tensor, segments: list[Segment], **options: Any) -> Any:
        """What [`retrieve`] gives for queries `(n, d)`, without the dimensions of batch and heads."""
        only = segments[0] if len(segments) == 1 else None
        patterns = (self.patterns if only is None else only.patterns)[None, None]
        alive = None if only is None else only.alive
        options["screen"] = self.screens
        if only is not None and self.screens and self.alpha > 1.0:
            options["screen"] = only.screen or True
        result = retrieve(
            queries[None, None],
            patterns,
            patterns,
            scaling=1.0,
            beta=self.beta,
            alpha=self.alpha,
            mask=None if alive is None else alive[None, None, None],
            backend=self.backend,
            **options,
        )
        return result[0, 0] if isinstance(result, Tensor) else result

    def _match(self, queries: Tensor, steps: int, tolerance: float) -> MemoryMatches:
        check_integer("steps", steps)
        check_number("tolerance", tolerance)
        return match(self, queries, self.alpha, self.beta, steps, tolerance)

    # What `match` asks for: see `Finder`.

    def places(self, states: Tensor) -> list[Tensor]:
        """The places, in each segment, of the patterns that may have weight for states `(n, d)`, then -1."""
        return [segment.supports(states.detach(), self.alpha, self.beta, self.screens) for segment in self._segments]

    def at_once(self, places: list[Tensor]) -> int:
        """How many states with so many candidates to take at a time."""
        return fitting_queries(sum(place.shape[1] for place in places), self.dimension)

    def gather(self, states: Tensor, places: list[Tensor]) -> Candidates:
        """The patterns at these places."""
        return candidates_at(self._segments, places)

    def _trace(self, queries: Tensor, steps: int, tolerance: float) -> MemoryTrace:
        leading = queries.shape[:-1]
        whole = [Segment(self.patterns, self.rows)]
        flat = queries.reshape(-1, self.dimension)
        result = self._retrieve(flat, whole, steps=steps, tolerance=tolerance, return_trace=True)
        output = result.output.reshape(queries.shape)
        states = result.states.reshape(steps, *queries.shape)
        energies = result.energies.reshape(steps, *leading)
        return MemoryTrace(
            output=output,
            weights=result.weights.reshape(*leading, len(self)),
            steps_used=result.steps_used.reshape(leading),
            states=torch.cat([states, output[None].to(states)]),
            energies=torch.cat([energies, self._energy(output)[None].to(energies)]),
        )

    def energy(self, queries: Tensor) -> Tensor:
        """
        The energy H(x) = −(1/beta) Psi*(beta Xiᵀx) + 1/2 ‖x‖², which retrieval never raises.

        Args:
            queries (`torch.Tensor` of shape `(..., d)`): States, in the dtype of the patterns.

        Returns:
            `torch.Tensor` of shape `(...)`, in float32 or better.
        """
        return self._energy(self._checked_queries(queries))

    def _energy(self, states: Tensor) -> Tensor:
        if self.alpha > 1.0:
            flat = states.reshape(-1, self.dimension)
            return self._match(flat, 1, 0.0).energies[0].reshape(states.shape[:-1])
        dtype = torch.promote_types(self.dtype, torch.float32)
        return energy(states.to(dtype), self.patterns.to(dtype), beta=self.beta, alpha=self.alpha)

    def save(self, path: str | os.PathLike) -> None:
        """
        Write the memory to a folder, or to one file if the name ends in `.safetensors`.

        Into a folder that the memory was loaded from or saved to before, only what is new is written; then the patterns are mapped
        from disk. Whenever a save is interrupted, the memory of the last complete one is there.

        Args:
            path (`str` or `os.PathLike`): The folder or file. A file is replaced if it exists; a folder must not hold anything else.
        """
        settings = {name: getattr(self, name) for name in SETTINGS}
        if not is_folder(path):
            save_file(path, settings, self.patterns, self.rows)
            return
        folder = os.path.realpath(path)
        state = self._folder[1] if self._folder is not None and self._folder[0] == folder else None
        segments = merged(self._segments)
        described = {"dimension": self.dimension, "dtype": str(self.dtype), "next_row": self._next_row}
        state = save_folder(folder, {**settings, **described}, segments, state)
        self._segments, self._folder = segments, (folder, state)

    @classmethod
    def load(
        cls, path: str | os.PathLike, device: str | torch.device = "cpu", backend: str = "auto", screen: bool = True
    ) -> "HopfieldMemory":
        """
        Read a memory written by [`~HopfieldMemory.save`]. That of a folder is mapped from disk: patterns are read when a query
        needs them.

        Args:
            path (`str` or `os.PathLike`): The folder or file.
            device (`str` or `torch.device`, *optional*, defaults to `"cpu"`): Where to put the patterns.
            backend, screen: As in [`HopfieldMemory`].

        Returns:
            `HopfieldMemory`: The memory.
        """
        if os.path.isdir(path):
            return cls._load_folder(Path(os.path.realpath(path)), backend, screen).to(device)
        tensors, settings = read_file(path)
        try:
            # With `normalize`, saved patterns already have length 1; scaling them again would change the last bits.
            memory = cls(
                tensors["patterns"], settings["alpha"], settings["beta"], False, backend, tensors.get("rows"), screen
            )
        except (TypeError, ValueError) as error:
            raise ValueError(f"path={os.fspath(path)!r} is damaged: {error}") from error
        memory.normalize = settings["normalize"]
        return memory.to(device)

    @classmethod
    def _load_folder(cls, folder: Path, backend: str, screen: bool) -> "HopfieldMemory":
        manifest = read_manifest(folder)
        dtype = getattr(torch, str(manifest.get("dtype")).removeprefix("torch."), None)
        dimension, next_row = manifest.get("dimension"), manifest.get("next_row")
        if (
            not isinstance(dtype, torch.dtype)
            or not dtype.is_floating_point
            or not isinstance(dimension, int)
            or dimension < 1
            or not isinstance(next_row, int)
        ):
            raise ValueError(
                f"path={str(folder)!r} has a damaged memory.json: its dtype, dimension or next_row is wrong."
            )
        settings = parsed_settings(folder, {name: str(manifest.get(name)) for name in SETTINGS})
        try:
            memory = cls(torch.empty(0, dimension, dtype=dtype), **settings, backend=backend, screen=screen)
        except (TypeError, ValueError) as error:
            raise ValueError(f"path={str(folder)!r} has a damaged memory.json: {error}") from error
        memory._segments = load_segments(folder, manifest, dtype, dimension) or memory._segments
        memory._next_row, memory._folder = next_row, (str(folder), manifest["state"])
        return memory

    def _apply(self, fn: Any, recurse: bool = True) -> "HopfieldMemory":
        super()._apply(fn, recurse)
        if len(self._segments) > 1 and fn(self._segments[0].patterns[:0]).device.type != "cpu":
            self._segments = [Segment(self.patterns, self.rows)]  # one tensor, as for `add`
        for segment in self._segments:
            segment.apply(fn)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "HopfieldMemory":
        twin = HopfieldMemory(
            self.patterns, self.alpha, self.beta, False, self.backend, self.rows.clone(), self.screens
        )
        twin.normalize, twin._next_row = self.normalize, self._next_row
        return twin.train(self.training)

    def get_extra_state(self) -> Tensor:
        """alpha, beta and `normalize` for the state dict, as a tensor because safetensors holds nothing else."""
        return torch.tensor([self.alpha, self.beta, float(self.normalize)], dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """
        Set alpha, beta and `normalize` from a state dict.

        Args:
            state (`torch.Tensor` of shape `(3,)`): From [`~HopfieldMemory.get_extra_state`].
        """
        if not isinstance(state, Tensor) or state.shape != (3,) or float(state[2]) not in (0.0, 1.0):
            raise ValueError(f"the state of a HopfieldMemory is alpha, beta and normalize (0 or 1), got {state!r}.")
        alpha, beta, normalize = state.tolist()
        check_alpha(alpha)
        check_beta(beta)
        self.alpha, self.beta, self.normalize = alpha, beta, bool(normalize)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}patterns"], destination[f"{prefix}rows"] = self.patterns, self.rows

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        version = local_metadata.get("version", 1)
        own = {name: state_dict.get(f"{prefix}{name}") for name in ("patterns", "rows")}
        rest = {
            name: value for name, value in state_dict.items() if name not in (f"{prefix}patterns", f"{prefix}rows")
        }
        super()._load_from_state_dict(rest, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        if version < 2 and f"{prefix}_extra_state" in missing_keys:
            missing_keys.remove(f"{prefix}_extra_state")
        patterns, rows = own["patterns"], own["rows"]
        if patterns is None:
            missing_keys.append(f"{prefix}patterns")
            return
        if rows is None and version >= 3:
            missing_keys.append(f"{prefix}rows")
        # The number of patterns is data, not architecture: it comes from the state dict.
        if patterns.dim() != 2 or patterns.shape[1] != self.dimension:
            error_msgs.append(
                f"size mismatch for {prefix}patterns: copying a parameter with shape {tuple(patterns.shape)} from checkpoint, "
                f"but the memory has patterns of width {self.dimension}."
            )
            return
        like = self._segments[0].patterns
        self._take(patterns.detach().to(like.device, like.dtype, copy=True), None if rows is None else rows.clone())
        self._folder = None

    def extra_repr(self) -> str:
        settings = f"alpha={self.alpha}, beta={self.beta}, normalize={self.normalize}"
        return f"{len(self)} patterns, dimension={self.dimension}, {settings}"


def _one_number(name: str, value: float) -> float:
    number = per_head_values(name, value, 1)
    if isinstance(number, tuple):
        raise TypeError(f"{name} must be one number, got {value!r}.")
    return number
