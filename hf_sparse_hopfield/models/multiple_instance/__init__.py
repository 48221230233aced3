# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Multiple-instance classification: one label for a bag of instances. Import its names from `hf_sparse_hopfield.models`."""
