# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What commands say on stderr besides their result: one look for all warnings, each of them once, and no bars of other libraries."""

import argparse
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from ..processes import is_main_process
from ..progress import write_line


@contextmanager
def one_look() -> Iterator[None]:
    """
    Show warnings of all libraries as `warning: ...`, each once, and no progress bars of transformers, until the context ends.

    A download from the Hub keeps its bar. Warnings about what will change in other libraries are for their developers, and stay
    away.
    """
    from huggingface_hub.utils import are_progress_bars_disabled, enable_progress_bars
    from transformers.utils import logging as transformers_logging

    library, root, handler = logging.getLogger("transformers"), logging.getLogger(), _Once()
    hub_bars, bars, propagates = (
        not are_progress_bars_disabled(),
        transformers_logging.is_progress_bar_enabled(),
        library.propagate,
    )
    transformers_logging.disable_progress_bar()  # also those of the Hub
    if hub_bars:
        enable_progress_bars()
    transformers_logging.disable_default_handler()
    library.propagate = True
    root.addHandler(handler)
    try:
        with warnings.catch_warnings():
            for category in (DeprecationWarning, PendingDeprecationWarning, FutureWarning):
                warnings.simplefilter("ignore", category)
            warnings.showwarning = lambda message, *args, **kwargs: root.warning("%s", message)
            yield
    finally:
        root.removeHandler(handler)
        library.propagate = propagates
        transformers_logging.enable_default_handler()
        if bars:
            transformers_logging.enable_progress_bar()


class _Once(logging.Handler):
    """Writes each message once to stderr. Of several processes, the main one writes the warnings."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING if is_main_process() else logging.ERROR)
        self.seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage().strip()
        if text not in self.seen:
            self.seen.add(text)
            write_line(f"{'error' if record.levelno >= logging.ERROR else 'warning'}: {text}")


def note(arguments: argparse.Namespace, text: str) -> None:
    """Write a line that is neither a result nor a warning to stderr, unless `--quiet` is given."""
    if not arguments.quiet:
        print(text, file=sys.stderr)
