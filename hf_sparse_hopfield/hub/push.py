# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Pushing sparse models to the Hub, with their card, and with errors that say how to go on.

`hooks.py` and `registration.py` put this behind `model.push_to_hub`, `save_pretrained(push_to_hub=True)` and the Trainer, for
sparse models only. A checkpoint goes up in one commit: it is there as a whole or not at all. If it fails, the files stay
where they are, and the error names the command that uploads them.
"""

import functools
import os
import shlex
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo, HfApi, ModelCard
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    HTTPError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
)
from transformers import PreTrainedModel
from transformers.utils import logging

from ..files import write_text
from ..integration.binding import retrieves
from .cards import CARD_FILE, UNKNOWN_REPOSITORY, SparseModelCard, model_card, settings_table


__all__ = [
    "PushError",
    "SparseModelCard",
    "model_card",
    "push_folder",
    "push_model",
    "settings_table",
    "wrap_trainer",
]

logger = logging.get_logger(__name__)

_NO_CHECKPOINTS = ("_*", "checkpoint-*")  # as the Trainer has it
_SAMPLES = 8
_HUB_ERRORS = (HTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled)


class PushError(OSError):
    """A push that failed. Its message says why, where the files are, and how to try again."""


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
    Upload a checkpoint, but not those of its training.

    Args:
        folder (`str`): The checkpoint.
        repo_id (`str`): Where to, as `owner/name`; it is created if need be.
        private (`bool`, *optional*): Create it private.
        token (`str`, *optional*): By default, the one that `hf auth login` has stored, or `HF_TOKEN`.
        revision (`str`, *optional*): Branch to upload to; it is created if need be.
        commit_message (`str`, *optional*): What the history says.

    Returns:
        `str`: Address of the commit.
    """
    with _explained(repo_id, folder=folder, private=private, revision=revision):
        repo_id = HfApi().create_repo(repo_id, private=private, token=token, exist_ok=True).repo_id
        _name_repository(Path(folder, CARD_FILE), repo_id)
        return str(_upload(folder, repo_id, token=token, revision=revision, commit_message=commit_message))


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
    What `model.push_to_hub` does for a sparse model: upload it, with its card and what `trust_remote_code` needs.

    A card that is in the repository already keeps its text; the part about sparse retrieval is renewed.

    Args:
        model ([`~transformers.PreTrainedModel`]): A model that retrieves sparsely.
        repo_id (`str`): Where to, as `owner/name`; it is created if need be.
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
    with _explained(repo_id, retry="nothing was written yet; call push_to_hub again"):
        repo_id = HfApi().create_repo(repo_id, private=private, token=token, exist_ok=True).repo_id
        existing = _existing_card(repo_id, token)
    # Kept if the upload fails: the process may be the only one that has the model.
    folder = Path(tempfile.mkdtemp(prefix=f"{repo_id.split('/')[-1]}-"))
    try:
        model.save_pretrained(folder, max_shard_size=max_shard_size)
        tags = [*(model.model_tags or []), *(tags or [])]
        model_card(model, repo_id=repo_id, tags=tags, into=existing, **card).save(folder / CARD_FILE)
        with _explained(repo_id, folder=folder, private=private, revision=revision, create_pr=create_pr):
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
    What `save_pretrained(push_to_hub=True)` does for a sparse model once it is saved: write its card and upload.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model.
        folder (`str`): Where it is saved.
        repo_id (`str`, *optional*, defaults to the name of the folder): Where to push it.
        private, token, revision, create_pr, commit_message: As for `PreTrainedModel.push_to_hub`.
    """
    repo_id = repo_id or Path(folder).absolute().name
    with _explained(repo_id, folder=folder, private=private, revision=revision, create_pr=create_pr):
        repo_id = HfApi().create_repo(repo_id, private=private, token=token, exist_ok=True).repo_id
        card = model_card(model, repo_id=repo_id, tags=model.model_tags, into=_existing_card(repo_id, token))
        card.save(Path(folder, CARD_FILE))
        message = commit_message or "Upload model"
        _upload(folder, repo_id, token=token, revision=revision, create_pr=create_pr, commit_message=message)


def _upload(folder: str | os.PathLike, repo_id: str, **options: Any) -> CommitInfo:
    api, revision = HfApi(), options.get("revision")
    if revision is not None and not revision.startswith("refs/pr"):
        api.create_branch(repo_id, branch=revision, token=options.get("token"), exist_ok=True)
    return api.upload_folder(repo_id=repo_id, folder_path=folder, ignore_patterns=list(_NO_CHECKPOINTS), **options)


def _existing_card(repo_id: str, token: str | bool | None) -> ModelCard | None:
    try:
        return ModelCard.load(repo_id, token=token, ignore_metadata_errors=True)
    except EntryNotFoundError:
        return None


def _name_repository(card: Path, repo_id: str) -> None:
    """Write where it goes into a card that was written before that was known."""
    if not card.is_file():
        return
    text = card.read_text(encoding="utf-8")
    if UNKNOWN_REPOSITORY in text:
        write_text(card, text.replace(UNKNOWN_REPOSITORY, repo_id))


def _upload_command(
    repo_id: str,
    folder: str | os.PathLike,
    private: bool | None = None,
    revision: str | None = None,
    create_pr: bool = False,
) -> str:
    parts = ["hf", "upload", repo_id, os.fspath(Path(folder).absolute()), "."]
    parts += ["--private"] if private else []
    parts += ["--revision", revision] if revision else []
    parts += ["--create-pr"] if create_pr else []
    for pattern in _NO_CHECKPOINTS:
        parts += ["--exclude", pattern] if any(Path(folder).glob(pattern)) else []
    return f"the files in {os.fspath(folder)!r} are whole; upload them with\n  {shlex.join(parts)}"


@contextmanager
def _explained(repo_id: str, retry: str | None = None, **upload: Any) -> Iterator[None]:
    """
    Turn what goes wrong on the way to the Hub into a [`PushError`] that says what to do.

    Args:
        repo_id (`str`): Where the push goes.
        retry (`str`, *optional*): What to do, if it is not to upload a folder.
        **upload: For [`_upload_command`], where there is a folder to upload.
    """
    try:
        yield
    except PushError:
        raise
    except (HTTPError, OSError, RuntimeError) as error:
        causes = list(_causes(error))
        if not any(isinstance(cause, _HUB_ERRORS) for cause in causes):
            raise
        status = causes[-1].response.status_code if isinstance(causes[-1], HfHubHTTPError) else None
        reason = " ".join(str(causes[-1]).split()) or type(causes[-1]).__name__
        owner = f"for {repo_id.split('/')[0]!r}" if "/" in repo_id else "of yours"
        if status == 401:
            cure = "The Hub does not accept the token, or there is none: log in with `hf auth login` or set HF_TOKEN."
        elif status == 403:
            cure = f"The token may not write there: use one with write permission {owner}, or another name."
        else:
            cure = "If it was the connection, simply try again."
        retry = retry or _upload_command(repo_id, **upload)
        raise PushError(f"pushing to {repo_id!r} failed: {reason}\n{cure} Nothing is lost: {retry}") from error


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what caused it, down to what the Hub said: huggingface_hub wraps what goes wrong with a single file."""
    while error is not None:
        yield error
        if isinstance(error, HfHubHTTPError):
            return
        error = error.__cause__


def wrap_trainer(trainer_class: type) -> None:
    """
    Teach the Trainer about sparse models: their card, what `trust_remote_code` needs, and what to do if a push fails.

    Args:
        trainer_class (`type`): `transformers.Trainer`. Trainers of dense models go on as before.
    """
    for name, wrap in {
        "init_hf_repo": _init_hf_repo,
        "create_model_card": _create_model_card,
        "push_to_hub": _push_to_hub,
        "_push_from_checkpoint": _push_from_checkpoint,
    }.items():
        original = getattr(trainer_class, name)
        setattr(trainer_class, name, functools.wraps(original)(wrap(original)))


def _sparse_model_of(trainer: Any) -> PreTrainedModel | None:
    model = trainer.accelerator.unwrap_model(trainer.model) if hasattr(trainer, "accelerator") else trainer.model
    return model if isinstance(model, PreTrainedModel) and retrieves(model) else None


def _repository_of(trainer: Any) -> str:
    return trainer.hub_model_id or trainer.args.hub_model_id or Path(trainer.args.output_dir).absolute().name


def _init_hf_repo(original: Callable) -> Callable:
    def init_hf_repo(self, *args, **kwargs):
        if _sparse_model_of(self) is None:
            return original(self, *args, **kwargs)
        retry = "nothing was written yet; try again, or train without and push later"
        with _explained(_repository_of(self), retry=retry):
            return original(self, *args, **kwargs)

    return init_hf_repo


def _create_model_card(original: Callable) -> Callable:
    def create_model_card(self, *args, **kwargs):
        original(self, *args, **kwargs)
        model = _sparse_model_of(self)
        if model is not None and self.is_world_process_zero():
            _add_to_card(self, model, Path(self.args.output_dir, CARD_FILE))

    return create_model_card


def _add_to_card(trainer: Any, model: PreTrainedModel, path: Path) -> None:
    options = {"repo_id": trainer.hub_model_id, "into": ModelCard.load(path, ignore_metadata_errors=True)}
    try:
        card = model_card(model, batches=_a_batch(trainer), **options)
    # the card is not worth the push: whatever is wrong with a batch made here, the model was trained without it
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        logger.warning(
            "The model card has no support sizes: counting them on the Trainer's data failed with %r", error
        )
        card = model_card(model, **options)
    card.save(path)


def _a_batch(trainer: Any) -> list[dict[str, Any]] | None:
    """A few samples of the Trainer's data, to count support sizes on; `None` where one process alone cannot do that."""
    dataset = trainer.eval_dataset if trainer.eval_dataset is not None else trainer.train_dataset
    dataset = next(iter(dataset.values())) if isinstance(dataset, dict) else dataset
    indexed = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    if not indexed or trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        return None
    samples = [dataset[index] for index in range(min(_SAMPLES, len(dataset)))]
    return [trainer._get_collator_with_removed_columns(trainer.data_collator)(samples)]


def _push_to_hub(original: Callable) -> Callable:
    def push_to_hub(self, *args, **kwargs):
        if _sparse_model_of(self) is None:
            return original(self, *args, **kwargs)
        revision = kwargs.get("revision") or self.args.hub_revision
        upload = {"folder": self.args.output_dir, "private": self.args.hub_private_repo, "revision": revision}
        with _explained(_repository_of(self), **upload):
            return original(self, *args, **kwargs)

    return push_to_hub


def _push_from_checkpoint(original: Callable) -> Callable:
    def push_from_checkpoint(self, checkpoint_folder, *args, **kwargs):
        # The Trainer copies the files that it knows by name into what it pushes; the remote code is not among them.
        model = _sparse_model_of(self)
        if model is not None and self.is_world_process_zero():
            for file in Path(checkpoint_folder).glob("*.py"):
                shutil.copy(file, Path(self.args.output_dir, file.name))
        result = original(self, checkpoint_folder, *args, **kwargs)
        push = getattr(self, "push_in_progress", None)
        for job in push.jobs if model is not None and push is not None else ():
            if job not in reported:  # the Trainer adds jobs to a push that is under way
                reported.add(job)
                job.add_done_callback(functools.partial(_report_failed_push, _repository_of(self), checkpoint_folder))
        return result

    reported: weakref.WeakSet[Future] = weakref.WeakSet()
    return push_from_checkpoint


def _report_failed_push(repo_id: str, checkpoint_folder: str, job: Future) -> None:
    # The Trainer starts these pushes and looks at none of their results.
    error = None if job.cancelled() else job.exception()
    if error is not None:
        logger.warning(
            "pushing %s to %r in the background failed: %s Training goes on, and the next push brings what is new by then.",
            checkpoint_folder,
            repo_id,
            " ".join(str(error).split()) or type(error).__name__,
        )
