"""The promises of the package as a whole: names, import cost, examples that run, a README that is true."""

import ast
import doctest
import importlib
import pathlib
import pkgutil
import re
import statistics

import pytest

import hf_sparse_hopfield

from .processes import run_python


ROOT = pathlib.Path(__file__).parent.parent
PUBLIC = [
    "CalibrationOptions",
    "HopfieldMemory",
    "PolynomialMemory",
    "SparseHopfield",
    "SparseHopfieldConfig",
    "SparseHopfieldLayer",
    "SparseHopfieldPooling",
    "calibrate",
    "conjugate",
    "energy",
    "entmax",
    "retrieve",
    "sparsemax",
    "to_dense",
    "to_sparse_hopfield",
]


def modules():
    for info in pkgutil.walk_packages(hf_sparse_hopfield.__path__, "hf_sparse_hopfield."):
        if not info.name.rpartition(".")[2].startswith("_core"):  # the compiled core is not a Python module
            yield info.name


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names(name):
    assert name in hf_sparse_hopfield.__all__
    assert name in dir(hf_sparse_hopfield)
    assert getattr(hf_sparse_hopfield, name).__doc__


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'entmin'"):
        _ = hf_sparse_hopfield.entmin


def test_type_checkers_see_the_names_that_load_lazily():
    tree = ast.parse(pathlib.Path(hf_sparse_hopfield.__file__).read_text())
    guarded = next(n for n in tree.body if isinstance(n, ast.If))
    imported = {a.name for node in guarded.body for a in node.names}
    assert imported == set(hf_sparse_hopfield._MODULE_OF)


def test_import_is_cheap():
    code = (
        "import time, transformers\nt = time.perf_counter()\nimport hf_sparse_hopfield\nprint(time.perf_counter() - t)"
    )
    assert statistics.median(float(run_python(code)) for _ in range(3)) < 0.3


def test_import_brings_no_optional_package():
    code = "import sys, hf_sparse_hopfield\nfrom hf_sparse_hopfield import entmax, SparseHopfield\nprint(*sys.modules)"
    loaded = {name.partition(".")[0] for name in run_python(code).split()}
    assert not loaded & {
        "entmax",
        "evaluate",
        "matplotlib",
        "rich",
        "peft",
        "sklearn",
        "sacrebleu",
        "hypothesis",
        "triton",
    }


@pytest.mark.parametrize("name", sorted(modules()))
def test_examples_in_docstrings(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parser = doctest.DocTestParser()
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    module = importlib.import_module(name)
    for test in doctest.DocTestFinder(exclude_empty=True, parser=parser).find(module, name):
        # fences are not expected output
        source = re.sub(r"^\s*```.*$", "", test.docstring or "", flags=re.MULTILINE)
        runner.run(parser.get_doctest(source, dict(test.globs), test.name, test.filename, test.lineno))
    assert runner.failures == 0


def test_every_public_name_has_an_example():
    for name in hf_sparse_hopfield.__all__:
        if name != "__version__":
            assert ">>>" in getattr(hf_sparse_hopfield, name).__doc__, name


def test_readme_has_the_two_commands():
    readme = (ROOT / "README.md").read_text()
    commands = re.findall(r"```bash\n(.*?)\n```", readme, re.DOTALL)
    assert commands[0].endswith("hf-sparse-hopfield demo")
    assert "pytest" in commands[1]
    assert all("\n" not in command for command in commands[:2])


def test_readme_is_short():
    assert len((ROOT / "README.md").read_bytes()) <= 9_000


def test_readme_has_the_counts_of_families():
    words = re.search(r"Of the \d+ model types .*? \([\d.]+%\)", (ROOT / "docs" / "families.md").read_text()).group()
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert words in readme, "python -m tests.integration.families_table wrote a newer list"
