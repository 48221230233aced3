# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Tables, figure and verdicts of the translation experiment, made from its record alone."""

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from reporting import claims, figure, save_figure, select, spread, table, verdict


TITLES = {
    "transformer": "Transformer (softmax)",
    "dense_hopfield": "D Hopfield (alpha 1)",
    "sparse_hopfield": "S Hopfield (alpha 2)",
    "sparse_hopfield_beta0.1": "S Hopfield, beta 0.1",
    "scheduled": "S Hopfield, alpha 1 to 2 in training",
    "entmax15": "entmax15 (alpha 1.5)",
    "entmax15_beta0.3": "entmax15, beta 0.3",
}
SPARSE = [model for model in TITLES if model not in ("transformer", "dense_hopfield")]
JUDGED = ("sparse_hopfield_beta0.1", "entmax15_beta0.3")  # with the beta of the rule; the others show its effect
PAIRS = {
    "multi30k_de_en": "Multi30k DE-EN",
    "multi30k_en_de": "Multi30k EN-DE",
    "tatoeba_en_ru": "Tatoeba EN-RU",
    "tatoeba_ru_en": "Tatoeba RU-EN",
    "hotel_en_ru": "hotels EN-RU",
    "numbers_to_words": "numbers to words",
}
MULTI30K = ("multi30k_de_en", "multi30k_en_de")
PAPER = {
    "transformer": {"DE-EN": 29.8, "EN-DE": 34.9, "RU-EN": 28.5, "EN-RU": 24.8},
    "dense_hopfield": {"DE-EN": 33.6, "EN-DE": 37.2, "RU-EN": 28.5, "EN-RU": 24.9},
    "sparse_hopfield": {"DE-EN": 36.1, "EN-DE": 37.1, "RU-EN": 28.6, "EN-RU": 24.8},
}
TARGET = 0.3
SIZE = {"d_model": 128, "layers": 2, "heads": 8, "ffn_dim": 512, "vocab_size": 4000}
MOST_PAIRS = {"hotel": 8000}  # training pairs; all 50,000 would take too long on two cores
TRAINING = {"epochs": 4, "batch_size": 64, "learning_rate": 2e-3, "warmup_steps": 300}


def paired(record: dict[str, Any], pair: str, model: str) -> list[float]:
    """BLEU of a model minus BLEU of the Transformer, for each seed that both have."""
    differences = []
    for entry in record["cells"].values():
        settings = entry["settings"]
        if settings["pair"] == pair and settings["model"] == model:
            base = select(record, "bleu", pair=pair, model="transformer", seed=settings["seed"])
            differences += [entry["result"]["bleu"] - base[0]] if base else []
    return differences


def report(record: dict[str, Any], folder: Path) -> str:
    """Make the section of RESULTS.md and the figure `translation.png`."""
    pairs = [pair for pair in PAIRS if select(record, pair=pair)]
    rows = []
    for pair in pairs:
        for model, title in TITLES.items():
            results = select(record, pair=pair, model=model)
            if results:
                means = {key: [result[key] for result in results] for key in results[0] if key != "signature"}
                rows.append(
                    [PAIRS[pair], title, len(results), spread(means["bleu"]), spread(means["bleu_greedy"])]
                    + ["-" if model == "transformer" else spread(paired(record, pair, model))]
                    + [spread(means["eval_loss"], 3)]
                    + [spread(means["share_of_keys"], 0, 100), f"{means['parameters'][0]:,}"]
                )
    directions = list(PAPER["transformer"])
    paper = [[TITLES[model], *(numbers[direction] for direction in directions)] for model, numbers in PAPER.items()]
    signatures = sorted({result["signature"] for result in select(record)})
    plot(record, pairs, folder / "translation.png")
    return "\n".join(
        [
            "## 5. Machine translation\n",
            claims(verdicts(record)),
            f"### Our target: at most {TARGET} BLEU below softmax on Multi30k\n",
            table(["model", "target", *(f"{PAIRS[pair]}, difference" for pair in MULTI30K)], targets(record)),
            "### The paper (WMT17, Transformer base, BLEU)\n",
            table(["model", *directions], paper),
            "### Ours\n",
            "WMT17 is out of reach here (no network, two cores). We use small corpora and one small Marian model trained from scratch "
            f"({SIZE['layers']} + {SIZE['layers']} layers, width {SIZE['d_model']}, {SIZE['heads']} heads, joint byte-level BPE of "
            f"{SIZE['vocab_size']}) for {TRAINING['epochs']} epochs, with Adam, warm-up and linear decay, label smoothing 0.1, and beam 5. "
            "Retrieval takes one step, beta is 1 unless another value is named, and there are no extra parameters. Where alpha goes from 1 "
            "to 2 in training, it reaches 2 after three quarters of the steps. Data, steps, initialisation and order of the batches are the "
            f"same for all models of a seed. Training uses {MOST_PAIRS['hotel']} of the 50,000 pairs about hotels. The table shows mean ± standard "
            "deviation over seeds; differences are to the Transformer with the same seed.\n",
            table(
                ["pair", "model", "seeds", "BLEU", "greedy", "difference", "validation loss", "keys with weight, %"]
                + ["parameters"],
                rows,
            ),
            f"Signature: `{'`, `'.join(signatures)}`.\n",
            "![BLEU](translation.png)\n",
            NOTES,
        ]
    )


def plot(record: dict[str, Any], pairs: list[str], path: Path) -> None:
    """Plot the BLEU of each pair and model, one dot per seed."""
    made, axes = figure(max(len(pairs), 1), 1, width=3.6, height=2.4)
    for axis, pair in zip(axes[0], pairs, strict=False):
        names = [model for model in TITLES if select(record, pair=pair, model=model)]
        for place, model in enumerate(names):
            values = select(record, "bleu", pair=pair, model=model)
            axis.plot(values, [place] * len(values), "o", color=f"C{list(TITLES).index(model)}")
        axis.set_yticks(range(len(names)), [TITLES[name].partition(" (")[0] for name in names], fontsize=7)
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.grid(axis="y", alpha=0.3)
        axis.set_title(PAIRS[pair], fontsize=9)
        axis.set_xlabel("BLEU", fontsize=8)
    save_figure(made, path, dpi=80)


def holds(record: dict[str, Any], pair: str, model: str, test: Callable[[float], bool]) -> bool | None:
    """Whether the mean difference of a model to the Transformer passes a test; `None` if it was not run."""
    found = paired(record, pair, model)
    return test(statistics.fmean(found)) if found else None


def listed(record: dict[str, Any], model: str, pairs: Sequence[str]) -> str:
    """Format the differences of a model to the Transformer."""
    found = {PAIRS[pair]: paired(record, pair, model) for pair in pairs}
    return "; ".join(f"{title} {spread(values)}" for title, values in found.items() if values) or "nothing yet"


def targets(record: dict[str, Any]) -> list[list[str]]:
    """For each sparse model: its name, whether it meets our target, and its difference on each pair."""
    words = {"reproduced": "met", "partly": "partly met", "not": "missed", "not run": "not run"}
    rows = []
    for model in (*JUDGED, *(model for model in SPARSE if model not in JUDGED)):
        reached = verdict([holds(record, pair, model, lambda mean: mean >= -TARGET) for pair in MULTI30K])
        rows.append([TITLES[model], words[reached], *(spread(paired(record, pair, model)) for pair in MULTI30K)])
    return rows


def verdicts(record: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Judge the paper's claims by the record."""
    sparse, russian = JUDGED[0], [pair for pair in PAIRS if pair not in (*MULTI30K, "numbers_to_words")]
    rows = [
        (
            "sparse Hopfield attention translates German better than the Transformer (+6.3 BLEU DE-EN, +2.2 EN-DE)",
            verdict([holds(record, pair, sparse, lambda mean: mean > 1) for pair in MULTI30K]),
            f"{TITLES[sparse]} minus softmax: {listed(record, sparse, MULTI30K)}; we count more than 1 BLEU as a gain. Our data differ and our model is far "
            "smaller than the paper's, whose Transformer baseline is the same function as its D Hopfield and yet 3.8 BLEU behind it.",
        ),
        (
            "sparse Hopfield attention translates Russian as well as the Transformer (+0.1 BLEU RU-EN, 0 EN-RU; ours within 1)",
            verdict([holds(record, pair, sparse, lambda mean: abs(mean) <= 1) for pair in russian]),
            f"{TITLES[sparse]} minus softmax: {listed(record, sparse, russian)}. The corpora are small. Tatoeba has short sentences of all kinds. With {MOST_PAIRS['hotel']} "
            "pairs about hotels a model is trained for 500 steps, in which no model learns to translate, so those rows say little.",
        ),
    ]
    dense = [value for pair in PAIRS for value in paired(record, pair, "dense_hopfield")]
    gap = f"up to {max(map(abs, dense)):.2f} BLEU between them in our runs" if dense else "not run yet"
    rows.append(
        (
            "dense Hopfield attention translates better than the Transformer (+3.8 BLEU DE-EN, +2.3 EN-DE)",
            verdict([holds(record, pair, "dense_hopfield", lambda mean: mean > 1) for pair in MULTI30K]),
            "With one step and no extra parameters both are softmax(Q Kᵀ / √d) V, the same function. A difference can only come from "
            f"the seed, rounding or training set-up; {gap}. A gain of 3.8 cannot come from the attention.",
        )
    )
    return rows


NOTES = """### Why beta

With the scaling of softmax, sparsemax is far sharper than softmax. If the n weights of a row are equal, as they nearly are in a new model, a
change of a score moves its weight by n^(alpha - 2) times that change: 1/n for softmax and 1 for sparsemax. A beta of n^(1 - alpha) makes them
equal. A sentence here has 10 to 20 tokens, which gives about 0.3 for alpha 1.5 and 0.1 for alpha 2. Both numbers come from this rule, not from a
search. They were first tried in pilots of one epoch on DE-EN with another seed (100), with these validation losses: softmax 4.075; alpha 1.5 with
beta 0.3 4.063; alpha 2 with beta 1 4.158, with 0.3 4.387, with 0.1 4.153. One epoch says little, because the loss falls steeply there and a
hundred steps sooner or later make the difference.

### A seed that fails

S Hopfield with beta 0.1 and seed 1 on DE-EN never learns to read its source: the training loss stays near 4 (softmax: 2.9), and every
sentence gets much the same translation. The kernel is not the cause: the run was made in pure PyTorch, and a run with the compiled core behaves
the same. After 200, 400, 600 and 800 steps their losses are 6.34, 4.82, 4.45, 4.29 and 6.34, 4.80, 4.43, 4.26 (softmax: 6.34, 4.56, 3.85, 3.50),
and the gradients of both agree with float64 to 1e-6 on a new model. Sparsemax gives no gradient to a key outside the support, so an alignment that is
lost early is found again only by chance. Alpha 1.5 has a larger support, and none of its five runs failed.

### How much 0.3 BLEU is

Alpha 1.5 with beta 0.3 differs from softmax by +0.72 and -0.35 BLEU (DE-EN, seeds 0 and 1) and by -0.13 and -0.61 (EN-DE): -0.09 ± 0.29
(standard error) over the four. A mean of two seeds has an error of about 0.4, more than the target of 0.3. That EN-DE misses the target by 0.07 and
DE-EN has 0.5 to spare is therefore the same result within this error. Validation losses differ by at most 0.02 either way.
"""
