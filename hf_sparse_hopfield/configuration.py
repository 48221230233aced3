# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What a model's attention is to retrieve with: [`SparseHopfieldConfig`]. Knows neither torch nor transformers."""

import copy
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any


# What may differ from layer to layer.
LAYER_FIELDS = ("alpha", "beta", "steps", "tolerance", "backend")


@dataclass(frozen=True, eq=False, repr=False)
class SparseHopfieldConfig(dict):
    """
    Settings of sparse Hopfield retrieval in a model's attention.

    The defaults are sparsemax, one step, the model's own scaling, in every attention layer. An instance validates
    itself and cannot be changed. It is also a `dict` with the same content, so that a transformers configuration which
    holds one (`config.sparse_hopfield`) prints, compares and saves itself like any other.

    A layer is named by an integer or by a pattern. The integer is the first number in the path of its attention module
    (`encoder.layer.3.attention.self` is layer 3, in an encoder-decoder model that of the encoder and of the decoder).
    The pattern is a run of path components, in which `*` and `?` stand for anything: `"decoder"`, `"vision_tower"`,
    `"encoder.layer.1*"`.

    Example:

    ```python
    >>> from hf_sparse_hopfield import SparseHopfieldConfig
    >>> config = SparseHopfieldConfig(alpha=1.5, layers=[0, "decoder"], overrides={0: {"beta": 2.0}})
    >>> config.for_layer("encoder.layer.0.attention.self")
    {'alpha': 1.5, 'beta': 2.0, 'steps': 1, 'tolerance': 0.0, 'backend': 'auto'}
    >>> config.for_layer("encoder.layer.1.attention.self") is None
    True
    >>> SparseHopfieldConfig.from_dict(config.to_dict()) == config
    True

    ```
    """

    alpha: float | list[float] = field(
        default=2.0,
        metadata={
            "help": "Member of the entmax family, in [1, 2]: 1 is softmax, 1.5 is entmax-1.5, 2 is sparsemax. "
            "One number, or one per head."
        },
    )
    beta: float | list[float] = field(
        default=1.0,
        metadata={
            "help": "Positive factor on the model's own scaling of the scores; larger is sharper and sparser. "
            "One number, or one per head."
        },
    )
    steps: int = field(
        default=1,
        metadata={
            "help": "Retrieval steps: steps - 1 updates of the query in key space, then the read-out of the values."
        },
    )
    tolerance: float = field(
        default=0.0,
        metadata={"help": "A query whose state moves by less than this (Euclidean norm) is not updated any more."},
    )
    layers: list[int | str] | None = field(
        default=None,
        metadata={
            "help": "The layers that retrieve sparsely, by index or name pattern; the others stay dense. None: all."
        },
    )
    overrides: dict[int | str, dict[str, Any]] = field(
        default_factory=dict,
        metadata={
            "help": "Per-layer settings: layer (index or name pattern) to a dict with any of alpha, beta, steps, "
            "tolerance, backend. Where several match, the later one wins."
        },
    )
    learn_alpha: bool = field(
        default=False, metadata={"help": "Learn alpha, one per head; `alpha` is then the initial value."}
    )
    learn_beta: bool = field(
        default=False, metadata={"help": "Learn beta, one per head; `beta` is then the initial value."}
    )
    backend: str = field(
        default="auto",
        metadata={"help": "How retrieval is computed: 'auto', or the name of one of the backends."},
    )

    def __post_init__(self) -> None:
        layers = self.layers
        if layers is not None:
            if isinstance(layers, (int, str)) or not isinstance(layers, Sequence):
                raise TypeError(f"layers must be a list of layer indices and name patterns, or None, got {layers!r}.")
            layers = [_check_layer("layers", layer) for layer in layers]
            if not layers:
                raise ValueError("layers is empty: no layer would be sparse. Use None for all layers.")
        if not isinstance(self.overrides, Mapping):
            raise TypeError(f"overrides must be a dict from layer to settings, got {self.overrides!r}.")
        overrides = {}
        for layer, settings in self.overrides.items():
            # JSON turns integer keys to strings.
            layer = _check_layer("overrides", int(layer) if isinstance(layer, str) and layer.isdigit() else layer)
            if not isinstance(settings, Mapping):
                raise TypeError(f"overrides[{layer!r}] must be a dict of settings, got {settings!r}.")
            _refuse_unknown(f"overrides[{layer!r}]", settings, LAYER_FIELDS)
            overrides[layer] = _check_layer_settings(f"overrides[{layer!r}].", settings)
        for name in ("learn_alpha", "learn_beta"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, got {getattr(self, name)!r}.")
        checked = _check_layer_settings("", {name: getattr(self, name) for name in LAYER_FIELDS})
        checked |= {"layers": layers, "overrides": overrides}
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        # As JSON has it, with string keys: transformers sorts the keys when it saves, and cannot compare 0 with "decoder".
        content = json.loads(
            json.dumps({config_field.name: getattr(self, config_field.name) for config_field in fields(self)})
        )
        for name, value in content.items():
            super().__setitem__(name, value)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any] | None) -> "SparseHopfieldConfig":
        """
        Read settings from a dict, such as the `sparse_hopfield` entry of a config.json.

        Args:
            settings (`dict` or `SparseHopfieldConfig`, *optional*):
                Any of the fields; what is missing keeps its default. An unknown key is refused.
        """
        if settings is None:
            return cls()
        if isinstance(settings, cls):
            return settings
        if not isinstance(settings, Mapping):
            raise TypeError(f"sparse_hopfield settings must be a SparseHopfieldConfig or a dict, got {settings!r}.")
        _refuse_unknown("sparse_hopfield", settings, [config_field.name for config_field in fields(cls)])
        return cls(**settings)

    def to_dict(self) -> dict[str, Any]:
        """All fields as plain values that JSON can hold."""
        return copy.deepcopy(dict(self))

    def to_json_string(self) -> str:
        """All fields as JSON."""
        return json.dumps(self, indent=2) + "\n"

    @property
    def layer_names(self) -> list[int | str]:
        """Every layer named in `layers` and `overrides`."""
        return [*(self.layers or []), *self.overrides]

    def for_layer(self, name: str) -> dict[str, Any] | None:
        """
        The settings of one layer.

        Args:
            name (`str`): Path of the attention module in the model, such as `"encoder.layer.0.attention.self"`.

        Returns:
            `dict` or `None`: alpha, beta, steps, tolerance and backend of the layer; `None` if it is to stay dense.
        """
        if self.layers is not None and not any(layer_matches(layer, name) for layer in self.layers):
            return None
        settings = {field_name: getattr(self, field_name) for field_name in LAYER_FIELDS}
        for layer, override in self.overrides.items():
            if layer_matches(layer, name):
                settings |= override
        return settings

    def __repr__(self) -> str:
        default = type(self)()
        changed = (f"{name}={getattr(self, name)!r}" for name, value in self.items() if value != default[name])
        return f"{type(self).__name__}({', '.join(changed)})"

    def __hash__(self) -> int:
        return hash(json.dumps(self, sort_keys=True))

    def __reduce__(self):
        return type(self).from_dict, (dict(self),)

    def __setitem__(self, key: str, value: Any) -> None:
        raise TypeError(
            f"a SparseHopfieldConfig cannot be changed (tried [{key!r}] = {value!r}); make a new one, for example "
            f"SparseHopfieldConfig.from_dict({{**config, {key!r}: {value!r}}})."
        )

    def __delitem__(self, key: str) -> None:
        raise TypeError(f"a SparseHopfieldConfig cannot be changed (tried to delete {key!r}); make a new one.")


def layer_index(name: str) -> int | None:
    """The first number in the path of a module, which is the index of its layer; `None` without one."""
    return next((int(part) for part in name.split(".") if part.isdigit()), None)


def layer_matches(layer: int | str, name: str) -> bool:
    """Whether the index or name pattern `layer` means the module with the path `name`."""
    if isinstance(layer, int):
        return layer_index(name) == layer
    return fnmatchcase(f".{name}.", f"*.{layer.strip('.')}.*")


def _check_layer(name: str, layer: Any) -> int | str:
    if isinstance(layer, bool) or not isinstance(layer, (int, str)) or layer == "":
        raise TypeError(f"{name} names a layer by an index or a name pattern, got {layer!r}.")
    if isinstance(layer, int) and layer < 0:
        raise ValueError(f"{name} has the layer index {layer}; indices count from 0, negative ones are not supported.")
    return layer


def _check_layer_settings(prefix: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    checked = dict(settings)
    if "alpha" in settings:
        checked["alpha"] = _numbers(f"{prefix}alpha", settings["alpha"], "in [1, 2]", lambda x: 1 <= x <= 2)
    if "beta" in settings:
        checked["beta"] = _numbers(f"{prefix}beta", settings["beta"], "positive", lambda x: x > 0)
    if "steps" in settings:
        steps = settings["steps"]
        if isinstance(steps, bool) or not isinstance(steps, int):
            raise TypeError(f"{prefix}steps must be an integer, got {steps!r}.")
        if steps < 1:
            raise ValueError(f"{prefix}steps must be at least 1 (the read-out itself), got {steps}.")
    if "tolerance" in settings:
        checked["tolerance"] = _numbers(f"{prefix}tolerance", settings["tolerance"], "at least 0", lambda x: x >= 0)
        if isinstance(checked["tolerance"], list):
            raise TypeError(f"{prefix}tolerance must be one number, got {settings['tolerance']!r}.")
    if "backend" in settings and not isinstance(settings["backend"], str):
        raise TypeError(f"{prefix}backend must be the name of a backend, got {settings['backend']!r}.")
    return checked


def _numbers(name: str, value: Any, right: str, check) -> float | list[float]:
    if hasattr(value, "tolist"):  # tensors and arrays, without importing them
        value = value.tolist()
    several = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    numbers = list(value) if several else [value]
    if not numbers or any(isinstance(x, bool) or not isinstance(x, (int, float)) for x in numbers):
        raise TypeError(f"{name} must be a number, or a list of numbers (one per head), got {value!r}.")
    if not all(math.isfinite(x) and check(x) for x in numbers):
        raise ValueError(f"{name} must be {right}, got {value!r}.")
    return [float(x) for x in numbers] if several else float(value)


def _refuse_unknown(where: str, settings: Mapping[str, Any], known: Sequence[str]) -> None:
    unknown = sorted(str(key) for key in settings if key not in known)
    if unknown:
        raise ValueError(f"{where} has the unknown keys {unknown}; known are {list(known)}.")
