# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Push sparse models to the Hub, with their card, and explain what to do if that fails.

`integration/upstream.py` has `model.push_to_hub`, `save_pretrained(push_to_hub=True)` and the Trainer call this module, for
sparse models only. A checkpoint is uploaded in one commit: all of it or nothing. If the upload fails, the files stay
where they are, and the error names the command that uploads them.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo, HfApi, ModelCard
from huggingface_hub.errors import EntryNotFoundError
from transformers import PreTrainedModel
from transformers.utils import logging

from ..checkpoints.known_files import known_files, refuse_links, unknown_files
from ..files import rewrite_text
from ..integration.sites import shortened
from .cards import CARD_FILE, UNKNOWN_REPOSITORY, model_card
from .push_errors import PushError, explained


logger = logging.get_logger(__name__)


def push_folder(
    folder: str | os.PathLike,
    repo_id: str,
    private: bool | None = None,
    *,
    token: str | bool | None = None,
    revision: str | None = None,
    commit_message: str = "Add sparse Hopfield checkpoint",
) -> str:
    """
    Upload a checkpoint: the files that transformers, sentence-transformers and this package know, and nothing else that lies
    in its folder. What is left out is logged.

    Args:
        folder (`str`): The checkpoint.
        repo_id (`str`): The repository, as `owner/name`. It is created if it does not exist.
        private (`bool`, *optional*): Whether to create the repository as private.
        token (`str`, *optional*): By default, the token that `hf auth login` has stored, or `HF_TOKEN`.
        revision (`str`, *optional*): The branch to upload to. It is created if it does not exist.
        commit_message (`str`, *optional*): The commit message.

    Returns:
        `str`: URL of the commit.
    """
    with explained(repo_id, folder=folder, only_known=True, private=private, revision=revision):
        repo_id = HfApi().create_repo(repo_id, private=private, token=token, exist_ok=True).repo_id
        _name_repository(Path(folder, CARD_FILE), repo_id)
        return str(_upload_known(folder, repo_id, token=token, revision=revision, commit_message=commit_message))


def push_model(
    model: PreTrainedModel,
    repo_id: str,
    *,
    commit_message: str | None = None,
    commit_description: str | None = None,
    private: bool | None = None,
    token: str | bool | None = None,
    revision: str | None = None,
    create_pr: bool = False,
    max_shard_size: int | str = "50GB",
    tags: list[str] | str | None = None,
    **card: Any,
) -> CommitInfo:
    """
    Upload a sparse model with its card and the code for `trust_remote_code`; called by `model.push_to_hub`.

    A card that the repository already has keeps its text; only the section about sparse retrieval is replaced.

    Args:
        model ([`~transformers.PreTrainedModel`]): A model with sparse retrieval.
        repo_id (`str`): The repository, as `owner/name`. It is created if it does not exist.
        commit_message, commit_description, private, token, revision, create_pr, max_shard_size, tags:
            As for `PreTrainedModel.push_to_hub`.
        **card:
            For [`model_card`]: `base_model`, `calibration` or `batches` (for the plot of support sizes), `comparison`,
            `metrics`, `dataset`, `command`, `license`.

    Example:

    ```python
    model, report = calibrate(model, batches, alpha=1.5)
    model.push_to_hub("me/sparse-bert", calibration=report, metrics={"accuracy": 0.91}, dataset="stanfordnlp/sst2")
    ```
    """
    tags = [tags] if isinstance(tags, str) else tags
    with explained(repo_id, retry="nothing was written yet; call push_to_hub again"):
        repo_id = HfApi().create_repo(repo_id, private=private, token=token, exist_ok=True).repo_id
        existing = _existing_card(repo_id, token)
    # Kept if the upload fails, because the model may exist nowhere else.
    folder = Path(tempfile.mkdtemp(prefix=f"{repo_id.split('/')[-1]}-"))
    try:
        model.save_pretrained(folder, max_shard_size=max_shard_size)
        tags = [*(model.model_tags or []), *(tags or [])]
        model_card(model, repo_id=repo_id, tags=tags, into=existing, **card).save(folder / CARD_FILE)
        with explained(repo_id, folder=folder, private=private, revision=revision, create_pr=create_pr):
            commit = _upload(
                folder,
                repo_id,
                token=token,
                revision=revision,
                create_pr=create_pr,
                commit_message=commit_message or "Upload model",
                commit_description=commit_description,
            )
    except PushError:
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    return commit


def push_saved(
    model: PreTrainedModel,
    folder: str | os.PathLike,
    *,
    repo_id: str | None = None,
    private: bool | None = None,
    token: str | bool | None = None,
    revision: str | None = None,
    create_pr: bool = False,
    commit_message: str | None = None,
) -> None:
    """
    Write the card of a saved sparse model and upload it; called by `save_pretrained(push_to_hub=True)`.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model.
        folder (`str`): The folder that it is saved in.
        repo_id (`str`, *optional*, defaults to the name of the folder): The repository.
        private, token, revision, create_pr, commit_message: As for `PreTrainedModel.push_to_hub`.
    """
    repo_id = repo_id or Path(folder).absolute().name
    with explained(repo_id, folder=folder, only_known=True, private=private, revision=revision, create_pr=create_pr):
        repo_id = HfApi().create_repo(repo_id, private=private, token=token, exist_ok=True).repo_id
        card = model_card(model, repo_id=repo_id, tags=model.model_tags, into=_existing_card(repo_id, token))
        card.save(Path(folder, CARD_FILE))
        message = commit_message or "Upload model"
        _upload_known(folder, repo_id, token=token, revision=revision, create_pr=create_pr, commit_message=message)


def _upload_known(folder: str | os.PathLike, repo_id: str, **options: Any) -> CommitInfo:
    """Upload the files of a checkpoint, and log which others stay where they are."""
    known = known_files(Path(folder))
    refuse_links(Path(folder), known)
    left = unknown_files(Path(folder), known)
    if left:
        logger.warning(
            "Not uploaded from %s, because they are not files of the checkpoint: %s", folder, shortened(left)
        )
    return _upload(folder, repo_id, allow_patterns=[file.as_posix() for file in known], **options)


def _upload(folder: str | os.PathLike, repo_id: str, **options: Any) -> CommitInfo:
    api, revision = HfApi(), options.get("revision")
    if revision is not None and not revision.startswith("refs/pr"):
        api.create_branch(repo_id, branch=revision, token=options.get("token"), exist_ok=True)
    return api.upload_folder(repo_id=repo_id, folder_path=os.fspath(folder), **options)


def _existing_card(repo_id: str, token: str | bool | None) -> ModelCard | None:
    try:
        # `token` may be a bool here, as for every download; only the annotation of `load` is narrower
        return ModelCard.load(repo_id, token=token, ignore_metadata_errors=True)  # type: ignore[arg-type]
    except EntryNotFoundError:
        return None


def _name_repository(card: Path, repo_id: str) -> None:
    """Fill the name of the repository into a card that was written before it was known."""
    if not card.is_file():
        return
    text = card.read_text(encoding="utf-8")
    if UNKNOWN_REPOSITORY in text:
        rewrite_text(card, text.replace(UNKNOWN_REPOSITORY, repo_id))
