# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Continuous batching with dense (`sdpa`) and with sparse Hopfield attention: tokens per second in turns, and peak memory.

On a machine that does other work, look at the ratio of the processor time.

python examples/benchmarks/serving.py --model path/to/SmolLM2-135M
python examples/benchmarks/serving.py --model path/to/converted --requests 32 --prompt 64 512 --new 64 --output_dir results
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    ContinuousBatchingConfig,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
)

from hf_sparse_hopfield import SparseHopfieldConfig, to_dense, to_sparse_hopfield


ATTENTIONS = ("sdpa", "sparse_hopfield")


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a causal language model, dense or converted (default: a small random Llama)")
    parser.add_argument("--alpha", type=float, default=1.5, help="alpha, unless the model is converted")
    parser.add_argument("--beta", type=float, default=1.0, help="beta, unless the model is converted")
    parser.add_argument("--requests", type=int, default=16, help="number of requests, all there from the start")
    parser.add_argument("--prompt", type=int, nargs=2, default=(32, 256), help="fewest and most tokens of a prompt")
    parser.add_argument("--new", type=int, default=32, help="number of new tokens of each request")
    parser.add_argument("--batch_tokens", type=int, default=512, help="most tokens of a step")
    parser.add_argument("--rounds", type=int, default=5, help="number of times that each attention has its turn")
    parser.add_argument("--threads", type=int, help="number of torch threads")
    parser.add_argument("--output_dir", type=Path, help="folder for the results")
    parser.add_argument(
        "--memory_of", choices=ATTENTIONS, help="only print the peak memory with this attention, in MiB"
    )
    return parser.parse_args(argv)


def load(arguments: argparse.Namespace, attention: str) -> PreTrainedModel:
    """The model with dense or with sparse attention."""
    if arguments.model is None:
        torch.manual_seed(0)
        sizes = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 6, "vocab_size": 8192}
        heads = {"num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 8192}
        model: PreTrainedModel = LlamaForCausalLM(LlamaConfig(**sizes, **heads))
    else:
        model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32)
    converted = hasattr(model.config, "sparse_hopfield")
    if attention == "sdpa":
        return to_dense(model) if converted else model
    settings = SparseHopfieldConfig(alpha=arguments.alpha, beta=arguments.beta)
    return model if converted else to_sparse_hopfield(model, settings)


def serve(model: PreTrainedModel, arguments: argparse.Namespace) -> list[list[int]]:
    """Answer all requests; the new tokens of each."""
    generator = torch.Generator().manual_seed(0)
    fewest, most = arguments.prompt
    lengths = torch.randint(fewest, most + 1, (arguments.requests,), generator=generator).tolist()
    vocabulary = model.config.vocab_size
    prompts = [torch.randint(3, vocabulary, (length,), generator=generator).tolist() for length in lengths]
    generation = GenerationConfig(max_new_tokens=arguments.new, do_sample=False, eos_token_id=-1, pad_token_id=0)
    pages = sum(-(-(length + arguments.new) // 32) for length in lengths)
    batching = ContinuousBatchingConfig(page_size=32, num_blocks=pages, max_batch_tokens=arguments.batch_tokens)
    results = model.generate_batch(prompts, generation_config=generation, continuous_batching_config=batching)
    tokens = [result.generated_tokens for result in results.values()]
    if sum(map(len, tokens)) != arguments.requests * arguments.new:
        raise RuntimeError(f"requests were lost: {[result.error for result in results.values()]}")
    return tokens


def measure(models: dict[str, PreTrainedModel], arguments: argparse.Namespace) -> dict[str, tuple[float, float]]:
    """Median seconds on the clock and of the processor, for each model. They take turns."""
    seconds: dict[str, list[tuple[float, float]]] = {attention: [] for attention in models}
    for turn in range(arguments.rounds + 1):
        for attention, model in models.items():
            wall, processor = time.perf_counter(), time.process_time()
            serve(model, arguments)
            if turn:  # the first one warms up
                seconds[attention].append((time.perf_counter() - wall, time.process_time() - processor))
    return {
        attention: (statistics.median(wall), statistics.median(processor))
        for attention, (wall, processor) in ((name, zip(*pairs, strict=True)) for name, pairs in seconds.items())
    }


def peak_memory(arguments: argparse.Namespace) -> float:
    """Peak memory in MiB beyond the loaded model, in this process."""

    def resident(field: str) -> float:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))

    model = load(arguments, arguments.memory_of)
    short = argparse.Namespace(**{**vars(arguments), "requests": 1, "prompt": (4, 4), "new": 2, "batch_tokens": 16})
    serve(model, short)  # what is set up once
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    serve(model, arguments)
    return resident("VmHWM") - before


def memory_in_a_process(attention: str, argv: list[str]) -> float | None:
    """[`peak_memory`] in a fresh process; `None` if the system does not report it (anything but Linux)."""
    command = [sys.executable, __file__, *argv, "--memory_of", attention]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return float(done.stdout.split()[-1]) if done.returncode == 0 else None


def main(argv: list[str] | None = None) -> int:
    """Measure, and print and write the results."""
    argv = sys.argv[1:] if argv is None else argv
    arguments = parse_arguments(argv)
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if arguments.memory_of:
        print(peak_memory(arguments))
        return 0
    times = measure({attention: load(arguments, attention) for attention in ATTENTIONS}, arguments)
    memory = {attention: memory_in_a_process(attention, argv) for attention in ATTENTIONS}
    count = arguments.requests * arguments.new
    for attention, (wall, processor) in times.items():
        peak = "unknown" if memory[attention] is None else f"{memory[attention]:.0f} MiB"
        print(f"{attention}: {count / wall:.1f} new tokens/s, {processor:.2f} s of processor time, peak memory {peak}")
    ratios = [dense / sparse for dense, sparse in zip(times["sdpa"], times["sparse_hopfield"], strict=True)]
    print(f"sdpa / sparse_hopfield: time {ratios[0]:.2f}, processor time {ratios[1]:.2f}")
    if arguments.output_dir:
        arguments.output_dir.mkdir(parents=True, exist_ok=True)
        results = {**vars(arguments), "seconds": times, "memory": memory, "ratios": ratios}
        (arguments.output_dir / "serving.json").write_text(json.dumps(results, indent=1, default=str))
    return 0


if __name__ == "__main__":
    sys.exit(main())
