# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Push sparse models to the Hub, with their card, and explain what to do if that fails.

`integration/upstream.py` has `model.push_to_hub`, `save_pretrained(push_to_hub=True)` and the Trainer call this module, for
sparse models only. A checkpoint is uploaded in one commit: all of it or nothing. If the upload fails, the files stay
where they are, and the error names the command that uploads them.
"""

import functools
import os
import shlex
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

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
from ..integration.binding import has_sparse_retrieval
from ..integration.upstream import wrap_trainer
from .cards import CARD_FILE, UNKNOWN_REPOSITORY, SparseModelCard, model_card, settings_table


if TYPE_CHECKING:
    from transformers import Trainer

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

_NO_CHECKPOINTS = ("_*", "checkpoint-*")  # the patterns that the Trainer ignores
_SAMPLES = 8
_HUB_ERRORS = (HTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled)


class PushError(OSError):
    """A failed push. The message gives the reason, where the files are, and how to try again."""


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
    Upload a checkpoint, without the training checkpoints in its folder.

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
    with _explained(repo_id, retry="nothing was written yet; call push_to_hub again"):
        repo_id = HfApi().create_repo(repo_id, private=private, token=token, exist_ok=True).repo_id
        existing = _existing_card(repo_id, token)
    # Kept if the upload fails, because the model may exist nowhere else.
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
    Write the card of a saved sparse model and upload it; called by `save_pretrained(push_to_hub=True)`.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model.
        folder (`str`): The folder that it is saved in.
        repo_id (`str`, *optional*, defaults to the name of the folder): The repository.
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
    patterns = list(_NO_CHECKPOINTS)
    return api.upload_folder(repo_id=repo_id, folder_path=os.fspath(folder), ignore_patterns=patterns, **options)


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
    return f"the files in {os.fspath(folder)!r} are complete; upload them with\n  {shlex.join(parts)}"


@contextmanager
def _explained(repo_id: str, retry: str | None = None, **upload: Any) -> Iterator[None]:
    """
    Turn errors of the Hub into a [`PushError`] that says what to do.

    Args:
        repo_id (`str`): The repository.
        retry (`str`, *optional*): How to try again. By default, with the command that uploads the folder.
        **upload: Arguments of [`_upload_command`], if there is a folder to upload.
    """
    try:
        yield
    except PushError:
        raise
    except (HTTPError, OSError, RuntimeError) as error:
        causes = list(_causes(error))
        if not any(isinstance(cause, _HUB_ERRORS) for cause in causes):
            raise
        root = causes[-1]
        status = root.response.status_code if isinstance(root, HfHubHTTPError) else None
        reason = _one_line(root)
        owner = f"for {repo_id.split('/')[0]!r}" if "/" in repo_id else "of yours"
        if status == 401:
            cure = "The token is missing or not accepted: log in with `hf auth login` or set HF_TOKEN."
        elif status == 403:
            cure = f"The token has no write access: use one with write permission {owner}, or another name."
        else:
            cure = "If the connection was lost, try again."
        retry = retry or _upload_command(repo_id, **upload)
        raise PushError(f"pushing to {repo_id!r} failed: {reason}\n{cure} Nothing is lost: {retry}") from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes, down to the answer of the Hub, which huggingface_hub wraps for single files."""
    while error is not None:
        yield error
        if isinstance(error, HfHubHTTPError):
            return
        error = error.__cause__


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


# ---- Called by the methods of the Trainer that integration/upstream.py wraps ----


def _sparse_model_of(trainer: "Trainer") -> PreTrainedModel | None:
    model = trainer.accelerator.unwrap_model(trainer.model) if hasattr(trainer, "accelerator") else trainer.model
    return model if isinstance(model, PreTrainedModel) and has_sparse_retrieval(model) else None


def _repository_of(trainer: "Trainer") -> str:
    return trainer.hub_model_id or trainer.args.hub_model_id or _output_folder(trainer).absolute().name


def _output_folder(trainer: "Trainer") -> Path:
    return Path(cast(str, trainer.args.output_dir))  # TrainingArguments replaces None by a default


@contextmanager
def trainer_repository_errors(trainer: "Trainer") -> Iterator[None]:
    """
    Explain a Hub error while the Trainer creates its repository, before any training.

    Args:
        trainer ([`~transformers.Trainer`]): The Trainer. Errors of a dense model are left as they are.
    """
    if _sparse_model_of(trainer) is None:
        yield
        return
    retry = "nothing was written yet; try again, or train without pushing and push later"
    with _explained(_repository_of(trainer), retry=retry):
        yield


@contextmanager
def trainer_push_errors(trainer: "Trainer", revision: str | None = None) -> Iterator[None]:
    """
    Explain a Hub error while the Trainer pushes.

    Args:
        trainer ([`~transformers.Trainer`]): The Trainer. Errors of a dense model are left as they are.
        revision (`str`, *optional*, defaults to `trainer.args.hub_revision`): The branch.
    """
    if _sparse_model_of(trainer) is None:
        yield
        return
    arguments = trainer.args
    with _explained(
        _repository_of(trainer),
        folder=_output_folder(trainer),
        private=arguments.hub_private_repo,
        revision=revision or arguments.hub_revision,
    ):
        yield


def complete_trainer_card(trainer: "Trainer") -> None:
    """
    Add the section about sparse retrieval to the card that the Trainer has written.

    Args:
        trainer ([`~transformers.Trainer`]): The Trainer. The card of a dense model is left as it is.
    """
    model = _sparse_model_of(trainer)
    if model is None or not trainer.is_world_process_zero():
        return
    path = _output_folder(trainer) / CARD_FILE
    written = ModelCard.load(path, ignore_metadata_errors=True)
    try:
        card = model_card(model, repo_id=trainer.hub_model_id, into=written, batches=_counting_batches(trainer))
    # Anything may be wrong with a batch made here. The model was trained without it, and is pushed without it.
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        logger.warning(
            "The model card has no support sizes: counting them on the Trainer's data failed with %r", error
        )
        card = model_card(model, repo_id=trainer.hub_model_id, into=written)
    card.save(path)


def _counting_batches(trainer: "Trainer") -> list[dict[str, Any]] | None:
    """A few samples of the Trainer's data to count support sizes on; `None` where one process alone cannot do that."""
    from ..training.sparsity_logging import first_samples, own_random_numbers

    dataset = trainer.eval_dataset if trainer.eval_dataset is not None else trainer.train_dataset
    dataset = next(iter(dataset.values())) if isinstance(dataset, dict) else dataset
    indexed = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    if dataset is None or not indexed or trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:
        return None
    with own_random_numbers(trainer.args.seed):
        return [first_samples(trainer.get_test_dataloader(dataset), _SAMPLES)]


def copy_remote_code(trainer: "Trainer", checkpoint_folder: str | os.PathLike) -> None:
    """
    Copy the remote code of a checkpoint to the folder that the Trainer pushes. The Trainer copies files it knows by name.

    Args:
        trainer ([`~transformers.Trainer`]): The Trainer. A dense model has no remote code.
        checkpoint_folder (`str`): The checkpoint.
    """
    if _sparse_model_of(trainer) is not None and trainer.is_world_process_zero():
        for file in Path(checkpoint_folder).glob("*.py"):
            shutil.copy(file, _output_folder(trainer) / file.name)


_REPORTED: weakref.WeakSet[Future] = weakref.WeakSet()


def report_background_pushes(trainer: "Trainer", checkpoint_folder: str | os.PathLike) -> None:
    """
    Log a warning if a push that the Trainer has started in the background fails. The Trainer ignores the results.

    Args:
        trainer ([`~transformers.Trainer`]): The Trainer. Pushes of a dense model are left as they are.
        checkpoint_folder (`str`): The checkpoint that is pushed.
    """
    push = getattr(trainer, "push_in_progress", None)
    if push is None or _sparse_model_of(trainer) is None:
        return
    for job in push.jobs:
        if job not in _REPORTED:  # the Trainer adds jobs to a push that is running
            _REPORTED.add(job)
            job.add_done_callback(functools.partial(_report_failed_push, _repository_of(trainer), checkpoint_folder))


def _report_failed_push(repo_id: str, checkpoint_folder: str | os.PathLike, job: Future) -> None:
    error = None if job.cancelled() else job.exception()
    if error is not None:
        logger.warning(
            "pushing %s to %r in the background failed: %s Training continues, and the next push uploads the newer state.",
            checkpoint_folder,
            repo_id,
            _one_line(error),
        )
