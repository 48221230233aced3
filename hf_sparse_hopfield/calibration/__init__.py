# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Choose alpha and beta of every head, so that a sparse model does what the dense model did.

- `calibrate.py`: [`calibrate`], the steps in order
- `recipe.py`: the options and their defaults, for Python, the command line and training scripts alike
- `head_search.py`: the search for each head alone
- `budget.py`: the sparsest model within a share of the dense loss
- `refinement.py`: gradient steps on all heads together
- `comparison.py`: the sparse model beside its dense twin
- `report.py`: the result
- `resume.py`: the file from which an interrupted calibration resumes

The package imports nothing by itself, so that the command line can read the recipe without torch.
"""
