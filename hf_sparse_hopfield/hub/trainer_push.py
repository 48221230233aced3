# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""How the Trainer pushes sparse models. `integration/upstream.py` has the Trainer call this module.

The Trainer pushes with its own methods; here its card gets the section about sparse retrieval, the remote code is copied, and
errors are explained. Nothing changes for dense models.
"""

import functools
import os
import shutil
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from huggingface_hub import ModelCard
from transformers import PreTrainedModel
from transformers.utils import logging

from ..integration.binding import has_sparse_retrieval
from .cards import CARD_FILE, model_card
from .push_errors import explained, one_line


if TYPE_CHECKING:
    from transformers import Trainer

logger = logging.get_logger(__name__)

_SAMPLES = 8  # to count support sizes on


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
    with explained(_repository_of(trainer), retry=retry):
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
    with explained(
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
            one_line(error),
        )
