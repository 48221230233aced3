# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""[`Segment`]: some of the patterns of a memory, in one tensor."""

from collections.abc import Callable

import torch
from torch import Tensor

from ...backends import KeyScreen, RetrievalProblem
from ...backends.native import library
from ...backends.support import row_supports


SCREENED_FROM = 512  # patterns; fewer are scored as fast without a screen
_SCREENED = (torch.float32, torch.bfloat16, torch.float16)


class Segment:
    """
    Patterns with the names of their rows, in memory with room for more, or mapped from a file.

    Removed patterns are marked, so that removing takes no time, and dropped when there are many.

    Args:
        patterns (`torch.Tensor` of shape `(n, d)`): The patterns.
        rows (`torch.LongTensor` of shape `(n,)`): Their names.
        removed (`torch.BoolTensor` of shape `(n,)`, *optional*): Which of them are removed.
        screen ([`KeyScreen`], *optional*): Their int8 copy.
    """

    def __init__(
        self, patterns: Tensor, rows: Tensor, removed: Tensor | None = None, screen: KeyScreen | None = None
    ) -> None:
        self.patterns, self.rows, self.removed = patterns, rows, removed
        self._removed_count: int | None = None
        self._screen = screen
        self._room: tuple[Tensor, Tensor] = (patterns, rows)
        # names of the files that hold the patterns and the marks as they are now; see folder.py
        self.file: str | None = None
        self.removed_file: str | None = None

    def __len__(self) -> int:
        return len(self.rows) - self.removed_count

    @property
    def removed_count(self) -> int:
        """Number of patterns that are marked as removed. They are counted once: on a GPU, counting waits for it."""
        if self.removed is None:
            return 0
        if self._removed_count is None:
            self._removed_count = int(self.removed.sum())
        return self._removed_count

    @property
    def alive(self) -> Tensor | None:
        """Which patterns are not removed; `None` if all are there."""
        return None if self.removed is None else ~self.removed

    def remaining(self) -> tuple[Tensor, Tensor]:
        """The patterns that are not removed, and their names. A copy if any is removed."""
        alive = self.alive
        return (self.patterns, self.rows) if alive is None else (self.patterns[alive], self.rows[alive])

    def extend(self, patterns: Tensor, rows: Tensor) -> None:
        """
        Add patterns behind those that are there. All move to a larger room now and then, so that adding one takes constant time.

        Args:
            patterns (`torch.Tensor` of shape `(m, d)`), rows (`torch.LongTensor` of shape `(m,)`): The new ones.
        """
        before, total = len(self.rows), len(self.rows) + len(rows)
        if total > len(self._room[1]):
            places = max(total, before * 3 // 2)
            larger = self.patterns.new_empty((places, self.patterns.shape[1])), self.rows.new_empty(places)
            larger[0][:before], larger[1][:before] = self.patterns, self.rows
            self._room = larger
        self._room[0][before:total], self._room[1][before:total] = patterns, rows
        self.patterns, self.rows = self._room[0][:total], self._room[1][:total]
        if self.removed is not None:
            self.removed = torch.cat([self.removed, self.removed.new_zeros(len(rows))])
        self.file = self.removed_file = None

    def part(self, first: int, last: int) -> "Segment":
        """Some of the patterns, one after the other, without a copy."""
        removed = None if self.removed is None else self.removed[first:last]
        screen = None if self._screen is None else self._screen.part(first, last)
        return Segment(self.patterns[first:last], self.rows[first:last], removed, screen)

    def remove(self, places: Tensor) -> None:
        """
        Mark patterns as removed.

        Args:
            places (`torch.LongTensor`): Their places among those that are not, each once.
        """
        alive = self.alive
        if alive is not None:
            places = alive.nonzero().flatten()[places.to(alive.device)]
        removed = (
            self.rows.new_zeros(len(self.rows), dtype=torch.bool) if self.removed is None else self.removed.clone()
        )
        removed[places.to(removed.device)] = True
        self._removed_count = self.removed_count + len(places)
        self.removed, self.removed_file = removed, None
        if self.file is None and 4 * self.removed_count > len(self.rows):
            self.compact()

    def compact(self) -> None:
        """Drop the patterns that are marked as removed."""
        self._replace(*self.remaining())
        self.removed = None

    def map_from(self, patterns: Tensor, rows: Tensor, screen: KeyScreen | None) -> None:
        """Take the same patterns from a file instead, so that the memory they are in is free."""
        self.patterns, self.rows, self._screen, self._room = patterns, rows, screen, (patterns, rows)

    def apply(self, function: Callable[[Tensor], Tensor]) -> None:
        """Apply a function such as `.to(device)` to all tensors."""
        patterns, rows = function(self.patterns), function(self.rows)
        if patterns is not self.patterns:
            removed = self.removed
            self._replace(patterns, rows)
            self.removed = None if removed is None else function(removed)

    def _replace(self, patterns: Tensor, rows: Tensor) -> None:
        self.patterns, self.rows, self._room = patterns, rows, (patterns, rows)
        self._screen = self.file = self.removed_file = None

    @property
    def screen(self) -> KeyScreen | None:
        """The int8 copy of the patterns, made or brought up to date; `None` where none is of use."""
        patterns = self.patterns
        if patterns.device.type != "cpu" or patterns.dtype not in _SCREENED or library.missing is not None:
            return None
        if len(patterns) < SCREENED_FROM or torch.compiler.is_compiling():
            return None
        if self._screen is None:
            self._screen = KeyScreen(patterns[None, None])
        elif len(self._screen) < len(patterns):
            self._screen.append(patterns[None, None, len(self._screen) :])
        return self._screen

    @property
    def screen_nbytes(self) -> int:
        """Memory of the int8 copy in bytes."""
        return 0 if self._screen is None else self._screen.nbytes

    def supports(self, queries: Tensor, alpha: float, beta: float, screen: bool) -> Tensor:
        """
        The patterns that have weight for queries, if there were no other segments. Those that have weight among all patterns
        are among them: the threshold of a part of a row is at most that of the row (`functional/screening.py`).

        Args:
            queries (`torch.Tensor` of shape `(n, d)`): The queries, in float32 or better.
            alpha, beta (`float`): As in [`HopfieldMemory`].
            screen (`bool`): Whether to use the int8 copy.

        Returns:
            `torch.LongTensor` of shape `(n, most)`: Places in this segment in ascending order, then -1.
        """
        key, alive = self.patterns[None, None], self.alive
        mask = None if alive is None else alive[None, None, None]
        used: KeyScreen | bool = (self.screen if screen else None) or False
        problem = RetrievalProblem(
            queries[None, None], key, key, scaling=1.0, alpha=alpha, beta=beta, mask=mask, screen=used
        )
        return row_supports(problem)


def merged(segments: list[Segment]) -> list[Segment]:
    """
    Fewer segments with the same patterns. Each is at least twice as long as the next one, so that there are few of them, and a
    pattern is written anew only a few times, however many saves there are. Segments of which most is removed lose that.
    """
    result: list[Segment] = []
    for segment in segments:
        if 2 * segment.removed_count > len(segment.rows):
            segment = Segment(*segment.remaining())
        result.append(segment)
        while len(result) > 1 and len(result[-2]) < 2 * len(result[-1]):
            last, before = result.pop(), result.pop()
            parts = [part.remaining() for part in (before, last)]
            result.append(Segment(torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])))
    return result
