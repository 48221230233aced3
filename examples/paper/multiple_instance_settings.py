# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Data, models and hyperparameter grids of the multiple-instance benchmarks."""

DATASETS = {"Tiger": "tiger", "Fox": "fox", "Elephant": "elephant", "UCSB": "ucsb_breast_cancer"}
WIDE = "UCSB-wider"
NESTED = {dataset: f"{dataset}-nested" for dataset in DATASETS}
MODELS = {
    "D Hopfield": {"aggregation": "hopfield", "alpha": 1.0},
    "S Hopfield": {"aggregation": "hopfield", "alpha": 2.0},
    "D pooling": {"aggregation": "pooling", "alpha": 1.0},
    "S pooling": {"aggregation": "pooling", "alpha": 2.0},
}
# Hyperparameters of the paper's grid that we fix, and those that we search.
FIXED = {
    "num_heads": 8,
    "head_size": 16,
    "embedding_layers": 1,
    "embedding_size": 64,
    "classifier_activation": "relu",
}
GRID = {"scaling": (0.1, 1.0, 10.0), "bag_dropout": (0.0, 0.75)}
TRAINING = {"batch": 16, "learning_rate": 1e-3, "decay": 0.96}
EPOCHS = 50
# The rest of the paper's grid, for the wider search: one hyperparameter after the other, in this order.
WIDER = {
    "learning_rate": (1e-3, 1e-5),
    "embedding_size": (32, 64, 128),
    "embedding_layers": (1, 2),
    "head_size": (16, 32),
    "num_heads": (8, 12),
    "decay": (0.94, 0.96, 0.98),
    "batch": (4, 8, 16),
}
WIDE_REPEATS = 3  # cross-validations per choice
CLIP = 2.0  # standard deviations; the features have long tails, and bags are small
FOLDS, SELECTION_FOLDS, NESTED_SEEDS = 10, 10, 1
