# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The kernel for the Hub: built, loaded as transformers loads it, and compared with the package."""

import base64
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest
import torch
import yaml
from transformers import LlamaForCausalLM
from transformers.integrations import hub_kernels

from hf_sparse_hopfield import calibrate, retrieve, to_sparse_hopfield
from hf_sparse_hopfield.hub import kernels

from ..roads.table import road
from ..tiny_models import padded, tiny_model, tiny_output


REPOSITORY = "org/sparse-hopfield"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return kernels.build_kernel(tmp_path_factory.mktemp("kernel") / "built")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    """A dense checkpoint with settings of a calibrated model for the kernel, inputs, and what the package makes of them."""
    folder = tmp_path_factory.mktemp("checkpoint")
    dense, inputs = tiny_model("llama"), padded("llama", left=True)
    dense.save_pretrained(folder)
    sparse = to_sparse_hopfield(tiny_model("llama"), {"alpha": 1.5})
    calibrate(sparse, [inputs], progress=False, refine_steps=0)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "sparse_hopfield": kernels.kernel_settings(sparse)}))
    with torch.no_grad():
        expected = tiny_output(sparse, inputs)
        assert not torch.allclose(expected, tiny_output(dense, inputs), atol=0.01)
    torch.save({"inputs": inputs, "expected": expected}, folder / "expected.pt")
    return folder


def loaded(variant: Path) -> ModuleType:
    """The module of a variant, imported as the package `kernels` does."""
    name = json.loads((variant / "metadata.json").read_text())["id"]
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, variant / "__init__.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def test_the_folder_is_as_the_hub_wants_it(folder):
    assert sorted(path.name for path in folder.iterdir() if path.name[0] != ".") == ["LICENSE", "README.md", "build"]
    assert "Apache License" in (folder / "LICENSE").read_text()
    card = (folder / "README.md").read_text()
    assert yaml.safe_load(card.split("---")[1])["library_name"] == "kernels"
    assert "alpha is 2.0 and beta is 1.0" in card and "{" not in card.replace('{"alpha": 1.5, "beta": 1.2}', "")
    names = set()
    for device in ("cpu", "cuda", "rocm"):
        variant = folder / "build" / f"torch-{device}"
        description = json.loads((variant / "metadata.json").read_text())
        names.add(description["id"])
        assert description["id"].isidentifier() and description["backend"] == {"type": device}
        assert description["version"] == hub_kernels.get_attn_kernel_version(REPOSITORY)
        files = {path.relative_to(variant).as_posix(): path for path in variant.rglob("*") if path.is_file()}
        del files["metadata.json"]
        digests = {name: hashlib.sha256(path.read_bytes()).digest() for name, path in files.items()}
        assert description["digest"]["files"] == {
            name: base64.b64encode(sha).decode() for name, sha in digests.items()
        }
        assert {Path(name).suffix for name in files} == {".py"}
        assert not [name for name in files if name.startswith(("integration", "hub", "training"))]
    assert len(names) == 3  # torch has one operator of each name


def test_the_same_sources_make_the_same_kernel(folder, tmp_path):
    again = kernels.build_kernel(tmp_path / "again")
    for file in (path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")):
        if "__pycache__" not in file.parts:
            assert (again / file.relative_to(folder)).read_bytes() == file.read_bytes()


def test_the_command_writes_and_replaces_only_what_it_wrote(tmp_path, capsys):
    output = str(tmp_path / "kernel")
    assert kernels.main(["--output_dir", output]) == 0
    assert f"hf upload {REPOSITORY} {output} . --type kernel --revision v1" in capsys.readouterr().out
    assert kernels.main(["--output_dir", output]) == 1
    assert "already exists" in capsys.readouterr().err
    assert kernels.main(["--output_dir", output, "--overwrite"]) == 0
    (tmp_path / "kernel" / "notes.txt").write_text("mine")
    assert kernels.main(["--output_dir", output, "--overwrite"]) == 1
    assert "notes.txt" in capsys.readouterr().err


def test_imports_by_full_name_are_refused(tmp_path):
    file = tmp_path / "module.py"
    file.write_text("from hf_sparse_hopfield.backends import masks\n")
    with pytest.raises(ValueError, match="by its full name"):
        kernels._imports("hf_sparse_hopfield.module", file)


def test_it_needs_neither_this_package_nor_transformers(folder, tmp_path):
    """Every variant in a process that has neither; all modules are imported, and outputs are those of the package."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 40, 16, generator=generator).unbind()
    key, value = key[:, :2], value[:, :2]
    torch.save([query, key, value], tmp_path / "vectors.pt")
    code = """
        import importlib, json, pkgutil, sys
        from pathlib import Path
        import torch
        from torch import nn
        for name in ("hf_sparse_hopfield", "transformers", "kernels", "huggingface_hub"):
            sys.modules[name] = None  # an import raises
        query, key, value = torch.load(sys.argv[2] + "/vectors.pt", weights_only=True)
        for number, variant in enumerate(sorted(Path(sys.argv[1], "build").iterdir())):
            name = json.loads((variant / "metadata.json").read_text())["id"]
            spec = importlib.util.spec_from_file_location(name, variant / "__init__.py")
            kernel = sys.modules[name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(kernel)
            has_triton = importlib.util.find_spec("triton") is not None
            for module in pkgutil.walk_packages(kernel.__path__, name + "."):
                if has_triton or ".triton.kernels" not in module.name:
                    importlib.import_module(module.name)
            module = nn.Module()
            module.config = type("Config", (), {"sparse_hopfield": {"alpha": 1.5, "beta": 2.0}})()
            output = kernel.flash_attn_forward(module, query, key, value, softcap=5.0, sliding_window=9)[0]
            torch.save(output, f"{sys.argv[2]}/output_{number}.pt")
    """
    environment = {name: given for name, given in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", textwrap.dedent(code), str(folder), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert "compiled core" not in done.stderr  # there is none by design, as the card explains
    expected = retrieve(query, key, value, alpha=1.5, beta=2.0, is_causal=True, softcap=5.0, sliding_window=9)
    for number in range(3):
        torch.testing.assert_close(
            torch.load(tmp_path / f"output_{number}.pt", weights_only=True), expected.transpose(1, 2)
        )


@road('a kernel on the Hub, `attn_implementation="org/repo"`', "equal")
@torch.no_grad()
def test_transformers_loads_it_beside_the_package(folder, checkpoint, monkeypatch):
    """Built, and registered by transformers' own loader; logits equal those of the package in the same process, at the same alpha and beta."""
    asked = {}

    def get_kernel(name, **arguments):
        asked[name] = arguments
        return loaded(folder / "build" / "torch-cpu")

    monkeypatch.setattr(hub_kernels, "is_kernels_available", lambda: True)
    monkeypatch.setattr(hub_kernels, "get_kernel", get_kernel)
    options = {"attn_implementation": REPOSITORY, "allow_all_kernels": True}
    model = LlamaForCausalLM.from_pretrained(checkpoint, **options)
    assert asked == {REPOSITORY: {"revision": None, "version": 1, "allow_all_kernels": True}}
    data = torch.load(checkpoint / "expected.pt", weights_only=True)
    torch.testing.assert_close(tiny_output(model, data["inputs"]), data["expected"])
    switched = LlamaForCausalLM.from_pretrained(checkpoint, attn_implementation="eager")
    switched.set_attn_implementation(REPOSITORY, allow_all_kernels=True)
    torch.testing.assert_close(tiny_output(switched, data["inputs"]), data["expected"])


@pytest.mark.skipif(importlib.util.find_spec("kernels") is None, reason="needs the package kernels")
@pytest.mark.parametrize("way", ["local", "cache"])
def test_the_package_kernels_loads_it(folder, checkpoint, tmp_path, way):
    """
    As a user has it: `kernels` finds the repository, in a local folder or in the cache of the Hub, and transformers runs it.

    transformers accepts certain releases of `kernels` only. Where another one is installed, that check is overridden.
    """
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path)}
    environment.pop("PYTHONPATH", None)
    if way == "local":
        environment["LOCAL_KERNELS"] = f"{REPOSITORY}={folder}"
    else:
        cached, commit = tmp_path / f"kernels--{REPOSITORY.replace('/', '--')}", "0" * 40
        (cached / "refs").mkdir(parents=True)
        (cached / "refs" / "v1").write_text(commit)
        (cached / "snapshots").mkdir()
        (cached / "snapshots" / commit).symlink_to(folder)
    code = """
        import sys
        from transformers import utils
        from transformers.utils import import_utils
        sys.modules["hf_sparse_hopfield"] = None  # an import raises
        if not import_utils.is_kernels_available():
            import_utils.is_kernels_available = utils.is_kernels_available = lambda *_: True
        import torch
        from kernels import get_loaded_kernels
        from transformers import LlamaForCausalLM
        checkpoint, repository = sys.argv[1:]
        model = LlamaForCausalLM.from_pretrained(checkpoint, attn_implementation=repository, allow_all_kernels=True)
        data = torch.load(checkpoint + "/expected.pt", weights_only=True)
        with torch.no_grad():
            torch.testing.assert_close(model(**data["inputs"]).logits, data["expected"])
        assert model.config._attn_implementation == repository
        assert [str(loaded.metadata.name) for loaded in get_loaded_kernels()] == ["sparse-hopfield"]
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(checkpoint), REPOSITORY]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr


def test_settings_for_the_kernel():
    settings = {
        "alpha": 1.5,
        "steps": 2,
        "layers": [1],
        "overrides": {"layers.1": {"tolerance": 0.1}},
        "learn_beta": True,
    }
    sparse = to_sparse_hopfield(tiny_model("llama"), settings)
    with torch.no_grad():
        sparse.model.layers[1].self_attn.sparse_hopfield.log_beta.copy_(torch.arange(4.0))
    found = kernels.kernel_settings(sparse)
    assert found["layers"] == [1] and not found["learn_beta"]
    values = found["overrides"]["1"]
    assert values.pop("beta") == pytest.approx(torch.arange(4.0).exp().tolist())
    assert values == {"alpha": 1.5, "steps": 2, "tolerance": 0.1}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "bart",
            "cannot find the settings of 'model.decoder.layers.0",
        ),  # index 0 is in the encoder and in the decoder
        ("llava", "cannot find the settings of 'model.vision_tower"),
        ("bloom", "cannot find the settings of 'transformer.h.0.self_attention'"),
    ],
)
def test_models_in_which_a_kernel_would_not_find_its_settings_are_refused(name, message):
    with pytest.raises(ValueError, match=message):
        kernels.kernel_settings(to_sparse_hopfield(tiny_model(name)))


def test_a_dense_model_has_no_settings():
    with pytest.raises(ValueError, match="no layer that retrieves sparsely"):
        kernels.kernel_settings(tiny_model("llama"))
