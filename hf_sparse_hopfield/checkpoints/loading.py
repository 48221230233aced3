# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The model and the tokenizer of a checkpoint, dense or sparse.

Plain `from_pretrained` of a sparse checkpoint goes through `integration/auto.py`.
"""

import re
from typing import Any

import transformers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoProcessor,
    AutoTokenizer,
    PreTrainedModel,
)
from transformers.utils import logging

from ..integration.auto import PREFIX, sparse_model_class
from ..integration.sites import shortened
from .companion_files import companion_files


logger = logging.get_logger(__name__)

_PROCESSOR_FILES = re.compile(r"token|vocab|merges|processor|\.(model|spm|tiktoken)$")


def load_model(path: str, *, config_file: str | None = None, **kwargs: Any) -> PreTrainedModel:
    """
    Load a checkpoint, dense or sparse, with the architecture it was saved from, in its own dtype and in evaluation mode.

    Args:
        path (`str`): Local directory or Hub id.
        config_file (`str`, *optional*): Its configuration file, if that is not `config.json` in `path`.
        **kwargs: For `from_pretrained`.

    Example:

    ```python
    >>> from transformers import BertConfig, BertModel
    >>> from hf_sparse_hopfield import to_sparse_hopfield
    >>> from hf_sparse_hopfield.checkpoints import load_model

    >>> model = BertModel(BertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, vocab_size=100))
    >>> to_sparse_hopfield(model).save_pretrained("sparse")
    >>> type(load_model("sparse")).__name__
    'SparseHopfieldBertModel'

    ```
    """
    config = AutoConfig.from_pretrained(
        config_file or path, **{key: kwargs[key] for key in ("gguf_file", "revision") if key in kwargs}
    )
    kwargs = {"dtype": "auto", **kwargs, **({} if config_file is None else {"config": config})}
    names = [name.removeprefix(PREFIX) for name in config.architectures or []]
    base = next((getattr(transformers, name) for name in names if hasattr(transformers, name)), None)
    if base is None and "gguf_file" in kwargs:  # a GGUF file holds a language model and does not name its class
        base = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    elif base is None:
        return _load_base_model(path, config.architectures, **kwargs)
    elif hasattr(type(config), "base_config_class"):
        base = sparse_model_class(base, type(config).base_config_class)
    return base.from_pretrained(path, **kwargs).eval()


def _load_base_model(path: str, architectures: list[str] | None, **kwargs: Any) -> PreTrainedModel:
    """Load a checkpoint that does not name its architecture as a base model, if the base model uses all its weights."""
    model, loading = AutoModel.from_pretrained(path, output_loading_info=True, **kwargs)
    if loading["unexpected_keys"]:
        raise ValueError(
            f"the configuration of {path!r} has architectures={architectures}, which names no class of transformers, and "
            f"{type(model).__name__} would lose {shortened(sorted(loading['unexpected_keys']))}. Name the class in its "
            'config.json: "architectures": ["..."].'
        )
    return model.eval()


def load_tokenizer(path: str, **kwargs: Any) -> Any:
    """
    Load the processor or tokenizer of a checkpoint.

    Args:
        path (`str`): Local directory or Hub id.
        **kwargs: For `from_pretrained`.

    Returns:
        The processor or tokenizer; `None` if the checkpoint has none, or if it needs a package that is not installed (with a
        warning). One that is damaged raises an error.
    """
    if kwargs:  # a GGUF file holds a tokenizer and nothing else
        return AutoTokenizer.from_pretrained(path, **kwargs)
    files = [str(file) for file in companion_files(path) if _PROCESSOR_FILES.search(file.name)]
    reasons = []
    for auto in (AutoProcessor, AutoTokenizer) if files else ():
        try:
            return auto.from_pretrained(path)
        except Exception as error:  # damaged files can fail in any way
            reasons.append(error)
    if all(isinstance(reason, ImportError) for reason in reasons):
        for reason in reasons[:1]:
            logger.warning("The processor of %s needs a package that is not installed: %s", path, reason)
        return None
    raise ValueError(
        f"the tokenizer or processor of {path!r} does not load: {' '.join(str(reasons[-1]).split()) or reasons[-1]!r}. "
        f"Repair it, or remove its files ({shortened(files)}) to use the model alone."
    )
