# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`to_sparse_hopfield` and `to_dense`: convert a model to the sparse subclass of its class, and back."""

from contextlib import ExitStack

from torch import nn
from transformers import PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from ..configuration import SparseHopfieldConfig
from ..models import OWN_MODELS
from .auto import remove_entries, swap_to_base_class, swap_to_sparse_class
from .binding import LayerRetrieval, bind, has_bound_attention, is_converted, name_attention
from .sites import configs_of
from .upstream import ATTENTION_NAME


def to_sparse_hopfield(model: PreTrainedModel, config: SparseHopfieldConfig | dict | None = None) -> PreTrainedModel:
    """
    Convert a model to sparse Hopfield retrieval. It stays a `PreTrainedModel` of its family, and saves and loads as sparse.

    The model is changed in place and returned: it becomes an instance of the sparse subclass of its class. Its weights
    do not change; learned alpha and beta are new parameters. If the conversion fails, the model stays as it was.

    Args:
        model ([`~transformers.PreTrainedModel`]): A model of any family with softmax attention.
        config ([`SparseHopfieldConfig`] or `dict`, *optional*):
            The settings. By default those in `model.config.sparse_hopfield`, or the defaults of [`SparseHopfieldConfig`].

    Returns:
        [`~transformers.PreTrainedModel`]: The same model, now for example a `SparseHopfieldBertForMaskedLM`.

    Example:

    ```python
    >>> from transformers import BertConfig, BertForMaskedLM
    >>> from hf_sparse_hopfield import to_dense, to_sparse_hopfield

    >>> model = BertForMaskedLM(BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=100))
    >>> model = to_sparse_hopfield(model, {"alpha": 1.5, "layers": [1]})
    >>> type(model).__name__, model.config.model_type, model.config.base_model_type
    ('SparseHopfieldBertForMaskedLM', 'sparse_hopfield', 'bert')
    >>> type(to_dense(model)).__name__
    'BertForMaskedLM'

    ```
    """
    undoable_conversion(model, config)
    return model


def undoable_conversion(model: PreTrainedModel, config: SparseHopfieldConfig | dict | None = None) -> ExitStack:
    """
    Convert a model as [`to_sparse_hopfield`] does.

    Args:
        model, config: As for [`to_sparse_hopfield`].

    Returns:
        `contextlib.ExitStack`: Closing it makes the model what it was; without that, it stays converted.
    """
    _check_convertible(model)
    settings = config if config is not None else getattr(model.config, ATTENTION_NAME, None)
    settings = SparseHopfieldConfig.from_dict(settings)
    with swap_to_sparse_class(model) as swapped:  # undone on an error
        for own in configs_of(model):
            if type(own) is type(model.config):
                own.sparse_hopfield = settings
        name_attention(model, ATTENTION_NAME)
        bind(model)
        undo = ExitStack()
        undo.callback(bind, model)  # last: by then the configurations name the attention of before
        undo.push(swapped.pop_all())
    return undo


def to_dense(model: PreTrainedModel) -> PreTrainedModel:
    """
    Convert a sparse model back to the class of its family: dense attention, the same weights. Learned alpha and beta are
    dropped.

    Args:
        model ([`~transformers.PreTrainedModel`]):
            A model from [`to_sparse_hopfield`], or one with `attn_implementation="sparse_hopfield"`.

    Returns:
        [`~transformers.PreTrainedModel`]: The same model, changed in place.

    Example:

    ```python
    >>> from transformers import BertConfig, BertModel
    >>> from hf_sparse_hopfield import to_dense, to_sparse_hopfield

    >>> model = BertModel(BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, vocab_size=100))
    >>> weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    >>> model = to_dense(to_sparse_hopfield(model))
    >>> type(model).__name__, all(model.state_dict()[name].equal(weight) for name, weight in weights.items())
    ('BertModel', True)
    ```
    """
    if not isinstance(model, PreTrainedModel):
        raise TypeError(f"to_dense takes a PreTrainedModel, got {type(model).__name__}.")
    _check_not_own(model)
    if not is_converted(model) and not has_bound_attention(model):
        raise ValueError(f"{type(model).__name__} is dense already: none of its attention layers is sparse.")
    _check_whole(model, "to_dense")
    if is_converted(model):
        swap_to_base_class(model)
    else:
        remove_entries(model.config)
    name_attention(model, None)
    bind(model)
    return model


def _check_whole(model: PreTrainedModel, function: str) -> None:
    """Raise if a model is a part of a converted one, which has the settings and their names."""
    around = (
        config for module in model.modules() if isinstance(module, LayerRetrieval) for config, _ in module.stated
    )
    if not is_converted(model) and any(hasattr(type(config), "base_config_class") for config in around):
        raise ValueError(
            f"{type(model).__name__} is a part of a converted model: call `{function}` on the whole model."
        )


def _check_not_own(model: PreTrainedModel) -> None:
    if model.config.model_type in OWN_MODELS:
        raise ValueError(
            f"{type(model).__name__} has its own Hopfield layers and cannot be converted: its configuration sets how sparse "
            "they are, for example alpha=1.0 for dense and alpha=2.0 for sparse layers."
        )


def _check_convertible(model: PreTrainedModel) -> None:
    name = type(model).__name__
    if not isinstance(model, PreTrainedModel):
        fix = (
            " Convert the base model first and wrap it (PEFT, DDP) afterwards." if isinstance(model, nn.Module) else ""
        )
        raise TypeError(f"to_sparse_hopfield takes a PreTrainedModel, got {name}.{fix}")
    _check_not_own(model)
    _check_whole(model, "to_sparse_hopfield")
    if is_converted(model):
        raise ValueError(
            f"{name} is converted already, with {model.config.sparse_hopfield}. To change the settings, convert "
            "`to_dense(model)`."
        )
    quantized = getattr(model, "hf_quantizer", None) or getattr(model.config, "quantization_config", None)
    if quantized is not None:
        raise ValueError(
            f"{name} is quantised ({type(quantized).__name__}). Convert the model before quantising it, or use it with "
            '`model.set_attn_implementation("sparse_hopfield")`.'
        )
    if model.config.model_type not in CONFIG_MAPPING or not isinstance(
        model.config, CONFIG_MAPPING[model.config.model_type]
    ):
        raise ValueError(
            f"{name} has the model type {model.config.model_type!r}, for which transformers' AutoConfig does not make a "
            f"{type(model.config).__name__}: a converted checkpoint could not be loaded. Use it with "
            '`model.set_attn_implementation("sparse_hopfield")`, or convert the model that contains it.'
        )
