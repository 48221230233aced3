# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The model and the tokenizer of a checkpoint, dense or sparse.

Plain `from_pretrained` of a sparse checkpoint goes through `integration/auto.py`.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import transformers
from safetensors import SafetensorError, safe_open
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoProcessor,
    AutoTokenizer,
    PreTrainedModel,
)
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_INDEX_NAME, logging

from ..hub.metadata import hub_id
from ..integration.auto import PREFIX, sparse_model_class
from ..integration.sites import shortened
from .companion_files import local_directory
from .known_files import CONFIG_FILE, processor_files


logger = logging.get_logger(__name__)


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
    check_source(path)
    if os.path.isdir(path) and config_file is None and "gguf_file" not in kwargs:
        if not Path(path, CONFIG_FILE).is_file():
            raise FileNotFoundError(f"{path!r} has no {CONFIG_FILE}, so it is not the directory of a model.")
    try:
        config = AutoConfig.from_pretrained(
            config_file or path, **{key: kwargs[key] for key in ("gguf_file", "revision") if key in kwargs}
        )
    except OSError as error:
        if os.path.isdir(path):
            raise
        reason = " ".join(str(error).split())
        raise OSError(f"there is no directory {path!r} here, and as an id on the Hub it fails: {reason}") from error
    kwargs = {"dtype": "auto", **kwargs, **({} if config_file is None else {"config": config})}
    names = [name.removeprefix(PREFIX) for name in config.architectures or []]
    base = next((getattr(transformers, name) for name in names if hasattr(transformers, name)), None)
    if base is None and "gguf_file" in kwargs:  # a GGUF file holds a language model and does not name its class
        base = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    if base is None:
        with _naming_damaged_weights(path):
            return _load_base_model(path, config.architectures, **kwargs)
    if hasattr(type(config), "base_config_class"):
        base = sparse_model_class(base, type(config).base_config_class)
    with _naming_damaged_weights(path):
        return base.from_pretrained(path, **kwargs).eval()


@contextmanager
def _naming_damaged_weights(path: str) -> Iterator[None]:
    """Let an error about a damaged safetensors file say which file it is, which safetensors does not."""
    try:
        yield
    except SafetensorError as error:
        for file in sorted(Path(path).glob("*.safetensors")):
            try:
                with safe_open(file, "pt"):
                    pass
            except SafetensorError:
                raise ValueError(f"{str(file)!r} is damaged or not whole: {error}") from error
        raise


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


def check_source(path: str | os.PathLike) -> None:
    """
    Refuse a path that is not the directory of a checkpoint and cannot be a Hub id, and weights outside of the directory.

    Args:
        path (`str`): Local directory or Hub id.
    """
    directory = Path(path)
    if os.path.isdir(path):  # `Path("")` would be the current one
        for name in (SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_INDEX_NAME):
            _check_index(directory / name)
    elif os.path.exists(path):
        gguf = " For a GGUF file, give its directory and --gguf_file NAME." if directory.suffix == ".gguf" else ""
        raise NotADirectoryError(
            f"{str(path)!r} is a file; it must be the directory of a checkpoint, or a Hub id.{gguf}"
        )
    elif hub_id(str(path)) is None:
        raise FileNotFoundError(f"there is no directory {str(path)!r}.")


def _check_index(index: Path) -> None:
    """Refuse an index of weights that names files in other folders."""
    if not index.is_file():
        return
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        outside = sorted(name for name in names if Path(name).name != name)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{str(index)!r} is not an index of weights: {error!r}") from error
    if outside:
        raise ValueError(f"{str(index)!r} names weights outside of its folder: {shortened(outside)}.")


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
    check_source(path)
    files = [str(file) for file in processor_files(local_directory(path))]
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
