# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Loading a sparse model, and changing its attention."""

import copy
import json
import re
import shutil
import subprocess
import sys
import textwrap

import pytest
import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForImageTextToText,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    pipeline,
)

from hf_sparse_hopfield import to_dense, to_sparse_hopfield
from hf_sparse_hopfield.integration.sites import attention_sites

from ..processes import run_python
from ..tiny_models import tiny_config, tiny_inputs, tiny_model, tiny_output
from .converted import CALIBRATED, NAME, assert_equal
from .table import road


OTHERS = (
    "sdpa",
    "eager",
    "flash_attention_2",
    "flex_attention",
    "vllm",
    "paged|sdpa",
    "kernels-community/flash-attn2",
    "x",
)


def refused(match="to_dense"):
    return pytest.raises(ValueError, match=match)


@pytest.fixture(scope="module")
def composite(tmp_path_factory):
    path = tmp_path_factory.mktemp("llava")
    to_sparse_hopfield(tiny_model("llava"), {"alpha": 1.5}).save_pretrained(path)
    return path


@pytest.fixture
def loaded(checkpoint):
    """The model, loaded again, for tests that change it."""
    return AutoModelForMaskedLM.from_pretrained(checkpoint)


# ---- Another attention by name ----


@road('`from_pretrained(sparse, attn_implementation="sdpa")`, or any other name', "refused")
@pytest.mark.parametrize("cls", [AutoModelForMaskedLM, transformers.BertForMaskedLM])
def test_load_with_another_attention(checkpoint, cls):
    """A converted checkpoint is loaded with eight other names, through the Auto class and through the class of its family."""
    for name in (*OTHERS, {"": "sdpa"}):
        with refused(
            r"attn_implementation='.+' would run the sparse_hopfield model \w+ with dense attention.*to_dense"
        ):
            cls.from_pretrained(checkpoint, attn_implementation=name)
    for name in (None, NAME):
        assert cls.from_pretrained(checkpoint, attn_implementation=name).config.sparse_hopfield.alpha == 1.5


@road("the same through a configuration, `from_config` or a pipeline", "refused")
def test_load_with_another_attention_in_the_configuration(checkpoint):
    """The name is written into the loaded configuration, and passed to `from_config` and to `pipeline(model_kwargs=...)`."""
    config = AutoConfig.from_pretrained(checkpoint)
    with refused():
        AutoModel.from_config(config, attn_implementation="eager")
    config._attn_implementation = "sdpa"
    for load in (AutoModel.from_config, lambda config: AutoModel.from_pretrained(checkpoint, config=config)):
        with refused():
            load(config)
    with refused():
        AutoModel.from_config(AutoConfig.from_pretrained(checkpoint, attn_implementation="sdpa"))
    with refused():
        pipeline("fill-mask", str(checkpoint), model_kwargs={"attn_implementation": "sdpa"}, tokenizer=object())


@road('another attention for a part of a model: `attn_implementation={"text_config": "sdpa"}`', "refused")
def test_load_with_another_attention_for_a_part(composite):
    """A converted LLaVA is loaded with dicts that name its parts, and switched with them when it is loaded."""
    for names in ({"text_config": "sdpa"}, {"vision_config": "eager"}, {"text_config": "vllm", "": NAME}):
        with refused():
            AutoModelForImageTextToText.from_pretrained(composite, attn_implementation=names)
    model = AutoModelForImageTextToText.from_pretrained(composite)
    for switch in (
        lambda: model.set_attn_implementation({"text_config": "sdpa"}),
        lambda: model.set_attn_implementation({"text_config": {"": "sdpa"}, "vision_config": NAME}),
        lambda: model.model.language_model.set_attn_implementation("sdpa"),
        lambda: model.model.vision_tower.set_attn_implementation("eager"),
    ):
        with refused():
            switch()
    assert_equal(model, AutoModelForImageTextToText.from_pretrained(composite), "llava")


@road('`set_attn_implementation("sdpa")` on a converted model', "refused")
def test_switch_a_converted_model(loaded, converted):
    """The model and its base model are switched to eight other names; afterwards both are as before."""
    for model in (loaded, loaded.base_model):
        for name in OTHERS:
            with refused():
                model.set_attn_implementation(name)
        model.set_attn_implementation(NAME)
        model.set_attn_implementation(None)
    assert_equal(loaded, converted)


@road('`set_attn_implementation("sdpa")` on a model that is sparse by name, there and back', "equal")
def test_switch_a_model_that_is_sparse_by_name():
    """Its settings stay in the configuration: after sdpa and back it retrieves as before."""
    model, inputs = tiny_model("bert", NAME, sparse_hopfield=CALIBRATED), tiny_inputs("bert")
    expected = tiny_output(model, inputs)
    model.set_attn_implementation("sdpa")
    torch.testing.assert_close(tiny_output(model, inputs), tiny_output(tiny_model("bert"), inputs))
    model.set_attn_implementation(NAME)
    torch.testing.assert_close(tiny_output(model, inputs), expected)


@road("the same with learned alpha or beta, which would be lost", "refused")
def test_switch_a_model_that_has_learned():
    """A model that is sparse by name and learns beta is switched to sdpa, whole and in a part."""
    for name, other in (("bert", "sdpa"), ("llava", {"vision_config": "eager"})):
        model = tiny_model(name, NAME, sparse_hopfield={"learn_beta": True})
        with refused("would drop the alpha and beta that .* has learned.*to_dense"):
            model.set_attn_implementation(other)
        assert not attention_sites(to_dense(model))[0].is_sparse


@road('`model.config._attn_implementation = "sdpa"` on a live model', "refused")
def test_rename_the_attention_of_a_live_model(loaded):
    """The name is assigned in the configuration of a converted model and of one that is sparse by name; both are run."""
    for model in (loaded, tiny_model("bert", NAME)):
        model.config._attn_implementation = "sdpa"
        compiled = [torch.compile(model, backend="eager")] if model is loaded else []
        for run in (model, copy.deepcopy(model), *compiled):
            with pytest.raises(Exception, match="configuration now selects the attention 'sdpa'"):
                run(**tiny_inputs("bert"))
        model.set_attn_implementation(NAME)
        model(**tiny_inputs("bert"))


@road("Whisper with timestamps of tokens, for which transformers selects eager attention", "equal")
@pytest.mark.parametrize("by_name", [True, False])
def test_whisper_token_timestamps(by_name):
    """Tokens equal those without timestamps, cross attention is sparse, and the model is as before afterwards."""
    model = tiny_model("whisper", NAME) if by_name else to_sparse_hopfield(tiny_model("whisper"))
    special = {"alignment_heads": [[0, 0], [1, 1]], "no_timestamps_token_id": 50, "median_filter_width": 3}
    for option, value in {**special, "max_new_tokens": 6}.items():
        setattr(model.generation_config, option, value)
    features, config = tiny_inputs("whisper")["input_features"], model.model.config
    expected = model.generate(features, return_timestamps=True)
    result = model.generate(features, return_timestamps=True, return_token_timestamps=True)
    assert torch.equal(result["sequences"], expected) and result["token_timestamps"].shape == expected.shape
    assert model.model.config is config and config._attn_implementation == NAME


# ---- vLLM ----

VLLM = "vllm"


def vllm_base_init(config, trust_remote_code=False):
    """What `vllm.model_executor.models.transformers.base.Base.__init__` does to load a model (vLLM of August 2026)."""
    config.get_text_config()._attn_implementation = VLLM
    config.dtype = torch.get_default_dtype()
    with torch.device("meta"):
        return AutoModel.from_config(config=config, dtype=torch.float32, trust_remote_code=trust_remote_code)


@road("vLLM's transformers backend", "refused")
@pytest.mark.parametrize("registered", [True, False])
def test_vllm(checkpoint, composite, registered, monkeypatch):
    """The calls of vLLM's loader are made on converted checkpoints, with its attention registered; one sentence refuses."""
    if registered:
        functions = transformers.AttentionInterface._global_mapping
        monkeypatch.setitem(functions, VLLM, functions["sdpa"])
        assert vllm_base_init(tiny_config("bert")).config._attn_implementation == VLLM, "a dense model loads"
    for path in (checkpoint, composite):
        with refused() as error:
            vllm_base_init(AutoConfig.from_pretrained(path))
        assert re.fullmatch(
            r"attn_implementation='vllm' [^.]+ dense attention: [^.]+`hf_sparse_hopfield\.to_dense\(model\)`\.",
            str(error.value),
        )
        for names in (VLLM, {"": VLLM}):  # older releases
            with refused():
                AutoModel.from_config(AutoConfig.from_pretrained(path), attn_implementation=names)
        architecture = AutoConfig.from_pretrained(path).architectures[0]
        assert not hasattr(transformers, architecture), "vLLM looks it up there, and takes none of its own classes"


# ---- Another configuration ----


@road("`from_pretrained(sparse, config=dense_config)`", "refused")
def test_load_with_the_configuration_of_a_dense_model(checkpoint, tmp_path):
    """A converted checkpoint is loaded with a dense configuration, as an object and as a path, through both kinds of class."""
    dense = tiny_config("bert")
    dense.save_pretrained(tmp_path)
    for cls in (AutoModelForMaskedLM, transformers.BertForMaskedLM):
        for config in (dense, AutoConfig.from_pretrained(tmp_path)):
            with refused(
                "is a sparse_hopfield checkpoint, and the configuration given for it is one of a dense model"
            ):
                cls.from_pretrained(checkpoint, config=config)
    with refused("is a sparse_hopfield checkpoint"):
        transformers.BertForMaskedLM.from_pretrained(checkpoint, config=str(tmp_path))


@road("`BertForMaskedLM.from_pretrained(sparse)`: the dense class on a sparse checkpoint", "equal")
def test_load_as_the_class_of_the_family(checkpoint, converted, tmp_path):
    """The dense class loads it sparse; logits are equal, also after saving it again and loading that."""
    model = transformers.BertForMaskedLM.from_pretrained(checkpoint)
    assert_equal(model, converted)
    with refused():
        model.set_attn_implementation("sdpa")
    model.save_pretrained(tmp_path)
    assert_equal(AutoModelForMaskedLM.from_pretrained(tmp_path), converted)
    to_dense(model).save_pretrained(tmp_path / "dense")
    saved = json.loads((tmp_path / "dense" / "config.json").read_text())
    assert not {NAME, "base_model_type", "auto_map", "attn_implementation"} & saved.keys()


@road("round trips of the configuration: `to_dict`, `to_diff_dict`, `for_model`, `BertConfig.from_dict`", "equal")
def test_round_trips_of_the_configuration(checkpoint, converted):
    """The configuration goes through a dict in four ways; the model loaded with the result has equal logits."""
    config = AutoConfig.from_pretrained(checkpoint)
    for other in (
        type(config).from_dict(config.to_dict()),
        type(config).from_dict(json.loads(config.to_json_string())),
        AutoConfig.for_model(**config.to_dict()),
        transformers.BertConfig.from_dict(config.to_dict()),
    ):
        assert_equal(AutoModelForMaskedLM.from_pretrained(checkpoint, config=other), converted)


@road("a checkpoint without its `sparse_hopfield` settings", "refused")
def test_settings_missing_from_a_checkpoint(checkpoint, tmp_path):
    """`sparse_hopfield` is removed from config.json, or null; every class that could load it raises."""
    shutil.copytree(checkpoint, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config.pop(NAME)["alpha"] == 1.5
    for broken in (config, {**config, NAME: None}):
        (tmp_path / "config.json").write_text(json.dumps(broken))
        for cls in (AutoConfig, AutoModel, AutoModelForMaskedLM, type(AutoModel.from_pretrained(checkpoint))):
            with refused("no settings under 'sparse_hopfield'"):
                cls.from_pretrained(tmp_path)
        with refused("BertModel comes from a conversion, but its configuration has no sparse_hopfield settings"):
            transformers.BertModel.from_pretrained(tmp_path)


@road("settings cleared, set to None, deleted or replaced after conversion", "refused")
@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize("name", ["bert", "t5", "llava", "gptj"])
def test_settings_lost_after_conversion(name, by_name, tmp_path):
    """Four ways to lose the settings; running, saving, and building a model from that configuration raise."""
    if by_name:
        model = tiny_model(name, NAME, sparse_hopfield={"alpha": 1.5})
    else:
        model = to_sparse_hopfield(tiny_model(name), {"alpha": 1.5})
    kept = model.config.sparse_hopfield
    for lose in (
        lambda config: setattr(config, NAME, None),
        lambda config: delattr(config, NAME),
        lambda config: setattr(config, NAME, {}),
        lambda config: config.update({NAME: {"alpha": 2.0}}),
    ):
        lose(model.config)
        for use in (lambda: model(**tiny_inputs(name)), lambda: model.save_pretrained(tmp_path)):
            with pytest.raises(RuntimeError, match="but its configuration now has sparse_hopfield="):
                use()
        if not by_name and getattr(model.config, NAME, None) is None:
            for use in (lambda: type(model)(model.config), lambda: model.set_attn_implementation(NAME)):
                with refused("comes from a conversion, but its configuration has no sparse_hopfield settings"):
                    use()
        model.config.sparse_hopfield = kept
    model(**tiny_inputs(name))
    assert not list(tmp_path.iterdir())


@road("a Trainer saves a model whose settings are lost", "refused")
def test_trainer_saves_without_settings(loaded, tmp_path):
    """The settings are deleted during training; the Trainer's save raises, and writes no model."""
    batch = {
        **{key: value[0] for key, value in tiny_inputs("bert").items()},
        "labels": tiny_inputs("bert")["input_ids"][0],
    }

    class Forget(transformers.TrainerCallback):
        def on_step_end(self, *args, **kwargs):
            del loaded.config.sparse_hopfield

    arguments = transformers.TrainingArguments(
        tmp_path,
        max_steps=1,
        save_steps=1,
        report_to=[],
        per_device_train_batch_size=2,
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(loaded, arguments, train_dataset=[batch] * 2, callbacks=[Forget()])
    with pytest.raises(RuntimeError, match="now has sparse_hopfield=None"):
        trainer.train()
    assert not list(tmp_path.rglob("*.safetensors"))


@road("`model.config` of a converted model replaced by a dense one, then saved", "refused")
def test_configuration_replaced(loaded, tmp_path):
    """The model is saved with a configuration that is not its own."""
    loaded.config = tiny_config("bert")
    with refused("would not come back from a checkpoint as it is now"):
        loaded.save_pretrained(tmp_path)


@road("a sparse class made with a dense configuration, then saved", "equal")
def test_a_sparse_class_with_a_dense_configuration(converted, tmp_path):
    """`SparseHopfieldBertForMaskedLM(BertConfig())` is saved and loaded; logits are equal."""
    model = type(converted)(tiny_config("bert")).eval()
    model.save_pretrained(tmp_path)
    again = AutoModelForMaskedLM.from_pretrained(tmp_path)
    assert type(again) is type(converted)
    assert_equal(again, model)


# ---- Copies, parts, options ----


@road("`copy.deepcopy`, `torch.save` and `torch.load`, `.to(...)`", "equal")
def test_copies(converted, tmp_path):
    """Logits of each copy are equal, and each copy still refuses other attention and lost settings."""
    torch.save(converted, tmp_path / "model.pt")
    for other in (
        copy.deepcopy(converted),
        torch.load(tmp_path / "model.pt", weights_only=False),
        copy.deepcopy(converted).to(torch.float64).to("cpu", torch.float32),
    ):
        assert_equal(other, converted)
        with refused():
            other.set_attn_implementation("sdpa")
        other.config._attn_implementation = "sdpa"
        with pytest.raises(RuntimeError, match="now selects the attention 'sdpa'"):
            other(**tiny_inputs("bert"))
        other.set_attn_implementation(NAME)
        del other.config.sparse_hopfield
        with pytest.raises(RuntimeError, match="now has sparse_hopfield=None"):
            other(**tiny_inputs("bert"))
    assert converted.config.sparse_hopfield.alpha == 1.5


@road("`from_pretrained(..., dtype=..., device_map=...)`", "equal")
def test_options_of_loading(checkpoint, converted):
    """Logits are equal with `device_map` "auto" and "cpu", and with a dtype up to its precision."""
    for options in (
        {"device_map": "auto"},
        {"device_map": "cpu"},
        {"device_map": {"": "cpu"}, "low_cpu_mem_usage": True},
    ):
        assert_equal(AutoModelForMaskedLM.from_pretrained(checkpoint, **options), converted)
    inputs = tiny_inputs("bert")
    half = AutoModelForMaskedLM.from_pretrained(checkpoint, dtype=torch.bfloat16)
    expected = copy.deepcopy(converted).to(torch.bfloat16)
    torch.testing.assert_close(tiny_output(half, inputs), tiny_output(expected, inputs))


@road("`from_pretrained(..., quantization_config=...)`", "equal")
def test_quantized(checkpoint, converted, tmp_path):
    """With torchao, int8 weights: close to the sparse model and far from the dense one, and equal when saved and loaded."""
    quantization = pytest.importorskip("torchao.quantization")
    options = {
        "quantization_config": transformers.TorchAoConfig(quantization.Int8WeightOnlyConfig()),
        "device_map": "cpu",
    }
    model, inputs = AutoModelForMaskedLM.from_pretrained(checkpoint, **options), tiny_inputs("bert")
    result = tiny_output(model, inputs)
    torch.testing.assert_close(result, tiny_output(converted, inputs), rtol=0, atol=0.1)
    assert (result - tiny_output(tiny_model("bert"), inputs)).abs().max() > 0.3
    with refused():
        model.set_attn_implementation("sdpa")
    model.save_pretrained(tmp_path)
    assert_equal(AutoModelForMaskedLM.from_pretrained(tmp_path, device_map="cpu"), model)


@road("saving the base model of a converted model alone", "equal")
@pytest.mark.parametrize("name, part", [("bert", "bert"), ("llama", "model"), ("t5", "encoder")])
def test_save_a_part(name, part, tmp_path):
    """The base model is saved and loaded; hidden states are equal."""
    settings = {"alpha": 1.5, "beta": [0.5, 1.0, 2.0, 3.0]}
    base = getattr(to_sparse_hopfield(tiny_model(name), settings), part)
    base.save_pretrained(tmp_path)
    cls = transformers.T5EncoderModel if name == "t5" else AutoModel
    loaded = cls.from_pretrained(tmp_path, **({"key_mapping": {"^": "encoder."}} if name == "t5" else {}))
    inputs = {"input_ids": tiny_inputs(name)["input_ids"]}
    torch.testing.assert_close(loaded(**inputs)[0], base(**inputs)[0])


@road("saving a part whose settings are those of the model around it", "refused")
def test_save_a_part_without_its_settings(tmp_path):
    """The language model of a converted LLaVA is saved alone; with settings of its own it comes back equal."""
    model = to_sparse_hopfield(tiny_model("llava"), {"alpha": 1.5})
    part = model.model.language_model
    with refused("LlamaModel would not come back from a checkpoint as it is now.*Save the whole model"):
        part.save_pretrained(tmp_path)
    for convert in (to_dense, to_sparse_hopfield):
        with refused("LlamaModel is a part of a converted model"):
            convert(part)
    model.config.text_config.sparse_hopfield = {"alpha": 1.5}
    model.set_attn_implementation(NAME)
    part.save_pretrained(tmp_path)
    tokens = tiny_inputs("llama")["input_ids"]
    torch.testing.assert_close(AutoModel.from_pretrained(tmp_path)(tokens)[0], part(tokens)[0])


@road("saving a model that is sparse in some parts by name", "refused")
def test_save_a_model_that_is_sparse_in_parts(tmp_path):
    """A LLaVA with `{"text_config": "sparse_hopfield", "vision_config": "sdpa"}` is saved: the names would be lost."""
    model = tiny_model("llava", {"text_config": NAME, "vision_config": "sdpa"})
    with refused(r"is sparse in some parts.*SparseHopfieldConfig\(layers="):
        model.save_pretrained(tmp_path)
    model.set_attn_implementation(NAME)
    model.save_pretrained(tmp_path)


@road("an encoder-decoder model composed of converted checkpoints", "equal")
def test_composed_of_converted_checkpoints(checkpoint, tmp_path):
    """`from_encoder_decoder_pretrained` on converted checkpoints is saved and loaded; logits are equal."""
    model = transformers.EncoderDecoderModel.from_encoder_decoder_pretrained(checkpoint, checkpoint).eval()
    assert all(site.module.sparse_hopfield is not None for site in attention_sites(model))
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    tokens = {f"{name}input_ids": tiny_inputs("bert")["input_ids"] for name in ("", "decoder_")}
    torch.testing.assert_close(loaded(**tokens).logits, model(**tokens).logits)


# ---- Processes of their own ----


@road("a script that defines a model subclass after `from transformers import *`", "equal")
@pytest.mark.parametrize(
    "module",
    [
        "transformers.models.auto.modeling_auto",
        pytest.param("transformers", marks=pytest.mark.slow),
    ],  # imports everything
)
def test_subclass_in_a_script(module, tmp_path):
    """A real script defines the subclass, converts, saves and loads it; logits of the loaded models are equal."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            f"""
            from {module} import *
            import torch
            from transformers import AutoModelForMaskedLM, BertConfig, BertForMaskedLM
            from hf_sparse_hopfield import to_sparse_hopfield

            class MyModel(BertForMaskedLM):
                pass

            config = BertConfig(
                hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, vocab_size=99
            )
            model = MyModel(config).eval()
            model = to_sparse_hopfield(model, {{"alpha": 1.5}})
            tokens = torch.arange(9)[None]
            expected = model(tokens).logits
            model.save_pretrained("saved")
            for cls in (type(model), MyModel, AutoModelForMaskedLM):
                torch.testing.assert_close(cls.from_pretrained("saved")(tokens).logits, expected)
            MyModel._from_config(config, attn_implementation="sparse_hopfield")
            print(type(model).__name__)
            """
        )
    )
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip().endswith("SparseHopfieldMyModel")


@road("loading a sparse checkpoint where this package is not installed", "refused")
def test_without_the_package(checkpoint, composite):
    """In a process that cannot import the package: Auto classes, trusted remote code, the dense class, a pipeline."""
    told = run_python(
        """
        import sys

        class NotInstalled:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] == "hf_sparse_hopfield":
                    raise ModuleNotFoundError(f"No module named {name!r}", name=name)

        sys.meta_path.insert(0, NotInstalled())
        import transformers

        path, composite = sys.argv[1:]
        for load, message in (
            (lambda: transformers.AutoConfig.from_pretrained(path), "trust_remote_code=True"),
            (lambda: transformers.AutoModel.from_pretrained(path), "trust_remote_code=True"),
            (lambda: transformers.AutoModel.from_pretrained(path, trust_remote_code=False), "trust_remote_code=True"),
            (lambda: transformers.AutoModel.from_pretrained(path, trust_remote_code=True), "pip install hf_sparse_hopfield"),
            (lambda: transformers.pipeline("fill-mask", path), "trust_remote_code=True"),
            (lambda: transformers.BertForMaskedLM.from_pretrained(path), 'attn_implementation="sparse_hopfield"` is not'),
            (
                lambda: transformers.LlavaForConditionalGeneration.from_pretrained(composite),
                'attn_implementation="sparse_hopfield"` is not',
            ),
        ):
            try:
                load()
            except (ValueError, ImportError) as error:
                assert message in str(error), error
            else:
                raise AssertionError(f"loaded: {message}")
        print("all refused")
        """,
        checkpoint,
        composite,
    )
    assert told.endswith("all refused")
