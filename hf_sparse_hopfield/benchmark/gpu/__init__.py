# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`hf-sparse-hopfield bench --device cuda`: retrieval on a GPU against dense attention, and the tiles that suit this GPU."""
