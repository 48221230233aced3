# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Progress with time left: a bar on a terminal and in a notebook, elsewhere a plain line every few seconds.

The bar is tqdm's. Where stderr is no terminal, such as in the log of a job, a bar would fill the file with returns; there,
`refining: 12/32, 1 min 10 s left` appears every five seconds. What takes less than two seconds shows nothing.
"""

import math
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from tqdm.auto import tqdm as notebook_bar
from tqdm.std import tqdm


BEGIN = 2.0  # seconds before a bar appears
LINE_EVERY = 5.0  # seconds between two lines
_FORMAT = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}, {remaining} left{postfix}]"
_FORMAT_WITHOUT_TOTAL = "{desc}: {elapsed}{postfix}"


def progress_bar(
    description: str,
    iterable: Iterable[Any] | None = None,
    *,
    total: int | None = None,
    initial: int = 0,
    enabled: bool = True,
) -> tqdm:
    """
    Show the progress of a loop. Use it as a context, so that it ends with the loop.

    Args:
        description (`str`): What is done, such as `"refining"`.
        iterable (iterable, *optional*): What to iterate over. Without one, call `update` after each step.
        total (`int`, *optional*): Number of steps; by default the length of the iterable.
        initial (`int`, *optional*, defaults to 0): Steps that were done before.
        enabled (`bool`, *optional*, defaults to `True`): Whether to show anything.

    Example:

    ```python
    >>> from hf_sparse_hopfield.progress import progress_bar

    >>> with progress_bar("adding", [1, 2, 3]) as bar:
    ...     sum(bar)
    6

    ```
    """
    known = total is not None or hasattr(iterable, "__len__")
    options: dict[str, Any] = {"desc": description, "total": total, "initial": initial, "disable": not enabled}
    if "ipykernel" in sys.modules:
        return notebook_bar(iterable, **options)
    kind = _Bar if sys.stderr.isatty() else _Lines
    return kind(iterable, bar_format=_FORMAT if known else _FORMAT_WITHOUT_TOTAL, dynamic_ncols=True, **options)


@contextmanager
def stage(description: str, enabled: bool = True) -> Iterator[None]:
    """
    Show that one long step is under way, and for how long.

    Args:
        description (`str`): What is done, such as `"loading"`.
        enabled (`bool`, *optional*, defaults to `True`): Whether to show anything.
    """
    with progress_bar(description, enabled=enabled):
        yield


def write_line(text: str, file: TextIO | None = None) -> None:
    """
    Write a line above a bar that is shown.

    Args:
        text (`str`): The line.
        file (`TextIO`, *optional*, defaults to `sys.stderr`): Where to write.
    """
    file = sys.stderr if file is None else file
    tqdm.write(text, file=file)
    file.flush()


def duration(seconds: float) -> str:
    """
    A duration in words.

    Args:
        seconds (`float`): The duration.

    Example:

    ```python
    >>> from hf_sparse_hopfield.progress import duration

    >>> duration(70), duration(7500)
    ('1 min 10 s', '2 h 5 min')

    ```
    """
    minutes, rest = divmod(math.ceil(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


class _Beating(tqdm):
    """A bar that is also shown again while a step takes long, which tqdm does not do."""

    monitor_interval = 0  # a thread of our own replaces tqdm's
    first = every = 1.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._ended = threading.Event()
        super().__init__(*args, **kwargs)
        if not self.disable:
            threading.Thread(target=self._beat, daemon=True).start()

    def __iter__(self) -> Iterator[Any]:
        """As tqdm's, but each step counts at once, so that the thread can show it."""
        try:
            for item in self.iterable:
                yield item
                self.update()
        finally:
            self.close()

    def _beat(self) -> None:
        pause = self.first
        while not self._ended.wait(pause):
            pause = self.every
            self._show()

    def _show(self) -> None:
        self.refresh()

    def close(self) -> None:
        self._ended.set()
        super().close()


class _Bar(_Beating):
    first = BEGIN

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, delay=self.first, **kwargs)

    def display(self, *args: Any, **kwargs: Any) -> Any:
        if self._time() < self.start_t + self.delay:
            return False
        self.last_print_t = self._time()  # tqdm ends the line only of a bar that its own clock has shown
        return super().display(*args, **kwargs)


class _Lines(_Beating):
    first = every = LINE_EVERY
    shown = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, delay=self.first, mininterval=math.inf, **kwargs)

    def display(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: only the thread shows lines."""

    clear = display

    def _show(self) -> None:
        self.shown = True
        state = self.format_dict
        done, total, elapsed = state["n"] - state["initial"], state["total"], state["elapsed"]
        parts = [duration(elapsed) if total is None else f"{state['n']}/{total}"]
        if total is not None and done:
            parts.append(f"{duration((total - state['n']) * elapsed / done)} left")
        self._write(parts)

    def close(self) -> None:
        super().close()
        if self.shown:
            self.shown = False
            self._write([f"done in {duration(self.format_dict['elapsed'])}"])

    def _write(self, parts: list[str]) -> None:
        postfix = [self.postfix] if self.postfix else []
        print(f"{self.desc}: {', '.join([*parts, *postfix])}", file=sys.stderr, flush=True)
