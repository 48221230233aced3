# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Run transformers' own model tests with sparse_hopfield as the default attention, and list the tests that then fail.

The tests are not part of the installed package. With a checkout of the installed version:

    git clone --depth 1 --branch v5.22.2 https://github.com/huggingface/transformers ../transformers
    python -m tests.run_transformers_suite ../transformers --models bert llama t5 -- -n 2 -k "not flash_attn"

Each model's tests run twice, with transformers' default attention and with ours. Tests that pass with the default and fail
with ours are listed. There should be none, apart from tests that assert sdpa itself (`test_eager_matches_sdpa...`,
`test_sdpa_can_...`, `test_attn_implementation_composite_models` and similar).

This file is also the pytest plugin that makes ours the default (`-p tests.run_transformers_suite`).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path


_OUTCOMES = "HF_SPARSE_HOPFIELD_OUTCOMES"
_SPARSE = "HF_SPARSE_HOPFIELD_DEFAULT"
_outcomes: dict[str, str] = {}


def pytest_configure(config) -> None:
    """Make sparse_hopfield the default attention."""
    if os.environ.get(_SPARSE) != "1":
        return
    from transformers import PreTrainedModel

    import hf_sparse_hopfield  # noqa: F401  (registers the attention)

    original = PreTrainedModel._check_and_adjust_attn_implementation

    def check_and_adjust(self, attn_implementation, *args, **kwargs):
        return original(self, attn_implementation or "sparse_hopfield", *args, **kwargs)

    PreTrainedModel._check_and_adjust_attn_implementation = check_and_adjust


def pytest_runtest_logreport(report) -> None:
    """Keep the worst outcome of a test's phases."""
    worst = _outcomes.get(report.nodeid, "passed")
    _outcomes[report.nodeid] = report.outcome if worst == "passed" else worst


def pytest_sessionfinish(session) -> None:
    """Write the outcomes. With pytest-xdist, only the controlling process does so."""
    path = os.environ.get(_OUTCOMES)
    if path and not hasattr(session.config, "workerinput"):
        Path(path).write_text(json.dumps(_outcomes), encoding="utf-8")


def run(checkout: Path, models: list[str], sparse: bool, pytest_arguments: list[str]) -> dict[str, str]:
    """Run the tests of some models and return the outcome of each test."""
    here = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "outcomes.json")
        environment = os.environ | {_OUTCOMES: str(path), _SPARSE: str(int(sparse))}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(here), os.environ.get("PYTHONPATH"))))
        targets = [f"tests/models/{model}" for model in models] or ["tests/models"]
        # Our tests folder is a package with the same name as theirs, so the plugin is passed as a file.
        plugin = Path(folder, "sparse_hopfield_plugin.py")
        plugin.write_text(Path(__file__).read_text(encoding="utf-8"), encoding="utf-8")
        environment["PYTHONPATH"] = os.pathsep.join((folder, environment["PYTHONPATH"]))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "sparse_hopfield_plugin", *targets, *pytest_arguments]
        subprocess.run(command, cwd=checkout, env=environment, check=False)
        return json.loads(path.read_text(encoding="utf-8"))


def main() -> int:
    """Compare the two runs. Returns 1 if any other tests are lost, else 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, help="checkout of the installed version of transformers")
    parser.add_argument("--models", nargs="*", default=[], help="folders in tests/models (default: all)")
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)  # the rest is for pytest
    arguments, for_pytest = parser.parse_args(sys.argv[1:end]), sys.argv[end + 1 :]
    dense, sparse = (run(arguments.checkout, arguments.models, flag, for_pytest) for flag in (False, True))
    lost = sorted(test for test, outcome in dense.items() if outcome == "passed" and sparse.get(test) != "passed")
    expected = [test for test in lost if "sdpa" in test or "attn_implementation" in test]
    unexpected = [test for test in lost if test not in expected]
    passed = sum(outcome == "passed" for outcome in dense.values())
    print(
        f"{passed} tests pass with the default; with ours, {len(expected)} that assert sdpa itself and {len(unexpected)} others fail:"
    )
    print("\n".join(unexpected))
    return int(bool(unexpected))


if __name__ == "__main__":
    sys.exit(main())
