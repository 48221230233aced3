# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Compare the sentence embeddings of converted encoders with those of the dense one: their cosine, and the nearest neighbours.

python examples/conversion/embeddings.py --dense path/to/all-MiniLM-L6-v2 --sparse path/to/converted path/to/distilled \
  --text news.txt --sentences 2000 --output examples/conversion/results/minilm.json
"""

import argparse
from pathlib import Path

import torch
from tqdm.auto import tqdm
from transformers import AutoModel, AutoTokenizer

import hf_sparse_hopfield  # noqa: F401  (sparse checkpoints load)
from hf_sparse_hopfield.diagnostics import sparsity_report
from hf_sparse_hopfield.files import write_json
from hf_sparse_hopfield.sample_inputs import read_text


COUNTED = 8  # batches on which the keys are counted
NEAREST = 10


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dense", required=True, help="folder or Hub id of the dense encoder")
    parser.add_argument("--sparse", nargs="+", required=True, help="folders or Hub ids of sparse encoders")
    parser.add_argument("--text", type=Path, required=True, help="file with a text on each line, may be .gz")
    parser.add_argument("--sentences", type=int, default=2000, help="evenly spread lines to embed (default: 2000)")
    parser.add_argument("--max_length", type=int, default=128, help="tokens that are read of a line (default: 128)")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--output", type=Path, required=True, help="JSON file for the figures")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Embed the lines with all models, and print the table."""
    arguments = parse_arguments(argv)
    lines = [line for line in read_text(arguments.text).splitlines() if line.strip()]
    if len(lines) <= NEAREST:
        raise ValueError(
            f"{arguments.text} has {len(lines)} lines: {NEAREST + 1} are needed, for {NEAREST} neighbours."
        )
    count = min(arguments.sentences, len(lines))
    lines = [lines[i] for i in torch.linspace(0, len(lines) - 1, count).round().long().tolist()]
    tokenizer = AutoTokenizer.from_pretrained(arguments.dense)
    batches = [
        tokenizer(
            lines[i : i + arguments.batch_size],
            padding=True,
            truncation=True,
            max_length=arguments.max_length,
            return_tensors="pt",
        )
        for i in range(0, len(lines), arguments.batch_size)
    ]
    expected = _embeddings(arguments.dense, batches)[0]
    figures = {"lines": count}
    print("| model | keys | cosine | smallest | same neighbours |\n" + "| --- " * 5 + "|")
    for path in arguments.sparse:
        found, keys = _embeddings(path, batches)
        cosine = (found * expected).sum(-1)
        same = overlap(found, expected)
        figures[Path(path).name] = {
            "keys": keys,
            "cosine": cosine.mean().item(),
            "smallest": cosine.min().item(),
            "neighbours": same,
        }
        print(f"| {Path(path).name} | {keys:.1%} | {cosine.mean():.4f} | {cosine.min():.4f} | {same:.3f} |")
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    write_json(arguments.output, figures)


@torch.no_grad()
def _embeddings(path: str, batches: list) -> tuple[torch.Tensor, float]:
    """Mean of the last hidden states, scaled to length 1; and the share of keys with weight (1 of a dense model)."""
    model = AutoModel.from_pretrained(path, dtype=torch.float32).eval()
    parts = []
    for batch in tqdm(batches, desc=Path(path).name):
        mask = batch["attention_mask"][..., None]
        parts.append((model(**batch).last_hidden_state * mask).sum(1) / mask.sum(1))
    keys = 1.0
    if getattr(model.config, "sparse_hopfield", None) is not None:
        keys = sparsity_report(model, [dict(batch) for batch in batches[:COUNTED]], rows=64).share
    return torch.nn.functional.normalize(torch.cat(parts), dim=-1), keys


def overlap(found: torch.Tensor, expected: torch.Tensor, nearest: int = NEAREST) -> float:
    """
    Return the mean share of nearest neighbours that two sets of embeddings of the same texts have in common.

    Args:
        found, expected (`torch.Tensor` of shape `(texts, size)`): Embeddings of length 1.
        nearest (`int`, *optional*, defaults to 10): How many neighbours.
    """
    sets = []
    for embeddings in (found, expected):
        cosine = embeddings @ embeddings.T
        cosine.fill_diagonal_(-2)
        sets.append(cosine.topk(nearest).indices)
    return (sets[0][:, :, None] == sets[1][:, None, :]).any(-1).float().mean().item()


if __name__ == "__main__":
    main()
