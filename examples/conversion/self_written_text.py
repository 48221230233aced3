# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Let a dense language model write a text file, to convert with `--text FILE` more than once.

`--text self` does the same for one conversion.

python examples/conversion/self_written_text.py --dense path/to/SmolLM2-135M --windows 256 --length 512 --bf16 --output self.txt
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_sparse_hopfield.sample_inputs import self_written


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dense", required=True, help="folder or Hub id of the dense model")
    parser.add_argument("--windows", type=int, default=256, help="texts to write (default: 256)")
    parser.add_argument("--length", type=int, default=512, help="tokens of each (default: 512)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--bf16", action="store_true", help="write in half precision")
    parser.add_argument("--output", type=Path, required=True, help="text file")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Write the text."""
    arguments = parse_arguments(argv)
    tokenizer = AutoTokenizer.from_pretrained(arguments.dense)
    dtype = torch.bfloat16 if arguments.bf16 else torch.float32
    model = AutoModelForCausalLM.from_pretrained(arguments.dense, dtype=dtype)
    windows = self_written(
        model, tokenizer, windows=arguments.windows, length=arguments.length, seed=arguments.seed, progress=True
    )
    arguments.output.write_text("\n\n".join(tokenizer.batch_decode(windows)), encoding="utf-8")


if __name__ == "__main__":
    main()
