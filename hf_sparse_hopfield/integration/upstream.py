# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Everything that reaches into transformers, accelerate, peft and huggingface_hub: the one file that a new release can break.

The rest of the package uses public names only, or the functions below. What they do with them lives elsewhere: a wrapper
here is thin and calls `binding.py`, `auto.py` or `hub/push.py`. At module level this file imports the standard library
only, so that `import hf_sparse_hopfield` stays light.

**Versions.** [`SUPPORTED`] holds the releases the package accepts, the same as in `pyproject.toml`; [`check_versions`] runs
at import. All names below exist in transformers 5.3 to 5.23; the tests pass with transformers 5.20 and 5.23, accelerate
1.13 and 1.15, and huggingface_hub 1.31 and 2.4, of which we use public names only. If a release drops a method that is
wrapped here, an `ImportError` names it.

**Import hook.** [`install`] runs at `import hf_sparse_hopfield`. `import transformers` is lazy and loads neither torch nor
modelling code, so registration waits for the modules in `_WAITING`: `transformers.modeling_utils` (attention),
`transformers.models.auto.configuration_auto` (model types), `transformers.generation.utils` (the cache), two of
`transformers.generation.continuous_batching`, the model manager of `transformers serve`, `transformers.trainer`, and `peft.auto`, the last of peft's modules that is needed.
Considered: importing them at once, which costs seconds, and entry points, which transformers does not have.

**Wrapped methods.** Public registries alone are not enough: a family that computes softmax itself accepts the name of our
attention and runs dense, and transformers does not save that name. For models without sparse retrieval each wrapper
calls the original and does nothing else.

| method | why |
| --- | --- |
| `PreTrainedModel.from_pretrained` | a sparse checkpoint is not loaded with the configuration of a dense one |
| `PreTrainedModel._check_and_adjust_attn_implementation` | first call while a model is built: a configuration with a `sparse_hopfield` entry selects this attention, and a converted one no other |
| `PreTrainedModel.post_init` | last call while a model is built: each attention module gets its settings, or it raises |
| `PreTrainedModel.set_attn_implementation` | both later on; the original skips families that are not on the registry |
| `PreTrainedModel._initialize_weights` | learned alpha and beta that a checkpoint lacks start at their initial values, and fixed per-head values, which are never saved, are written again; dense weights that are loaded into a sparse model are noticed |
| `PreTrainedModel.save_pretrained` | saves under the model type `sparse_hopfield`: the checkpoint loads as sparse or not at all |
| `PreTrainedModel.push_to_hub` | pushes with a model card |
| `PreTrainedModel.load_adapter` | a base that `from_pretrained` loads for an adapter becomes sparse if the adapter records it |
| `GenerationMixin._prepare_cache_for_generation` | a sparse model generates with a `SparseHopfieldCache` instead of the default cache |
| `ContinuousBatchingManager.switch_to_cb_friendly_attn` | the original knows eager, sdpa and flash attention, and switches to flash attention where it is installed: a sparse model keeps its attention |
| `ModelRunner.compute_batch` | tells the mask function that a continuous batch runs: it needs no mask |
| `Trainer.init_hf_repo` | explains a Hub error before training starts |
| `Trainer.create_model_card` | adds our section to the Trainer's card |
| `Trainer.push_to_hub` | explains a Hub error and names the command that retries |
| `Trainer._push_from_checkpoint` | copies the remote code that the Trainer leaves out, and reports pushes that fail in the background |
| `Trainer._prepare_context_parallel_inputs` | lets sparse models through, whose attention notices torch's context; the original refuses all but SDPA, which is what torch patches |
| `PeftConfigMixin.save_pretrained` | records in `adapter_config.json` that the base is sparse, in the one write of that file |
| `PeftConfigMixin.from_peft_type` | reads that record, before peft drops an entry that it does not know |
| `PeftModel.save_pretrained` | the settings to record are those of the base at that moment |
| `PeftModel.__init__` | the base fits the record, or it raises; learned alpha and beta are trained |
| `PeftModel.add_adapter` | the same for another adapter that learns a prompt |
| `PeftModel.load_adapter` | the same for weights that are loaded into an adapter that exists |
| `BaseTuner.inject_adapter` | the same for adapters that transformers puts into a model without a `PeftModel` |
| `_BaseAutoPeftModel.from_pretrained` | the base that it loads for an adapter becomes sparse if the adapter records it |

`patches.py` also wraps with [`wrap_method`] the forward of attention classes that compute softmax themselves, and BigBird's
`set_attention_type`, which exchanges the attention module. [`replace_global`] replaces SEW-D's `XSoftmax` there, and here the
`transformers` in which `transformers serve` looks up the class that a checkpoint names: it finds the sparse ones, too.
[`keep_attention_in_generate`] wraps Whisper's `generate`, which switches a model to eager attention for good.

**Private names.**

| module | name | why | public way considered |
| --- | --- | --- | --- |
| `transformers.configuration_utils` | `_attn_implementation` | read or set the attention of a configuration and its parts | constructors accept `attn_implementation`; nothing public reads it |
| `transformers.configuration_utils` | `_attn_implementation_internal` | set it for one configuration without its parts | none |
| `transformers.modeling_utils` | `_check_and_adjust_attn_implementation` | wrapped, see above | `get_correct_attn_implementation` is not called for kernels from the Hub |
| `transformers.modeling_utils` | `_initialize_weights` | wrapped, see above | `_init_weights` is private, too, and each family overrides it |
| `transformers.modeling_utils` | `_is_hf_initialized` | tell loaded weights from missing ones | `transformers.initialization` honours the mark of tensors, but not that of modules |
| `transformers.modeling_utils` | `_supports_flash_attn` | tell whether the models of a family pass masks on as they are | `supports_flash_attention` is of a model; a mask function gets a configuration |
| `transformers.modeling_utils` | `_can_record_outputs` | register the outputs of a class made after the model was built | none: `PreTrainedModel.__init__` registers them |
| `transformers.utils.output_capturing` | `_CAN_RECORD_REGISTRY` | same | none |
| `transformers.utils.output_capturing` | `_active_collector` | tell whether a model records attentions with hooks | `output_attentions` reaches only some attention modules |
| `transformers.core_model_loading` | `_weight_conversions` | save weights under the names the model has, not those of the original checkpoint | `save_pretrained(save_original_format=False)` also drops the conversions of the model's parts, which loading applies |
| `transformers.models.auto.auto_factory` | `_model_mapping` | find the Auto classes that load a model | none leads from an Auto class to its mapping |
| `transformers.generation.utils` | `_prepare_cache_for_generation` | wrapped, see above | `generate(past_key_values=...)` is the user's; names of `cache_implementation` cannot be registered |
| `transformers.trainer` | `_push_from_checkpoint` | wrapped, see above | `on_save` callbacks run after the push |
| `transformers.trainer` | `_prepare_inputs` | move a batch to the device and dtype of the model | `accelerate.utils.send_to_device` does not cast for DeepSpeed |
| `peft.auto` | `_BaseAutoPeftModel` | wrapped, see above | each `AutoPeftModelFor...` inherits the method from it |
| `transformers.trainer` | `_prepare_context_parallel_inputs` | wrapped, see above | none: the name of the attention is compared with sdpa |
| `accelerate.big_modeling` | `_self_attn_pre_forward_hook` | notice a module whose masks get lost outside of accelerate's context | none |
| `accelerate.accelerator` | `_is_accelerate_prepared` | train a model in parallel that was evaluated before | `Accelerator.free_memory` keeps the mark |

Also here: [`swap_class`] assigns `model.__class__`, [`set_config_class`] `config.__class__`, [`name_auto_class`] writes into the
public `*_MAPPING_NAMES` of transformers, [`model_under_construction`] walks over stack frames, and [`torch_context_parallel`]
reads torch's private `_cp_options` and the closure of the function that torch puts in place of SDPA. [`mask_pattern`] reads the
closures of mask functions.
"""

import copy
import functools
import importlib
import importlib.abc
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from importlib import metadata
from importlib.machinery import ModuleSpec
from types import FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from ..version import __version__


if TYPE_CHECKING:
    from peft import PeftConfig, PeftModel
    from torch import Tensor, nn
    from transformers import PreTrainedConfig, PreTrainedModel, Trainer

ATTENTION_NAME = "sparse_hopfield"

# The lowest release on which the tests pass, and the first that is refused: the next major one may change anything.
# Newer minor releases than the checked ones are accepted silently. They come out every few weeks and rarely break
# anything; a warning would reach people who can do nothing about it, and a CI job tests the newest releases.
SUPPORTED = {
    "transformers": ("5.20.0", "6"),
    "torch": ("2.9.0", "3"),
    "accelerate": ("1.13.0", "2"),
    "datasets": ("4.0.0", "6"),
}


# ---- Versions ----


def check_versions() -> None:
    """Raise an `ImportError` if a package of an unsupported version is installed. A missing package is not an error here."""
    for package, installed in _installed().items():
        floor, cap = SUPPORTED[package]
        if not _release(floor) <= _release(installed) < _release(cap):
            needed = f"{package}>={floor},<{cap}"
            raise ImportError(
                f"hf_sparse_hopfield {__version__} needs {needed}; {installed} is installed: pip install '{needed}'."
            )


def _installed() -> dict[str, str]:
    versions = {}
    for package in SUPPORTED:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def _release(version: str) -> tuple[int, ...]:
    """The numbers of a version, without what follows them: `2.13.0+cpu` and `2.13` are (2, 13, 0)."""
    numbers = [int(number) for number in re.findall(r"\d+", re.split(r"[^\d.]", version)[0])]
    return tuple((*numbers, 0, 0, 0)[:3])


# ---- Import hook ----


def install() -> None:
    """Register with transformers: now for the modules that are imported already, for the others when they are."""
    for name in list(_WAITING):
        if name in sys.modules:
            _WAITING.pop(name)()
    if _WAITING and not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterImport())


def _register_attention() -> None:
    from transformers import PreTrainedModel

    from . import attention  # noqa: F401  (registers its functions)

    for name, make_wrapper in _MODEL_WRAPPERS.items():
        wrap_method(PreTrainedModel, name, make_wrapper)


def _register_model_types() -> None:
    from ..models.registration import register_configurations
    from . import auto  # noqa: F401  (registers `sparse_hopfield`)

    register_configurations()


def _register_trainer() -> None:
    wrap_trainer(sys.modules["transformers.trainer"].Trainer)


def _register_adapters() -> None:
    for module, wrappers in _ADAPTER_WRAPPERS.items():
        for (class_name, name), make_wrapper in wrappers.items():
            wrap_method(getattr(sys.modules[module], class_name), name, make_wrapper)


def _register_cache() -> None:
    mixin = sys.modules["transformers.generation.utils"].GenerationMixin
    wrap_method(mixin, "_prepare_cache_for_generation", _prepare_own_cache)


def _register_continuous_batching() -> None:
    manager = sys.modules[f"{_CONTINUOUS_BATCHING}.continuous_api"].ContinuousBatchingManager
    wrap_method(manager, "switch_to_cb_friendly_attn", _keep_attention_in_batches)


def _register_model_runner() -> None:
    wrap_method(sys.modules[f"{_CONTINUOUS_BATCHING}.model_runner"].ModelRunner, "compute_batch", _without_mask)


def _register_serving() -> None:
    manager = sys.modules[_MODEL_MANAGER]
    replace_global(manager, "transformers", _WithSparseClasses(manager.transformers))


_MODEL_MANAGER = "transformers.cli.serving.model_manager"
_CONTINUOUS_BATCHING = "transformers.generation.continuous_batching"
_WAITING: dict[str, Callable[[], None]] = {
    "transformers.modeling_utils": _register_attention,
    "transformers.models.auto.configuration_auto": _register_model_types,
    "transformers.generation.utils": _register_cache,
    f"{_CONTINUOUS_BATCHING}.continuous_api": _register_continuous_batching,
    f"{_CONTINUOUS_BATCHING}.model_runner": _register_model_runner,
    _MODEL_MANAGER: _register_serving,
    "transformers.trainer": _register_trainer,
    "peft.auto": _register_adapters,
}


class _WithSparseClasses(ModuleType):
    """The module `transformers` together with the sparse model classes, which `auto.py` makes on demand."""

    def __init__(self, original: ModuleType) -> None:
        super().__init__(original.__name__, original.__doc__)
        self.original = original

    def __getattr__(self, name: str) -> Any:
        from . import auto

        return getattr(auto if name.startswith(auto.PREFIX) else self.original, name)


class _AfterImport(importlib.abc.MetaPathFinder):
    """Lets the other finders find a module in `_WAITING`, and registers once the module is executed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _WAITING:
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in others)), None)
        if spec is None or spec.loader is None:
            return None
        exec_module = spec.loader.exec_module

        def exec_then_register(module: ModuleType) -> None:
            exec_module(module)
            register = _WAITING.pop(fullname, None)
            if register is not None:
                register()

        # on this one loader; replacing the loader would hide the source of the module from `inspect`
        spec.loader.exec_module = exec_then_register  # type: ignore[method-assign]
        return spec


# ---- Wrapped methods ----

Method = Callable[..., Any]
_ORIGINAL = "sparse_hopfield_original"


def wrap_method(cls: type, name: str, make_wrapper: Callable[[Method], Method]) -> None:
    """
    Wrap a method of a class, once.

    Args:
        cls (`type`): The class. A wrapper that it inherits does not count: it gets its own, around the original.
        name (`str`): Name of the method. It may be a class method that `cls` itself defines.
        make_wrapper (`Callable`): Takes the original method and returns the one that replaces it.
    """
    if not hasattr(cls, name):
        installed = ", ".join(f"{package} {version}" for package, version in _installed().items())
        raise ImportError(
            f"hf_sparse_hopfield {__version__} wraps {cls.__name__}.{name}, which {cls.__module__} of this release does "
            f"not have: {installed}. Install an older release, or a newer hf_sparse_hopfield."
        )
    if hasattr(getattr(vars(cls).get(name), "__func__", vars(cls).get(name)), _ORIGINAL):
        return
    original = original_method(cls, name)
    wrapper = functools.wraps(original)(make_wrapper(original))
    setattr(wrapper, _ORIGINAL, original)
    of_class = inspect.ismethod(getattr(cls, name))
    setattr(cls, name, classmethod(wrapper) if of_class else wrapper)


def replace_global(module: ModuleType, name: str, value: Any) -> None:
    """
    Replace a name of a module of transformers, if the module has it.

    Args:
        module (module): The module.
        name (`str`): The name.
        value (`Any`): Its replacement.
    """
    if hasattr(module, name):
        setattr(module, name, value)


def original_method(cls: type, name: str) -> Method:
    """
    A method of a class without our wrapper.

    Args:
        cls (`type`): The class.
        name (`str`): Name of the method. Of a class method, the function behind it is returned.
    """
    method = getattr(cls, name)
    function = getattr(method, "__func__", method)
    return getattr(function, _ORIGINAL, function)


def _refuse_dense_config(original: Method) -> Method:
    def from_pretrained(
        cls: type, pretrained_model_name_or_path: Any, *model_args: Any, config: Any = None, **kwargs: Any
    ) -> Any:
        from .auto import refuse_dense_config

        if config is not None and pretrained_model_name_or_path is not None:
            refuse_dense_config(pretrained_model_name_or_path, config, kwargs)
        return original(cls, pretrained_model_name_or_path, *model_args, config=config, **kwargs)

    return from_pretrained


def _select_attention(original: Method) -> Method:
    def check_and_adjust(self: "PreTrainedModel", attn_implementation: str | None, *args: Any, **kwargs: Any) -> str:
        from .binding import comes_from_conversion, refuse_other_attention

        # transformers passes the name of the attention to the parts that a configuration declares. A part whose
        # configuration is made on the way (the backbone of MaskFormer) would silently stay dense.
        outer = model_under_construction(self)
        for model in (self, outer):
            if model is not None and comes_from_conversion(model):
                refuse_other_attention(model, attn_implementation)
        if attn_implementation is None:
            inside_sparse = outer is not None and is_this_attention(attention_name(outer.config))
            converted = comes_from_conversion(self)
            if inside_sparse or converted or getattr(self.config, ATTENTION_NAME, None) is not None:
                attn_implementation = ATTENTION_NAME
        if is_this_attention(attn_implementation):
            _add_to_attention_classes(type(self))
        return original(self, attn_implementation, *args, **kwargs)

    return check_and_adjust


def _add_to_attention_classes(model_class: type) -> None:
    """Older families choose an attention class by the name of the implementation. Ours is the eager class, patched."""
    from torch import nn

    for cls in model_class.__mro__:
        for value in list(vars(sys.modules[cls.__module__]).values()):
            # a plain dict: a script may have imported transformers' own mappings, whose `get` is another one
            eager = value.get("eager") if type(value) is dict else None
            if isinstance(eager, type) and issubclass(eager, nn.Module):
                value.setdefault(ATTENTION_NAME, eager)


def _bind_new_model(original: Method) -> Method:
    def post_init(self: "PreTrainedModel") -> None:
        from .binding import bind, requests_sparse_hopfield
        from .uncalibrated import await_weights

        # Before transformers initialises the weights, since learned alpha and beta are among them; and only for the
        # outermost model, which knows all settings and all layers.
        if model_under_construction(self) is None and requests_sparse_hopfield(self):
            bind(self)
            await_weights(self)
        original(self)

    return post_init


def _change_attention(original: Method) -> Method:
    def set_attn_implementation(
        self: "PreTrainedModel", attn_implementation: str | dict, allow_all_kernels: bool = False
    ) -> None:
        from .binding import bind, check_switch, has_bound_attention, name_attention
        from .sites import configs_of

        if not _mentions_us(attn_implementation) and not has_bound_attention(self):
            return original(self, attn_implementation, allow_all_kernels)
        check_switch(self, attn_implementation)
        if attn_implementation is None:  # no other attention is named
            attn_implementation = ATTENTION_NAME
        with ExitStack() as undo:
            for config in configs_of(self):
                undo.callback(set_own_attention_name, config, attention_name(config))
            name_attention(self, attn_implementation)
            bind(self)
            undo.pop_all()

    return set_attn_implementation


def _mentions_us(attn_implementation: str | dict | None) -> bool:
    if isinstance(attn_implementation, dict):
        return any(_mentions_us(value) for value in attn_implementation.values())
    return is_this_attention(attn_implementation)


def _initialize_missing(original: Method) -> Method:
    def initialize_weights(self: "PreTrainedModel", module: "nn.Module", *args: Any, **kwargs: Any) -> None:
        from ..retrieval_parameters import RetrievalParameters
        from .uncalibrated import note_weights

        note_weights(module)
        if isinstance(module, RetrievalParameters) and not is_initialized(module):
            parameters = module.named_parameters(recurse=False)
            module.reset_parameters(keep=[name for name, parameter in parameters if is_initialized(parameter)])
            mark_initialized(module)
        return original(self, module, *args, **kwargs)

    return initialize_weights


def _save_as_sparse(original: Method) -> Method:
    def save_pretrained(self: "PreTrainedModel", save_directory: Any, *args: Any, **kwargs: Any) -> None:
        from .adapters import saving_adapters_of
        from .auto import as_sparse_class
        from .binding import check_saved_settings, has_sparse_retrieval
        from .uncalibrated import noted_in_config

        if not has_sparse_retrieval(self):
            return original(self, save_directory, *args, **kwargs)
        check_saved_settings(self)
        push = kwargs.pop("push_to_hub", False) and kwargs.get("is_main_process", True)
        names = ("repo_id", "private", "revision", "create_pr", "commit_message")
        options = {name: kwargs.pop(name) for name in names if name in kwargs}
        with as_sparse_class(self), noted_in_config(self), saving_adapters_of(self):
            original(self, save_directory, *args, **kwargs)
        if push:
            from ..hub.push import push_saved

            push_saved(self, save_directory, token=kwargs.get("token"), **options)

    return save_pretrained


def _push_with_card(original: Method) -> Method:
    def push_to_hub(self: "PreTrainedModel", repo_id: str, **kwargs: Any) -> Any:
        from .binding import has_sparse_retrieval

        if not has_sparse_retrieval(self):
            return original(self, repo_id, **kwargs)
        from ..hub.push import push_model

        return push_model(self, repo_id, **kwargs)

    return push_to_hub


def _load_adapter_and_base(original: Method) -> Method:
    def load_adapter(self: "PreTrainedModel", *args: Any, **kwargs: Any) -> Any:
        from .adapters import base_loaded_by_name

        # `from_pretrained` passes how it has loaded the base; users have nothing to pass here
        with nullcontext() if kwargs.get("load_config") is None else base_loaded_by_name():
            return original(self, *args, **kwargs)

    return load_adapter


_MODEL_WRAPPERS = {
    "from_pretrained": _refuse_dense_config,
    "_check_and_adjust_attn_implementation": _select_attention,
    "post_init": _bind_new_model,
    "set_attn_implementation": _change_attention,
    "_initialize_weights": _initialize_missing,
    "save_pretrained": _save_as_sparse,
    "push_to_hub": _push_with_card,
    "load_adapter": _load_adapter_and_base,
}


def _prepare_own_cache(original: Method) -> Method:
    def prepare_cache_for_generation(
        self: "PreTrainedModel", generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        from .binding import has_bound_attention

        given = model_kwargs.get("past_key_values")
        result = original(self, generation_config, model_kwargs, *args, **kwargs)
        if given is None and has_bound_attention(self):
            from .cache import use_own_cache

            use_own_cache(model_kwargs, self.config.get_text_config(decoder=True), generation_config.is_assistant)
        return result

    return prepare_cache_for_generation


def _keep_attention_in_batches(original: Method) -> Method:
    def switch_to_cb_friendly_attn(
        self: Any, model: "PreTrainedModel", auto_switch_to_flash: bool = True, *args: Any, **kwargs: Any
    ) -> None:
        from .binding import has_bound_attention
        from .paged import check_paged

        if not has_bound_attention(model):
            return original(self, model, auto_switch_to_flash, *args, **kwargs)
        check_paged(model)

    return switch_to_cb_friendly_attn


def _without_mask(original: Method) -> Method:
    def compute_batch(self: Any, *args: Any, **kwargs: Any) -> Any:
        from .paged import continuous_batch

        with continuous_batch():
            return original(self, *args, **kwargs)

    return compute_batch


def wrap_trainer(trainer_class: type) -> None:
    """
    Have the Trainer push sparse models with their card and remote code, and explain pushes that fail.

    Args:
        trainer_class (`type`): `transformers.Trainer`. Nothing changes for dense models.
    """
    for name, make_wrapper in _TRAINER_WRAPPERS.items():
        wrap_method(trainer_class, name, make_wrapper)


def _explain_repository_errors(original: Method) -> Method:
    def init_hf_repo(self: "Trainer", *args: Any, **kwargs: Any) -> Any:
        from ..hub.trainer_push import trainer_repository_errors

        with trainer_repository_errors(self):
            return original(self, *args, **kwargs)

    return init_hf_repo


def _complete_card(original: Method) -> Method:
    def create_model_card(self: "Trainer", *args: Any, **kwargs: Any) -> None:
        from ..hub.trainer_push import complete_trainer_card

        original(self, *args, **kwargs)
        complete_trainer_card(self)

    return create_model_card


def _explain_push_errors(original: Method) -> Method:
    def push_to_hub(self: "Trainer", *args: Any, **kwargs: Any) -> Any:
        from ..hub.trainer_push import trainer_push_errors

        with trainer_push_errors(self, revision=kwargs.get("revision")):
            return original(self, *args, **kwargs)

    return push_to_hub


def _push_remote_code(original: Method) -> Method:
    def push_from_checkpoint(self: "Trainer", checkpoint_folder: str, *args: Any, **kwargs: Any) -> Any:
        from ..hub.trainer_push import copy_remote_code, report_background_pushes

        copy_remote_code(self, checkpoint_folder)
        result = original(self, checkpoint_folder, *args, **kwargs)
        report_background_pushes(self, checkpoint_folder)
        return result

    return push_from_checkpoint


def _allow_context_parallel(original: Method) -> Method:
    def prepare_context_parallel_inputs(self: "Trainer", model: "nn.Module", inputs: dict[str, Any]) -> Any:
        from .binding import has_bound_attention

        # The original asks the model only for the name of its attention, and refuses every name but sdpa.
        return original(self, None if has_bound_attention(model) else model, inputs)

    return prepare_context_parallel_inputs


_TRAINER_WRAPPERS = {
    "init_hf_repo": _explain_repository_errors,
    "create_model_card": _complete_card,
    "push_to_hub": _explain_push_errors,
    "_push_from_checkpoint": _push_remote_code,
    "_prepare_context_parallel_inputs": _allow_context_parallel,
}


def keep_attention_in_generate(model_class: type) -> None:
    """
    Have a Whisper model keep its attention when it is asked for timestamps of tokens.

    Args:
        model_class (`type`): Class of a model. Nothing changes for other families, and for dense models.
    """
    for cls in model_class.__mro__:
        if cls.__name__ == "WhisperGenerationMixin":
            wrap_method(cls, "generate", _keep_attention)


def _keep_attention(original: Method) -> Method:
    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        from .binding import has_bound_attention

        if not has_bound_attention(self):
            return original(self, *args, **kwargs)
        # It writes "eager" into the configuration to get weights, and leaves it there. Our attention returns weights, so
        # it may write into a copy: the attention modules, and the encoder and decoder that make masks, have the original.
        config = self.model.config
        self.model.config = copy.deepcopy(config)
        try:
            return original(self, *args, **kwargs)
        finally:
            self.model.config = config

    return generate


def _save_adapter_config(original: Method) -> Method:
    def save_pretrained(self: "PeftConfig", save_directory: str, **kwargs: Any) -> None:
        from .adapters import config_to_save, loadable_class

        if kwargs.get("auto_mapping_dict") is not None:
            kwargs["auto_mapping_dict"] = loadable_class(kwargs["auto_mapping_dict"])
        original(config_to_save(self), save_directory, **kwargs)

    return save_pretrained


def _read_adapter_config(original: Method) -> Method:
    def from_peft_type(cls: "type[PeftConfig]", **kwargs: Any) -> "PeftConfig":
        from .adapters import split_entries

        kwargs, settings = split_entries(kwargs)
        config = original(cls, **kwargs)
        setattr(config, ATTENTION_NAME, settings)
        return config

    return from_peft_type


def _save_adapters(original: Method) -> Method:
    def save_pretrained(self: "PeftModel", *args: Any, **kwargs: Any) -> None:
        from .adapters import saving_adapters_of

        with saving_adapters_of(self.get_base_model()):
            original(self, *args, **kwargs)

    return save_pretrained


def _check_first_adapter(original: Method) -> Method:
    def __init__(self: "PeftModel", model: "nn.Module", peft_config: "PeftConfig", *args: Any, **kwargs: Any) -> None:
        from .adapters import prepare_base

        prepare_base(model, peft_config)
        original(self, model, peft_config, *args, **kwargs)

    return __init__


def _check_prompt(original: Method) -> Method:
    def add_adapter(
        self: "PeftModel", adapter_name: str, peft_config: "PeftConfig", *args: Any, **kwargs: Any
    ) -> None:
        from .adapters import prepare_base

        if peft_config.is_prompt_learning:  # others are injected, see below
            prepare_base(self.base_model, peft_config)
        original(self, adapter_name, peft_config, *args, **kwargs)

    return add_adapter


def _check_loaded_weights(original: Method) -> Method:
    def load_adapter(self: "PeftModel", model_id: Any, adapter_name: str, *args: Any, **kwargs: Any) -> Any:
        from .adapters import check_saved_adapter

        if adapter_name in self.peft_config:  # otherwise peft reads the configuration, and the adapter is added
            check_saved_adapter(self.get_base_model(), model_id)
        return original(self, model_id, adapter_name, *args, **kwargs)

    return load_adapter


def _check_injected(original: Method) -> Method:
    def inject_adapter(self: Any, model: "nn.Module", adapter_name: str, *args: Any, **kwargs: Any) -> None:
        from .adapters import prepare_base

        prepare_base(model, self.peft_config[adapter_name])
        original(self, model, adapter_name, *args, **kwargs)

    return inject_adapter


def _load_base_and_adapter(original: Method) -> Method:
    def from_pretrained(cls: type, *args: Any, **kwargs: Any) -> "PeftModel":
        from .adapters import base_loaded_by_name

        with base_loaded_by_name():
            return original(cls, *args, **kwargs)

    return from_pretrained


# By module: class and method.
_ADAPTER_WRAPPERS = {
    "peft.config": {
        ("PeftConfigMixin", "save_pretrained"): _save_adapter_config,
        ("PeftConfigMixin", "from_peft_type"): _read_adapter_config,
    },
    "peft.peft_model": {
        ("PeftModel", "save_pretrained"): _save_adapters,
        ("PeftModel", "__init__"): _check_first_adapter,
        ("PeftModel", "add_adapter"): _check_prompt,
        ("PeftModel", "load_adapter"): _check_loaded_weights,
    },
    "peft.tuners.tuners_utils": {("BaseTuner", "inject_adapter"): _check_injected},
    "peft.auto": {("_BaseAutoPeftModel", "from_pretrained"): _load_base_and_adapter},
}


def model_under_construction(inner: "PreTrainedModel") -> "PreTrainedModel | None":
    """
    The model whose `__init__` is building another one, from the frames of the stack: nothing else tells.

    Args:
        inner ([`~transformers.PreTrainedModel`]): The model that is built.
    """
    from transformers import PreTrainedModel

    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "__init__":
            outer = frame.f_locals.get("self")
            if isinstance(outer, PreTrainedModel) and outer is not inner and hasattr(outer, "config"):
                return outer
        frame = frame.f_back
    return None


# ---- Class swap ----


def set_config_class(config: "PreTrainedConfig", config_class: "type[PreTrainedConfig]") -> None:
    """
    Change the class of a configuration in place.

    Args:
        config ([`~transformers.PreTrainedConfig`]): The configuration.
        config_class (`type`): Its new class, which has the same entries.
    """
    config.__class__ = config_class
    # A loaded configuration also has its type as an attribute. With the old type, transformers would save the weights under
    # the names of the original checkpoints, which it does not read under the new type.
    vars(config).pop("model_type", None)


def swap_class(
    model: "PreTrainedModel",
    model_class: "type[PreTrainedModel]",
    convert_config: Callable[["PreTrainedConfig"], None],
) -> ExitStack:
    """
    Change the class and the configurations of a model in place.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model.
        model_class (`type`): Its new class: a subclass that adds no state, or the class that it was made from.
        convert_config (`Callable`):
            Changes a configuration in place. It gets copies, so that no other model shares the new configuration.

    Returns:
        `contextlib.ExitStack`: Closing it undoes the change; without that, the change stays.
    """
    from transformers import PreTrainedConfig
    from transformers.utils.output_capturing import _CAN_RECORD_REGISTRY

    copies: dict[int, Any] = {}  # modules that share a configuration share the copy

    def converted(config: PreTrainedConfig) -> PreTrainedConfig:
        if id(config) not in copies:
            convert_config(copy.deepcopy(config, copies))
        return copies[id(config)]

    with ExitStack() as undo:
        for module in model.modules():
            attributes = vars(module)
            for name, value in list(attributes.items()):
                if isinstance(value, PreTrainedConfig):
                    attributes[name] = converted(value)
                    undo.callback(attributes.__setitem__, name, value)
        # transformers remembers how it read the original checkpoint and writes it back the same way, under the original
        # model type. Under the new one it must write the names and shapes that the model has.
        conversions = vars(model).pop("_weight_conversions", None)
        if conversions is not None:
            undo.callback(vars(model).__setitem__, "_weight_conversions", conversions)
        undo.callback(setattr, model, "__class__", type(model))
        model.__class__ = model_class
        # By the name of the class, as every release stores it. Since 5.23 `registry[model] = ...` derives the name, before
        # `registry[name] = ...` was needed.
        dict.__setitem__(_CAN_RECORD_REGISTRY, str(model_class), model._can_record_outputs)
        return undo.pop_all()


# ---- Private names of transformers ----


def is_this_attention(name: Any) -> bool:
    """Whether the name of an attention implementation is ours, also for the paged cache of continuous batching."""
    return isinstance(name, str) and name.removeprefix("paged|") == ATTENTION_NAME


def attention_name(config: "PreTrainedConfig") -> str | None:
    """The name of the attention implementation of a configuration."""
    return config._attn_implementation


def set_attention_name(config: "PreTrainedConfig", name: str | dict | None) -> None:
    """Set the attention implementation of a configuration and its parts; a `dict` names one for each part."""
    config._attn_implementation = name


def set_own_attention_name(config: "PreTrainedConfig", name: str | None) -> None:
    """Set the attention implementation of a configuration alone; its parts keep theirs."""
    config._attn_implementation_internal = name


def attentions_are_captured() -> bool:
    """Whether the running model records attentions with hooks. Its modules then need not get `output_attentions`."""
    from transformers.utils.output_capturing import _active_collector

    captured = _active_collector.get()
    return captured is not None and any("attentions" in name for name in captured)


def torch_context_parallel() -> tuple[Any, Any, bool] | None:
    """
    What torch's `context_parallel` has set up, if the process is inside of it; accelerate and the Trainer enter it.

    Returns:
        `tuple` or `None`: The function that is in place of SDPA, the `DeviceMesh` of the processes, and whether each process
        has a part from the front of the sequence and one from the back.
    """
    from torch.nn import functional

    patched = functional.scaled_dot_product_attention
    if not isinstance(patched, FunctionType):  # SDPA itself is built in
        return None
    if not patched.__module__.startswith("torch.distributed.tensor.experimental"):
        return None
    mesh = inspect.getclosurevars(patched).nonlocals["device_mesh"]
    return patched, mesh, sys.modules[patched.__module__]._cp_options.enable_load_balance


def drops_masks(module: "nn.Module") -> bool:
    """Whether accelerate has prepared an attention module for context parallelism: its hook replaces the mask by causality."""
    # by the short name, which torch.compile can read
    return any(
        getattr(hook, "__name__", "") == "_self_attn_pre_forward_hook" for hook in module._forward_pre_hooks.values()
    )


class MaskPattern(NamedTuple):
    """
    What a mask function of transformers says, apart from padding.

    Args:
        is_causal (`bool`): Whether a query sees no key that comes after it.
        window (`int`, *optional*): How many keys a causal query sees.
        sequences (`torch.LongTensor` of shape `(batch, tokens)`, *optional*): Numbers of the sequences packed into a row.
    """

    is_causal: bool
    window: int | None = None
    sequences: "Tensor | None" = None


def mask_pattern(mask_function: Any) -> MaskPattern | None:
    """
    What a mask function says, if transformers made it and it says no more than a [`MaskPattern`] can; else `None`.

    Args:
        mask_function (`Callable`): The argument of that name of `sdpa_mask`.

    Example:

    ```python
    >>> from transformers.masking_utils import sliding_window_causal_mask_function
    >>> from hf_sparse_hopfield.integration.upstream import mask_pattern

    >>> mask_pattern(sliding_window_causal_mask_function(4))
    MaskPattern(is_causal=True, window=4, sequences=None)
    >>> mask_pattern(lambda batch, head, query, key: key <= query)

    ```
    """
    import torch
    from transformers import masking_utils

    if mask_function is masking_utils.causal_mask_function:
        return MaskPattern(True)
    if mask_function is masking_utils.bidirectional_mask_function:
        return MaskPattern(False)
    if torch.compiler.is_compiling():  # which cannot look into closures
        return None
    said: dict[str, Any] = {}
    if not _said_by(mask_function, said) or not said.get("is_causal"):
        return None
    # Within a sequence, tokens are as far apart in their positions as in their places.
    if said.pop("positions", None) is not None and "sequences" not in said:
        return None
    return MaskPattern(**said)


def _said_by(mask_function: Any, said: dict[str, Any]) -> bool:
    """Add what a mask function says to a pattern; whether it says nothing else, and nothing twice."""
    from transformers.masking_utils import causal_mask_function

    if mask_function is causal_mask_function:
        said["is_causal"] = True
        return True
    kind, name = _mask_function_kinds().get(getattr(mask_function, "__code__", None), ("", ""))
    held = inspect.getclosurevars(mask_function).nonlocals if kind and kind not in said else {}
    if name not in held:
        return False
    if kind == "all":
        return all(_said_by(part, said) for part in held[name])
    said[kind] = held[name]
    return kind != "positions" or _said_by(held[name], said)


@functools.cache
def _mask_function_kinds() -> dict[Any, tuple[str, str]]:
    """The code of mask functions, the same for all of a kind; with the kind, and the name of what such a function holds."""
    import torch
    from transformers import masking_utils

    causal, nothing = masking_utils.causal_mask_function, torch.empty(0)
    made: list[tuple[Any, str, str]] = [
        (masking_utils.and_masks(causal), "all", "mask_functions"),
        (masking_utils.sliding_window_overlay(1), "window", "sliding_window"),
        (masking_utils.packed_sequence_mask_function(nothing), "sequences", "packed_sequence_mask"),
    ]
    remap = getattr(masking_utils, "remap_positions_for_packed_sequence", None)  # not in transformers 5.20
    if remap is not None:
        made.append((remap(causal, nothing), "positions", "mask_function"))
    return {function.__code__: (kind, name) for function, kind, name in made}


def passes_masks_on(config_class: type) -> bool:
    """
    Whether the models of a configuration pass the masks that they make to their attention function as they are.

    Models that support flash attention do: there, a mask is a matrix of the padding, or nothing.

    Args:
        config_class (`type`): Class of a configuration.
    """
    for base in config_class.__mro__:
        if base.__module__.startswith("transformers.models."):
            module = sys.modules.get(base.__module__.replace(".configuration_", ".modeling_"))
            return module is not None and _support_flash_attention(module, base)
    return False


@functools.cache
def _support_flash_attention(module: ModuleType, config_class: type) -> bool:
    """Whether all models of a configuration in a module do."""
    from transformers import PreTrainedModel

    classes = [cls for cls in vars(module).values() if isinstance(cls, type) and issubclass(cls, PreTrainedModel)]
    models = [cls for cls in classes if cls.config_class is config_class]
    return bool(models) and all(cls._supports_flash_attn for cls in models)


def is_initialized(weights: "nn.Module | Tensor") -> bool:
    """Whether transformers has initialised a module, or loaded a tensor from a checkpoint."""
    return getattr(weights, "_is_hf_initialized", False) is True


def mark_initialized(module: "nn.Module") -> None:
    """Keep transformers from initialising a module again."""
    vars(module)["_is_hf_initialized"] = True


def auto_model_mappings() -> dict[str, Mapping[type, Any]]:
    """For the name of each Auto class of models: configuration class to model class, or to a tuple of them."""
    from transformers.models.auto import modeling_auto

    found = {name: getattr(value, "_model_mapping", None) for name, value in vars(modeling_auto).items()}
    return {name: mapping for name, mapping in found.items() if name.startswith("AutoModel") and mapping is not None}


def name_auto_class(names: dict[str, Any] | None, model_type: str, class_names: str | tuple[str, ...]) -> None:
    """
    Name the model classes of a model type where the Trainer and pipelines look them up.

    Args:
        names (`dict`, *optional*): One of transformers' `*_MAPPING_NAMES`; some mappings have none.
        model_type (`str`): The model type.
        class_names (`str` or `tuple[str, ...]`): Names of the classes.
    """
    if names is not None:
        names[model_type] = class_names


def prepared_inputs(trainer: "Trainer", batch: dict[str, Any]) -> dict[str, Any]:
    """A batch on the device, and in the dtype, in which the Trainer gives it to the model."""
    return dict(trainer._prepare_inputs(batch))


# ---- Private names of accelerate ----


def forget_preparation(model: "nn.Module") -> None:
    """Have accelerate prepare a model anew. It prepares a model once, for evaluation or for training."""
    vars(model).pop("_is_accelerate_prepared", None)
