# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Time a whole causal language model with dense (`sdpa`) and with sparse Hopfield attention: prefill, train step, decode.

python examples/benchmarks/end_to_end.py --model path/to/SmolLM2-135M
python examples/benchmarks/end_to_end.py --model path/to/model --alpha 1.5 --text corpus.txt --output results
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, PreTrainedModel

import hf_sparse_hopfield  # noqa: F401  (registers the attention)
from hf_sparse_hopfield.benchmark import keep_freed_memory, time_interleaved
from hf_sparse_hopfield.sample_inputs import read_text


PROMISES = {"prefill": 1.2, "train step": 1.1, "decode": 1.15}


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder or name of a causal language model")
    parser.add_argument("--text", type=Path, help="text to read, may be .gz; without it, random tokens")
    parser.add_argument("--alpha", type=float, default=2.0, help="family member")
    parser.add_argument("--beta", type=float, default=1.0, help="multiplier on the model's own scaling")
    parser.add_argument("--backend", default="auto", help="backend of the sparse attention")
    parser.add_argument("--prefill", type=int, default=2048, help="tokens of the prefill")
    parser.add_argument("--train", type=int, default=1024, help="tokens of the train step")
    parser.add_argument("--decode", type=int, default=4096, help="tokens in the cache when decoding")
    parser.add_argument("--seconds", type=float, default=20.0, help="about how long each measurement takes")
    parser.add_argument("--threads", type=int, help="threads of torch")
    parser.add_argument("--output", type=Path, help="folder for the results")
    return parser.parse_args(argv)


def load(arguments: argparse.Namespace) -> dict[str, PreTrainedModel]:
    """The same weights with either attention."""
    models = {}
    for name in ("sdpa", "sparse_hopfield"):
        model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32, attn_implementation="sdpa")
        if name == "sparse_hopfield":
            model.config.sparse_hopfield = {
                "alpha": arguments.alpha,
                "beta": arguments.beta,
                "backend": arguments.backend,
            }
            model.set_attn_implementation(name)
        models[name] = model
    return models


def token_ids(arguments: argparse.Namespace, vocabulary: int) -> torch.Tensor:
    """As many tokens as the longest of the measurements needs."""
    count = max(arguments.prefill, arguments.train, arguments.decode) + 1
    if arguments.text is None:
        return torch.randint(vocabulary, (1, count), generator=torch.Generator().manual_seed(0))
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    ids = tokenizer(read_text(arguments.text)[: 20 * count], return_tensors="pt").input_ids
    if ids.shape[1] < count:
        raise ValueError(f"--text {arguments.text} has {ids.shape[1]} tokens, {count} are needed.")
    return ids[:, :count]


def prefill(model: PreTrainedModel, ids: torch.Tensor) -> Callable[[], None]:
    """Read a prompt."""

    def call() -> None:
        with torch.no_grad():
            model.eval()(ids, use_cache=True, logits_to_keep=1)

    return call


def train_step(model: PreTrainedModel, ids: torch.Tensor) -> Callable[[], None]:
    """Forward, loss and backward."""

    def call() -> None:
        model.train()
        model(ids, labels=ids, use_cache=False).loss.backward()
        model.zero_grad()

    return call


def decode(model: PreTrainedModel, ids: torch.Tensor) -> Callable[[], None]:
    """One token after a long prompt."""
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model.eval()(ids[:, :-1], past_key_values=cache, logits_to_keep=1)

    def call() -> None:
        with torch.no_grad():
            model.eval()(ids[:, -1:], past_key_values=cache, use_cache=True)
        cache.crop(-1)  # the next call finds the cache as this one did

    return call


def main(argv: list[str] | None = None) -> int:
    """Measure, print, and write the results."""
    arguments = parse_arguments(argv)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    keep_freed_memory()
    models = load(arguments)
    ids = token_ids(arguments, models["sdpa"].config.vocab_size)
    results = {}
    for name, task, length in (
        ("prefill", prefill, arguments.prefill),
        ("train step", train_step, arguments.train),
        ("decode", decode, arguments.decode + 1),
    ):
        calls = {attention: task(model, ids[:, :length]) for attention, model in models.items()}
        times = time_interleaved(calls, arguments.seconds)
        ratio = times["sdpa"] / times["sparse_hopfield"]
        results[name] = {"tokens": length, "ratio": ratio, "promised": PROMISES[name], **times}
        dense, sparse = (times[attention] * 1e3 for attention in models)
        state = "met" if ratio >= PROMISES[name] else "MISSED"
        print(
            f"{name} {length}: sdpa {dense:.1f} ms, sparse_hopfield {sparse:.1f} ms, "
            f"ratio {ratio:.2f} (promised {PROMISES[name]}: {state})"
        )
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "end_to_end.json").write_text(
            json.dumps({**vars(arguments), **results}, indent=1, default=str)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
