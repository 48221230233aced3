# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What the tests have other processes do, against the loopback Hub: `python -m tests.hub.actions` runs one call per line.

It imports neither torch nor this package by itself, because some of these processes are to load a model without.
"""

import contextlib
import io
import json
import os
import sys
from typing import Any


def prepare(imports: list[str]) -> None:
    """Import modules, in this order."""
    for name in imports:
        __import__(name)


def push(
    name: str,
    repo: str,
    expected: str,
    settings: dict | None = None,
    by_name: bool = False,
    counted: bool = False,
    **options: Any,
) -> None:
    """Make a tiny model sparse, save what it gives, push it."""
    import torch

    from hf_sparse_hopfield import to_sparse_hopfield

    from ..tiny_models import tiny_inputs, tiny_model, tiny_output

    if by_name:
        model = tiny_model(name, "sparse_hopfield", sparse_hopfield=settings)
    else:
        model = to_sparse_hopfield(tiny_model(name), settings)
    inputs = tiny_inputs(name)
    torch.save({"inputs": inputs, "output": tiny_output(model, inputs).detach()}, expected)
    model.push_to_hub(repo, **({"batches": [inputs]} if counted else {}), **options)


def push_own(name: str, repo: str, expected: str) -> None:
    """The same with a model of our own."""
    import torch

    from . import own_models

    model, inputs = getattr(own_models, name)()
    with torch.no_grad():
        torch.save({"inputs": inputs, "output": _main(model(**inputs))}, expected)
    model.push_to_hub(repo, batches=[inputs])


def _main(output: Any) -> Any:
    return output.prediction_outputs if "prediction_outputs" in output else output.logits


def save_and_push(name: str, repo: str, folder: str) -> None:
    """`save_pretrained(push_to_hub=True)`."""
    from hf_sparse_hopfield import to_sparse_hopfield

    from ..tiny_models import tiny_model

    to_sparse_hopfield(tiny_model(name)).save_pretrained(folder, push_to_hub=True, repo_id=repo)


def save_dense(name: str, folder: str) -> None:
    """A dense checkpoint with a tokenizer, for the command line to convert."""
    from hf_sparse_hopfield.demo import make_tokenizer

    from ..tiny_models import tiny_model

    tokenizer = make_tokenizer()
    tiny_model(name, vocab_size=len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def train(folder: str, repo: str, expected: str | None = None, dense: bool = False, **options: Any) -> None:
    """Train with `push_to_hub=True`, two steps with a checkpoint each, and push at the end."""
    import torch
    from transformers import Trainer, TrainingArguments

    from hf_sparse_hopfield import to_sparse_hopfield

    from ..tiny_models import tiny_inputs, tiny_model, tiny_output

    model = tiny_model("bert")
    if not dense:
        model = to_sparse_hopfield(model, {"alpha": 1.5, "learn_beta": True})
    model.config._name_or_path = "me/base"
    data = [{"input_ids": row, "labels": row} for row in tiny_inputs("bert", batch=8)["input_ids"]]
    arguments = TrainingArguments(
        folder,
        max_steps=2,
        save_steps=1,
        report_to="none",
        use_cpu=True,
        push_to_hub=True,
        hub_model_id=repo,
        **options,
    )
    metrics = {"compute_metrics": lambda prediction: {"accuracy": 0.5}}
    trainer = Trainer(model, arguments, train_dataset=data, eval_dataset=data, **metrics)
    trainer.train()
    trainer.evaluate()
    if expected is not None:
        inputs = tiny_inputs("bert")
        torch.save({"inputs": inputs, "output": tiny_output(model.eval(), inputs).detach()}, expected)
    card = {"dataset": "Data", "dataset_tags": "me/data", "tasks": "fill-mask"}  # as the example scripts tell it
    try:
        trainer.push_to_hub(**card)
    except OSError as error:
        print(error)
        trainer.push_to_hub(**card)


def run_command(*argv: str) -> int:
    """The command line."""
    from hf_sparse_hopfield.cli.main import main

    sys.argv = ["hf-sparse-hopfield", *argv]
    return main()


def load(models: dict[str, tuple[str, str]], plugin: bool) -> dict[str, Any]:
    """
    Load models by their ids, and compare with what they gave where they were pushed.

    Args:
        models (`dict`): Repository to Auto class and file with inputs and output.
        plugin (`bool`): With the plugin imported; otherwise with `trust_remote_code=True`, and it must not be imported.

    Returns:
        `dict`: For each repository the name of the class, whether the outputs are equal, and whether a load without
        `trust_remote_code` or plugin failed.
    """
    import torch
    import transformers

    if plugin:
        import hf_sparse_hopfield  # noqa: F401
    found = {}
    for repo, (auto, expected) in models.items():
        auto_class = getattr(transformers, auto)
        refused = False
        if not plugin and not found:  # the first remote code imports the plugin for all that follow
            assert "hf_sparse_hopfield" not in sys.modules
            try:
                auto_class.from_pretrained(repo, trust_remote_code=False)
            except ValueError:
                refused = True
        options = {} if plugin else {"trust_remote_code": True}
        model = auto_class.from_pretrained(repo, **options)
        told = torch.load(expected, weights_only=True)
        with torch.no_grad():
            output = _main(model(**told["inputs"]))
        found[repo] = [type(model).__name__, torch.equal(output, told["output"]), refused]
    return found


def _serve() -> None:
    """Run the calls that come in as JSON lines."""
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        call = json.loads(line)
        os.environ.update(call["environment"])
        output = io.StringIO()
        answer: dict[str, Any] = {"error": None, "result": None}
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            try:
                answer["result"] = globals()[call["name"]](*call["args"], **call["kwargs"])
            except Exception as error:  # noqa: BLE001  (whatever it is, the test is to see it)
                answer["error"] = [type(error).__name__, str(error)]
        print(json.dumps({**answer, "output": output.getvalue()}), file=answers, flush=True)


if __name__ == "__main__":
    _serve()
    os._exit(0)  # taking torch apart takes seconds
