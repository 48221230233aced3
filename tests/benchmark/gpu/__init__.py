# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
