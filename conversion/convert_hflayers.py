# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""State dicts of hflayers, and of the paper's sparse fork of it, for the layers of this package. See --help."""

import argparse
import json
import sys
from typing import Any

from hf_sparse_hopfield.cli import run_script
from hf_sparse_hopfield.cli.arguments import add_output_arguments
from hf_sparse_hopfield.cli.output import write_checkpoint


DESCRIPTION = """Read a state dict (.pt, .pth, .bin with weights only, or .safetensors) that holds hflayers' Hopfield, HopfieldPooling
or HopfieldLayer, alone or inside a larger model. Write model.safetensors (all tensors of the state dict) and layers.json, from
which hf_sparse_hopfield.checkpoints.hflayers.load_layers makes SparseHopfield, SparseHopfieldPooling or SparseHopfieldLayer.
Unless --no_verify is given, the outputs of the layers on random inputs are compared with the formula.

With --model, the result is also a checkpoint of SparseHopfieldForMultipleInstanceClassification, for from_pretrained. The state
dict needs its names: aggregation.* (HopfieldPooling or Hopfield), classifier.* and, if there is an embedding, embedding.0.*,
embedding.2.*, ...; --rename changes names. Other models are not supported."""
EXAMPLES = """examples:
  %(prog)s hopfield.pt ./converted --num_heads 4                    # a dense checkpoint that stays dense
  %(prog)s hopfield.pt ./converted --num_heads 4 --alpha 2          # the sparse fork, or a dense one made sparse
  %(prog)s model.pt ./converted --num_heads 8 --options '{"scaling": 0.25, "update_steps_max": 3}'
  %(prog)s mil.pt ./classifier --num_heads 8 --alpha 2 --model --rename emb.=embedding. pool.=aggregation. out.=classifier."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("source", help="the state dict")
    parser.add_argument("output", help="directory to write")
    parser.add_argument("--num_heads", type=int, default=1, help="heads of every layer (default: %(default)s)")
    parser.add_argument(
        "--alpha", type=float, default=1.0, help="1 for dense checkpoints (default), 2 for the sparse fork"
    )
    parser.add_argument(
        "--options", type=parse_object, default={}, help="more constructor arguments of the layers, as a JSON object"
    )
    parser.add_argument("--model", action="store_true", help="write a multiple-instance classifier, see above")
    parser.add_argument(
        "--rename", type=parse_renaming, nargs="+", default=[], metavar="OLD=NEW", help="change how names begin"
    )
    add_output_arguments(parser)


def parse_object(text: str) -> dict[str, Any]:
    """The value of `--options`."""
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"must be a JSON object such as '{{\"scaling\": 0.25}}', got {text!r}")
    return value


def parse_renaming(text: str) -> tuple[str, str]:
    """One value of `--rename`."""
    old, equals, new = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"must be OLD=NEW, got {text!r}")
    return old, new


def run(arguments: argparse.Namespace) -> None:
    """Convert."""
    from hf_sparse_hopfield.checkpoints import convert_hflayers

    options = {name: getattr(arguments, name) for name in ("num_heads", "alpha", "options", "model")}
    write_checkpoint(arguments, convert_hflayers, rename=dict(arguments.rename), **options)


if __name__ == "__main__":
    sys.exit(run_script(sys.modules[__name__]))
