# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Length generalisation: small decoders trained on sequences of up to 64 tokens, tested on up to 65,536.

    python examples/length_generalisation.py --output_dir OUT           # 5 tasks x 2 positions x 6 attentions x 5 seeds
    python examples/length_generalisation.py --quick --output_dir OUT   # a small version, in a minute

Softmax spreads its weight over more keys as a sequence grows. Entmax can give all others weight zero, and `length_power` lets
sharpness follow the number of keys. The tasks are in length_tasks.py, and the harness is that of the paper's experiments:
`--only 'maximum/*'` runs a part of the cells, and a second call runs those that are missing.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from length_tasks import ASKED, NOTHING, TASKS, VOCABULARY
from torch import Tensor, nn
from transformers import SmolLM3Config, SmolLM3ForCausalLM

import hf_sparse_hopfield  # noqa: F401  (registers the attention)


sys.path.append(str(Path(__file__).parent / "paper"))
from harness import Cell, ExperimentArguments, parse, run  # noqa: E402
from reporting import select, spread, table  # noqa: E402


TRAINED_ON = 64
LENGTHS = (64, 256, 1024, 4096, 16384, 65536)
TESTED = 2**18  # tokens of the tests of a length, in at least 4 and at most 256 sequences
LAYERS, WIDTH, HEADS = 2, 64, 4
BATCH, STEPS, LEARNING_RATE = 64, 2000, 1e-3
POSITIONS = ("rope", "none")
SOLVED = 0.95
# A new model starts with a beta of about keys ** (1 - alpha); 16 is half of a mean training length.
ATTENTIONS: dict[str, dict[str, Any]] = {
    "softmax": {"alpha": 1.0},
    "softmax, length power": {"alpha": 1.0, "learn_beta": True, "learn_length_power": True},
    "entmax 1.5": {"alpha": 1.5, "beta": 0.25, "learn_beta": True},
    "entmax 1.5, length power": {"alpha": 1.5, "beta": 0.25, "learn_beta": True, "learn_length_power": True},
    "sparsemax": {"alpha": 2.0, "beta": 0.0625, "learn_beta": True},
    "learned alpha": {"alpha": 1.5, "beta": 0.25, "learn_beta": True, "learn_alpha": True},
}


@dataclass
class LengthArguments(ExperimentArguments):
    """Arguments of the experiment."""

    longest: int | None = field(default=None, metadata={"help": f"Longest test (default: {LENGTHS[-1]})."})


def make_model(attention: str, position: str, seed: int) -> SmolLM3ForCausalLM:
    """
    Make a small decoder: SmolLM3, which can leave out position embeddings.

    Args:
        attention (`str`): One of `ATTENTIONS`.
        position (`str`): One of `POSITIONS`.
        seed (`int`): Of the weights.
    """
    torch.manual_seed(seed)
    config = SmolLM3Config(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        no_rope_layers=[int(position == "rope")] * LAYERS,
        max_position_embeddings=2 * LENGTHS[-1],
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    config.sparse_hopfield = ATTENTIONS[attention]
    return SmolLM3ForCausalLM._from_config(config, attn_implementation="sparse_hopfield")


def train(task: str, position: str, attention: str, seed: int, steps: int, longest: int) -> dict[str, Any]:
    """
    Train a model and test it at each length.

    Args:
        task (`str`): One of `TASKS`.
        position, attention, seed: As for [`make_model`].
        steps (`int`): Steps of training.
        longest (`int`): Longest test.

    Returns:
        `dict`: `accuracy` and number of `answers` by length, the last training `loss`, and alpha, beta and length_power of all heads.
    """
    model = make_model(attention, position, seed)
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps, pct_start=0.1)
    model.train()
    for _ in range(steps):
        length = int(torch.randint(2 * ASKED, TRAINED_ON + 1, (1,), generator=generator))
        tokens, answers = TASKS[task](BATCH, length, generator)
        loss = nn.functional.cross_entropy(
            model(tokens, use_cache=False).logits.flatten(0, 1), answers.flatten(), ignore_index=NOTHING
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    result: dict[str, Any] = {"loss": loss.item(), "accuracy": {}, "answers": {}}
    for length in (length for length in LENGTHS if length <= longest):
        right = accuracy(model, task, length, seed)
        result["accuracy"][str(length)], result["answers"][str(length)] = right.mean().item(), right.numel()
    retrievals = [layer.self_attn.sparse_hopfield for layer in model.model.layers]
    for name in ("alpha", "beta", "length_power"):
        values = [torch.as_tensor(getattr(retrieval, name)).flatten().tolist() for retrieval in retrievals]
        result[name] = values
    return result


@torch.no_grad()
def accuracy(model: SmolLM3ForCausalLM, task: str, length: int, seed: int) -> Tensor:
    """Whether each of the last answers is right, in sequences that training has not seen."""
    model.eval()
    generator = torch.Generator().manual_seed(1_000_003 * (seed + 1) + length)
    count, right = min(256, max(4, TESTED // length)), []
    tokens, answers = TASKS[task](count, length, generator)
    for part, expected in zip(
        tokens.split(max(1, 2**15 // length)), answers.split(max(1, 2**15 // length)), strict=True
    ):
        hidden = model.model(part, use_cache=False).last_hidden_state[:, -ASKED - 1 :]
        found, expected = model.lm_head(hidden).argmax(-1), expected[:, -ASKED - 1 :]
        right.append((found == expected)[expected != NOTHING])
    return torch.cat(right).float()


def report(record: dict[str, Any], folder: Path) -> str:
    """Tables of accuracy against length, and a figure."""
    parts = [
        "## Length generalisation\n\nAccuracy in % (mean ± standard deviation over seeds) of models trained on up to 64 tokens.\n"
    ]
    for task in TASKS:
        for position in POSITIONS:
            rows = [
                _row(attention, select(record, "accuracy", task=task, position=position, attention=attention))
                for attention in ATTENTIONS
            ]
            rows = [row for row in rows if row is not None]
            if rows:
                name = {"rope": "RoPE", "none": "no position embeddings"}[position]
                parts.append(f"### {task}, {name}\n\n{table(['attention', *LENGTHS, 'solved up to', 'seeds'], rows)}")
    _plot(record, folder / "length_generalisation.png")
    parts.append(
        f"Solved up to: the longest length up to which the mean accuracy is at least {SOLVED:.0%}.\n\n"
        "![accuracy against length](length_generalisation.png)\n"
    )
    return "\n".join(parts)


def _row(attention: str, found: list[dict[str, float]]) -> list[Any] | None:
    if not found:
        return None
    cells, solved, going = [], "-", True
    for length in map(str, LENGTHS):
        values = [accuracies[length] for accuracies in found if length in accuracies]
        cells.append(spread(values, 1, 100))
        going = going and bool(values) and sum(values) / len(values) >= SOLVED
        solved = length if going else solved
    return [attention, *cells, solved, len(found)]


def _plot(record: dict[str, Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(
        len(POSITIONS), len(TASKS), figsize=(15, 6), sharex=True, sharey=True, layout="constrained"
    )
    for row, position in zip(grid, POSITIONS, strict=True):
        for axes, task in zip(row, TASKS, strict=True):
            for attention in ATTENTIONS:
                found = select(record, "accuracy", task=task, position=position, attention=attention)
                lengths = [length for length in LENGTHS if found and all(str(length) in each for each in found)]
                means = [sum(each[str(length)] for each in found) / len(found) for length in lengths]
                axes.plot(lengths, means, marker="o", markersize=3, label=attention)
            axes.set_xscale("log", base=4)
            axes.set_title(f"{task}, {position}", fontsize=9)
    figure.supxlabel("length")
    figure.supylabel("accuracy")
    figure.legend(
        *grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(ATTENTIONS), frameon=False
    )
    figure.savefig(path, dpi=110)


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the missing cells and write the report."""
    arguments = parse(LengthArguments, argv)
    steps, longest = (20, 256) if arguments.quick else (STEPS, LENGTHS[-1])
    longest = arguments.longest or longest
    cells = {
        f"{task}/{position}/{attention.replace(', ', '-').replace(' ', '-')}/seed{seed}": Cell(
            train,
            {"task": task, "position": position, "attention": attention, "seed": seed},
            {"steps": steps, "longest": longest},
            {"steps": steps, "longest": longest},
        )
        for seed in arguments.seed_range(5)
        for task in TASKS
        for position in POSITIONS
        for attention in ATTENTIONS
    }
    return run("length_generalisation", arguments, cells, report)


if __name__ == "__main__":
    main()
