# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Everything that makes a transformers model sparse.

Settings flow one way: config.json -> `SparseHopfieldConfig` -> [`binding.bind`] gives each attention module its
`LayerRetrieval` -> `attention.py` (families on transformers' attention registry) or `patches.py` (families that compute
softmax themselves) -> `retrieve()`.

- `attention.py`: the attention and mask functions behind `attn_implementation="sparse_hopfield"`
- `families.py`: tables of attention classes that are patched, and of those that are refused, with the reason
- `patches.py`: attention classes that compute softmax themselves; `observed_patches.py`: their observation
- `sites.py`: the attention modules of a model, and the configurations around them
- `binding.py`: from the settings of a model to each of its attention modules
- `model_settings.py`: changing alpha and beta of a whole model, in its modules and its configurations
- `auto.py`: the model type `sparse_hopfield`, for any family on demand
- `convert.py`: `to_sparse_hopfield`, `to_dense`
- `upstream.py`: every wrapped method and private name of transformers, accelerate and huggingface_hub
"""
