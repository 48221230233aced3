# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Loads the adapters of `test_adapters.py` in a process of its own, in every way: `python -m tests.roads.load_adapters
folder plugin`. Prints one line of JSON: what became of each way. Imports this package only if `plugin` is 1."""

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import torch


def load(folder: Path, plugin: bool) -> dict[str, dict[str, Any]]:
    """What became of each way to load each adapter: the error, or how far the logits are from the expected ones."""
    if plugin:
        import hf_sparse_hopfield  # noqa: F401
    import peft
    import transformers
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    def auto(adapter, **kwargs):
        return peft.AutoPeftModelForSequenceClassification.from_pretrained(adapter, **kwargs)

    def onto(base, adapter):
        return PeftModel.from_pretrained(AutoModelForSequenceClassification.from_pretrained(folder / base), adapter)

    def load_adapter(adapter):
        model = AutoModelForSequenceClassification.from_pretrained(folder / "dense")
        model.load_adapter(adapter)
        return model

    def converted(adapter, settings=None):
        base = AutoModelForSequenceClassification.from_pretrained(folder / "dense")
        settings = settings or peft.PeftConfig.from_pretrained(adapter).sparse_hopfield
        return PeftModel.from_pretrained(hf_sparse_hopfield.to_sparse_hopfield(base, settings), adapter)

    def pipeline(adapter):
        tokenizer = transformers.BertTokenizer(vocab={f"w{i}": i for i in range(98)} | {"[UNK]": 98})
        return transformers.pipeline("text-classification", model=str(adapter), tokenizer=tokenizer).model

    def resaved(adapter):
        auto(adapter).save_pretrained(folder / "again")
        return auto(folder / "again")

    def merged(adapter):
        auto(adapter).merge_and_unload().save_pretrained(folder / "merged")
        return AutoModelForSequenceClassification.from_pretrained(folder / "merged")

    def pushed(adapter):
        auto(adapter).push_to_hub("me/adapter")
        return auto("me/adapter")

    def second(adapter):
        model = auto(adapter)
        model.load_adapter(adapter / "second", "second")
        model.set_adapter("second")
        return model

    def second_onto_dense(adapter):
        model = peft.get_peft_model(
            AutoModelForSequenceClassification.from_pretrained(folder / "dense"),
            peft.LoraConfig(target_modules=["query"]),
        )
        model.load_adapter(adapter, "second")

    def into_dense(adapter):
        base = AutoModelForSequenceClassification.from_pretrained(folder / "dense")
        model = peft.get_peft_model(base, peft.LoraConfig(target_modules=["query", "value"], r=2))
        model.load_adapter(adapter, "default")

    ways = {
        ("converted", "AutoPeftModel"): auto,
        ("converted", "AutoModel"): AutoModelForSequenceClassification.from_pretrained,
        ("converted", "class"): transformers.BertForSequenceClassification.from_pretrained,
        ("converted", "pipeline"): pipeline,
        ("converted", "PeftModel on dense"): lambda adapter: onto("dense", adapter),
        ("converted", "load_adapter on dense"): load_adapter,
        ("by_name", "AutoPeftModel"): auto,
        ("by_name", "AutoModel"): AutoModelForSequenceClassification.from_pretrained,
        ("trained/checkpoint-2", "AutoPeftModel"): auto,
        ("trained", "AutoPeftModel"): auto,
        ("trained", "AutoModel"): AutoModelForSequenceClassification.from_pretrained,
        ("taskless", "AutoPeftModel"): peft.AutoPeftModel.from_pretrained,
        ("on_sparse", "AutoPeftModel"): auto,
        ("on_sparse", "AutoModel"): AutoModelForSequenceClassification.from_pretrained,
        ("on_sparse", "PeftModel on sparse"): lambda adapter: onto("sparse", adapter),
        ("added", "AutoModel"): AutoModelForSequenceClassification.from_pretrained,
        ("ia3", "AutoPeftModel"): auto,
        ("prompt", "AutoPeftModel"): auto,
        ("prefix", "AutoPeftModel"): peft.AutoPeftModelForCausalLM.from_pretrained,
        ("llama", "AutoModel"): AutoModelForCausalLM.from_pretrained,
        ("two/second", "second of two"): lambda adapter: second(adapter.parent),
        ("two/second", "AutoPeftModel"): auto,
    }
    if plugin:
        ways |= {
            ("converted", "PeftModel on converted"): converted,
            ("converted", "PeftModel on other settings"): lambda adapter: converted(adapter, {"alpha": 1.5}),
            ("converted", "second on dense"): second_onto_dense,
            ("converted", "weights alone"): into_dense,
            ("converted", "saved again"): resaved,
            ("converted", "merged"): merged,
            ("trained", "merged"): merged,
            ("converted", "pushed"): pushed,
            ("converted", "by name"): lambda adapter: auto(adapter, attn_implementation="sparse_hopfield"),
            ("converted", "eager"): lambda adapter: auto(adapter, attn_implementation="eager"),
        }
    expected = torch.load(folder / "expected.pt", weights_only=True)
    return {" ".join(way): walk(load, folder / way[0], expected[way[0]]) for way, load in ways.items()}


def walk(load, adapter: Path, expected: dict[str, torch.Tensor]) -> dict[str, Any]:
    try:
        model = load(adapter).eval()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    with torch.no_grad():
        logits = model(input_ids=expected["input_ids"]).logits
    return {
        "class": type(base).__name__,
        "attention": base.config._attn_implementation,
        "difference": (logits - expected["logits"]).abs().max().item(),
        "trainable": sum(parameter.requires_grad for parameter in model.parameters()),
    }


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        result = load(Path(sys.argv[1]), plugin=sys.argv[2] == "1")
    print(json.dumps(result))
