# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Time a whole causal language model with dense (`sdpa`) and with sparse Hopfield attention: prefill, train step, decode.

Each decodes with the cache that its `generate` uses. A cache longer than `--window` is filled window by window, without one
seeing the others: its keys are real, and filling it takes no more than linear time.

python examples/benchmarks/end_to_end.py --model path/to/SmolLM2-135M
python examples/benchmarks/end_to_end.py --model path/to/model --alpha 1.5 --text corpus.txt --output_dir results
python examples/benchmarks/end_to_end.py --model path/to/model --decode 4096 32768 --only decode
"""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, PreTrainedModel

from hf_sparse_hopfield import SparseHopfieldCache
from hf_sparse_hopfield.benchmark import keep_freed_memory, time_interleaved
from hf_sparse_hopfield.sample_inputs import read_text


# The least time of sdpa divided by ours; of decoding, by the number of cached tokens.
TARGETS = {"prefill": 1.2, "train step": 1.1}
DECODE_TARGETS = {4096: 1.3, 32768: 3.0}
DECODED = 8  # tokens of a call; one alone would find nothing of its model in the processor's caches


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
    parser.add_argument("--decode", type=int, nargs="+", default=[4096], help="numbers of cached tokens when decoding")
    parser.add_argument("--window", type=int, default=4096, help="tokens that are cached together")
    parser.add_argument("--only", choices=["prefill", "train step", "decode"], help="measure this alone")
    parser.add_argument("--seconds", type=float, default=20.0, help="approximate time per measurement")
    parser.add_argument("--threads", type=int, help="number of torch threads")
    parser.add_argument("--output_dir", type=Path, help="folder for the results")
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
    count = max(arguments.prefill, arguments.train, *arguments.decode) + 1
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


def fill(model: PreTrainedModel, ids: torch.Tensor, window: int) -> DynamicCache:
    """The cache of a long prompt, made of windows that do not see each other."""
    is_sparse = model.config._attn_implementation == "sparse_hopfield"
    cache = (SparseHopfieldCache if is_sparse else DynamicCache)(config=model.config)
    for start in range(0, ids.shape[1], window):
        part = ids[:, start : start + window]
        states = DynamicCache(config=model.config)
        positions = torch.arange(start, start + part.shape[1])[None]
        with torch.no_grad():
            model.eval()(part, past_key_values=states, position_ids=positions, logits_to_keep=1)
        for index, layer in enumerate(states.layers):
            cache.update(layer.keys, layer.values, index)
    return cache


def decode(model: PreTrainedModel, ids: torch.Tensor, window: int) -> Callable[[], None]:
    """Decode some tokens after a long prompt, and more of them with each call: the cache grows as in `generate`."""
    cache = fill(model, ids[:, :-1], window)
    model.eval()

    def call() -> None:
        with torch.no_grad():
            for _ in range(DECODED):
                model(ids[:, -1:], past_key_values=cache, use_cache=True)

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
    works = [("prefill", prefill, arguments.prefill, ()), ("train step", train_step, arguments.train, ())]
    works += [("decode", decode, length + 1, (arguments.window,)) for length in arguments.decode]
    for name, task, length, options in works:
        if arguments.only not in (None, name):
            continue
        calls = {attention: task(model, ids[:, :length], *options) for attention, model in models.items()}
        times = time_interleaved(calls, arguments.seconds)
        if name == "decode":
            times = {attention: seconds / DECODED for attention, seconds in times.items()}
        ratio = times["sdpa"] / times["sparse_hopfield"]
        target = DECODE_TARGETS.get(length - 1) if name == "decode" else TARGETS[name]
        results[f"{name} {length}"] = {"tokens": length, "ratio": ratio, "target": target, **times}
        dense, sparse = (times[attention] * 1e3 for attention in models)
        state = "" if target is None else f" (target {target}: {'met' if ratio >= target else 'MISSED'})"
        print(
            f"{name} {length}: sdpa {dense:.1f} ms, sparse_hopfield {sparse:.1f} ms, ratio {ratio:.2f}{state}",
            flush=True,
        )
    if arguments.output_dir:
        arguments.output_dir.mkdir(parents=True, exist_ok=True)
        (arguments.output_dir / "end_to_end.json").write_text(
            json.dumps({**vars(arguments), **results}, indent=1, default=str)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
