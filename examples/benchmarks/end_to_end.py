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


TARGETS = {"prefill": 1.2, "train step": 1.1, "decode": 1.15}


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="folder or name of a causal language model")
    parser.add_argument("--text", type=Path, help="text to read, may be .gz (default: random tokens)")
    parser.add_argument("--alpha", type=float, default=2.0, help="alpha of entmax: 1.5, or 2 for sparsemax")
    parser.add_argument("--beta", type=float, default=1.0, help="factor on the model's own scaling")
    parser.add_argument("--backend", default="auto", help="backend of the sparse attention")
    parser.add_argument("--prefill", type=int, default=2048, help="number of prefill tokens")
    parser.add_argument("--train", type=int, default=1024, help="number of tokens in the training step")
    parser.add_argument("--decode", type=int, default=4096, help="number of cached tokens when decoding")
    parser.add_argument("--seconds", type=float, default=20.0, help="approximate time per measurement")
    parser.add_argument("--threads", type=int, help="number of torch threads")
    parser.add_argument("--output", type=Path, help="folder for the results")
    return parser.parse_args(argv)


def load(arguments: argparse.Namespace) -> dict[str, PreTrainedModel]:
    """Load the model twice, with dense and with sparse attention."""
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
    """Return as many tokens as the longest measurement needs."""
    count = max(arguments.prefill, arguments.train, arguments.decode) + 1
    if arguments.text is None:
        return torch.randint(vocabulary, (1, count), generator=torch.Generator().manual_seed(0))
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    ids = tokenizer(read_text(arguments.text)[: 20 * count], return_tensors="pt").input_ids
    if ids.shape[1] < count:
        raise ValueError(f"--text {arguments.text} has {ids.shape[1]} tokens, but {count} are needed.")
    return ids[:, :count]


def prefill(model: PreTrainedModel, ids: torch.Tensor) -> Callable[[], None]:
    """Process a prompt."""

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
    """Decode one token after a long prompt."""
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model.eval()(ids[:, :-1], past_key_values=cache, logits_to_keep=1)

    def call() -> None:
        with torch.no_grad():
            model.eval()(ids[:, -1:], past_key_values=cache, use_cache=True)
        cache.crop(-1)  # restore the cache for the next call

    return call


def main(argv: list[str] | None = None) -> int:
    """Measure, and print and write the results."""
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
        results[name] = {"tokens": length, "ratio": ratio, "promised": TARGETS[name], **times}
        dense, sparse = (times[attention] * 1e3 for attention in models)
        state = "met" if ratio >= TARGETS[name] else "MISSED"
        print(
            f"{name} {length}: sdpa {dense:.1f} ms, sparse_hopfield {sparse:.1f} ms, "
            f"ratio {ratio:.2f} (target {TARGETS[name]}: {state})"
        )
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "end_to_end.json").write_text(
            json.dumps({**vars(arguments), **results}, indent=1, default=str)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
