# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The pages of `docs/recipes/`: what they install and what they run.

`python -m tests.docs.recipes` prints the packages that they install, for `.ci/recipes`.
"""

import shlex
from importlib import metadata

from packaging.requirements import Requirement

from .code_blocks import ROOT, blocks


RECIPES = sorted(
    f"docs/recipes/{page.name}" for page in (ROOT / "docs/recipes").glob("*.md") if page.name != "README.md"
)
# an app that runs until it is stopped; tests/examples/test_spaces.py runs it
RUNNABLE = [page for page in RECIPES if page != "docs/recipes/spaces.md"]
_INSTALL = "pip install "


def installed(page: str) -> list[str]:
    """The packages of the line `pip install ...` of a page, without our own."""
    for line in "\n".join(blocks(page, "bash")).splitlines():
        if line.startswith(_INSTALL):
            return [word for word in shlex.split(line.removeprefix(_INSTALL)) if word != "hf_sparse_hopfield"]
    raise ValueError(f"{page} has no line that begins with {_INSTALL!r}")


def missing(page: str) -> list[str]:
    """Those of its packages that this environment does not have."""
    return [word for word in installed(page) if not _is_there(Requirement(word).name)]


def scripts(page: str) -> list[str]:
    """The commands of a page other than the installation."""
    return [block for block in blocks(page, "bash") if not block.startswith(_INSTALL)]


def _is_there(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    print(*sorted({word for page in RECIPES for word in installed(page)}))
