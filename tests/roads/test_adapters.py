# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Adapters of peft."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from peft import (
    IA3Config,
    LoraConfig,
    PrefixTuningConfig,
    PromptTuningConfig,
    get_peft_model,
    set_peft_model_state_dict,
)
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
)

from hf_sparse_hopfield import calibrate, to_sparse_hopfield

from ..hub.server import WRITE_TOKEN, LoopbackHub
from ..tiny_models import sharpened, tiny_model
from .table import road


ROOT = Path(__file__).parents[2]
LEARNED = {"alpha": 1.5, "learn_alpha": True, "learn_beta": True}
FIXED = {"alpha": 1.5, "beta": 0.4, "layers": [1]}


def lora(**changes):
    options = {"task_type": "SEQ_CLS", "target_modules": ["query", "value"], "r": 2, "init_lora_weights": False}
    return LoraConfig(**{**options, **changes})


def disturbed(model):
    """The model with adapters that make a difference, as after training."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Adapters of every kind on bases that were made sparse in this process, and the logits they give."""
    torch.manual_seed(0)
    folder, expected = tmp_path_factory.mktemp("adapters"), {}
    input_ids = torch.randint(3, 97, (4, 12))
    config = BertConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40, num_labels=3
    )
    sharpened(BertForSequenceClassification(config)).save_pretrained(folder / "dense")
    tiny_model("llama").save_pretrained(folder / "dense_llama")

    def dense(**kwargs):
        return AutoModelForSequenceClassification.from_pretrained(folder / "dense", **kwargs)

    def keep(name, model, save_as=None):
        with torch.no_grad():
            logits = model.eval()(input_ids=input_ids).logits
        expected[name] = {"input_ids": input_ids, "logits": logits}
        model.save_pretrained(folder / (name if save_as is None else save_as))

    calibrated, _ = calibrate(dense(), [{"input_ids": input_ids}], alpha=1.5, refine_steps=0, progress=False)
    keep("converted", get_peft_model(calibrated, lora()))
    with_settings = dense().config
    with_settings.sparse_hopfield = FIXED
    keep("by_name", get_peft_model(dense(config=with_settings, attn_implementation="sparse_hopfield"), lora()))
    keep("taskless", get_peft_model(to_sparse_hopfield(dense(), FIXED), lora(task_type=None)))
    to_sparse_hopfield(dense(), FIXED).save_pretrained(folder / "sparse")
    on_disk = AutoModelForSequenceClassification.from_pretrained(folder / "sparse")
    keep("on_sparse", get_peft_model(on_disk, lora()))
    added = to_sparse_hopfield(dense(), FIXED)
    added.add_adapter(lora(task_type=None))
    keep("added", added)
    ia3 = IA3Config(task_type="SEQ_CLS", target_modules=["key", "value"], feedforward_modules=[])
    keep("ia3", disturbed(get_peft_model(to_sparse_hopfield(dense(), FIXED), ia3)))
    prompt = PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3)
    keep("prompt", get_peft_model(to_sparse_hopfield(dense(), FIXED), prompt))
    llama = to_sparse_hopfield(AutoModelForCausalLM.from_pretrained(folder / "dense_llama"), FIXED)
    keep("prefix", get_peft_model(llama, PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)))
    llama = AutoModelForCausalLM.from_pretrained(folder / "dense_llama", attn_implementation="sparse_hopfield")
    keep("llama", get_peft_model(llama, lora(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"])))
    two = get_peft_model(to_sparse_hopfield(dense(), LEARNED), lora())
    two.add_adapter("second", lora())
    two.set_adapter("second")
    keep("two/second", disturbed(two), "two")

    trained = get_peft_model(to_sparse_hopfield(dense(), LEARNED), lora())
    samples = [{"input_ids": row, "labels": i % 3} for i, row in enumerate(input_ids)]
    arguments = TrainingArguments(
        str(folder / "trained"), max_steps=4, save_steps=2, learning_rate=0.1, report_to=[], disable_tqdm=True
    )
    Trainer(trained, arguments, train_dataset=samples).train()
    keep("trained", trained)
    trained.load_adapter(str(folder / "trained" / "checkpoint-2"), "default")
    with torch.no_grad():
        logits = trained.eval()(input_ids=input_ids).logits
    expected["trained/checkpoint-2"] = {"input_ids": input_ids, "logits": logits}
    torch.save(expected, folder / "expected.pt")
    return folder


def loaded(folder, home, plugin, address="http://127.0.0.1:9"):
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "TRANSFORMERS_"))}
    environment |= {"HF_ENDPOINT": address, "HF_HOME": str(home), "HF_TOKEN": WRITE_TOKEN, "HF_HUB_DISABLE_XET": "1"}
    command = [sys.executable, "-m", "tests.roads.load_adapters", str(folder), str(int(plugin))]
    done = subprocess.run(
        command, cwd=ROOT, env={**environment, "NO_PROXY": "127.0.0.1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def walked(folder, tmp_path_factory):
    """What became of each way in a new process that imports this package."""
    with LoopbackHub() as hub:
        return loaded(folder, tmp_path_factory.mktemp("home"), True, hub.address)


def assert_equal(outcome, class_name="SparseHopfieldBertForSequenceClassification"):
    assert "error" not in outcome, outcome["error"]
    assert outcome["attention"] == "sparse_hopfield" and outcome["class"] == class_name
    assert outcome["difference"] < 1e-5


def assert_refused(outcome, *words):
    assert all(word in outcome["error"] for word in words), outcome


def test_the_adapters_tell_sparse_from_dense(folder):
    """Without the settings of their base, these adapters give other logits."""
    expected = torch.load(folder / "expected.pt", weights_only=True)
    dense = AutoModelForSequenceClassification.from_pretrained(folder / "dense")
    adapted = get_peft_model(dense, lora())
    weights = load_file(folder / "converted" / "adapter_model.safetensors")
    set_peft_model_state_dict(adapted, weights)
    with torch.no_grad():
        logits = adapted.eval()(input_ids=expected["converted"]["input_ids"]).logits
    assert (logits - expected["converted"]["logits"]).abs().max() > 1e-2


@road("`AutoPeftModelFor...` on an adapter whose base was made sparse and calibrated in memory", "equal")
def test_auto_peft_model(walked):
    """The adapter is saved, and loaded in a new process; logits are equal."""
    assert_equal(walked["converted AutoPeftModel"])
    assert_equal(walked["two/second AutoPeftModel"])


@road("`AutoModelFor...` and the class of the family on such an adapter", "equal")
def test_auto_model(walked):
    """The adapter is loaded in a new process with transformers' own integration of peft; logits are equal."""
    assert_equal(walked["converted AutoModel"])
    assert_equal(walked["converted class"])
    assert_equal(walked["llama AutoModel"], "SparseHopfieldLlamaForCausalLM")


@road("`pipeline(model=adapter)`", "equal")
def test_pipeline(walked):
    """A pipeline is made from the adapter's folder in a new process; the logits of its model are equal."""
    assert_equal(walked["converted pipeline"])


@road('adapter on a base that is sparse by name, `attn_implementation="sparse_hopfield"`', "equal")
def test_by_name(walked):
    """The base had its settings in `config.sparse_hopfield`, one layer dense; it comes back with the same logits."""
    assert_equal(walked["by_name AutoPeftModel"])
    assert_equal(walked["by_name AutoModel"])


@road(
    "`PeftModel.from_pretrained(model, adapter)` with a base that was converted with the adapter's settings", "equal"
)
def test_onto_a_converted_base(walked):
    """The line that errors advise, `to_sparse_hopfield(model, PeftConfig...sparse_hopfield)`; logits are equal."""
    assert_equal(walked["converted PeftModel on converted"])


@road("`PeftModel.from_pretrained(dense_model, adapter)`, `dense_model.load_adapter(adapter)`", "refused")
def test_onto_a_dense_base(walked):
    """The error names the line that converts the base; also for a second adapter of a dense model."""
    line = "to_sparse_hopfield(model, PeftConfig.from_pretrained(adapter).sparse_hopfield)"
    for way in ("PeftModel on dense", "load_adapter on dense", "second on dense"):
        assert_refused(walked[f"converted {way}"], "BertForSequenceClassification is dense", line)


@road("weights of a sparse adapter loaded into an adapter of a dense model, as when training resumes", "refused")
def test_into_an_adapter_of_a_dense_base(walked):
    """`PeftModel.load_adapter` with the name of an adapter that exists, which the Trainer calls to resume."""
    assert_refused(walked["converted weights alone"], "BertForSequenceClassification is dense")


@road("adapter on a base that is sparse with other settings", "refused")
def test_onto_other_settings(walked):
    """The base has alpha = 1.5 but was not calibrated; the error names the first layer that differs."""
    assert_refused(walked["converted PeftModel on other settings"], "layer.0.attention.self' has beta=1.0 instead of")


@road("`AutoPeftModelFor....from_pretrained(adapter, attn_implementation=...)`", "equal")
def test_attention_given_by_name(walked):
    """`"sparse_hopfield"` gets the adapter's settings and equal logits; `"eager"` is refused."""
    assert_equal(walked["converted by name"], "BertForSequenceClassification")
    assert_refused(walked["converted eager"], "attn_implementation='eager' cannot be used")


@road("adapters that the Trainer saves: checkpoints and the final one, with learned alpha and beta", "equal")
def test_trained(folder, walked):
    """The Trainer trains LoRA, alpha and beta for some steps; both come back in a new process with equal logits."""
    assert_equal(walked["trained/checkpoint-2 AutoPeftModel"])
    assert_equal(walked["trained AutoPeftModel"])
    assert_equal(walked["trained AutoModel"])
    weights = load_file(folder / "trained" / "adapter_model.safetensors")
    betas = [weight for name, weight in weights.items() if name.endswith("log_beta")]
    assert len(betas) == 2 and all(beta.abs().max() > 1e-3 for beta in betas)


@road("adapter without a task, loaded with `AutoPeftModel`", "equal")
def test_without_a_task(walked):
    """peft loads the base through the Auto class that the adapter names; logits are equal."""
    assert_equal(walked["taskless AutoPeftModel"])


@road("adapter on a sparse checkpoint on disk", "equal")
def test_on_a_sparse_checkpoint(walked):
    """The base is sparse by itself; AutoPeftModel, AutoModel and PeftModel give equal logits."""
    for way in ("AutoPeftModel", "AutoModel", "PeftModel on sparse"):
        assert_equal(walked[f"on_sparse {way}"])


@road("`model.add_adapter(...)` and `model.save_pretrained(...)`, without a `PeftModel`", "equal")
def test_added(walked):
    """transformers saves the adapter; in a new process logits are equal."""
    assert_equal(walked["added AutoModel"])


@road("several adapters in one model", "equal")
def test_several(walked):
    """Two adapters, each with its own learned alpha and beta; the second one is loaded beside the first."""
    assert_equal(walked["two/second second of two"])


@road("IA3, prompt tuning, prefix tuning", "equal")
def test_other_adapters(walked):
    """Each is saved on a base that was made sparse in memory; in a new process logits are equal."""
    assert_equal(walked["ia3 AutoPeftModel"])
    assert_equal(walked["prompt AutoPeftModel"])
    assert_equal(walked["prefix AutoPeftModel"], "SparseHopfieldLlamaForCausalLM")


@road("adapter that is loaded and saved again, or pushed to the Hub and loaded from there", "equal")
def test_again(walked):
    """The Hub is a server on the loopback interface; logits are equal."""
    assert_equal(walked["converted saved again"])
    assert_equal(walked["converted pushed"])


@road("`merge_and_unload()` and `save_pretrained(...)`", "equal")
def test_merged(walked):
    """The merged model is saved as a sparse checkpoint, learned alpha and beta included; logits are equal."""
    assert_equal(walked["converted merged"])
    assert_equal(walked["trained merged"])


@road("an adapter of a sparse base in a process that does not import this package", "refused")
def test_without_the_plugin(folder, tmp_path):
    """Every way to load every adapter, in a new process without the import: peft's error says what to import."""
    outcomes = loaded(folder, tmp_path, False)
    assert len(outcomes) > 20
    for way, outcome in outcomes.items():
        # a sparse checkpoint says itself what it needs, before the adapter is read
        reason = (
            "trust_remote_code" if way in ("on_sparse AutoModel", "on_sparse PeftModel on sparse") else "import hf_"
        )
        assert_refused(outcome, reason)
