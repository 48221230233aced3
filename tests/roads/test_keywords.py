# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What reaches the attention: packed sequences, keywords of families, batches that broadcast, integer softmax."""

import copy

import pytest
import torch
import torch.nn.functional as F
from transformers import (
    CONFIG_MAPPING,
    DataCollatorWithFlattening,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

from hf_sparse_hopfield import to_sparse_hopfield

from ..integration.eager_oracle import entmax_for_softmax
from ..tiny_families import family_config, model_class_of, tiny_family
from ..tiny_models import sharpened, tiny_inputs, tiny_model, tiny_output
from .table import road


NAME = "sparse_hopfield"
PLAIN = {"report_to": "none", "disable_tqdm": True, "use_cpu": True, "save_strategy": "no", "logging_steps": 1}
SGD = {"optim": "sgd", "learning_rate": 0.1, "lr_scheduler_type": "constant", "max_grad_norm": 0.0}


def sequences(name: str, lengths=(6, 9, 2, 7)) -> list[torch.Tensor]:
    return [tiny_inputs(name, batch=1, length=length, seed=length)["input_ids"][0] for length in lengths]


def apart(model, rows: list[torch.Tensor]) -> torch.Tensor:
    """The logits of sequences that run one by one, in one row."""
    return torch.cat([tiny_output(model, {"input_ids": row[None]}) for row in rows], 1)


def loss_apart(model, rows: list[torch.Tensor]) -> torch.Tensor:
    """The mean loss over the tokens of sequences that run one by one."""
    losses = [F.cross_entropy(model(row[None]).logits[0, :-1], row[1:], reduction="none") for row in rows]
    return torch.cat(losses).mean()


COLLATED = {
    "positions": {},
    "cumulative lengths": {"return_flash_attn_kwargs": True},
    "seq_idx": {"return_seq_idx": True},
    "all": {"return_seq_idx": True, "return_flash_attn_kwargs": True},
}


def flattened(rows: list[torch.Tensor], collated: str) -> dict[str, torch.Tensor]:
    """The sequences in one row, as a collator makes it."""
    batch = DataCollatorWithFlattening(**COLLATED[collated])([{"input_ids": row} for row in rows])
    del batch["labels"]
    return batch


@road("`DataCollatorWithFlattening`, also with `return_seq_idx` and `return_flash_attn_kwargs`", "equal")
@pytest.mark.parametrize("collated", COLLATED)
@pytest.mark.parametrize("name", ["llama", "mistral", "bert"])
def test_flattened_sequences(name, collated):
    """Logits of flattened rows equal those of the sequences alone, with and without a cache, causal, windowed and not."""
    model, rows = tiny_model(name, NAME), sequences(name)
    batch = flattened(rows, collated)
    for options in ({}, {"use_cache": False}):
        torch.testing.assert_close(tiny_output(model, {**batch, **options}), apart(model, rows))


@road("`Trainer` with `DataCollatorWithFlattening(return_seq_idx=True)`", "equal")
@pytest.mark.parametrize("name", ["llama", "gptj"])
def test_trainer_with_flattening(name, tmp_path):
    """Three steps and an evaluation on flattened rows; losses equal those of a plain loop over the sequences alone."""
    model, rows = tiny_model(name, NAME), sequences(name)
    other = copy.deepcopy(model)
    data = [{"input_ids": row} for row in rows]
    trainer = Trainer(
        model,
        TrainingArguments(
            str(tmp_path), **PLAIN, **SGD, max_steps=3, per_device_train_batch_size=4, per_device_eval_batch_size=4
        ),
        train_dataset=data,
        eval_dataset=data,
        data_collator=DataCollatorWithFlattening(return_seq_idx=True, return_flash_attn_kwargs=True),
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    for loss in losses:
        expected = loss_apart(other, rows)
        assert loss == pytest.approx(expected.item(), abs=2e-4)  # the Trainer rounds to four digits
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
    assert trainer.evaluate()["eval_loss"] == pytest.approx(loss_apart(other, rows).item(), abs=1e-4)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"<pad>": 0, "<s>": 1, "</s>": 2, **{f"w{number}": number for number in range(3, 99)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>")


@road("TRL's `SFTTrainer(packing=True)`", "equal")
@pytest.mark.parametrize("strategy", ["bfd", "wrapped"])
def test_sft_trainer_with_packing(strategy, tmp_path):
    """Three packed steps of TRL; losses equal those of a plain loop over the sequences alone (`wrapped`: over its blocks)."""
    trl = pytest.importorskip("trl")
    from datasets import Dataset

    model = tiny_model("llama", NAME)
    other = copy.deepcopy(model)
    seen = []
    model.register_forward_pre_hook(lambda _, __, kwargs: seen.append(kwargs), with_kwargs=True)
    arguments = {**PLAIN, **SGD, "bf16": False, "gradient_checkpointing": False, "per_device_train_batch_size": 2}
    trainer = trl.SFTTrainer(
        model,
        trl.SFTConfig(str(tmp_path), **arguments, max_steps=3, packing=True, packing_strategy=strategy, max_length=16),
        train_dataset=Dataset.from_list([{"input_ids": row.tolist()} for row in sequences("llama", range(3, 15))]),
        processing_class=tiny_tokenizer(),
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    assert len(losses) == len(seen) == 3
    for loss, batch in zip(losses, seen, strict=True):
        if strategy == "bfd":
            starts = batch["cu_seq_lens_q"].tolist()
            rows = [batch["input_ids"][0, a:b] for a, b in zip(starts, starts[1:], strict=False)]
            assert len(rows) > 2
        else:
            rows = [row[mask.bool()] for row, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)]
        expected = loss_apart(other, rows)
        assert loss == pytest.approx(expected.item(), abs=2e-4)
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()


@road("packed sequences in a family that computes its own softmax and makes no mask from positions", "refused")
@pytest.mark.parametrize("collated", COLLATED)
@pytest.mark.parametrize("name", ["bloom", "mpnet", "gptj"])
def test_packing_that_a_patched_family_would_mix(name, collated):
    """Flattened rows raise before the model runs; GPT-J, which masks by positions, raises only if it has a cache."""
    model, rows = tiny_model(name, NAME), sequences(name)
    batch = flattened(rows, collated)
    advice = "pass use_cache=False and position_ids" if name == "gptj" else "pad them instead"
    with pytest.raises(ValueError, match=f"packs several sequences into a row.*would mix: {advice}"):
        model(**batch)
    if name == "gptj":
        torch.testing.assert_close(tiny_output(model, {**batch, "use_cache": False}), apart(model, rows))
    one = DataCollatorWithFlattening(**COLLATED[collated])([{"input_ids": rows[0]}])
    model(**one)
    model.set_attn_implementation("eager")
    model(**batch)  # a dense model is left alone


def sparse_and_eager(model_type: str, **changes):
    models = []
    for implementation in (NAME, "eager"):
        torch.manual_seed(0)
        config = family_config(model_type)
        config.update(changes)
        model = model_class_of(model_type)._from_config(config, attn_implementation=implementation)
        models.append(sharpened(model, 4.0).eval())
    return models


FAMILIES = {
    "janus": {"vision_feature_layer": -1, "vision_feature_select_strategy": "default"},
    "diffusion_gemma": {"image_position_ids": torch.zeros(2, 4, 2, dtype=torch.long)},
    "inkling2_text": {},
}


@road(
    "a family whose attention gets keywords we do not know (Janus, DiffusionGemma), or sinks of each query (Inkling 2)",
    "equal",
)
@pytest.mark.parametrize("model_type", FAMILIES)
def test_keywords_of_families(model_type):
    """A tiny model gets the keyword; the result equals that of its own eager attention with entmax for softmax."""
    if model_type not in CONFIG_MAPPING:
        pytest.skip(f"this release of transformers has no {model_type}")
    inputs = {"input_ids": torch.randint(5, 90, (2, 16)), **FAMILIES[model_type]}

    def run(model):
        torch.manual_seed(0)  # DiffusionGemma begins with noise
        with torch.no_grad():
            return model(**inputs)[0]

    sparse, eager = sparse_and_eager(model_type)
    result, dense = run(sparse), run(eager)
    with entmax_for_softmax():
        torch.testing.assert_close(result, run(eager), rtol=1e-3, atol=1e-3)
    assert (result - dense).abs().max() > 1e-2


@road("a query batch of 1 against many keys (Granite Speech)", "equal")
def test_granite_speech():
    """Audio of several windows goes through encoder and projector; equal to eager attention with entmax, with gradients."""
    sparse, eager = (model.projector for model in sparse_and_eager("granite_speech"))
    states = torch.randn(2, 3 * sparse.window_size, family_config("granite_speech").encoder_config.hidden_dim)
    gradients = []
    for model, context in ((sparse, entmax_for_softmax), (eager, entmax_for_softmax)):
        with context():
            result = model(states)
        result.square().sum().backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    assert gradients[0]["query"].abs().max() > 0
    for name, gradient in gradients[1].items():
        torch.testing.assert_close(gradients[0][name], gradient, rtol=1e-3, atol=1e-3)


@road("I-BERT with `quant_mode=True`, whose softmax is integer arithmetic", "refused")
def test_integer_softmax():
    """The model converts and its first forward raises; without `quant_mode` it runs sparse."""
    model = to_sparse_hopfield(tiny_family("ibert", quant_mode=True))
    with pytest.raises(RuntimeError, match="IBertSelfAttention .* without a softmax .* quant_mode=False"):
        model(torch.randint(5, 90, (1, 8)))
    to_sparse_hopfield(tiny_family("ibert"))(torch.randint(5, 90, (1, 8)))
