# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Adapters of peft remember that their base is sparse, and with which settings.

An adapter names its base (`base_model_name_or_path`) and nothing more: a base that was made sparse in memory would come back
dense. So `adapter_config.json` gets two entries when the base retrieves sparsely:

- `sparse_hopfield`: the settings of the base, as they are when the adapter is saved.
- `task_type`: the task with a remark. peft refuses a task it does not know with a `ValueError` that shows the remark, so
  a process without this package never loads the adapter onto a dense base. This is what `"model_type": "sparse_hopfield"`
  does for a checkpoint. The remark is taken off when this package is there to read it.

When an adapter is put into a model, [`prepare_base`] compares the settings with those of the model:

- A base that was loaded by name (`AutoPeftModelFor...`, `AutoModelFor...`, `pipeline`) is made sparse with the settings.
- A dense model that the caller passes is refused: converting it would change the caller's model.
- A sparse model with other settings is refused. `backend` may differ: it changes how a result is computed, not the result.

Learned alpha and beta are new parameters, like the classification head that peft adds to `modules_to_save` by itself. A new
adapter trains and saves them in the same way.
"""

import copy
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from ..configuration import HEAD_FIELDS, SparseHopfieldConfig
from ..retrieval_parameters import RetrievalParameters
from . import auto
from .binding import has_bound_attention, is_converted
from .convert import to_sparse_hopfield
from .sites import Site, attention_sites
from .uncalibrated import settle
from .upstream import ATTENTION_NAME, attention_name, auto_model_mappings


logger = logging.getLogger(__name__)

REMARK = "(on a base with sparse_hopfield attention: import hf_sparse_hopfield before loading)"

_COMPARED = (*HEAD_FIELDS, "steps", "tolerance")
_UNKNOWN: Any = object()

# The settings of the base of the model that is being saved; `_UNKNOWN` while a configuration is saved by itself.
_saved_base: ContextVar[Any] = ContextVar("saved_base", default=_UNKNOWN)
_base_loaded_by_name: ContextVar[bool] = ContextVar("base_loaded_by_name", default=False)


# ---- Saving ----


@contextmanager
def saving_adapters_of(base: nn.Module) -> Iterator[None]:
    """
    Within the context, the configurations of adapters are saved with the settings of this base.

    Args:
        base (`torch.nn.Module`): The base model, sparse or dense.
    """
    token = _saved_base.set(base_settings(base))
    try:
        yield
    finally:
        _saved_base.reset(token)


def adapters_are_saved() -> bool:
    """Return whether the adapters of a model are being saved."""
    return _saved_base.get() is not _UNKNOWN


def config_to_save(config: Any) -> Any:
    """
    The configuration of an adapter with the entries for a sparse base.

    Args:
        config ([`~peft.PeftConfig`]): The configuration.

    Returns:
        [`~peft.PeftConfig`]: A copy with the entries, or `config` itself if the base is dense.
    """
    settings = _saved_base.get()
    if settings is _UNKNOWN:
        settings = getattr(config, ATTENTION_NAME, None)
    if settings is None:
        return config
    entries = config.to_dict()
    task = getattr(entries["task_type"], "value", entries["task_type"])
    entries |= {"task_type": f"{task} {REMARK}", ATTENTION_NAME: settings.to_dict()}
    saved = copy.copy(config)
    saved.to_dict = lambda: entries
    return saved


def loadable_class(auto_mapping: dict[str, str] | None) -> dict[str, str] | None:
    """
    Name the Auto class in place of a sparse class, for adapters without a task.

    peft imports the class of the base from the module that an adapter names, and trusts few modules. An Auto class is in
    transformers, and loads dense and sparse checkpoints.

    Args:
        auto_mapping (`dict[str, str]`, *optional*): `base_model_class` and `parent_library`, as peft saves them.
    """
    if auto_mapping is None or auto_mapping["parent_library"] != auto.__name__:
        return auto_mapping
    sparse: Any = getattr(auto, auto_mapping["base_model_class"])
    for name, mapping in auto_model_mappings().items():
        known = mapping.get(sparse.config_class, None)
        if sparse in (known if isinstance(known, (list, tuple)) else [known]):
            return {"base_model_class": name, "parent_library": "transformers"}
    dense = sparse.base_model_class
    return {"base_model_class": dense.__name__, "parent_library": dense.__module__}


def base_settings(base: nn.Module) -> SparseHopfieldConfig | None:
    """
    The settings with which [`to_sparse_hopfield`] makes a dense copy of a model equal to it; `None` if it is dense.

    Args:
        base (`torch.nn.Module`): The model.
    """
    sites = attention_sites(base)
    live = {site.name: retrieval for site in sites if (retrieval := getattr(site.module, ATTENTION_NAME, None))}
    if not live:
        return None
    settings = SparseHopfieldConfig.from_dict(getattr(base.config, ATTENTION_NAME, None))
    if difference(sites, settings) is None:
        return settings
    # parts of the model have settings of their own: name every layer
    learned: dict[str, Any] = {
        f"learn_{name}": any(getattr(retrieval, f"learn_{name}") for retrieval in live.values())
        for name in HEAD_FIELDS
    }
    return SparseHopfieldConfig(
        layers=list(live),
        overrides={name: {**_values(retrieval), "backend": retrieval.backend} for name, retrieval in live.items()},
        **learned,
    )


# ---- Loading ----


def split_entries(entries: dict[str, Any]) -> tuple[dict[str, Any], SparseHopfieldConfig | None]:
    """
    Take the entries for a sparse base out of those of an `adapter_config.json`.

    Args:
        entries (`dict`): All entries.

    Returns:
        `tuple`: The entries as peft knows them, and the settings of the base; `None` if nothing says that it is sparse.
    """
    entries = dict(entries)
    settings = entries.pop(ATTENTION_NAME, None)
    task = entries.get("task_type")
    if isinstance(task, str) and task.endswith(REMARK):
        task = task.removesuffix(REMARK).strip()
        entries["task_type"] = None if task == "None" else task
        if settings is None:
            raise ValueError(
                "adapter_config.json says that the base of the adapter has sparse_hopfield attention, but its settings are "
                f"missing (entry {ATTENTION_NAME!r}). Save the adapter again, or copy the entry from another checkpoint."
            )
    return entries, None if settings is None else SparseHopfieldConfig.from_dict(settings)


@contextmanager
def base_loaded_by_name() -> Iterator[None]:
    """Within the context, a dense base is made sparse for its adapter: only its name was given, so nobody else has it."""
    token = _base_loaded_by_name.set(True)
    try:
        yield
    finally:
        _base_loaded_by_name.reset(token)


def prepare_base(base: nn.Module, config: Any) -> None:
    """
    Check that a base is what an adapter was trained on, before the adapter is put into it.

    Args:
        base (`torch.nn.Module`): The base model.
        config ([`~peft.PeftConfig`]):
            The configuration of the adapter. One that was loaded has the settings of its base in `config.sparse_hopfield`,
            or `None` there. A new one has no such attribute.
    """
    if not hasattr(config, ATTENTION_NAME):
        _refuse_own_softmax(base, config)
        _train_learned(base, config)
    elif config.sparse_hopfield is not None:
        if _base_loaded_by_name.get():
            _make_sparse(base, config.sparse_hopfield)
        check_base(base, config.sparse_hopfield)
        settle(base)


def check_base(base: nn.Module, settings: SparseHopfieldConfig) -> None:
    """
    Raise if a base is dense, or retrieves with other settings than its adapter was trained with.

    Args:
        base (`torch.nn.Module`): The base model.
        settings ([`SparseHopfieldConfig`]): The settings that the adapter was trained with.
    """
    check_sparse(base)
    found = difference(attention_sites(base), settings)
    if found is not None:
        raise ValueError(
            f"This adapter was trained on a base with other settings of sparse retrieval than {type(base).__name__} has: "
            f"{found}. {_ADVICE}"
        )


def check_sparse(base: nn.Module) -> None:
    """Raise if a base is dense; for an adapter that was trained on a sparse one."""
    if not has_bound_attention(base):
        raise ValueError(
            f"This adapter was trained on a base with sparse Hopfield retrieval, but {type(base).__name__} is dense. {_ADVICE}"
        )


_ADVICE = (
    "Convert the dense base first, `model = to_sparse_hopfield(model, PeftConfig.from_pretrained(adapter).sparse_hopfield)`, "
    "or have the adapter load its base: `AutoPeftModelFor....from_pretrained(adapter)`."
)


def check_saved_adapter(base: nn.Module, folder: Any) -> None:
    """
    Raise if a base is dense, but the adapter in a folder was trained on a sparse one.

    For weights that are loaded into an adapter that the model already has, as the Trainer does when it resumes. Settings
    may differ here: a schedule changes them during training.

    Args:
        base (`torch.nn.Module`): The base model.
        folder (`str`): The folder, or a repository on the Hub, which is not looked at.
    """
    from peft import PeftConfig

    if os.path.isfile(os.path.join(folder, "adapter_config.json")):
        if getattr(PeftConfig.from_pretrained(folder), ATTENTION_NAME, None) is not None:
            check_sparse(base)


def difference(sites: list[Site], settings: SparseHopfieldConfig) -> str | None:
    """
    The first layer that retrieves otherwise than the settings say, in words; `None` if there is none.

    Args:
        sites (`list[Site]`): The attention modules of a model.
        settings ([`SparseHopfieldConfig`]): The settings.
    """
    for site in sites:
        retrieval, expected = getattr(site.module, ATTENTION_NAME, None), settings.for_layer(site.name)
        if retrieval is None or expected is None:
            if retrieval is not expected:
                return f"layer {site.name!r} is {'dense' if retrieval is None else 'sparse'}"
            continue
        actual = _values(retrieval)
        for name in _COMPARED:
            if actual[name] != expected[name]:
                return f"layer {site.name!r} has {name}={actual[name]!r} instead of {expected[name]!r}"
        for name in [f"learn_{name}" for name in HEAD_FIELDS]:
            if getattr(retrieval, name) != getattr(settings, name):
                return f"layer {site.name!r} has {name}={getattr(retrieval, name)}"
    return None


def _values(retrieval: Any) -> dict[str, Any]:
    """The settings of a layer in the form of [`SparseHopfieldConfig.for_layer`], without the backend."""
    live = {name: retrieval.configured(name) for name in HEAD_FIELDS}
    live = {name: list(value) if isinstance(value, tuple) else value for name, value in live.items()}
    return {**live, "steps": retrieval.steps, "tolerance": retrieval.tolerance}


def _make_sparse(base: nn.Module, settings: SparseHopfieldConfig) -> None:
    """Give a base that was loaded by name the settings of its adapter, unless it brings its own."""
    if not isinstance(base, PreTrainedModel) or is_converted(base):
        return
    by_name = attention_name(base.config) == ATTENTION_NAME
    if by_name and getattr(base.config, ATTENTION_NAME, None) is not None:
        return
    if not by_name and attention_name(base.config) != base.get_correct_attn_implementation(None):
        raise ValueError(
            f"The base of this adapter retrieves sparsely, so attn_implementation={attention_name(base.config)!r} cannot be "
            "used for it. Leave attn_implementation out."
        )
    if any(parameter.is_meta for parameter in base.parameters()):
        raise ValueError(
            f"Parts of {type(base).__name__} are offloaded to disk, where it cannot be made sparse for its adapter. Use a "
            "device_map without 'disk', or load the adapter onto a sparse checkpoint: save `merge_and_unload()` once."
        )
    if by_name or getattr(base, "hf_quantizer", None) is not None:  # which cannot become another class
        base.config.sparse_hopfield = settings
        base.set_attn_implementation(ATTENTION_NAME)
    else:
        to_sparse_hopfield(base, settings)


# ---- New adapters ----


def _refuse_own_softmax(base: nn.Module, config: Any) -> None:
    if config.is_adaption_prompt and has_bound_attention(base):
        raise ValueError(
            f"{type(config).__name__} adds attention over its prompt with a softmax of its own, which would stay dense in "
            f"{type(base).__name__}. Use another kind of adapter, such as LoraConfig."
        )


def _train_learned(base: nn.Module, config: Any) -> None:
    """Have a new adapter train and save learned alpha and beta, which peft would freeze."""
    names = sorted({_name_in_layer(path) for path, module in base.named_modules() if _is_learned(module)})
    if not names:
        return
    if not hasattr(config, "modules_to_save"):
        logger.warning(
            "%s trains no modules of the base, so the learned alpha and beta of %s are frozen.",
            type(config).__name__,
            type(base).__name__,
        )
        return
    saved = list(config.modules_to_save or ())
    added = [name for name in names if not any(name.endswith(known) for known in saved)]
    if added:
        config.modules_to_save = [*saved, *added]
        logger.info("The adapter also trains and saves the learned alpha and beta: modules_to_save has %s now.", added)


def _is_learned(module: nn.Module) -> bool:
    return isinstance(module, RetrievalParameters) and any(getattr(module, f"learn_{name}") for name in HEAD_FIELDS)


def _name_in_layer(path: str) -> str:
    """The name under which a layer has its alpha and beta. Another adapter may have wrapped them."""
    parts = path.split(".")
    if parts[-1] == "original_module":
        return parts[-2]
    return parts[-3] if parts[-2:-1] == ["modules_to_save"] else parts[-1]
