# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What an unfinished write leaves behind."""


def leftovers(directory):
    return [path.name for path in directory.iterdir() if path.name.startswith(".")]
