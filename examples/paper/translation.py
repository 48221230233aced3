# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Machine translation: one small Marian model, its attention by softmax, by dense and by sparse Hopfield retrieval.

    python examples/paper/translation.py --data_dir DATA --output_dir OUT     # Multi30k DE-EN, EN-DE; small EN-RU corpora
    python examples/paper/translation.py --quick --output_dir OUT             # numbers to words, seconds

Every cell is a run of `examples/run_translation.py`, trained from scratch with the same size, data, steps and seed; it goes on
from its last checkpoint if it was stopped. Beam 5 and sacrebleu. The cells are in order of importance: `--max_minutes` and
`--only` run a part, the same command later the rest.

With one retrieval step, dense Hopfield retrieval is the same formula as softmax attention, and is computed by the same kernel: its
rows show that nothing else was changed.

Beta multiplies the model's own 1 / sqrt(head width). Sparse models are trained with 1 and with about n ** (1 - alpha), n the length
of a sentence: where all n weights are equal, as they nearly are in a fresh model, the weights then move as fast with the scores as
those of softmax do (see `NOTES`).
"""

import gzip
import json
import random
import shutil
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from harness import (
    Cell,
    ExperimentArguments,
    claims,
    figure,
    parse,
    run,
    save_figure,
    select,
    spread,
    table,
    verdict,
    write_text,
)


sys.path.append(str(Path(__file__).parents[1]))  # the training scripts

import run_translation  # noqa: E402


MODELS = {
    "transformer": ["--sparse_hopfield", "false"],
    "dense_hopfield": ["--alpha", "1.0"],
    "sparse_hopfield_beta0.1": ["--alpha", "2.0", "--beta", "0.1"],
    "entmax15_beta0.3": ["--alpha", "1.5", "--beta", "0.3"],
    "sparse_hopfield": ["--alpha", "2.0"],
    "entmax15": ["--alpha", "1.5"],
    "scheduled": ["--alpha", "2.0", "--alpha_schedule", "linear", "--schedule_steps", "0.75"],
}
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
JUDGED = ("sparse_hopfield_beta0.1", "entmax15_beta0.3")  # with the beta of the rule; the others show what it does
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
BAR = 0.3
# Below `translation/` of the data folder
FILES = [
    *(f"multi30k.{part}.{lang}.txt.gz" for part in ("train", "val", "test_2016_flickr") for lang in ("de", "en")),
    *("tatoeba_en_ru.tsv.gz", "hotel_en_ru.tsv.gz"),
]
SIZE = {"d_model": 128, "layers": 2, "heads": 8, "ffn_dim": 512, "vocab_size": 4000}
MOST_PAIRS = {"hotel": 8000}  # for training: its 50,000 are too many for the time of two cores
TRAINING = {"epochs": 4, "batch_size": 64, "learning_rate": 2e-3, "warmup_steps": 300}


def prepare_data(pair: str, data_dir: Path, folder: Path) -> list[str]:
    """
    Arguments of `run_translation.py` for a pair's data. The EN-RU corpora have no test set: 1000 pairs are kept for it and 1000
    for validation, none of whose source or target sentences occurs in training, which has at most `MOST_PAIRS`.
    """
    corpus, source, target = pair.split("_")
    languages = ["--source_lang", source, "--target_lang", target]
    if corpus == "multi30k":
        files = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
        names = [[f"--{split}_file", f"translation/multi30k.{name}.{{lang}}.txt.gz"] for split, name in files.items()]
        return ["--data_dir", str(data_dir), *languages, *(word for name in names for word in name)]
    with gzip.open(data_dir / "translation" / f"{corpus}_en_ru.tsv.gz", "rt", encoding="utf-8") as file:
        pairs = sorted({tuple(line.split("\t")) for line in file.read().split("\n")[:-1]})
    pairs = [(english, russian) for english, russian in pairs if english.strip() and russian.strip()]
    random.Random(0).shuffle(pairs)
    held = {"test": pairs[:1000], "validation": pairs[1000:2000]}
    seen = {sentence for part in held.values() for both in part for sentence in both}
    held["train"] = [both for both in pairs[2000:] if not seen.intersection(both)][: MOST_PAIRS.get(corpus)]
    arguments = list(languages)
    for split, part in held.items():
        path = folder / f"{corpus}.{split}.jsonl"
        lines = (json.dumps({"en": english, "ru": russian}, ensure_ascii=False) for english, russian in part)
        write_text(path, "\n".join(lines) + "\n")
        arguments += [f"--{split}_file", str(path)]
    return arguments


def translate(
    pair: str,
    model: str,
    seed: int,
    size: dict[str, int],
    training: dict[str, float],
    data_dir: str | None,
    output_dir: str,
) -> dict[str, Any]:
    """Train one model on one pair and translate its test set."""
    scratch = Path(output_dir) / "translation_runs" / pair / model / f"seed{seed}"
    if pair == "numbers_to_words":
        arguments = ["--smoke", "--max_steps", str(training["steps"]), "--save_strategy", "no"]
    else:
        changes = {"d_model": size["d_model"], "scale_embedding": True}
        for part in ("encoder", "decoder"):
            changes |= {f"{part}_layers": size["layers"], f"{part}_attention_heads": size["heads"]}
            changes |= {f"{part}_ffn_dim": size["ffn_dim"]}
        arguments = [
            *prepare_data(pair, Path(data_dir), scratch / "data"),
            *(
                "--model_type",
                "marian",
                "--vocab_size",
                str(size["vocab_size"]),
                "--max_length",
                "96",
                "--num_beams",
                "5",
            ),
            *("--config_overrides", ",".join(f"{key}={value}" for key, value in changes.items())),
            *("--num_train_epochs", str(training["epochs"]), "--learning_rate", str(training["learning_rate"])),
            *("--per_device_train_batch_size", str(training["batch_size"]), "--per_device_eval_batch_size", "100"),
            *("--warmup_steps", str(training["warmup_steps"]), "--label_smoothing_factor", "0.1"),
            *("--train_sampling_strategy", "group_by_length", "--cache_dir", str(scratch / "cache")),
            *("--save_strategy", "epoch", "--save_total_limit", "1", "--logging_steps", "200"),
            *("--do_train", "--do_eval", "--do_predict"),
        ]
    more = ["--seed", str(seed), "--report_to", "none", "--output_dir", str(scratch / "model")]
    more += ["--beta", "1.0", *MODELS[model]]  # of two the last counts
    summary = run_translation.main([*arguments, *more])
    quality = summary["quality"]
    beam = next(key for key in quality if key.startswith("test_bleu_beam"))
    result = {
        "bleu": quality[beam],
        "bleu_greedy": quality["test_bleu_greedy"],
        "signature": quality["bleu_signature"],
        "eval_loss": quality["eval_loss"],
        "share_of_keys": summary["support"]["share_of_keys"],
        "parameters": summary["parameters"],
        "steps": summary["steps"],
        "samples_per_second": summary["speed"].get("train_samples_per_second"),
    }
    shutil.rmtree(scratch)  # weights and copies of the data: what is kept is the record
    return result


def make_cells(arguments: ExperimentArguments) -> dict[str, Cell]:
    """All cells, the most important first."""
    context = {"data_dir": arguments.data_dir, "output_dir": arguments.output_dir}
    if arguments.quick:
        pairs, training = ["numbers_to_words"], {"steps": 100}
    else:
        arguments.require_data(*(f"translation/{name}" for name in FILES))
        pairs, training = [pair for pair in PAIRS if pair != "numbers_to_words"], TRAINING
    cells = {}
    for seed in arguments.seed_range(3):
        for pair in pairs:
            for model in MODELS:
                settings = {"pair": pair, "model": model, "seed": seed, "size": SIZE, "training": training}
                fixed = {"arguments": list(MODELS[model]), "most_pairs": MOST_PAIRS.get(pair.partition("_")[0])}
                cells[f"{pair}/{model}/seed{seed}"] = Cell(translate, settings, context, fixed)
    return cells


def paired(record: dict[str, Any], pair: str, model: str) -> list[float]:
    """BLEU of a model minus that of the Transformer, for each seed that both have."""
    differences = []
    for entry in record["cells"].values():
        settings = entry["settings"]
        if settings["pair"] == pair and settings["model"] == model:
            base = select(record, "bleu", pair=pair, model="transformer", seed=settings["seed"])
            differences += [entry["result"]["bleu"] - base[0]] if base else []
    return differences


def report(record: dict[str, Any], folder: Path) -> str:
    """The section of RESULTS.md."""
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
            f"### Our bar: at most {BAR} BLEU less than softmax on Multi30k\n",
            table(["model", "bar", *(f"{PAIRS[pair]}, difference" for pair in MULTI30K)], bars(record)),
            "### The paper (WMT17, Transformer base, BLEU)\n",
            table(["model", *directions], paper),
            "### Ours\n",
            "WMT17 is out of reach here (no network, two cores): small corpora, one small Marian model from scratch "
            f"({SIZE['layers']} + {SIZE['layers']} layers, width {SIZE['d_model']}, {SIZE['heads']} heads, joint byte-level BPE of "
            f"{SIZE['vocab_size']}), {TRAINING['epochs']} epochs, Adam with warm-up and linear decay, label smoothing 0.1, beam 5; "
            "beta = 1 where no other is named, one step, no extra parameters; where alpha goes from 1 to 2 in training, it is there "
            "after three quarters of the steps. Data, steps, initialisation and order of the batches are equal for all models "
            f"of a seed. Training sees {MOST_PAIRS['hotel']} of the 50,000 pairs about hotels. Mean ± standard deviation over seeds; difference: to the "
            "Transformer of the same seed.\n",
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
    """BLEU of each pair and model, a dot for each seed."""
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
    """Whether the mean difference of a model to the Transformer passes a test; `None` where it was not run."""
    found = paired(record, pair, model)
    return test(statistics.fmean(found)) if found else None


def listed(record: dict[str, Any], model: str, pairs: Sequence[str]) -> str:
    """The differences of a model to the Transformer, as text."""
    found = {PAIRS[pair]: paired(record, pair, model) for pair in pairs}
    return "; ".join(f"{title} {spread(values)}" for title, values in found.items() if values) or "nothing yet"


def bars(record: dict[str, Any]) -> list[list[str]]:
    """Our bar for each sparse model: its name, whether it is met, and its difference on each pair."""
    words = {"reproduced": "met", "partly": "partly met", "not": "missed", "not run": "not run"}
    rows = []
    for model in (*JUDGED, *(model for model in SPARSE if model not in JUDGED)):
        reached = verdict([holds(record, pair, model, lambda mean: mean >= -BAR) for pair in MULTI30K])
        rows.append([TITLES[model], words[reached], *(spread(paired(record, pair, model)) for pair in MULTI30K)])
    return rows


def verdicts(record: dict[str, Any]) -> list[tuple[str, str, str]]:
    """The paper's claims of this experiment, judged by the numbers of the record."""
    sparse, russian = JUDGED[0], [pair for pair in PAIRS if pair not in (*MULTI30K, "numbers_to_words")]
    rows = [
        (
            "sparse Hopfield attention translates German better than the Transformer (+6.3 BLEU DE-EN, +2.2 EN-DE)",
            verdict([holds(record, pair, sparse, lambda mean: mean > 1) for pair in MULTI30K]),
            f"{TITLES[sparse]} minus softmax: {listed(record, sparse, MULTI30K)}; a gain is more than 1 BLEU here. Other data and a far smaller model than the "
            "paper's, whose Transformer baseline is the same function as its D Hopfield and yet 3.8 BLEU behind it.",
        ),
        (
            "sparse Hopfield attention translates Russian as well as the Transformer (+0.1 BLEU RU-EN, 0 EN-RU; ours within 1)",
            verdict([holds(record, pair, sparse, lambda mean: abs(mean) <= 1) for pair in russian]),
            f"{TITLES[sparse]} minus softmax: {listed(record, sparse, russian)}. Small corpora: Tatoeba has short sentences of all kinds; with {MOST_PAIRS['hotel']} pairs about hotels a "
            "model has 500 steps, and no model learns to translate in them: those rows say little.",
        ),
    ]
    dense = [value for pair in PAIRS for value in paired(record, pair, "dense_hopfield")]
    gap = f"up to {max(map(abs, dense)):.2f} BLEU between them in our runs" if dense else "not run yet"
    rows.append(
        (
            "dense Hopfield attention translates better than the Transformer (+3.8 BLEU DE-EN, +2.3 EN-DE)",
            verdict([holds(record, pair, "dense_hopfield", lambda mean: mean > 1) for pair in MULTI30K]),
            "With one step and no extra parameters both are softmax(Q Kᵀ / √d) V, the same function: a difference can only be "
            f"seed, rounding or training set-up; {gap}. A gain of 3.8 cannot come from the attention.",
        )
    )
    return rows


NOTES = """### Why beta

With the scaling that softmax has, sparsemax is far sharper than softmax: where the n weights of a row are equal, as they nearly are in a
fresh model, a change of a score moves its weight by n^(alpha - 2) times that change, 1/n for softmax and 1 for sparsemax. A beta of
n^(1 - alpha) makes them equal; a sentence here has 10 to 20 tokens, so about 0.3 for alpha 1.5 and 0.1 for alpha 2. Both numbers come from
this rule and not from a search. They were tried first in pilots of one epoch on DE-EN with another seed (100), validation loss: softmax
4.075; alpha 1.5 with beta 0.3 4.063; alpha 2 with beta 1 4.158, with 0.3 4.387, with 0.1 4.153. One epoch says little: the loss falls
steeply there, and a hundred steps sooner or later make the difference.

### A seed that fails

S Hopfield with beta 0.1 and seed 1 on DE-EN never learns to read its source: the training loss stays near 4 (softmax: 2.9), and every
sentence gets much the same translation. It is not the kernel: the run was made in pure PyTorch, and one with the compiled core goes the same way
(loss after 200, 400, 600, 800 steps 6.34, 4.82, 4.45, 4.29 and 6.34, 4.80, 4.43, 4.26; softmax 6.34, 4.56, 3.85, 3.50); gradients of both agree with
float64 to 1e-6 on a fresh model. Sparsemax gives a key outside the support no gradient, so that an alignment that was lost early is found
again only by chance. Alpha 1.5 has a larger support, and none of its five runs failed.

### How much 0.3 BLEU is

Alpha 1.5 with beta 0.3 differs from softmax by +0.72 and -0.35 BLEU (DE-EN, seeds 0 and 1) and by -0.13 and -0.61 (EN-DE): -0.09 ± 0.29
(standard error) over the four. A mean of two seeds is known to about 0.4, more than the bar asks for; that EN-DE misses it by 0.07 and DE-EN has
0.5 to spare is the same within this error. Validation losses differ by 0.02 at most, either way.
"""


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the experiment."""
    arguments = parse(ExperimentArguments, argv)
    return run("translation", arguments, make_cells(arguments), report)


if __name__ == "__main__":
    main()
