# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Distil a converted causal language model on a mix of texts and lengths. `convert --distill` does it with equal shares.

A part of the mix is a text file, the tokens in a window, and the number of windows. A step reads one window, or of short ones as
many as `--tokens` hold. Started again, an interrupted run resumes from its last checkpoint.

python examples/conversion/distillation.py --sparse path/to/converted --part wiki.train.txt 512 200 --part self.txt 512 280 \
  --part wiki.train.txt 2048 56 --steps 400 --layer_steps 30 --max_support 0.095 --bf16 --output_dir path/to/distilled
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainingArguments

import hf_sparse_hopfield  # noqa: F401  (sparse checkpoints load)
from hf_sparse_hopfield import distill
from hf_sparse_hopfield.sample_inputs import read_text, text_batches
from hf_sparse_hopfield.training import last_whole_checkpoint


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sparse", required=True, help="folder or Hub id of a calibrated model")
    parser.add_argument("--tokenizer", help="folder or Hub id of its tokenizer (default: that of --sparse)")
    parser.add_argument(
        "--part",
        nargs=3,
        action="append",
        required=True,
        metavar=("FILE", "LENGTH", "WINDOWS"),
        help="a text file in UTF-8, may be .gz; tokens in a window; number of windows",
    )
    parser.add_argument("--tokens", type=int, default=512, help="tokens of a step (default: 512, or one window)")
    parser.add_argument("--steps", type=int, default=400, help="steps on the outputs (default: 400)")
    parser.add_argument("--layer_steps", type=int, default=30, help="steps by layers before them (default: 30)")
    parser.add_argument("--max_support", type=float, help="largest mean share of the visible keys that get weight")
    parser.add_argument("--learning_rate", type=float, default=2e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bf16", action="store_true", help="in mixed precision")
    parser.add_argument("--output_dir", type=Path, required=True, help="folder of the distilled model")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Distil the model and save it with its report."""
    arguments = parse_arguments(argv)
    tokenizer = AutoTokenizer.from_pretrained(arguments.tokenizer or arguments.sparse)
    model = AutoModelForCausalLM.from_pretrained(arguments.sparse, dtype=torch.float32)
    batches = []
    for number, (path, length, windows) in enumerate(arguments.part):
        size = max(1, arguments.tokens // int(length))
        options = {"length": int(length), "count": -(-int(windows) // size), "batch_size": size}
        batches += text_batches(model, tokenizer, read_text(path), **options, seed=arguments.seed + number)
    order = torch.randperm(len(batches), generator=torch.Generator().manual_seed(arguments.seed)).tolist()
    checkpoints = f"{arguments.output_dir}.checkpoints"
    model, report = distill(
        model,
        [batches[place] for place in order],
        steps=arguments.steps,
        layer_steps=arguments.layer_steps,
        max_support=arguments.max_support,
        learning_rate=arguments.learning_rate,
        seed=arguments.seed,
        training_arguments=TrainingArguments(
            checkpoints,
            bf16=arguments.bf16,
            use_cpu=not torch.cuda.is_available(),
            report_to=[],
            logging_steps=10,
            save_steps=50,
            save_total_limit=2,
        ),
        resume_from_checkpoint=last_whole_checkpoint(checkpoints),
    )
    model.save_pretrained(arguments.output_dir)
    tokenizer.save_pretrained(arguments.output_dir)
    report.save(arguments.output_dir / "distillation.json")
    print(report.held_out, f"keys {report.mean_support:.2%}, {report.tokens} tokens, {report.seconds:.0f} s")


if __name__ == "__main__":
    main()
