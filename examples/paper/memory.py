# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Memory capacity and noise robustness: sparse, dense and polynomial memories complete half-masked and noisy images.

    python examples/paper/memory.py --data_dir DATA --output_dir OUT     # MNIST, CIFAR-10, Tiny-ImageNet
    python examples/paper/memory.py --quick --output_dir OUT             # 8 x 8 digits of scikit-learn, seconds

Two protocols. The paper's: a query is retrieved if the squared error is below a threshold, at its caption's beta, after one
step; it does not say on what scale the pixels are, so that we run [0, 1], [-1, 1] and [0, 255]. Its text says beta = 1
and cosine error: we run that beta, too, but judge it by the caption's squared error.
The cleaner one (of the work on Hopfield-Fenchel-Young energies): pixels in [-1, 1], five steps, success = cosine > 0.9; beta
is swept. Every model sees the same patterns and queries.
"""

import base64
import functools
import io
import statistics
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import (
    Cell,
    ExperimentArguments,
    claims,
    figure,
    median_range,
    parse,
    quantile,
    run,
    save_figure,
    select,
    sign,
    spread,
    table,
    verdict,
)

from hf_sparse_hopfield import HopfieldMemory, PolynomialMemory
from hf_sparse_hopfield.extras import require


FILES = {
    "mnist": "images/mnist.npz",
    "cifar10": "images/cifar10_5k.npz",
    "tiny_imagenet": "images/tiny_imagenet_20c.parquet",
}
TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10", "tiny_imagenet": "Tiny-ImageNet", "digits": "digits"}
# threshold of the squared error, and beta, as the caption has them
CAPTION = {"mnist": (10.0, 0.01), "cifar10": (20.0, 0.1), "tiny_imagenet": (20.0, 0.1), "digits": (1.0, 0.1)}
ALPHAS = {"sparse": 2.0, "entmax15": 1.5, "dense": 1.0}
MODELS = ("sparse", "entmax15", "dense", "polynomial")
COLORS = {"sparse": "tab:blue", "entmax15": "tab:green", "dense": "tab:orange", "polynomial": "tab:red"}
STYLES = {"sparse": "-", "entmax15": "-.", "dense": "--", "polynomial": ":"}
SIZES = (10, 20, 50, 100, 200, 500, 1000)
NOISES = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0)
PICTURE_NOISES = (0.0, 0.4, 1.0, 2.0, 3.0, 4.0)
NOISE_SIZE = 100
QUERIES = 200
CLEAN_BETAS = (0.003, 0.01, 0.1, 1.0)
DENSITIES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
DENSITY_NOISES = (1.0, 2.0, 4.0, 6.0, 8.0, 12.0)
DENSITY_BETAS = (0.001, 0.002, 0.005, 0.02, 0.1)
# what "sparse patterns" and "a low signal-to-noise ratio" are in the paper's claim
SPARSE_DENSITY, STRONG_NOISE = 0.1, 6.0


def make_memory(model: str, patterns: torch.Tensor, beta: float) -> HopfieldMemory | PolynomialMemory:
    """One of `MODELS`, holding these patterns."""
    return PolynomialMemory(patterns) if model == "polynomial" else HopfieldMemory(patterns, ALPHAS[model], beta)


@functools.cache
def load_images(dataset: str, data_dir: str | None) -> torch.Tensor:
    """Training images with pixels in [0, 1], shape `(N, channels, height, width)`."""
    if dataset == "digits":
        return torch.tensor(require("sklearn.datasets", "examples").load_digits().images[:, None] / 16.0).float()
    path = Path(data_dir) / FILES[dataset]
    if dataset == "tiny_imagenet":
        frame = require("pandas", "examples").read_parquet(path)
        image = require("PIL.Image", "examples")
        jpegs = frame.jpeg[frame.split == "train"]
        pixels = np.stack([np.asarray(image.open(io.BytesIO(jpeg)).convert("RGB")) for jpeg in jpegs])
    else:
        pixels = np.load(path)["x_train"][:10000]
    pixels = torch.from_numpy(pixels)
    pixels = pixels[:, None] if pixels.ndim == 3 else pixels.permute(0, 3, 1, 2)
    return pixels.contiguous().float() / 255


def draw(dataset: str, data_dir: str | None, scale: str, count: int, generator: torch.Generator) -> torch.Tensor:
    """Different images on a scale: `unit` [0, 1], `signed` [-1, 1], `byte` [0, 255]."""
    images = load_images(dataset, data_dir)
    chosen = images[torch.randperm(len(images), generator=generator)[:count]]
    return {"unit": chosen, "signed": 2 * chosen - 1, "byte": 255 * chosen}[scale]


def half_masked(images: torch.Tensor) -> torch.Tensor:
    """The images with the lower half of the rows set to zero."""
    masked = images.clone()
    masked[..., images.shape[-2] // 2 :, :] = 0.0
    return masked


def measure(
    model: str, patterns: torch.Tensor, queries: torch.Tensor, beta: float, steps: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Squared error and cosine of what each query retrieves; query i should retrieve pattern i."""
    wanted = patterns[: len(queries)]
    found = make_memory(model, patterns, beta).retrieve(queries, steps=steps)
    return (found - wanted).square().sum(-1), torch.cosine_similarity(found, wanted, dim=-1)


def completion(
    dataset: str,
    task: str,
    scale: str,
    beta: float,
    steps: int,
    success: str,
    seed: int,
    quick: bool,
    data_dir: str | None,
) -> dict[str, Any]:
    """
    One run of the capacity task (half-masked, over the number of patterns) or of the noise task (over sigma, in units of
    the scale's range of [0, 1] pixels).
    """
    generator = torch.Generator().manual_seed(seed)
    threshold = CAPTION[dataset][0]
    unit = {"unit": 1.0, "signed": 2.0, "byte": 255.0}[scale]
    axis = SIZES[:4] if quick and task == "capacity" else SIZES if task == "capacity" else NOISES
    result: dict[str, Any] = {"axis": axis, "top": []}
    for model in MODELS:
        result[model] = {"success": [], "error": [], "cosine": []}
    images = draw(dataset, data_dir, scale, max(SIZES) if task == "capacity" else NOISE_SIZE, generator)
    for value in axis:
        stored = images[:value] if task == "capacity" else images
        queries = stored[:QUERIES]
        if task == "capacity":
            queries = half_masked(queries)
        else:
            queries = queries + unit * value * torch.randn(queries.shape, generator=generator)
        stored, queries = stored.flatten(1), queries.flatten(1)
        own = torch.arange(len(queries))
        result["top"].append(round(((queries @ stored.T).argmax(-1) == own).float().mean().item(), 5))
        for model in MODELS:
            error, cosine = measure(model, stored, queries, beta, steps)
            good = error < threshold if success == "error" else cosine > 0.9
            for key, number in (("success", good.float()), ("error", error / unit**2), ("cosine", cosine)):
                result[model][key].append(round(number.mean().item(), 5))
    return result


def pixel_scale(dataset: str, seed: int, data_dir: str | None) -> dict[str, Any]:
    """What the paper's thresholds and betas mean on each pixel scale, with 100 patterns and half-masked queries."""
    threshold, beta = CAPTION[dataset]
    result = {}
    for scale in ("unit", "signed", "byte"):
        images = draw(dataset, data_dir, scale, 100, torch.Generator().manual_seed(seed))
        patterns, queries = images.flatten(1), half_masked(images).flatten(1)
        scores = queries @ patterns.T
        top = scores.topk(2).values
        result[scale] = {
            "gap": (beta * (top[:, 0] - top[:, 1])).median(),
            "mean_image_error": (patterns - patterns.mean(0)).square().sum(-1).mean(),
            "nearest_error": torch.cdist(patterns, patterns).fill_diagonal_(torch.inf).amin(-1).square().min(),
            "one_level_error": patterns.shape[1] * ({"unit": 1, "signed": 2, "byte": 255}[scale] / 255) ** 2,
            "threshold": threshold,
            "beta": beta,
        }
    return result


def sparsity(density: float, seed: int, betas: list[float]) -> dict[str, Any]:
    """
    The claim by itself: random patterns (d = 784, M = 100), a given share of whose entries is not zero and positive as
    in images, scaled to length 28, in noise of a given noise-to-signal ratio. Success = cosine > 0.9 after one step.
    """
    generator = torch.Generator().manual_seed(seed)
    shape = (100, 784)
    patterns = torch.rand(shape, generator=generator) * (torch.rand(shape, generator=generator) < density)
    patterns = 28 * torch.nn.functional.normalize(patterns, dim=-1)
    result: dict[str, Any] = {"noise": DENSITY_NOISES, "top": []}
    for model in MODELS:
        result[model] = [[] for _ in betas]
    for ratio in DENSITY_NOISES:
        queries = patterns + ratio * torch.randn(shape, generator=generator)
        result["top"].append(((queries @ patterns.T).argmax(-1) == torch.arange(100)).float().mean())
        for number, beta in enumerate(betas):
            for model in MODELS:
                cosine = measure(model, patterns, queries, beta, 1)[1]
                result[model][number].append(round((cosine > 0.9).float().mean().item(), 5))
    return result


def pictures(dataset: str, scale: str, beta: float, data_dir: str | None) -> dict[str, Any]:
    """One image under growing noise and what each model retrieves from 100 patterns, as compressed bytes."""
    generator = torch.Generator().manual_seed(0)
    images = draw(dataset, data_dir, scale, NOISE_SIZE, generator)
    noise = torch.randn(images[0].shape, generator=generator)
    unit = {"unit": 1.0, "signed": 2.0}[scale]
    queries = torch.stack([images[0] + unit * sigma * noise for sigma in NOISES])
    found = {"query": queries}
    for model in MODELS:
        memory = make_memory(model, images.flatten(1), beta)
        found[model] = memory.retrieve(queries.flatten(1), steps=1).reshape(queries.shape)
    result: dict[str, Any] = {"noise": NOISES}
    for name, tensor in found.items():
        tensor = torch.nn.functional.interpolate(tensor, size=min(32, tensor.shape[-1]), mode="area")
        levels = ((tensor + (scale == "signed")) / unit * 255).round().clamp(0, 255).byte().permute(0, 2, 3, 1)
        data = zlib.compress(levels.numpy().tobytes(), 9)
        result[name] = {"shape": list(levels.shape), "data": base64.b64encode(data).decode()}
    return result


def unpacked(picture: dict[str, Any]) -> np.ndarray:
    """The array that `pictures` packed."""
    return np.frombuffer(zlib.decompress(base64.b64decode(picture["data"])), np.uint8).reshape(picture["shape"])


# protocol name to: scale, beta (None: the caption's), steps, what success is (the text's beta with the caption's threshold)
PROTOCOLS = {
    "caption_unit": ("unit", None, 1, "error"),
    "caption_signed": ("signed", None, 1, "error"),
    "caption_byte": ("byte", None, 1, "error"),
    "text_unit": ("unit", 1.0, 1, "error"),
    "text_signed": ("signed", 1.0, 1, "error"),
    **{f"clean_{beta}": ("signed", beta, 5, "cosine") for beta in CLEAN_BETAS},
}
PROTOCOL_TITLES = {
    "caption_unit": "caption's beta, [0, 1]",
    "caption_signed": "caption's beta, [-1, 1]",
    "caption_byte": "caption's beta, [0, 255]",
    "text_unit": "text's beta = 1, [0, 1]",
    "text_signed": "text's beta = 1, [-1, 1]",
    **{f"clean_{beta}": f"clean, beta {beta}" for beta in CLEAN_BETAS},
}


def make_cells(arguments: ExperimentArguments) -> dict[str, Cell]:
    """All cells of the experiment."""
    datasets = ["digits"] if arguments.quick else list(FILES)
    if not arguments.quick:
        arguments.require_data(*FILES.values())
    context = {"data_dir": arguments.data_dir}
    cells = {}
    for dataset in datasets:
        fixed = {"threshold": CAPTION[dataset][0], "stored": NOISE_SIZE, "queries": QUERIES}
        cells[f"{dataset}/scale"] = Cell(pixel_scale, {"dataset": dataset, "seed": 0}, context)
        picture = {"dataset": dataset, "scale": "signed", "beta": picture_beta(dataset)}
        cells[f"{dataset}/pictures"] = Cell(pictures, picture, context)
        for protocol, (scale, beta, steps, success) in PROTOCOLS.items():
            for seed in arguments.seed_range(5 if success == "cosine" else 10, quick=2):
                for task in ("capacity", "noise"):
                    settings = {"dataset": dataset, "task": task, "scale": scale, "beta": beta or CAPTION[dataset][1]}
                    settings |= {"steps": steps, "success": success, "seed": seed}
                    more = {**context, "quick": arguments.quick}
                    cells[f"{dataset}/{protocol}/{task}/seed{seed}"] = Cell(completion, settings, more, fixed)
    for density in DENSITIES[:2] if arguments.quick else DENSITIES:
        for seed in arguments.seed_range(5, quick=2):
            settings = {"density": density, "seed": seed, "betas": list(DENSITY_BETAS)}
            cells[f"sparsity/{density}/seed{seed}"] = Cell(sparsity, settings)
    return cells


def chosen(record: dict[str, Any], dataset: str, protocol: str, task: str) -> list[dict[str, Any]]:
    """Results of one protocol on one dataset, a run each."""
    scale, beta, steps, success = PROTOCOLS[protocol]
    wanted = {"scale": scale, "beta": beta or CAPTION[dataset][1], "steps": steps, "success": success}
    return select(record, dataset=dataset, task=task, **wanted)


def at(results: list[dict[str, Any]], model: str, value: float) -> list[float]:
    """Success in % of a model at one value of the axis, over the runs; `top` = the right pattern has the largest score."""
    places = [result["axis"].index(value) if value in result["axis"] else None for result in results]
    lists = [result["top"] if model == "top" else result[model]["success"] for result in results]
    return [100 * values[place] for values, place in zip(lists, places, strict=True) if place is not None]


def result_table(record: dict[str, Any], datasets: list[str], task: str, value: float) -> str:
    """Success of all models in all protocols at one value of the axis."""
    rows = []
    for dataset in datasets:
        for protocol, title in PROTOCOL_TITLES.items():
            results = chosen(record, dataset, protocol, task)
            text = median_range if protocol.startswith("clean") else spread
            if results:
                rows.append([TITLES[dataset], title, *(text(at(results, m, value), 1) for m in (*MODELS, "top"))])
    return table(["images", "protocol", *MODELS, "right pattern on top"], rows)


def difference(record: dict[str, Any], task: str, other: str = "dense") -> dict[tuple[str, str], list[float]]:
    """Sparse minus `other` success of each run, in %, averaged over the axis, for each dataset and protocol."""
    found = {}
    for dataset in TITLES:
        for protocol in PROTOCOLS:
            results = chosen(record, dataset, protocol, task)
            if results:
                pairs = [np.mean(r["sparse"]["success"]) - np.mean(r[other]["success"]) for r in results]
                found[dataset, protocol] = [100 * float(pair) for pair in pairs]
    return found


def better(differences: list[float] | None) -> bool | None:
    """Whether sparse is better over the runs; None, if there are too few to tell."""
    return None if differences is None or len(differences) < 2 else sign(differences) > 0


def agreement(found: dict[tuple[str, str], list[float]]) -> list[bool | None]:
    """For all settings that belong to the experiment, whether sparse is better."""
    datasets = ["digits"] if any(dataset == "digits" for dataset, _ in found) else list(FILES)
    return [better(found.get((dataset, protocol))) for dataset in datasets for protocol in PROTOCOLS]


def best_beta(record: dict[str, Any], dataset: str, task: str, model: str) -> float:
    """Success over the whole axis in the clean protocol at the beta that is best for the model."""
    means = []
    for beta in CLEAN_BETAS:
        results = chosen(record, dataset, f"clean_{beta}", task)
        means += [100 * float(np.mean([np.mean(r[model]["success"]) for r in results]))] if results else []
    return max(means, default=float("nan"))


def plot_curves(record: dict[str, Any], datasets: list[str], task: str, path: Path) -> None:
    """Success over the axis: a line of pictures for each dataset, a column for each of the main protocols."""
    protocols = ["caption_unit", "caption_signed", "caption_byte", "clean_0.003", "clean_0.01", "clean_0.1"]
    made, axes = figure(len(protocols), len(datasets), width=2.5, height=2.2)
    for line, dataset in enumerate(datasets):
        for column, protocol in enumerate(protocols):
            axis, results = axes[line, column], chosen(record, dataset, protocol, task)
            for model in MODELS if results else ():
                values = [at(results, model, x) for x in results[0]["axis"]]
                places = results[0]["axis"]
                axis.plot(places, [quantile(v, 0.5) for v in values], STYLES[model], color=COLORS[model], label=model)
                low, high = ([quantile(v, q) for v in values] for q in (0.25, 0.75))
                axis.fill_between(places, low, high, color=COLORS[model], alpha=0.2)
            axis.set_ylim(-4, 104)
            axis.set_xscale("log" if task == "capacity" else "linear")
            axis.grid(alpha=0.3)
            axis.tick_params(labelsize=7)
            if line == 0:
                axis.set_title(PROTOCOL_TITLES[protocol], fontsize=9)
            if line == len(datasets) - 1:
                axis.set_xlabel("stored images" if task == "capacity" else "sigma / pixel range", fontsize=8)
            if column == 0:
                axis.set_ylabel(f"{TITLES[dataset]}\nretrieved, %", fontsize=9)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    made.legend(handles, labels, loc="outside lower center", ncols=len(MODELS), fontsize=9)
    save_figure(made, path, dpi=75)


def plot_pictures(record: dict[str, Any], datasets: list[str], path: Path) -> None:
    """Queries under growing noise, and what each model makes of them: a block of columns for each dataset."""
    names = ("query", *MODELS)
    made, axes = figure(len(PICTURE_NOISES) * len(datasets), len(names), width=0.66, height=0.68)
    for block, dataset in enumerate(datasets):
        for result in [r for r in select(record, dataset=dataset) if "query" in r]:
            for line, name in enumerate(names):
                images = unpacked(result[name])
                for column, sigma in enumerate(PICTURE_NOISES):
                    axis = axes[line, block * len(PICTURE_NOISES) + column]
                    image = images[result["noise"].index(sigma)]
                    axis.imshow(image.squeeze(-1) if image.shape[-1] == 1 else image, cmap="gray")
                    if line == 0:
                        axis.set_title(f"σ {sigma:g}", fontsize=8)
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
    for line, name in enumerate(names):
        axes[line, 0].set_ylabel(name, fontsize=9, rotation=0, ha="right", va="center")
    save_figure(made, path, dpi=80)


def report(record: dict[str, Any], folder: Path) -> str:
    """The section of RESULTS.md."""
    settings = [entry["settings"] for entry in record["cells"].values()]
    datasets = [name for name in TITLES if any(setting.get("dataset") == name for setting in settings)]
    parts = ["## 1. Memory capacity and noise robustness\n"]
    if difference(record, "capacity") and difference(record, "noise"):
        parts.append(claims(verdicts(record, datasets)))
    rows = []
    for dataset in datasets:
        for result in [r for r in select(record, dataset=dataset) if "unit" in r]:
            for scale, title in (("unit", "[0, 1]"), ("signed", "[-1, 1]"), ("byte", "[0, 255]")):
                r = result[scale]
                numbers = [r["gap"], r["mean_image_error"], r["nearest_error"], r["one_level_error"]]
                rows.append([TITLES[dataset], title, r["beta"], r["threshold"], *(f"{n:.3g}" for n in numbers)])
    header = [
        "images",
        "pixels",
        "beta",
        "threshold",
        "beta × gap",
        "error of mean image",
        "nearest pair",
        "one grey level",
    ]
    parts += [
        "### What the pixel scale must be\n",
        "The paper gives a beta and a threshold of the squared error but no pixel scale. For 100 patterns and half-masked "
        "queries: beta times the median gap between the two largest scores (1 or more: sparsemax is one-hot; far below 1: every "
        "model returns nearly the mean image), the squared error of the mean image, the smallest squared distance of "
        "two stored images, and the squared error of one grey level in every pixel.\n",
        table(header, rows),
        "A threshold makes sense between the error of one grey level and the distance of the nearest pair, and beta where beta "
        "× gap is near 1. On [0, 1] the caption's MNIST beta is far too low: dense retrieves nothing, and sparse nothing but a few "
        "of the noisy images; and unnormalised dot products let a bright image win nearly every colour query. On [0, 255] every "
        "normaliser is one-hot or nearly so, and sparse and dense retrieve almost the same; the polynomial memory, which is not, "
        "hardly ever gets below the threshold. Images of length 1 would always pass (their squared error is at most 4). Sparse "
        "and dense can be told apart on [-1, 1], most of all at a low beta, and on [0, 1] with MNIST at the text's beta.\n",
        f"### Capacity: half-masked queries, {NOISE_SIZE} stored images, % retrieved\n",
        "The paper's protocol: mean ± standard deviation of the runs; the clean one: median [quartiles]. The paper's text says "
        "beta = 1 and cosine error. The rows with the text's beta take only the beta from it and are judged by the caption's squared "
        "error; the cosine is the measure of the clean protocol alone.\n",
        result_table(record, datasets, "capacity", 100),
        "![capacity](memory_capacity.png)\n",
        f"### Noise: {NOISE_SIZE} stored images, sigma = twice the pixel range, % retrieved\n",
        result_table(record, datasets, "noise", 2.0),
        "![noise](memory_noise.png)\n",
        "### Sparse patterns and noise by themselves\n",
        "Random non-negative patterns (d = 784, M = 100, length 28), a share of entries not zero, in noise; success = cosine > "
        "0.9 after one step, %, mean over runs. One row for each beta, and the best beta for each model.\n",
        sparsity_table(record),
        "### Retrieved images under growing noise\n",
        "From 100 stored images, pixels in [-1, 1], one step, at a low beta ("
        + ", ".join(f"{TITLES[name]} {picture_beta(name)}" for name in datasets)
        + "), where the models differ.\n",
        "![retrieved images](memory_pictures.png)\n",
    ]
    plot_curves(record, datasets, "capacity", folder / "memory_capacity.png")
    plot_curves(record, datasets, "noise", folder / "memory_noise.png")
    plot_pictures(record, datasets, folder / "memory_pictures.png")
    return "\n".join(parts)


def sparsity_table(record: dict[str, Any]) -> str:
    """Sparse / dense / polynomial success for each density, beta and noise."""
    rows = []
    for density in DENSITIES:
        results = select(record, density=density)
        if not results:
            continue
        means = {m: 100 * np.mean([result[m] for result in results], axis=0) for m in MODELS}
        for number, beta in [*enumerate(DENSITY_BETAS), (None, "best")]:
            pick = [means[m].max(0) if number is None else means[m][number] for m in ("sparse", "dense", "polynomial")]
            rows.append(
                [
                    f"{density:.0%}",
                    beta,
                    *(" / ".join(f"{v:.0f}" for v in column) for column in zip(*pick, strict=True)),
                ]
            )
    return table(["not zero", "beta", *(f"noise {n:g}: S / D / P" for n in DENSITY_NOISES)], rows)


def verdicts(record: dict[str, Any], datasets: list[str]) -> list[tuple[str, str, str]]:
    """The paper's claims of this experiment, judged by the numbers of the record."""

    def told(found: dict[tuple[str, str], list[float]], task: str) -> str:
        signs = [sign(runs) for runs in found.values()]
        means = {key: statistics.fmean(runs) for key, runs in found.items()}
        dataset, protocol = max(means, key=means.get)
        limits = ", ".join(
            f"{TITLES[d]} {best_beta(record, d, task, 'sparse'):.1f} / {best_beta(record, d, task, 'dense'):.1f}"
            for d in datasets
        )
        return (
            f"Sparse minus dense success, averaged over the axis, is above 0 in {signs.count(1)} of {len(found)} settings "
            f"(t-test over the runs, 5 %; by more than 1 point in {sum(mean > 1 for mean in means.values())}) and below in "
            f"{signs.count(-1)}; largest {means[dataset, protocol]:+.1f} ({TITLES[dataset]}, {PROTOCOL_TITLES[protocol]}), "
            f"smallest {min(means.values()):+.2f}. With the best beta for each in the clean protocol, S / D: {limits}. So the "
            "advantage is one of temperature: at the same low beta sparsemax is sharper, and exact once beta × gap reaches 1; a "
            "larger beta gives dense about the same, and both end near the rate at which the right pattern has the largest dot "
            "product."
        )

    capacity, noise = difference(record, "capacity"), difference(record, "noise")
    return [
        (
            "the sparse memory retrieves more half-masked images than the dense one",
            verdict(agreement(capacity)),
            told(capacity, "capacity"),
        ),
        (
            "the sparse memory is more robust against noise than the dense one",
            verdict(agreement(noise)),
            told(noise, "noise"),
        ),
        polynomial_verdict(record),
        sparsity_verdict(record),
    ]


def polynomial_verdict(record: dict[str, Any]) -> tuple[str, str, str]:
    """Sparse against polynomial, in both tasks."""
    agree, signs, lost = [], [], []
    for task, value in (("capacity", 100), ("noise", 2.0)):
        found = difference(record, task, "polynomial")
        agree += agreement(found)
        signs += [sign(runs) for runs in found.values()]
        for (dataset, protocol), runs in found.items():
            if sign(runs) < 0:
                results = chosen(record, dataset, protocol, task)
                middle = statistics.median if protocol.startswith("clean") else statistics.fmean
                pair = " / ".join(f"{middle(at(results, m, value)):.1f}" for m in ("sparse", "polynomial"))
                lost.append(f"{TITLES[dataset]}, {PROTOCOL_TITLES[protocol]}, {task} {pair}")
    return (
        "the sparse memory retrieves more than the polynomial one of order 10, half-masked and under noise",
        verdict(agree),
        f"Better in {signs.count(1)} of {len(signs)} settings of the two tasks, worse in {signs.count(-1)}"
        + (f" (S / P as in the tables below: {'; '.join(lost)})" if lost else "")
        + ". The polynomial memory has no temperature: it does not fail where beta is too low, and cannot be made sharper.",
    )


def sparsity_verdict(record: dict[str, Any]) -> tuple[str, str, str]:
    """The claim on sparse patterns in strong noise: at one beta for both models, and at the best one for each."""
    agree, same, largest, best = [], [], [], {}
    loud = [number for number, ratio in enumerate(DENSITY_NOISES) if ratio >= STRONG_NOISE]
    for density in DENSITIES:
        results = select(record, density=density)
        if results:
            # (runs, betas, noises)
            sparse, dense = (100 * np.array([r[model] for r in results]) for model in ("sparse", "dense"))
            at_one = sparse - dense
            at_best = np.stack(
                [
                    sparse[:, sparse[..., n].mean(0).argmax(), n] - dense[:, dense[..., n].mean(0).argmax(), n]
                    for n in range(len(DENSITY_NOISES))
                ],
                axis=1,
            )
            same.append(f"{density:.0%} {at_one[..., loud].mean():+.1f}")
            largest.append(at_one.mean(0).max())
            best[density] = np.abs(at_best.mean(0)).max()
            gains = [at_one[..., loud].mean((1, 2)).tolist(), at_best[:, loud].mean(1).tolist()]
        else:
            gains = [None, None]
        if density <= SPARSE_DENSITY:
            agree += [better(gain) for gain in gains]
    claim = "the sparse model excels when patterns are sparse and the signal-to-noise ratio is low"
    if not best:
        return claim, verdict(agree), ""
    few = max((value for density, value in best.items() if density <= SPARSE_DENSITY), default=float("nan"))
    place = max(best, key=best.get)
    return (
        claim,
        verdict(agree),
        f"For sparse patterns (up to {SPARSE_DENSITY:.0%} not zero) in strong noise (ratio {STRONG_NOISE:g} or more), sparse is "
        f"better with one beta for both at {agree[::2].count(True)} of {len(agree[::2])} densities, with the best beta for each at "
        f"{agree[1::2].count(True)} (t-test over the runs, 5 %). With one beta, sparse minus dense in strong noise, mean over the "
        f"betas, by the share not zero: {', '.join(same)} points (up to {max(largest):.0f} at one beta and noise). With the best "
        f"beta for each the two differ by at most {few:.1f} points for sparse patterns in any noise, and by at most "
        f"{best[place]:.1f} at all (at {place:.0%} not zero).",
    )


def picture_beta(dataset: str) -> float:
    """A low beta, at which sparse and dense differ."""
    return {"mnist": 0.01, "cifar10": 0.01, "tiny_imagenet": 0.001, "digits": 0.1}[dataset]


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Run the experiment."""
    arguments = parse(ExperimentArguments, argv)
    return run("memory", arguments, make_cells(arguments), report)


if __name__ == "__main__":
    main()
