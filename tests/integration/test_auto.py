# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The model type `sparse_hopfield`: Auto classes, processors, remote code, pickle."""

import copy
import json
import pickle

import pytest
import torch
import transformers
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoProcessor, AutoTokenizer, pipeline

from hf_sparse_hopfield import to_sparse_hopfield
from hf_sparse_hopfield.integration.auto import as_sparse_class
from hf_sparse_hopfield.integration.sites import attention_sites

from ..processes import run_python
from ..tiny_models import SPECIFICATIONS, tiny_inputs, tiny_model, tiny_output


NAME = "sparse_hopfield"
LEARNED = {"alpha": 1.5, "learn_alpha": True, "learn_beta": True}


def test_other_heads_load_from_a_converted_checkpoint(tmp_path):
    model = to_sparse_hopfield(tiny_model("bert"), {**LEARNED, "layers": ["encoder.layer.1"]})
    model.save_pretrained(tmp_path)
    for cls, class_name in (
        (AutoModel, "SparseHopfieldBertModel"),
        (transformers.AutoModelForSequenceClassification, "SparseHopfieldBertForSequenceClassification"),
    ):
        loaded = cls.from_pretrained(tmp_path)
        assert type(loaded).__name__ == class_name
        body = loaded.base_model
        assert body.encoder.layer[0].attention.self.sparse_hopfield is None
        learned = body.encoder.layer[1].attention.self.sparse_hopfield.log_beta
        assert torch.equal(learned, model.bert.encoder.layer[1].attention.self.sparse_hopfield.log_beta)
    config = AutoConfig.from_pretrained(tmp_path)
    assert AutoModel.from_config(config).encoder.layer[1].attention.self.sparse_hopfield is not None


def test_without_the_plugin_loading_fails_and_trusting_the_checkpoint_loads_it(tmp_path):
    model = to_sparse_hopfield(tiny_model("bert"), LEARNED)
    model.save_pretrained(tmp_path / "trusted")
    # Without the few lines in the checkpoint, transformers does not know the model type at all.
    model.save_pretrained(tmp_path / "unknown")
    config = json.loads((tmp_path / "unknown" / "config.json").read_text())
    del config["auto_map"]
    (tmp_path / "unknown" / "config.json").write_text(json.dumps(config))
    result = run_python(
        """
        import sys, transformers
        for path, message in ((sys.argv[1], "trust_remote_code=True"), (sys.argv[2], "model type `sparse_hopfield`")):
            try:
                transformers.AutoConfig.from_pretrained(path)
            except ValueError as error:
                assert message in str(error), error
            else:
                raise AssertionError(f"{path} was loaded")
        import torch
        model = transformers.AutoModelForMaskedLM.from_pretrained(sys.argv[1], trust_remote_code=True)
        print(type(model).__name__, model.config.sparse_hopfield.alpha, model(torch.arange(9)[None]).logits.sum().item())
        assert type(transformers.AutoConfig.from_pretrained(sys.argv[2])) is type(model.config)
        """,
        tmp_path / "trusted",
        tmp_path / "unknown",
    )
    class_name, alpha, total = result.splitlines()[-1].split()[
        -3:
    ]  # the question whether to trust is on the same line
    assert (class_name, alpha) == ("SparseHopfieldBertForMaskedLM", "1.5")
    assert float(total) == pytest.approx(model(torch.arange(9)[None]).logits.sum().item(), rel=1e-4)


def bert_tokenizer(path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "rose", "is"]
    (path / "vocab.txt").write_text("\n".join(words))
    tokenizer = transformers.BertTokenizer(str(path / "vocab.txt"))
    tokenizer.save_pretrained(path)
    return tokenizer


def test_tokenizer_and_pipeline(tmp_path, caplog):
    model = to_sparse_hopfield(tiny_model("bert"))
    model.save_pretrained(tmp_path)
    tokenizer = bert_tokenizer(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert type(loaded) is type(tokenizer)
    assert loaded("a rose is a rose").input_ids == tokenizer("a rose is a rose").input_ids
    for source in ({"model": str(tmp_path)}, {"model": model, "tokenizer": loaded}):
        fill = pipeline("fill-mask", **source)
        assert type(fill.model).__name__ == "SparseHopfieldBertForMaskedLM"
        assert len(fill("a rose is a [MASK]")) == 5
    assert "is not supported" not in caplog.text
    (tmp_path / "tokenizer_config.json").unlink()
    assert type(AutoTokenizer.from_pretrained(tmp_path)) is type(tokenizer), "from the configuration alone"


def test_processors_are_found(tmp_path):
    to_sparse_hopfield(tiny_model("vit")).save_pretrained(tmp_path)
    processor = transformers.ViTImageProcessor(size={"height": 8, "width": 8})
    processor.save_pretrained(tmp_path)
    loaded = transformers.AutoImageProcessor.from_pretrained(tmp_path)
    assert type(loaded).__name__.startswith("ViTImageProcessor")
    saved = json.loads((tmp_path / "preprocessor_config.json").read_text())
    saved.pop("image_processor_type", None)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(saved))
    assert type(AutoProcessor.from_pretrained(tmp_path)).__name__.startswith("ViTImageProcessor")


def test_a_converted_class_is_never_dense():
    converted = type(to_sparse_hopfield(tiny_model("bert")))
    model = converted(transformers.BertConfig(**SPECIFICATIONS["bert"][2]))
    assert model.config._attn_implementation == NAME
    assert all(site.module.sparse_hopfield is not None for site in attention_sites(model))


def test_the_family_is_still_known():
    model = to_sparse_hopfield(tiny_model("whisper"))
    assert model.config.model_type == "whisper" and model.config.model_type == "sparse_hopfield"
    assert model.config.model_type != "bert" and str(model.config.model_type) == "sparse_hopfield"
    assert {"sparse_hopfield": 1}[model.config.model_type] == 1
    assert type(model.config.to_dict()["model_type"]) is str


@pytest.mark.parametrize("name", ["llama", "gptj"])
def test_deepcopy_and_pickle(name):
    inputs = tiny_inputs(name)
    for model in (tiny_model(name, NAME), to_sparse_hopfield(tiny_model(name), LEARNED)):
        expected = tiny_output(model, inputs)
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert type(other) is type(model)
            torch.testing.assert_close(tiny_output(other, inputs), expected)


def test_pickle_in_another_process(tmp_path):
    models = [to_sparse_hopfield(tiny_model(name), {"alpha": 1.5}) for name in ("llama", "gptj")]
    (tmp_path / "models.pickle").write_bytes(pickle.dumps(models))
    inputs = tiny_inputs("llama")
    result = run_python(
        """
        import pickle, sys, torch
        for model in pickle.load(open(sys.argv[1], "rb")):
            print(type(model).__name__, model(torch.tensor(eval(sys.argv[2]))).logits.sum().item())
        """,
        tmp_path / "models.pickle",
        inputs["input_ids"].tolist(),
    )
    for model, line in zip(models, result.splitlines(), strict=True):
        class_name, total = line.split()
        assert class_name == type(model).__name__
        assert float(total) == pytest.approx(tiny_output(model, inputs).sum().item(), rel=1e-3)


def test_a_broken_checkpoint_is_refused(tmp_path):
    to_sparse_hopfield(tiny_model("bert")).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for changes, message in (
        ({"base_model_type": "no_such_family"}, "base_model_type='no_such_family'"),
        ({"base_model_type": None}, "base_model_type=None"),
        ({"sparse_hopfield": {"alfa": 1.0}}, "unknown keys"),
    ):
        (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
        with pytest.raises(ValueError, match=message):
            AutoModelForMaskedLM.from_pretrained(tmp_path)


def test_names_of_classes_are_known_where_the_trainer_searches_them():
    name = type(to_sparse_hopfield(tiny_model("llama"))).__name__
    assert name in transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
    assert name not in transformers.models.auto.modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES.values()


def test_only_a_model_that_is_sparse_by_name_changes_its_class_for_a_while():
    for model, inside in (
        (tiny_model("bert", NAME), "SparseHopfieldBertForMaskedLM"),
        (tiny_model("bert"), "BertForMaskedLM"),
        (to_sparse_hopfield(tiny_model("bert")), "SparseHopfieldBertForMaskedLM"),
    ):
        before, config = type(model), model.config
        with pytest.raises(KeyError), as_sparse_class(model):
            assert type(model).__name__ == inside
            raise KeyError
        assert type(model) is before and model.config is config
