# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Data, models and protocols of the memory experiment."""

FILES = {
    "mnist": "images/mnist.npz",
    "cifar10": "images/cifar10_5k.npz",
    "tiny_imagenet": "images/tiny_imagenet_20c.parquet",
}
TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10", "tiny_imagenet": "Tiny-ImageNet", "digits": "digits"}
# threshold of the squared error, and beta, from the paper's caption
CAPTION = {"mnist": (10.0, 0.01), "cifar10": (20.0, 0.1), "tiny_imagenet": (20.0, 0.1), "digits": (1.0, 0.1)}
ALPHAS = {"sparse": 2.0, "entmax15": 1.5, "dense": 1.0}
MODELS = ("sparse", "entmax15", "dense", "polynomial")
PIXEL_RANGE = {"unit": 1.0, "signed": 2.0, "byte": 255.0}  # of the scales [0, 1], [-1, 1] and [0, 255]
SIZES = (10, 20, 50, 100, 200, 500, 1000)
NOISES = (0.0, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0)
NOISE_SIZE = 100
QUERIES = 200
CLEAN_BETAS = (0.003, 0.01, 0.1, 1.0)
DENSITIES = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
DENSITY_NOISES = (1.0, 2.0, 4.0, 6.0, 8.0, 12.0)
DENSITY_BETAS = (0.001, 0.002, 0.005, 0.02, 0.1)
# By name: pixel scale, beta (None: the caption's), steps, and the measure of success. The text's beta is judged by the
# caption's threshold of the squared error.
PROTOCOLS = {
    "caption_unit": ("unit", None, 1, "error"),
    "caption_signed": ("signed", None, 1, "error"),
    "caption_byte": ("byte", None, 1, "error"),
    "text_unit": ("unit", 1.0, 1, "error"),
    "text_signed": ("signed", 1.0, 1, "error"),
    **{f"clean_{beta}": ("signed", beta, 5, "cosine") for beta in CLEAN_BETAS},
}


def picture_beta(dataset: str) -> float:
    """A low beta, at which sparse and dense retrieval differ."""
    return {"mnist": 0.01, "cifar10": 0.01, "tiny_imagenet": 0.001, "digits": 0.1}[dataset]
