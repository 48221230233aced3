# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Find texts by meaning: a memory of sentence embeddings, exact, with the rows and weights of what it finds.

    python examples/memory/sentences.py --model path/to/all-MiniLM-L6-v2 --data_dir DATA --output_dir OUT
    python examples/memory/sentences.py --model MODEL --data_dir DATA --output_dir OUT --query "a film that made me cry"
    accelerate launch --config_file examples/accelerate_configs/cpu_multi_process.yaml \\
        examples/memory/sentences.py --model MODEL --data_dir DATA --output_dir OUT

`DATA` has `text/ag_news_test.csv.gz` (class, title, description) and `text/imdb_6k.csv.gz` (split, label, text). The embeddings are
computed once and saved in `OUT/memory`; a second run loads them. With several processes, each holds its part of the memory.

The labels of what is found, weighted, predict the label of texts that are not stored: news by topic, reviews by sentiment. beta
is chosen on a third part, which is neither stored nor tested.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import pandas as pd
import torch
from accelerate import PartialState
from datasets import Dataset
from tqdm.auto import tqdm
from transformers import AutoModel, AutoTokenizer

from hf_sparse_hopfield import HopfieldMemory
from hf_sparse_hopfield.layers import MemoryMatches
from hf_sparse_hopfield.parallel import ShardedMemory


QUERIES = ("A film that made me cry", "Oil prices rise", "The team won in extra time", "A boring waste of two hours")
BETAS = (2.5, 5.0, 10.0, 20.0, 40.0)
ALPHA = 1.5


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", required=True, help="folder or name of a sentence encoder, such as all-MiniLM-L6-v2"
    )
    parser.add_argument("--data_dir", type=Path, required=True, help="folder of the texts")
    parser.add_argument("--output_dir", type=Path, required=True, help="folder of the memory and the results")
    parser.add_argument("--query", nargs="+", default=QUERIES, help="texts to search for")
    parser.add_argument("--limit", type=int, help="rows of each corpus (default: all)")
    parser.add_argument("--max_length", type=int, default=256, help="tokens of a text that the encoder sees")
    return parser.parse_args(argv)


def load_texts(arguments: argparse.Namespace) -> Dataset:
    """Both corpora: `text`, `label` (a name), `corpus`, and `part`, which is `stored`, `chosen` or `tested`."""
    folder = arguments.data_dir / "text"
    news = pd.read_csv(folder / "ag_news_test.csv.gz", header=None, names=["class", "title", "description"])
    news["text"] = news["title"] + ". " + news["description"]
    news["label"] = news["class"].map({1: "world", 2: "sport", 3: "business", 4: "science"})
    reviews = pd.read_csv(folder / "imdb_6k.csv.gz")
    reviews["label"] = reviews["label"].astype(str)
    parts = []
    for name, corpus in (("news", news), ("reviews", reviews)):
        corpus = corpus[["text", "label"]].sample(frac=1, random_state=0)[: arguments.limit]
        shares = (["stored"] * 8 + ["chosen", "tested"]) * (len(corpus) // 10 + 1)
        parts.append(corpus.assign(corpus=name, part=shares[: len(corpus)]))
    return Dataset.from_pandas(pd.concat(parts), preserve_index=False)


class Encoder:
    """Mean of the last hidden states, scaled to length 1, as sentence-transformers computes it for MiniLM."""

    def __init__(self, name: str, max_length: int) -> None:
        self.tokenizer, self.model = AutoTokenizer.from_pretrained(name), AutoModel.from_pretrained(name).eval()
        self.max_length = max_length

    @torch.no_grad()
    def __call__(self, texts: list[str]) -> torch.Tensor:
        inputs = self.tokenizer(texts, padding=True, truncation=True, max_length=self.max_length, return_tensors="pt")
        hidden = self.model(**inputs).last_hidden_state
        mask = inputs["attention_mask"][..., None].to(hidden.dtype)
        return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1).clamp_min(1), dim=-1)

    def all(self, texts: list[str], batch_size: int = 64) -> torch.Tensor:
        """The embeddings of many texts, those of similar length together."""
        order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
        embeddings = torch.empty(len(texts), self.model.config.hidden_size)
        for start in tqdm(range(0, len(order), batch_size), desc="embedding", disable=len(order) < 10 * batch_size):
            rows = order[start : start + batch_size]
            embeddings[rows] = self([texts[row] for row in rows])
        return embeddings


def predicted(found: MemoryMatches, labels: list[str]) -> list[str]:
    """The label with most weight among what was found."""
    result = []
    for rows, weights in zip(found.rows.tolist(), found.weights.tolist(), strict=True):
        votes: dict[str, float] = {}
        for row, weight in zip(rows, weights, strict=True):
            if row >= 0:
                votes[labels[row]] = votes.get(labels[row], 0.0) + weight
        result.append(max(votes, key=lambda label: votes[label]))
    return result


def accuracy(memory: HopfieldMemory, texts: Dataset, queries: torch.Tensor, rows: list[int]) -> float:
    """Share of texts whose label is predicted."""
    labels = texts["label"][:]
    guesses = predicted(memory.search(queries), labels)
    return sum(guess == labels[row] for guess, row in zip(guesses, rows, strict=True)) / len(rows)


def main(argv: list[str] | None = None) -> dict:
    """Build or load the memory, search, and write what was found."""
    arguments = parse_arguments(argv)
    state = PartialState(cpu=not torch.cuda.is_available())
    folder = arguments.output_dir / "memory"
    texts = load_texts(arguments)
    encoder = Encoder(arguments.model, arguments.max_length)
    parts = texts["part"][:]
    rows = {part: [row for row, name in enumerate(parts) if name == part] for part in ("stored", "chosen", "tested")}
    results: dict = {"stored": len(rows["stored"])}
    if state.is_main_process and not folder.exists():
        stored = texts.select(rows["stored"])
        stored = stored.add_column("embedding", list(encoder.all(stored["text"][:]).numpy()))
        memory = HopfieldMemory.from_dataset(stored, "embedding", alpha=ALPHA, beta=BETAS[0])
        memory = HopfieldMemory(memory.patterns, ALPHA, BETAS[0], rows=torch.tensor(rows["stored"]))
        queries = encoder.all([texts[row]["text"] for row in rows["chosen"]])
        scores = {}
        for memory.beta in BETAS:
            scores[memory.beta] = accuracy(memory, texts, queries, rows["chosen"])
        memory.beta = max(scores, key=lambda beta: scores[beta])
        memory.save(folder)
        print(
            f"stored {len(memory)} texts; beta {memory.beta:g} of {', '.join(f'{b:g}: {s:.3f}' for b, s in scores.items())}"
        )
    state.wait_for_everyone()
    whole = HopfieldMemory.load(folder)
    memory = ShardedMemory.load(folder) if state.num_processes > 1 else whole
    if state.is_main_process:
        print(f"{len(whole)} patterns of width {whole.dimension} in {state.num_processes} process(es)")
    found = memory.search(encoder.all(list(arguments.query)))
    results["queries"] = []
    for query, ids, weights in zip(arguments.query, found.rows.tolist(), found.weights.tolist(), strict=True):
        matches = [
            {"row": row, "weight": round(weight, 4), "label": texts[row]["label"], "text": texts[row]["text"][:90]}
            for row, weight in zip(ids, weights, strict=True)
            if row >= 0
        ]
        results["queries"].append({"query": query, "found": matches})
        if state.is_main_process:
            print(f"\n{query}  ({len(matches)} of {len(whole)} texts have weight)")
            for match in matches[:3]:
                print(f"  {match['weight']:.3f}  row {match['row']:5d}  {match['label']:8s}  {match['text']}")
    if state.is_main_process:
        results |= evaluate(whole, texts, encoder, rows["tested"])
        arguments.output_dir.mkdir(parents=True, exist_ok=True)
        (arguments.output_dir / f"sentences-{state.num_processes}.json").write_text(json.dumps(results, indent=1))
    return results


def evaluate(memory: HopfieldMemory, texts: Dataset, encoder: Encoder, rows: list[int]) -> dict:
    """Accuracy on texts that are not stored, against the nearest text alone, and the time of a search."""
    queries, labels, corpora = encoder.all([texts[row]["text"] for row in rows]), texts["label"][:], texts["corpus"][:]
    start = time.perf_counter()
    found = memory.search(queries)
    seconds = time.perf_counter() - start
    names = memory.rows
    nearest = [labels[row] for row in names[(queries @ memory.patterns.T).argmax(-1)].tolist()]
    table: dict = {"microseconds_a_query": seconds / len(rows) * 1e6}
    table["mean_support"] = (found.rows >= 0).sum(-1).double().mean().item()
    for corpus in ("news", "reviews"):
        inside = [number for number, row in enumerate(rows) if corpora[row] == corpus]
        right = {"memory": predicted(found, labels), "nearest": nearest}
        for name, guesses in right.items():
            share = sum(guesses[number] == labels[rows[number]] for number in inside) / max(1, len(inside))
            table[f"{corpus}_{name}"] = share
        print(f"{corpus}: {table[f'{corpus}_memory']:.3f} by the memory, {table[f'{corpus}_nearest']:.3f} by the nearest text "
              f"({len(inside)} texts)")  # fmt: skip
    print(
        f"{table['mean_support']:.1f} texts have weight, {table['microseconds_a_query']:.0f} µs a query in one batch"
    )
    return table


if __name__ == "__main__":
    main()
    sys.exit(0)
