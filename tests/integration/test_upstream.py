# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The contract with transformers, accelerate and peft: versions, import hook, wrapped methods, class swap, private names."""

import ast
import importlib
import importlib.util
import inspect
import re
import textwrap
from importlib import metadata
from pathlib import Path

import pytest
import torch
import transformers
from torch import nn
from transformers.generation.continuous_batching import continuous_api, model_runner

import hf_sparse_hopfield
from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.integration import upstream
from hf_sparse_hopfield.integration.auto import swap_to_sparse_class
from hf_sparse_hopfield.integration.upstream import SUPPORTED, check_versions, original_method, wrap_method

from ..processes import run_python
from ..tiny_models import tiny_inputs, tiny_model, tiny_output


PACKAGE = Path(hf_sparse_hopfield.__file__).parent
LIBRARIES = ("transformers", "accelerate", "huggingface_hub", "peft")
# The modules of the libraries whose objects we handle.
LIBRARY_MODULES = (
    "transformers.cache_utils",
    "transformers.configuration_utils",
    "transformers.core_model_loading",
    "transformers.generation.utils",
    "transformers.initialization",
    "transformers.masking_utils",
    "transformers.modeling_utils",
    "transformers.models.auto.auto_factory",
    "transformers.tokenization_utils_base",
    "transformers.trainer",
    "transformers.trainer_callback",
    "transformers.utils.generic",
    "transformers.utils.output_capturing",
    "accelerate.accelerator",
    "accelerate.big_modeling",
    "accelerate.data_loader",
    "accelerate.state",
    "accelerate.utils.other",
    "peft.auto",
    "peft.config",
    "peft.peft_model",
    "peft.tuners.tuners_utils",
    "peft.utils.other",
)
# What the author of any model of transformers writes or calls; our own models are such models.
MODEL_INTERFACE = {"_init_weights", "_gradient_checkpointing_func", "_no_split_modules"}


# ---- Versions ----


def test_the_table_and_pyproject_agree():
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
    for package, (floor, cap) in SUPPORTED.items():
        assert f"{package}>={floor},<{cap}" in project["dependencies"]


@pytest.mark.parametrize("package, version", [("transformers", "5.0.0"), ("torch", "3.0.0.dev1+cu130")])
def test_an_unsupported_version_gives_one_clear_sentence_at_import(package, version):
    told = run_python(
        """
        import importlib.metadata, sys
        real = importlib.metadata.version
        importlib.metadata.version = lambda name: sys.argv[2] if name == sys.argv[1] else real(name)
        try:
            import hf_sparse_hopfield
        except ImportError as error:
            print(error)
        assert "torch" not in sys.modules and "transformers" not in sys.modules
        """,
        package,
        version,
    )
    needed = f"{package}>={SUPPORTED[package][0]},<{SUPPORTED[package][1]}"
    assert told == (
        f"hf_sparse_hopfield {hf_sparse_hopfield.__version__} needs {needed}; {version} is installed: "
        f"pip install '{needed}'."
    )


def test_versions_are_compared_by_their_numbers(monkeypatch):
    def installed(version):
        monkeypatch.setattr(metadata, "version", lambda package: version)

    monkeypatch.setattr(upstream, "SUPPORTED", {"torch": ("2.6", "3")})
    for version in ("2.6", "2.6.0", "2.13.0+cpu", "2.99.1rc2", "2.6.0a0+git12ab"):
        installed(version)
        check_versions()
    for version in ("2.5.9", "1.13", "3.0", "3.0.0rc1", "10.0"):
        installed(version)
        with pytest.raises(ImportError, match=re.escape(f"needs torch>=2.6,<3; {version} is installed")):
            check_versions()


def test_a_package_that_is_not_installed_is_no_error_at_import():
    run_python(
        """
        import importlib.metadata, sys
        real = importlib.metadata.version
        def version(name):
            if name == "datasets":
                raise importlib.metadata.PackageNotFoundError(name)
            return real(name)
        importlib.metadata.version, sys.modules["datasets"] = version, None
        import hf_sparse_hopfield
        """
    )


# ---- Import hook ----


def test_importing_registers_lazily():
    for imports in ("hf_sparse_hopfield, transformers", "transformers, hf_sparse_hopfield"):
        run_python(
            f"""
            import sys, {imports}
            assert "torch" not in sys.modules and "transformers.modeling_utils" not in sys.modules
            from transformers.models.auto.configuration_auto import CONFIG_MAPPING
            assert "sparse_hopfield" in CONFIG_MAPPING
            """
        )
    run_python(
        """
        import transformers.models.auto.configuration_auto, transformers.masking_utils, hf_sparse_hopfield
        assert "sparse_hopfield" in transformers.models.auto.configuration_auto.CONFIG_MAPPING
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
        assert "sparse_hopfield" in ALL_ATTENTION_FUNCTIONS.valid_keys()
        """
    )


def test_the_package_alone_imports_no_library():
    loaded = run_python("import sys, hf_sparse_hopfield; print(*sys.modules)").split()
    assert not {name.partition(".")[0] for name in loaded} & {"torch", "numpy", "datasets", *LIBRARIES}


def test_modules_keep_their_source():
    """`inspect` and tracebacks read a module through its loader."""
    assert "class PreTrainedModel" in inspect.getsource(transformers.modeling_utils)


# ---- Wrapped methods ----


class Dense:
    def forward(self, x):
        return x


def doubled(original):
    def wrapper(self, x):
        return 2 * original(self, x)

    return wrapper


def test_a_method_is_wrapped_once():
    class Base(Dense):
        def forward(self, x):
            """The forward."""
            return x

    class Child(Base):
        pass

    original = Base.forward
    for _ in range(2):
        wrap_method(Base, "forward", doubled)
    assert Base().forward(1) == 2 and Base.forward.__doc__ == "The forward."
    assert original_method(Base, "forward") is original and original_method(Dense, "forward") is Dense.forward
    wrap_method(Child, "forward", doubled)  # around the original, not around the inherited wrapper
    assert Child().forward(1) == 2 and Child.forward is not Base.forward
    assert original_method(Child, "forward") is original


def test_a_class_method_stays_one():
    class Base:
        @classmethod
        def name(cls, suffix):
            return cls.__name__ + suffix

    wrap_method(Base, "name", lambda original: lambda cls, suffix: original(cls, suffix).upper())
    assert type("Child", (Base,), {}).name("!") == "CHILD!"
    assert original_method(Base, "name")(Base, "!") == "Base!"


def test_a_method_that_a_release_has_dropped_is_named():
    with pytest.raises(ImportError, match=r"wraps Dense\._gone, which .* does not have: transformers \d.*torch \d"):
        wrap_method(Dense, "_gone", doubled)


def test_the_documented_methods_are_wrapped():
    wrapped = {("transformers", "PreTrainedModel", name) for name in upstream._MODEL_WRAPPERS}
    wrapped |= {("transformers", "Trainer", name) for name in upstream._TRAINER_WRAPPERS}
    wrapped |= {(module, *method) for module, methods in upstream._ADAPTER_WRAPPERS.items() for method in methods}
    batching = "transformers.generation.continuous_batching"
    wrapped.add((f"{batching}.continuous_api", "ContinuousBatchingManager", "switch_to_cb_friendly_attn"))
    wrapped.add((f"{batching}.model_runner", "ModelRunner", "compute_batch"))
    wrapped.add(("transformers.generation.utils", "GenerationMixin", "_prepare_cache_for_generation"))
    documented = set(re.findall(r"^\| `(\w+\.\w+)` \| [^`|]", upstream.__doc__, re.MULTILINE))
    assert documented == {f"{owner}.{name}" for _, owner, name in wrapped}
    for module, owner, name in wrapped:
        owner = getattr(importlib.import_module(module), owner)
        method = getattr(getattr(owner, name), "__func__", getattr(owner, name))
        assert original_method(owner, name) is not method
        assert inspect.signature(method) == inspect.signature(original_method(owner, name))


def test_a_class_method_is_wrapped_once():
    class Named:
        @classmethod
        def made(cls, x):
            return cls.__name__, x

    class Child(Named):
        pass

    for _ in range(2):
        wrap_method(Named, "made", lambda original: lambda cls, x: original(cls, 2 * x))
    assert Named.made(1) == ("Named", 2) and Child.made(1) == ("Child", 2)


def test_continuous_batching_is_wrapped():
    wrapped = [
        (continuous_api.ContinuousBatchingManager, "switch_to_cb_friendly_attn"),
        (model_runner.ModelRunner, "compute_batch"),
    ]
    for owner, name in wrapped:
        assert f"| `{owner.__name__}.{name}` |" in upstream.__doc__
        assert original_method(owner, name) is not getattr(owner, name)


def test_serving_finds_sparse_classes_and_all_others():
    pytest.importorskip("uvicorn", reason="needs pip install 'transformers[serving]'")
    from transformers.cli.serving import model_manager

    namespace = model_manager.transformers
    assert namespace.SparseHopfieldLlamaForCausalLM is type(to_sparse_hopfield(tiny_model("llama")))
    assert namespace.LlamaForCausalLM is transformers.LlamaForCausalLM
    with pytest.raises(AttributeError, match="SparseHopfieldNothing"):
        _ = namespace.SparseHopfieldNothing


def test_the_outer_model_is_found_while_it_builds_another_one():
    found = []

    class Inner(transformers.PreTrainedModel):
        def __init__(self, config):
            super().__init__(config)
            found.append(upstream.model_under_construction(self))

    class Outer(transformers.PreTrainedModel):
        def __init__(self, config):
            super().__init__(config)
            self.inner = Inner(config)

    outer = Outer(transformers.BertConfig())
    Inner(transformers.BertConfig())
    assert found[0] is outer and found[1] is None


# ---- Class swap ----


def test_a_swap_can_be_undone():
    model = tiny_model("t5")
    model._weight_conversions = conversions = []
    configs = [module.config for module in model.modules() if hasattr(module, "config")]
    expected = tiny_output(model, tiny_inputs("t5"))
    with swap_to_sparse_class(model):
        assert type(model).__name__ == "SparseHopfieldT5ForConditionalGeneration"
        assert type(model.decoder.config) is type(model.config) is not type(configs[0])
        assert not hasattr(model, "_weight_conversions")
    assert type(model) is transformers.T5ForConditionalGeneration and model._weight_conversions is conversions
    now = [module.config for module in model.modules() if hasattr(module, "config")]
    assert len(now) == len(configs) and all(one is other for one, other in zip(now, configs, strict=True))
    assert torch.equal(tiny_output(model, tiny_inputs("t5")), expected)


def test_a_swap_that_fails_changes_nothing():
    model = tiny_model("t5")
    calls = []

    def convert(config):
        calls.append(config)
        if len(calls) == 2:
            raise KeyError("second")

    configs = [module.config for module in model.modules() if hasattr(module, "config")]
    with pytest.raises(KeyError, match="second"):
        upstream.swap_class(model, type(to_sparse_hopfield(tiny_model("t5"))), convert)
    now = [module.config for module in model.modules() if hasattr(module, "config")]
    assert type(model) is transformers.T5ForConditionalGeneration
    assert all(one is other for one, other in zip(now, configs, strict=True))


# ---- Private names ----


def test_attention_names():
    config = tiny_model("llava").config
    upstream.set_attention_name(config, "eager")
    assert upstream.attention_name(config) == upstream.attention_name(config.text_config) == "eager"
    upstream.set_own_attention_name(config, "sdpa")
    assert (upstream.attention_name(config), upstream.attention_name(config.text_config)) == ("sdpa", "eager")


def test_marks():
    module = nn.Linear(2, 2)
    assert not upstream.is_initialized(module) and not upstream.is_initialized(module.weight)
    upstream.mark_initialized(module)
    assert upstream.is_initialized(module)
    module._is_accelerate_prepared = True
    upstream.forget_preparation(module)
    upstream.forget_preparation(module)
    assert not hasattr(module, "_is_accelerate_prepared")


def test_captured_attentions_are_noticed():
    model = tiny_model("bert").base_model
    noticed = []
    handle = model.encoder.layer[0].register_forward_hook(
        lambda *_: noticed.append(upstream.attentions_are_captured())
    )
    model(**tiny_inputs("bert"))
    model(**tiny_inputs("bert"), output_attentions=True)
    handle.remove()
    assert noticed == [False, True] and not upstream.attentions_are_captured()


def test_mask_functions_are_recognised_or_not():
    utils = transformers.masking_utils
    causal, numbers = utils.causal_mask_function, torch.tensor([[0, 0, 1]])
    window = utils.sliding_window_causal_mask_function(4)
    assert upstream.mask_pattern(causal) == (True, None, None)
    assert upstream.mask_pattern(utils.bidirectional_mask_function) == (False, None, None)
    assert upstream.mask_pattern(window) == (True, 4, None)
    for inner, size in ((causal, None), (window, 4)):
        packed = utils.packed_sequence_compatibility_function(inner, torch.tensor([[0, 1, 0]]), numbers)
        older = utils.and_masks(inner, utils.packed_sequence_mask_function(numbers))  # transformers 5.20
        for function in (packed, older):
            is_causal, found, sequences = upstream.mask_pattern(function)
            assert (is_causal, found) == (True, size) and sequences is numbers
    for other in (
        lambda batch, head, query, key: key <= query,
        utils.and_masks(causal, lambda batch, head, query, key: key <= query),
        utils.or_masks(causal, causal),
        utils.and_masks(window, utils.sliding_window_overlay(2)),
        utils.and_masks(utils.packed_sequence_mask_function(numbers), utils.bidirectional_mask_function),
        utils.and_masks(utils.packed_sequence_mask_function(numbers), older),
        utils.sliding_window_overlay(2),
        utils.sliding_window_bidirectional_mask_function(2),
        utils.chunked_causal_mask_function(3, numbers),
        utils.padding_mask_function(numbers),
        utils.remap_positions_for_packed_sequence(causal, numbers),
        utils.add_offsets_to_mask_function(causal, 1, 0),
        None,
    ):
        assert upstream.mask_pattern(other) is None


def test_auto_classes_and_their_mappings():
    mappings = upstream.auto_model_mappings()
    assert mappings["AutoModelForMaskedLM"][transformers.BertConfig] is transformers.BertForMaskedLM
    assert {"AutoModel", "AutoModelForCausalLM", "AutoModelForTimeSeriesPrediction"} <= mappings.keys()
    assert "AutoConfig" not in mappings


def source_of(module: str) -> str:
    return Path(importlib.util.find_spec(module).origin).read_text(encoding="utf-8")


def documented_names() -> dict[str, str]:
    """The private names in the table of `upstream.py`, with the module that each is in."""
    return {
        name: module for module, name in re.findall(r"^\| `([\w.]+)` \| `(_\w+)` \|", upstream.__doc__, re.MULTILINE)
    }


def library_names() -> set[str]:
    """The private names in the modules of the libraries that we handle objects of, without those of torch."""
    words = {word for module in LIBRARY_MODULES for word in re.findall(r"\b_[A-Za-z]\w+", source_of(module))}
    return words - set(re.findall(r"\b_[A-Za-z]\w+", source_of("torch.nn.modules.module"))) - {"_C"}


LIBRARY_NAMES = library_names()


def names_in(path: Path) -> dict[str, int]:
    """The private names that a file imports from the libraries, or uses and a library has; each with its line."""
    found = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        imported, used = [], []
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in LIBRARIES:
            imported = [*node.module.split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            paths = [alias.name.split(".") for alias in node.names]
            imported = [part for parts in paths if parts[0] in LIBRARIES for part in parts]
        elif isinstance(node, ast.Attribute):
            used = [node.attr]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # getattr and the like
            used = [node.value]
        elif isinstance(node, ast.ClassDef):  # overrides
            used = [part.name for part in node.body if isinstance(part, ast.FunctionDef)]
        private = {name for name in imported if name.startswith("_")} | LIBRARY_NAMES.intersection(used)
        for name in private:
            found[name] = node.lineno
    return found


def test_the_search_finds_private_names(tmp_path):
    code = """
        from transformers import PreTrainedModel, _anything
        import accelerate._hidden.part
        class Model(PreTrainedModel):
            def _initialize_weights(self): return self.own._ours
        model.config._attn_implementation = getattr(model, "_weight_conversions", None)
    """
    (tmp_path / "file.py").write_text(textwrap.dedent(code))
    names = {"_anything", "_hidden", "_initialize_weights", "_attn_implementation", "_weight_conversions"}
    assert names_in(tmp_path / "file.py").keys() == names


def test_private_names_are_documented_and_there():
    assert names_in(Path(upstream.__file__)).keys() == documented_names().keys()
    for name, module in documented_names().items():
        assert re.search(rf"\b{name}\b", source_of(module)), f"{module} has no {name}"


def test_private_names_are_used_in_one_file_only():
    elsewhere = []
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        exempt = MODEL_INTERFACE if file.startswith("models/") else ()
        if file != "integration/upstream.py":
            elsewhere += [f"{file}:{line} {name}" for name, line in names_in(path).items() if name not in exempt]
    assert not elsewhere, "integration/upstream.py has, or needs, functions for these names"
