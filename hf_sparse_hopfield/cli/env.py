# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""`env`: what a bug report needs."""

import argparse
import json
from typing import Any


HELP = "versions, processor and backends, for a bug report"
DESCRIPTION = """Print what a bug report needs: versions, features of the processor, and which backends can run here and why others
cannot. Nothing is sent anywhere."""
EXAMPLES = """examples:
  %(prog)s
  %(prog)s --json > environment.json"""

_ABSENT = "not installed"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments: there are none."""


def run(arguments: argparse.Namespace) -> None:
    """Print the environment, plain, so that it can be pasted."""
    from ..environment import environment

    found = environment()
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    sections = {
        "versions": {name: version or _ABSENT for name, version in found["versions"].items()},
        "machine": found["machine"],
        **{
            f"backends for tensors on {device}, in the order in which they are tried": {
                name: "available" if reason is None else f"not available: {reason}"
                for name, reason in backends.items()
            }
            for device, backends in found["backends"].items()
        },
        "environment variables": found["variables"],
    }
    print("Paste this into your report:\n")
    for title, values in sections.items():
        print(f"{title}:")
        for name, value in values.items():
            print(f"- {name}: {_shown(value)}")
        print("" if values else "- none\n", end="\n" if values else "")


def _shown(value: Any) -> str:
    return (", ".join(value) or "none") if isinstance(value, list) else str(value)
