# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""[`SparseHopfieldConfig`], the settings of a model's sparse attention. Imports neither torch nor transformers."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence, Sized
from fnmatch import fnmatchcase
from typing import Any

from .checks import check_flag, is_integer, is_number, shown
from .frozen import FrozenDict, thaw


FIELDS = (
    "alpha",
    "beta",
    "steps",
    "tolerance",
    "layers",
    "overrides",
    "learn_alpha",
    "learn_beta",
    "backend",
    "length_power",
    "learn_length_power",
)

# The fields that can differ from layer to layer.
LAYER_FIELDS = ("alpha", "beta", "length_power", "steps", "tolerance", "backend")

# Those that a layer can have one of per head, and learn. Each has a flag `learn_...`.
HEAD_FIELDS = ("alpha", "beta", "length_power")

# Far beyond any model: what a damaged or hostile config.json has beyond them is refused before it costs time and memory.
MOST_ENTRIES = 10_000  # of a list or dict
MOST_STEPS = 10_000
LONGEST_NAME = 1_000


class SparseHopfieldConfig(FrozenDict[str, Any]):
    """
    Settings of sparse Hopfield retrieval in a model's attention.

    The defaults are sparsemax, one step and the model's own scaling, in every attention layer. A configuration
    validates itself and cannot be changed. It is a `dict` of values that JSON can hold, so that a transformers
    configuration that holds one (`config.sparse_hopfield`) prints, compares and saves itself as usual; the attributes
    read from that dict. (Only unbound methods, such as `dict.update(config, ...)`, get past it: Python cannot stop them.)

    A layer is named by an integer or by a pattern. The integer is the first number in the path of its attention module:
    `encoder.layer.3.attention.self` is layer 3. In an encoder-decoder model, 3 names the layer of the encoder and that
    of the decoder. A pattern matches a run of path components, with the wildcards `*` and `?`: `"decoder"`,
    `"vision_tower"`, `"encoder.layer.1*"`.

    Args:
        alpha (`float` or list of `float`, *optional*, defaults to 2.0):
            Member of the entmax family, in [1, 2]: 1 is softmax, 1.5 is entmax-1.5, 2 is sparsemax. One number, or one
            per head.
        beta (`float` or list of `float`, *optional*, defaults to 1.0):
            Positive factor on the model's own scaling of the scores; a larger one makes attention sharper and sparser.
            One number, or one per head.
        steps (`int`, *optional*, defaults to 1):
            Retrieval steps: `steps - 1` updates of the query in key space, then the read-out of the values.
        tolerance (`float`, *optional*, defaults to 0.0):
            A query stops updating once its state moves by less than this (Euclidean norm).
        layers (list of `int` or `str`, *optional*):
            Layers that retrieve sparsely, by index or name pattern; the others stay dense. `None` selects all.
        overrides (`dict[int | str, dict]`, *optional*, defaults to `{}`):
            Settings per layer: maps a layer (index or name pattern) to a dict with any of alpha, beta, length_power, steps,
            tolerance and backend. If several match, the later one wins.
        learn_alpha (`bool`, *optional*, defaults to `False`): Learn alpha, one per head, starting from `alpha`.
        learn_beta (`bool`, *optional*, defaults to `False`): Learn beta, one per head, starting from `beta`.
        backend (`str`, *optional*, defaults to `"auto"`): Name of the backend that computes retrieval, or `"auto"`.
        length_power (`float` or list of `float`, *optional*, defaults to 0.0):
            beta depends on the number of keys that a query sees: it is `beta * (keys / 256) ** length_power`, with a power in
            [-4, 4]. Below zero, longer rows have a smaller beta. One number, or one per head.
        learn_length_power (`bool`, *optional*, defaults to `False`):
            Learn length_power, one per head, starting from `length_power`.

    Example:

    ```python
    >>> from hf_sparse_hopfield import SparseHopfieldConfig
    >>> config = SparseHopfieldConfig(alpha=1.5, layers=[0, "decoder"], overrides={0: {"beta": 2.0}})
    >>> config.for_layer("encoder.layer.0.attention.self")
    {'alpha': 1.5, 'beta': 2.0, 'length_power': 0.0, 'steps': 1, 'tolerance': 0.0, 'backend': 'auto'}
    >>> config.for_layer("encoder.layer.1.attention.self") is None
    True
    >>> SparseHopfieldConfig.from_dict({**config, "alpha": 2.0})
    SparseHopfieldConfig(layers=[0, 'decoder'], overrides={0: {'beta': 2.0}})

    ```
    """

    __slots__ = ()

    def __new__(
        cls,
        alpha: float | Sequence[float] = 2.0,
        beta: float | Sequence[float] = 1.0,
        steps: int = 1,
        tolerance: float = 0.0,
        layers: Sequence[int | str] | None = None,
        overrides: Mapping[int | str, Mapping[str, Any]] = FrozenDict(),  # noqa: B008 (cannot be changed)
        learn_alpha: bool = False,
        learn_beta: bool = False,
        backend: str = "auto",
        length_power: float | Sequence[float] = 0.0,
        learn_length_power: bool = False,
    ) -> "SparseHopfieldConfig":
        settings: dict[str, Any] = {"alpha": alpha, "beta": beta, "length_power": length_power}
        settings |= {"steps": steps, "tolerance": tolerance, "backend": backend}
        flags = {
            "learn_alpha": learn_alpha,
            "learn_beta": learn_beta,
            "learn_length_power": learn_length_power,
        }
        for name, flag in flags.items():
            check_flag(name, flag)
        content = {
            **_check_layer_settings("", settings),
            "layers": _check_layers(layers),
            "overrides": _check_overrides(overrides),
            **flags,
        }
        # As JSON has it, with string keys: transformers sorts the keys when it saves and cannot compare 0 with "decoder".
        plain = json.loads(json.dumps({name: content[name] for name in FIELDS}))
        return super().__new__(cls, plain)  # type: ignore[return-value] # FrozenDict.__new__ names its own class

    @property
    def alpha(self) -> float | Sequence[float]:
        """Member of the entmax family: one number, or a list with one per head."""
        return self["alpha"]

    @property
    def beta(self) -> float | Sequence[float]:
        """Factor on the model's scaling: one number, or a list with one per head."""
        return self["beta"]

    @property
    def length_power(self) -> float | Sequence[float]:
        """Power of the number of visible keys in beta: one number, or a list with one per head."""
        return self["length_power"]

    @property
    def steps(self) -> int:
        """Number of retrieval steps."""
        return self["steps"]

    @property
    def tolerance(self) -> float:
        """Movement of a state below which it is no longer updated."""
        return self["tolerance"]

    @property
    def layers(self) -> Sequence[int | str] | None:
        """The sparse layers, `None` for all."""
        return self["layers"]

    @property
    def overrides(self) -> Mapping[int | str, Mapping[str, Any]]:
        """Settings per layer. The keys are integers for layer indices, which are strings in the dict itself."""
        return FrozenDict({_parse_layer(layer): settings for layer, settings in self["overrides"].items()})

    @property
    def learn_alpha(self) -> bool:
        """Whether alpha is learned."""
        return self["learn_alpha"]

    @property
    def learn_beta(self) -> bool:
        """Whether beta is learned."""
        return self["learn_beta"]

    @property
    def learn_length_power(self) -> bool:
        """Whether length_power is learned."""
        return self["learn_length_power"]

    @property
    def learned(self) -> tuple[str, ...]:
        """Those of alpha, beta and length_power that are learned."""
        return tuple(name for name in HEAD_FIELDS if self[f"learn_{name}"])

    @property
    def backend(self) -> str:
        """Name of the backend, or `"auto"`."""
        return self["backend"]

    @property
    def layer_names(self) -> list[int | str]:
        """Every layer named in `layers` and `overrides`."""
        return [*(self.layers or []), *self.overrides]

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any] | None) -> "SparseHopfieldConfig":
        """
        Read settings from a dict, such as the `sparse_hopfield` entry of a config.json.

        Args:
            settings (`dict` or `SparseHopfieldConfig`, *optional*):
                Any of the fields; missing ones keep their defaults. Unknown keys raise an error.
        """
        if settings is None:
            return cls()
        if isinstance(settings, cls):
            return settings
        if not isinstance(settings, Mapping):
            raise TypeError(
                f"sparse_hopfield settings must be a SparseHopfieldConfig or a dict, got {shown(settings)}."
            )
        _check_keys("sparse_hopfield", settings, FIELDS)
        return cls(**settings)

    def replace(self, **changes: Any) -> "SparseHopfieldConfig":
        """
        A new configuration with some fields changed.

        Args:
            **changes: The new values. Unknown fields raise an error.

        Example:

        ```python
        >>> from hf_sparse_hopfield import SparseHopfieldConfig

        >>> SparseHopfieldConfig(alpha=1.5, beta=2.0).replace(beta=3.0)
        SparseHopfieldConfig(alpha=1.5, beta=3.0)

        ```
        """
        return self.from_dict({**self, **changes})

    def to_dict(self) -> dict[str, Any]:
        """All fields, as a copy of plain dicts and lists that can be changed."""
        return thaw(self)

    def to_json_string(self) -> str:
        """All fields as JSON."""
        return json.dumps(self, indent=2) + "\n"

    def for_layer(self, name: str) -> dict[str, Any] | None:
        """
        The settings of one layer.

        Args:
            name (`str`): Path of the attention module in the model, such as `"encoder.layer.0.attention.self"`.

        Returns:
            `dict` or `None`: alpha, beta, length_power, steps, tolerance and backend of the layer, or `None` if it stays dense.
        """
        if self.layers is not None and not any(layer_matches(layer, name) for layer in self.layers):
            return None
        settings = {field: self[field] for field in LAYER_FIELDS}
        for layer, override in self.overrides.items():
            if layer_matches(layer, name):
                settings.update(override)
        return thaw(settings)

    def __repr__(self) -> str:
        default = type(self)()
        changed = (f"{name}={getattr(self, name)!r}" for name, value in self.items() if value != default[name])
        return f"{type(self).__name__}({', '.join(changed)})"

    def __hash__(self) -> int:  # type: ignore[override] # a dict has none because it can be changed
        return hash(json.dumps(self, sort_keys=True))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_dict, (self.to_dict(),)


def layer_index(name: str) -> int | None:
    """The first number in the path of a module, which is the index of its layer, or `None`."""
    return next((int(part) for part in name.split(".") if part.isdecimal()), None)


def layer_matches(layer: int | str, name: str) -> bool:
    """Whether the index or name pattern `layer` matches the module with the path `name`."""
    if isinstance(layer, int):
        return layer_index(name) == layer
    return fnmatchcase(f".{name}.", f"*.{layer.strip('.')}.*")


def _parse_layer(layer: Any) -> Any:
    """JSON turns integer keys into strings; this turns them back."""
    return int(layer) if isinstance(layer, str) and len(layer) <= LONGEST_NAME and layer.isdecimal() else layer


def _check_layer(name: str, layer: Any) -> int | str:
    if isinstance(layer, str):
        _check_size(f"{name}: a layer name", layer, LONGEST_NAME)
    if not is_integer(layer) and not (isinstance(layer, str) and layer):
        raise TypeError(f"{name} names a layer by an index or a name pattern, got {shown(layer)}.")
    if isinstance(layer, int) and layer < 0:
        raise ValueError(
            f"{name} has the layer index {shown(layer)}; indices start at 0, and negative ones are not supported."
        )
    return layer


def _check_layers(layers: Any) -> list[int | str] | None:
    if layers is None:
        return None
    if isinstance(layers, str) or not isinstance(layers, Sequence):
        raise TypeError(f"layers must be a list of layer indices and name patterns, or None, got {shown(layers)}.")
    if not layers:
        raise ValueError("layers is empty: no layer would be sparse. Use None for all layers.")
    _check_size("layers", layers)
    return [_check_layer("layers", layer) for layer in layers]


def _check_overrides(overrides: Any) -> dict[int | str, dict[str, Any]]:
    if not isinstance(overrides, Mapping):
        raise TypeError(f"overrides must be a dict from layer to settings, got {shown(overrides)}.")
    _check_size("overrides", overrides)
    checked = {}
    for given, settings in overrides.items():
        layer = _check_layer("overrides", _parse_layer(given))
        where = f"overrides[{layer!r}]"
        if not isinstance(settings, Mapping):
            raise TypeError(f"{where} must be a dict of settings, got {shown(settings)}.")
        _check_keys(where, settings, LAYER_FIELDS)
        checked[layer] = _check_layer_settings(f"{where}.", settings)
    return checked


def _check_layer_settings(prefix: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Check the given ones of `LAYER_FIELDS`, and turn numbers into floats."""
    checked = dict(settings)
    if "alpha" in settings:
        checked["alpha"] = _numbers(f"{prefix}alpha", settings["alpha"], "in [1, 2]", lambda x: 1 <= x <= 2)
    if "beta" in settings:
        checked["beta"] = _numbers(f"{prefix}beta", settings["beta"], "positive", lambda x: x > 0)
    if "length_power" in settings:
        checked["length_power"] = _numbers(
            f"{prefix}length_power", settings["length_power"], "in [-4, 4]", lambda x: -4 <= x <= 4
        )
    if "steps" in settings:
        steps = settings["steps"]
        if not is_integer(steps):
            raise TypeError(f"{prefix}steps must be an integer, got {shown(steps)}.")
        if steps < 1:
            raise ValueError(f"{prefix}steps must be at least 1 (the read-out itself), got {shown(steps)}.")
        if steps > MOST_STEPS:
            raise ValueError(
                f"{prefix}steps must be at most {MOST_STEPS}, got {shown(steps)}: a call would never end."
            )
    if "tolerance" in settings:
        checked["tolerance"] = _numbers(f"{prefix}tolerance", settings["tolerance"], "at least 0", lambda x: x >= 0)
        if isinstance(checked["tolerance"], list):
            raise TypeError(f"{prefix}tolerance must be one number, got {shown(settings['tolerance'])}.")
    if "backend" in settings and not isinstance(settings["backend"], str):
        raise TypeError(f"{prefix}backend must be the name of a backend, got {shown(settings['backend'])}.")
    if "backend" in settings:
        _check_size(f"{prefix}backend", settings["backend"], LONGEST_NAME)
    return checked


def _numbers(name: str, value: Any, expected: str, is_valid: Callable[[float], bool]) -> float | list[float]:
    if hasattr(value, "tolist"):  # tensors and arrays, without importing their packages
        value = value.tolist()
    several = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    if several:
        _check_size(name, value)
    numbers = list(value) if several else [value]
    if not numbers or not all(map(is_number, numbers)):
        raise TypeError(f"{name} must be a number, or a list of numbers (one per head), got {shown(value)}.")
    if not all(abs(number) <= sys.float_info.max and is_valid(number) for number in numbers):
        raise ValueError(f"{name} must be {expected}, got {shown(value)}.")
    return [float(number) for number in numbers] if several else float(value)


def _check_size(name: str, value: Sized, most: int = MOST_ENTRIES) -> None:
    if len(value) > most:
        raise ValueError(f"{name} has {len(value)} entries or characters, more than any model needs (at most {most}).")


def _check_keys(where: str, settings: Mapping[str, Any], known: Sequence[str]) -> None:
    unknown = [key for key in settings if key not in known]
    if unknown:
        raise ValueError(f"{where} has the unknown keys {shown(unknown)}; known are {list(known)}.")
