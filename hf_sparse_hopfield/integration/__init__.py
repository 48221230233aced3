# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Everything that knows transformers.

Settings flow one way: config.json -> `SparseHopfieldConfig` -> [`settings.bind`] gives each attention module its
`LayerRetrieval` -> `attention.py` (families on transformers' attention registry) or `patches.py` (families that compute
their softmax themselves) -> `retrieve()`.

- `registration.py`: waits for transformers, then registers everything below
- `attention.py`: the attention and mask functions behind `attn_implementation="sparse_hopfield"`
- `families.py`: which attention classes are reached how, and which are refused and why
- `patches.py`: the attention classes that are not on the registry
- `settings.py`: from the settings of a model to those of each of its attention modules
- `hooks.py`: where transformers' `PreTrainedModel` calls us
- `auto.py`: the model type `sparse_hopfield`, for any family on demand
- `convert.py`: `to_sparse_hopfield`, `to_dense`
- `calibration.py`: `calibrate`, with `observation.py` (looking on while attention modules retrieve), `head_search.py`
  (beta and alpha of every head), `refinement.py` (all of them together, against the dense model) and `resumption.py` (a
  file from which an interrupted calibration goes on)
- `checkpoints.py`: from disk to disk, verified; `directories.py`: written beside and renamed
- `cards.py`: model cards; `hub.py`: pushing, also behind `push_to_hub` of models and of the Trainer
- `inputs.py`: inputs to try a model on
"""
