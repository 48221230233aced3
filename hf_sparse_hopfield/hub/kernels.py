# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Builds the kernel that `attn_implementation="org/repo"` loads from the Hub: `python -m hf_sparse_hopfield.hub.kernels --output_dir FOLDER`.

The kernel is `kernel_attention.py` and what it imports, copied from this package as it is installed; only the namespace of the
torch operators differs, so that package and kernel, or two kernels, can live in one process. It is pure Python (Triton on a
GPU), so one copy does for every machine; the layout wants one for each kind of device (`build/torch-cpu`, `build/torch-cuda`,
...), of which a machine downloads its own.
"""

import argparse
import ast
import base64
import hashlib
import json
import os
import re
import sys
from contextlib import suppress
from importlib import metadata
from importlib.util import resolve_name
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import WRITTEN_FILE, new_directory
from ..version import __version__


if TYPE_CHECKING:
    from transformers import PreTrainedModel

PACKAGE = __package__.partition(".")[0]
ROOT = Path(__file__).parents[1]
ENTRY = "kernel_attention"
NAME = "sparse-hopfield"
VERSION = 1  # of the kernel's interface: the branch `v1` of its repository; transformers asks for 1
DEVICES = ("cpu", "cuda", "rocm")
SOURCE = "https://github.com/hf-sparse-hopfield/hf_sparse_hopfield"

# The namespace of the operators, in the ways in which it is written.
_OPERATORS = re.compile(rf'({PACKAGE})(?=::)|(?<=torch\.ops\.)({PACKAGE})(?=\.)|(?<=Library\(")({PACKAGE})(?=")')

_INIT = '''\
# Built from hf_sparse_hopfield {version}, {source}. Licensed under the Apache License, Version 2.0.
"""Sparse Hopfield retrieval as attention: alpha-entmax in place of softmax. See README.md."""

from .{entry} import {names}


__all__ = [{quoted}]
__version__ = "{version}"
'''

CARD = """\
---
library_name: kernels
license: apache-2.0
tags:
- kernels
- attention
- hopfield
- entmax
---

# Sparse Hopfield attention

Attention with alpha-entmax in place of softmax: most weights are exactly zero. Built from
[hf_sparse_hopfield]({source}) {version}, which this kernel does not need.

```python
from transformers import AutoConfig, AutoModelForCausalLM

config = AutoConfig.from_pretrained("org/model")
config.sparse_hopfield = {{"alpha": 1.5, "beta": 1.2}}
model = AutoModelForCausalLM.from_pretrained(
    "org/model", config=config, attn_implementation="org/{name}", allow_all_kernels=True
)
```

`alpha` in [1, 2] is the member of the entmax family (1 is softmax, 2 is sparsemax), `beta` a factor on the model's own scaling.
Both are one number or a list with one per head; `steps`, `tolerance`, `layers` (indices) and `overrides` are as in the package.
Without `config.sparse_hopfield`, alpha is {alpha} and beta is {beta}.

**A model that was trained with softmax is another model with this attention.** With beta = 1 its outputs may be far off, which a
warning states. Fine-tune it, or calibrate it with the package; `hf_sparse_hopfield.hub.kernel_settings(model)` gives the settings that it finds.

What it honours: padding and any other mask, causality, sliding windows, softcap, sinks, position bias, dropout, the model's
scaling, packed sequences by their lengths, caches, `output_attentions`, gradients. Any other argument that is not known to be
harmless is refused.

What it does not do:

- Families that compute their softmax themselves never call a kernel and stay dense. The package knows them.
- Learned alpha and beta, and layers named by patterns, are refused; they need the package.
- Continuous batching (`generate_batch`) chooses among transformers' own attentions.
- There is no compiled core for CPUs here. On a CPU, the package is faster.
- On a GPU it uses Triton, which comes with torch; without it, pure PyTorch.
"""


def kernel_modules() -> dict[str, Path]:
    """
    The modules of the kernel: the attention function, and all that it imports from this package.

    Returns:
        `dict[str, Path]`: The file of each module, by its path in the kernel.

    Example:

    ```python
    >>> from hf_sparse_hopfield.hub.kernels import kernel_modules

    >>> "retrieval.py" in kernel_modules(), "integration/attention.py" in kernel_modules()
    (True, False)

    ```
    """
    found: dict[str, Path] = {}
    names = [f"{PACKAGE}.{ENTRY}"]
    while names:
        name = names.pop()
        file = _file_of(name)
        if file is None or name == PACKAGE:
            continue
        place = file.relative_to(ROOT).as_posix()
        if place not in found:
            found[place] = file
            names += [name.rpartition(".")[0], *_imports(name, file)]
    return dict(sorted(found.items()))


def _file_of(module: str) -> Path | None:
    """The file of a module of this package; `None` if there is no such module."""
    path = ROOT.joinpath(*module.split(".")[1:])
    files = (path / "__init__.py", path.with_suffix(".py"))
    return next((file for file in files if file.is_file()), None)


def _imports(module: str, file: Path) -> list[str]:
    """Names that a file imports from this package, anywhere in it. Some are modules, others are in a module."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    names = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            origin = resolve_name("." * node.level + (node.module or ""), package)
            names += [origin, *(f"{origin}.{alias.name}" for alias in node.names)]
        imported = [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
        imported += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if any(name is not None and name.partition(".")[0] == PACKAGE for name in imported):
            raise ValueError(f"{file} imports {imported} by its full name; a kernel needs `from .` imports.")
    return names


def build_kernel(output: str | os.PathLike, overwrite: bool = False) -> Path:
    """
    Write the repository of the kernel: `build/torch-<device>/` for each kind of device, README.md and LICENSE.

    Args:
        output (`str` or `os.PathLike`): The folder.
        overwrite (`bool`, *optional*, defaults to `False`): Replace a folder that this function has written.

    Returns:
        `Path`: The folder.

    Example:

    ```python
    >>> from hf_sparse_hopfield.hub.kernels import build_kernel

    >>> folder = build_kernel("kernel")
    >>> sorted(path.name for path in (folder / "build").iterdir())
    ['torch-cpu', 'torch-cuda', 'torch-rocm']

    ```
    """
    from ..configuration import SparseHopfieldConfig
    from ..kernel_attention import __all__ as names

    words = {"version": __version__, "source": SOURCE, "entry": ENTRY, "name": NAME}
    quoted = ", ".join(f'"{name}"' for name in names)
    sources = {place: file.read_text(encoding="utf-8") for place, file in kernel_modules().items()}
    sources["__init__.py"] = _INIT.format(names=", ".join(names), quoted=quoted, **words)
    # the same sources have the same id, others another
    digest = hashlib.sha256("\0".join(part for item in sorted(sources.items()) for part in item).encode()).hexdigest()
    default = SparseHopfieldConfig()
    with new_directory(output, overwrite) as folder:
        (folder / "README.md").write_text(
            CARD.format(alpha=default.alpha, beta=default.beta, **words), encoding="utf-8"
        )
        (folder / "LICENSE").write_text(_license(), encoding="utf-8")
        for device in DEVICES:
            _write_variant(folder / "build" / f"torch-{device}", sources, device, digest[:12])
    return Path(output)


def _write_variant(folder: Path, sources: dict[str, str], device: str, digest: str) -> None:
    identifier = f"_{NAME.replace('-', '_')}_{device}_{digest}"  # by convention the namespace of the operators, too
    files = {}
    for place, source in sources.items():
        file, content = folder / place, _OPERATORS.sub(identifier, source).encode()
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        files[place] = base64.b64encode(hashlib.sha256(content).digest()).decode()
    description = {
        "name": NAME,
        "id": identifier,
        "version": VERSION,
        "license": "Apache-2.0",
        "upstream": SOURCE,
        "python-depends": [],
        "backend": {"type": device},
        "digest": {"algorithm": "sha256", "files": files},
    }
    (folder / "metadata.json").write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")


def _license() -> str:
    beside = ROOT.parent / "LICENSE"  # in a checkout; an installed package has it in its metadata
    with suppress(metadata.PackageNotFoundError):
        text = metadata.distribution(PACKAGE).read_text("licenses/LICENSE")
        if text:
            return text
    if not beside.is_file():
        raise FileNotFoundError(f"the LICENSE of {PACKAGE} is neither in its metadata nor at {beside}.")
    return beside.read_text(encoding="utf-8")


def kernel_settings(model: "PreTrainedModel") -> dict[str, Any]:
    """
    The settings of a sparse model in the form that the kernel takes: by the index of each layer, with learned values fixed.

    Args:
        model ([`~transformers.PreTrainedModel`]): A sparse model, such as one that [`calibrate`] has set.

    Returns:
        `dict`: For `config.sparse_hopfield` of the dense model, which then runs with the kernel as this model does.

    Example:

    ```python
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> from hf_sparse_hopfield import to_sparse_hopfield
    >>> from hf_sparse_hopfield.hub import kernel_settings

    >>> sizes = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "vocab_size": 99}
    >>> model = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=2))
    >>> kernel_settings(to_sparse_hopfield(model, {"alpha": 1.5, "overrides": {"layers.1": {"beta": 2.0}}}))["overrides"]
    {'0': {'alpha': 1.5, 'beta': 1.0}, '1': {'alpha': 1.5, 'beta': 2.0}}

    ```
    """
    from ..configuration import LAYER_FIELDS, SparseHopfieldConfig
    from ..integration.sites import attention_sites

    sites = attention_sites(model)
    retrievals = {}
    for site in sites:
        index = getattr(site.module, "layer_idx", None)
        if not site.kind.registry or site.module.config is not model.config or index is None or index in retrievals:
            raise ValueError(
                f"{type(model).__name__}: a kernel cannot find the settings of {site.name!r}. It needs attention modules that call "
                "a registered attention function, have the configuration of the model, and one index (`layer_idx`) each."
            )
        retrievals[index] = getattr(site.module, "sparse_hopfield", None)
    sparse = {index: retrieval for index, retrieval in retrievals.items() if retrieval is not None}
    if not sparse:
        raise ValueError(f"{type(model).__name__} has no layer that retrieves sparsely, so there are no settings.")
    overrides = {}
    for index, retrieval in sparse.items():
        beta, alpha = retrieval()
        others = [name for name in LAYER_FIELDS if name not in ("alpha", "beta")]
        stated = {"alpha": alpha, "beta": beta, **{name: getattr(retrieval, name) for name in others}}
        values = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in stated.items()}
        default = SparseHopfieldConfig()
        kept = {name: value for name, value in values.items() if name in ("alpha", "beta") or value != default[name]}
        overrides[index] = kept
    layers = None if len(sparse) == len(retrievals) else sorted(sparse)
    return SparseHopfieldConfig(layers=layers, overrides=overrides).to_dict()


def main(argv: list[str] | None = None) -> int:
    """
    The command.

    Args:
        argv (`list[str]`, *optional*, defaults to `sys.argv[1:]`): Arguments.

    Returns:
        `int`: 0 on success, 1 if the folder could not be written.
    """
    parser = argparse.ArgumentParser(
        prog="python -m hf_sparse_hopfield.hub.kernels",
        description='Build the kernel that transformers loads with attn_implementation="org/repo".',
    )
    parser.add_argument("--output_dir", required=True, help="folder to write")
    parser.add_argument("--overwrite", action="store_true", help="replace a folder that this command has written")
    arguments = parser.parse_args(argv)
    try:
        folder = build_kernel(arguments.output_dir, arguments.overwrite)
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    options = f"--type kernel --revision v{VERSION} --exclude {WRITTEN_FILE}"
    print(f"wrote {folder}; upload it with: hf upload org/{NAME} {folder} . {options}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
