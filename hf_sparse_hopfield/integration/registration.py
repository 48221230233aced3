# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Registers with transformers as soon as there is something to register with, and imports nothing heavy before.

`import transformers` is lazy and loads neither torch nor its own modelling code. So that `import hf_sparse_hopfield` may
be as light and still have registered everything by the time a model is made, registration waits for the modules it needs.
"""

import importlib
import importlib.abc
import sys
from collections.abc import Callable


def _register_attention() -> None:
    importlib.import_module(".upstream", __package__).install()


def _register_model_types() -> None:
    importlib.import_module(".auto", __package__)  # registers `sparse_hopfield`
    importlib.import_module("..models.registration", __package__).register_configurations()


def _register_trainer() -> None:
    importlib.import_module("..hub.push", __package__).wrap_trainer(sys.modules["transformers.trainer"].Trainer)


_WAITING: dict[str, Callable[[], None]] = {
    "transformers.modeling_utils": _register_attention,
    "transformers.models.auto.configuration_auto": _register_model_types,
    "transformers.trainer": _register_trainer,
}


class _AfterImport(importlib.abc.MetaPathFinder):
    """Finds nothing itself: it lets the other finders find a module we wait for, and has the loader call us afterwards."""

    def find_spec(self, fullname, path, target=None):
        if fullname not in _WAITING:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                break
        else:
            return None
        exec_module = spec.loader.exec_module

        def exec_then_register(module):
            exec_module(module)
            register = _WAITING.pop(fullname, None)
            if register is not None:
                register()

        spec.loader.exec_module = exec_then_register
        return spec


def install() -> None:
    """Register with transformers: at once what is imported already, the rest when it gets imported."""
    for name in list(_WAITING):
        if name in sys.modules:
            _WAITING.pop(name)()
    if _WAITING and not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport())
