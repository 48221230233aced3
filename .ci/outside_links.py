# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A hook of mkdocs: links from docs/ to other files of the repository lead to GitHub. They work as they are when read there."""

import posixpath
import re
from pathlib import Path
from typing import Any


ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((\.\./[^)\s#]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **kwargs: Any) -> str:
    """
    Rewrite the links of a page.

    Args:
        markdown (`str`): The page.
        page, config: Of mkdocs.
        **kwargs: Not used.
    """
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def rewritten(match: re.Match) -> str:
        path = posixpath.normpath(posixpath.join(folder, match[3]))
        if path.startswith("docs/"):
            return match[0]
        if not (ROOT / path).exists():
            raise FileNotFoundError(f"{page.file.src_uri} links to {match[3]}, which does not exist.")
        kind = "raw" if match[1] else "tree" if (ROOT / path).is_dir() else "blob"
        return f"{match[1]}[{match[2]}]({config.repo_url.rstrip('/')}/{kind}/main/{path}{match[4] or ''})"

    return _LINK.sub(rewritten, markdown)
