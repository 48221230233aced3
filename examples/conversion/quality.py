# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Compare converted causal language models with the dense one: perplexity on several texts and lengths, and keys used.

Each text is cut into windows, of which `--windows` evenly spread ones are read. The difference to the dense model is taken window by
window, so its standard error is that of paired differences. What was measured is kept in `--output` and not measured again.

python examples/conversion/quality.py --dense path/to/SmolLM2-135M --sparse path/to/converted path/to/distilled \
  --text wikitext2.test.txt.gz reviews.txt news.txt --length 512 4096 --windows 64 16 --output examples/conversion/results/smollm2.json
"""

import argparse
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

import hf_sparse_hopfield  # noqa: F401  (sparse checkpoints load)
from hf_sparse_hopfield.diagnostics import sparsity_report
from hf_sparse_hopfield.files import write_json
from hf_sparse_hopfield.sample_inputs import read_text


COUNTED = 4  # windows on which the keys are counted
ROWS = 64  # queries of each of them


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dense", required=True, help="folder or Hub id of the dense model")
    parser.add_argument("--sparse", nargs="+", required=True, help="folders or Hub ids of sparse models")
    parser.add_argument("--text", type=Path, nargs="+", required=True, help="text files in UTF-8, may be .gz")
    parser.add_argument("--length", type=int, nargs="+", default=[512], help="tokens in a window (default: 512)")
    parser.add_argument("--windows", type=int, nargs="+", default=[64], help="windows of each length (default: 64)")
    parser.add_argument("--output", type=Path, required=True, help="JSON file for the figures")
    parser.add_argument("--bf16", action="store_true", help="measure in mixed precision, which is faster and rougher")
    arguments = parser.parse_args(argv)
    if len(arguments.windows) != len(arguments.length):
        parser.error(f"--windows needs a number for each of the {len(arguments.length)} lengths")
    return arguments


def main(argv: list[str] | None = None) -> None:
    """Measure what is not yet measured, and print the table."""
    arguments = parse_arguments(argv)
    tokenizer = AutoTokenizer.from_pretrained(arguments.dense)
    figures = json.loads(arguments.output.read_text()) if arguments.output.exists() else {}
    cases = [
        (text.name.split(".txt")[0], length, _windows(tokenizer, read_text(text), length, count))
        for text in arguments.text
        for length, count in zip(arguments.length, arguments.windows, strict=True)
    ]
    for path in (arguments.dense, *arguments.sparse):
        model = None
        for name, length, windows in cases:
            key = _key(path, name, length, windows, arguments.bf16)
            if key in figures:
                continue
            model = model or AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
            found: dict[str, Any] = {
                "losses": _losses(model, windows, arguments.bf16, f"{Path(path).name} {name} {length}")
            }
            if path != arguments.dense:
                batches = [{"input_ids": window[None]} for window in windows[:COUNTED]]
                found["keys"] = sparsity_report(model, batches, rows=ROWS).share
            figures[key] = found
            arguments.output.parent.mkdir(parents=True, exist_ok=True)
            write_json(arguments.output, figures)
    print(_table(arguments, cases, figures))


def _windows(tokenizer: Any, text: str, length: int, count: int) -> torch.Tensor:
    tokens = tokenizer(text, return_tensors="pt", verbose=False)["input_ids"][0]
    windows = tokens[: len(tokens) // length * length].view(-1, length)
    if not len(windows):
        raise ValueError(f"a text of {len(tokens)} tokens has no window of {length}.")
    return windows[torch.linspace(0, len(windows) - 1, min(count, len(windows))).round().long()]


def _key(path: str, name: str, length: int, windows: torch.Tensor, bf16: bool) -> str:
    digest = hashlib.sha256(windows.numpy().tobytes()).hexdigest()[:8]
    return f"{Path(path).name}/{name}/{length}/{len(windows)}/{digest}{'/bf16' if bf16 else ''}"


@torch.no_grad()
def _losses(model: PreTrainedModel, windows: torch.Tensor, bf16: bool, title: str) -> list[float]:
    losses = []
    for window in tqdm(windows, desc=title):
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            logits = model(input_ids=window[None], use_cache=False).logits
        losses.append(torch.nn.functional.cross_entropy(logits[0, :-1].float(), window[1:]).item())
    return losses


def difference(sparse: list[float], dense: list[float]) -> tuple[float, float]:
    """Difference of the perplexities in percent, and its standard error."""
    each = torch.tensor(sparse, dtype=torch.float64) - torch.tensor(dense, dtype=torch.float64)
    error = float(each.std()) / math.sqrt(len(each)) if len(each) > 1 else math.nan
    return 100 * math.expm1(float(each.mean())), 100 * error


def _table(arguments: argparse.Namespace, cases: list[tuple[str, int, torch.Tensor]], figures: dict[str, Any]) -> str:
    heads = [f"{Path(path).name} | keys" for path in arguments.sparse]
    lines = [f"| text | window | windows | dense | {' | '.join(heads)} |", "| --- " * (4 + 2 * len(heads)) + "|"]
    for name, length, windows in cases:
        dense = figures[_key(arguments.dense, name, length, windows, arguments.bf16)]["losses"]
        cells = [name, str(length), str(len(windows)), f"{math.exp(sum(dense) / len(dense)):.2f}"]
        for path in arguments.sparse:
            found = figures[_key(path, name, length, windows, arguments.bf16)]
            mean, error = difference(found["losses"], dense)
            cells += [f"{mean:+.2f} ± {error:.2f} %", f"{found['keys']:.1%}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
