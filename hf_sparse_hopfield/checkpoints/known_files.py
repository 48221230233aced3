# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The files of a checkpoint: those that transformers, sentence-transformers and this package save and load by name.

A folder often holds more: logs, notes, service accounts. What is not listed here is neither copied nor uploaded.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from transformers.dynamic_module_utils import get_relative_imports
from transformers.utils import CONFIG_NAME, GENERATION_CONFIG_NAME

from ..hub.cards import CARD_FILE
from ..hub.support_plot import PLOT_FILE
from ..integration.sites import shortened
from ..remote_code import REMOTE_CODE_FILE


CALIBRATION_FILE = "calibration.json"
DISTILLATION_FILE = "distillation.json"
CONFIG_FILE = CONFIG_NAME
LAYERS_FILE = "layers.json"  # of a state dict of hflayers
MODULES_FILE = "modules.json"  # of sentence-transformers

# What describes the model and not its processor. A conversion writes these anew.
_MODEL_FILES = {
    CONFIG_FILE,
    CARD_FILE,
    PLOT_FILE,
    CALIBRATION_FILE,
    DISTILLATION_FILE,
    REMOTE_CODE_FILE,
    LAYERS_FILE,
    "adapter_config.json",
    *("all_results.json", "train_results.json", "eval_results.json", "test_results.json"),  # of the Trainer
    "summary.json",  # of the example scripts
}
_WEIGHTS = re.compile(
    r"(pytorch_|adapter_)?model(\.[\w-]+)?(-\d{5}-of-\d{5})?\.(safetensors|bin)(\.index(\.[\w-]+)?\.json)?"
)

# Names of transformers' constants and of `vocab_files_names` of its tokenizers; a test compares them.
_PROCESSOR_FILES = {
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "tokenizer.model"),
    *("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json"),
    *("audio_tokenizer_config.json", "chat_template.json", "chat_template.jinja", "speaker_embeddings_path.json"),
    *("vocab.json", "vocab.txt", "vocab.bpe", "merges.txt", "bpe.codes", "byte_maps.json", "dict.txt", "emoji.json"),
    *("entity_vocab.json", "target_vocab.json", "vocab-src.json", "vocab-tgt.json", "normalizer.json"),
    *("word_shape.json", "word_pronunciation.json", "prophetnet.tokenizer", "source.spm", "target.spm"),
    *("spiece.model", "spm.model", "spm_char.model", "sentencepiece.model", "sentencepiece.bpe.model"),
    *("tiktoken.model", "qwen.tiktoken", "tekken.json"),
}
# Versions of a file: `tokenizer.4.0.0.json` of transformers, `tokenizer.model.v3` of mistral-common.
_VERSIONED = re.compile(r"tokenizer\.\d[\d.]*\.json|tokenizer\.model\.v\d[\w.]*")
_PROCESSOR_FOLDERS = {
    "additional_chat_templates": re.compile(r"[\w.-]+\.jinja"),
    "speaker_embeddings": re.compile(r"(v2/)?[\w.-]+\.npy"),  # of Bark
}
_SECOND_TOKENIZER = re.compile(r"\w+_tokenizer")  # the folder of a processor's second tokenizer, or of RAG's two

_SENTENCE_FILES = re.compile(
    rf"{re.escape(MODULES_FILE)}|config_sentence_transformers\.json|sentence_\w+_config\.json"
)
_MODULE_CONFIG = re.compile(r"([a-z]+_)?config\.json")
_LICENSE = re.compile(
    r"((MODEL|THIRD[-_]PARTY)[-_])?(LICEN[CS]ES?|NOTICES?|COPYING|USE_POLICY)([-_.][A-Z][\w.-]*)?(\.(txt|md|rst|pdf))?"
    r"|(license|notice)(\.(txt|md))?"
)


def known_files(directory: Path) -> list[Path]:
    """
    List the files of a directory that belong to a checkpoint.

    Args:
        directory (`Path`): The directory.

    Returns:
        `list[Path]`: Paths relative to the directory, sorted.
    """
    found = [file for file in _files_in(directory) if is_model_file(file.name)]
    return sorted({*found, *companion_files(directory), *named_code(directory, directory)})


def companion_files(directory: Path) -> list[Path]:
    """
    List the files of a checkpoint that a conversion keeps as they are: those of its processor, its generation config, its
    license, and those of sentence-transformers.

    Args:
        directory (`Path`): The directory of the checkpoint.

    Returns:
        `list[Path]`: Paths relative to the directory, sorted.
    """
    found = processor_files(directory)
    for file in _files_in(directory):
        if (
            file.name == GENERATION_CONFIG_NAME
            or _SENTENCE_FILES.fullmatch(file.name)
            or _LICENSE.fullmatch(file.name)
        ):
            found.append(file)
    for folder in _module_folders(directory):
        found += [folder / file for file in _files_in(directory / folder) if _is_module_file(file.name)]
    return sorted(set(found))


def processor_files(directory: Path) -> list[Path]:
    """
    List the files of the tokenizer or processor of a checkpoint.

    Args:
        directory (`Path`): The directory of the checkpoint.

    Returns:
        `list[Path]`: Paths relative to the directory.
    """
    found = [file for file in _files_in(directory) if _is_processor_file(file.name)]
    for folder, pattern in _PROCESSOR_FOLDERS.items():
        inside = (path.relative_to(directory / folder) for path in (directory / folder).rglob("*") if path.is_file())
        found += [Path(folder, file) for file in sorted(inside) if pattern.fullmatch(file.as_posix())]
    for folder in sorted(path.name for path in directory.iterdir() if path.is_dir()):
        if _SECOND_TOKENIZER.fullmatch(folder):
            found += [folder / file for file in _files_in(directory / folder) if _is_processor_file(file.name)]
    return found


def is_model_file(name: str) -> bool:
    """Return whether a file holds weights, the configuration of a model, or what this package writes about it."""
    return name in _MODEL_FILES or _WEIGHTS.fullmatch(name) is not None


def named_code(directory: Path, code_directory: Path) -> list[Path]:
    """
    List the Python files that the configurations of a checkpoint name (`auto_map`), with what these import from their folder.

    Args:
        directory (`Path`): The directory of the configurations.
        code_directory (`Path`): The directory of the Python files.

    Returns:
        `list[Path]`: Paths relative to `code_directory`, sorted.
    """
    waiting = {
        reference.partition(".")[0] for file in _files_in(directory) for reference in _references(directory / file)
    }
    found: set[Path] = set()
    while waiting:
        file = Path(f"{waiting.pop()}.py")
        if file not in found and (code_directory / file).is_file():
            found.add(file)
            imported = get_relative_imports(code_directory / file)
            waiting |= {module for module in imported if re.fullmatch(r"\w+", module)}
    return sorted(found)


def unknown_files(directory: Path, known: Iterable[Path]) -> list[str]:
    """
    List what else a directory holds, apart from hidden files.

    Args:
        directory (`Path`): The directory.
        known (iterable of `Path`): The files that are not listed, relative to the directory.

    Returns:
        `list[str]`: Names relative to the directory. A folder without known files is one name, with a slash at its end.
    """
    known = set(known)
    folders = {Path(), *(folder for file in known for folder in file.parents)}
    found = []
    for folder in folders:
        for path in (directory / folder).iterdir():
            name = path.relative_to(directory)
            if name not in known and name not in folders and not path.name.startswith("."):
                found.append(f"{name.as_posix()}/" if path.is_dir() else name.as_posix())
    return sorted(found)


def refuse_links(directory: Path, files: Iterable[Path]) -> None:
    """
    Refuse files of a checkpoint that are links out of its directory: copied or uploaded, they could give away what was never
    part of it. The links of the Hub's cache are fine.

    Args:
        directory (`Path`): The directory.
        files (iterable of `Path`): Files relative to it.
    """
    inside = directory.resolve()
    real = {file: (directory / file).resolve() for file in files}
    leaving = [
        f"{file} -> {path}"
        for file, path in real.items()
        if not path.is_relative_to(inside) and not _is_hub_blob(path)
    ]
    if leaving:
        raise ValueError(
            f"{str(directory)!r} has links to files elsewhere: {shortened(leaving)}. If these belong to the checkpoint, "
            "replace the links by the files; otherwise remove them."
        )


def _is_hub_blob(path: Path) -> bool:
    """Whether a file is one of the Hub's cache: `blobs/<hash>`, or `blobs/<two letters>/<hash>` if repositories share it."""
    folders = (path.parent.name, path.parent.parent.name if len(path.parent.name) == 2 else "")
    return "blobs" in folders and re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", path.name) is not None


def _files_in(directory: Path) -> list[Path]:
    return sorted(Path(path.name) for path in directory.iterdir() if path.is_file())


def _is_processor_file(name: str) -> bool:
    return name in _PROCESSOR_FILES or _VERSIONED.fullmatch(name) is not None


def _is_module_file(name: str) -> bool:
    """Whether a file is one that a module of sentence-transformers saves in its folder."""
    return (
        _MODULE_CONFIG.fullmatch(name) is not None or _is_processor_file(name) or _WEIGHTS.fullmatch(name) is not None
    )


def _module_folders(directory: Path) -> Iterator[Path]:
    """The folders of the modules of sentence-transformers."""
    for module in _modules(directory):
        path = module.get("path")
        if isinstance(path, str) and re.fullmatch(r"[\w-]+", path) and (directory / path).is_dir():
            yield Path(path)


def _modules(directory: Path) -> list[dict[str, Any]]:
    modules = _read_json(directory / MODULES_FILE)
    return [module for module in modules if isinstance(module, dict)] if isinstance(modules, list) else []


def _references(file: Path) -> Iterator[str]:
    """The classes of its own code that a JSON file names, as `module.Class`; `repository--module.Class` is elsewhere."""
    if file.name == MODULES_FILE:
        named = [module.get("type") for module in _modules(file.parent)]
    elif file.suffix == ".json" and (file.name == CONFIG_FILE or _is_processor_file(file.name)):
        content = _read_json(file)
        classes = content.get("auto_map") if isinstance(content, dict) else None
        values = classes.values() if isinstance(classes, dict) else [classes]
        named = [name for value in values for name in (value if isinstance(value, list) else [value])]
    else:
        return
    yield from (name for name in named if isinstance(name, str) and re.fullmatch(r"\w+\.\w+", name))


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # missing or damaged: whoever needs it will say so
        return None
