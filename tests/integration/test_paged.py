# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Continuous batching: the tokens are those of `generate`, and each request meets its own keys only."""

import gc
from types import SimpleNamespace

import pytest
import torch
from transformers import CompileConfig, ContinuousBatchingConfig, GenerationConfig, PreTrainedModel

from hf_sparse_hopfield import SparseHopfieldConfig, to_sparse_hopfield
from hf_sparse_hopfield.integration import attention, paged
from hf_sparse_hopfield.integration.attention import sparse_hopfield_attention_forward, sparse_hopfield_mask

from ..tiny_models import CAUSAL, PATCHED, tiny_model


NAME = "sparse_hopfield"
ON_REGISTRY = [name for name in CAUSAL if name not in PATCHED]
SMALL = {"page_size": 8, "num_blocks": 24, "max_batch_tokens": 64}


@pytest.fixture(autouse=True, scope="module")
def quick_collections():
    """Each continuous batch ends with a garbage collection: half a second for what the tests before left behind."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def prompts(count: int = 6, longest: int = 30, shared: int = 0) -> list[list[int]]:
    """Prompts of different lengths, whose first `shared` tokens are the same."""
    generator = torch.Generator().manual_seed(3)
    prefix = torch.randint(3, 97, (shared,), generator=generator).tolist()
    lengths = torch.randint(1, longest, (count,), generator=generator).tolist()
    return [prefix + torch.randint(3, 97, (length,), generator=generator).tolist() for length in lengths]


def greedy(**changes) -> GenerationConfig:
    return GenerationConfig(
        **{"max_new_tokens": 10, "do_sample": False, "pad_token_id": 0, "eos_token_id": 2} | changes
    )


def together(model: PreTrainedModel, inputs: list[list[int]], config: GenerationConfig, **changes) -> list[list[int]]:
    """The new tokens of requests that are batched continuously."""
    batching = ContinuousBatchingConfig(**{**SMALL, **changes})
    results = model.generate_batch(inputs, generation_config=config, continuous_batching_config=batching)
    assert not [result.error for result in results.values() if result.error]
    assert len(results) == len(inputs) * (config.num_return_sequences or 1)
    return [result.generated_tokens for result in results.values()]


def one_by_one(model: PreTrainedModel, inputs: list[list[int]], config: GenerationConfig) -> list[list[int]]:
    """The new tokens of each request on its own."""
    outputs = [model.generate(torch.tensor([tokens]), generation_config=config)[0] for tokens in inputs]
    return [output[len(tokens) :].tolist() for output, tokens in zip(outputs, inputs, strict=True)]


@pytest.mark.parametrize("name", ON_REGISTRY)
def test_tokens_equal_those_of_generate(name):
    """With grouped keys, sliding windows, softcap, sinks and experts."""
    model = tiny_model(name, NAME)
    expected = one_by_one(model, prompts(), greedy())
    assert expected != one_by_one(tiny_model(name, "eager"), prompts(), greedy()), (
        "dense attention answers differently"
    )
    assert together(model, prompts(), greedy()) == expected


SETTINGS = {
    "per head": {"alpha": [1.2, 1.5, 1.8, 2.0], "beta": [0.5, 1.0, 2.0, 3.0]},
    "learned": {"alpha": 1.5, "learn_alpha": True, "learn_beta": True},
    "steps": {"alpha": 1.5, "steps": 3},
    "some layers": {"layers": [1]},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_settings_hold_and_stay(name, settings):
    model = to_sparse_hopfield(tiny_model(name), SparseHopfieldConfig(**settings))
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "log_beta" in key or "alpha_logit" in key:
                parameter.copy_(torch.linspace(-0.5, 0.5, len(parameter)))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    expected, text = one_by_one(model, prompts(), greedy()), repr(model)
    assert together(model, prompts(), greedy(), max_batch_tokens=16) == expected
    assert repr(model) == text and model.config._attn_implementation == NAME
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert one_by_one(model, prompts(), greedy()) == expected


SCHEDULES = {
    "chunked prefill": {"max_batch_tokens": 8},
    "more requests than fit": {"num_blocks": 8},
    "without sharing": {"allow_block_sharing": False},
    "two requests at a time": {"max_requests_per_batch": 2},
}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_no_schedule_changes_a_token(name, schedule):
    model, inputs = tiny_model(name, NAME), prompts(count=8, longest=14, shared=17)
    assert together(model, inputs, greedy(), **schedule) == one_by_one(model, inputs, greedy())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_a_compiled_step_is_padded(name):
    model, compiled = tiny_model(name, NAME), CompileConfig(backend="eager", mode=None, fullgraph=False)
    tokens = together(model, prompts(), greedy(), varlen_compile_config=compiled)
    assert tokens == one_by_one(model, prompts(), greedy())


@pytest.mark.parametrize("short", [0, 12, 10_000])
def test_short_requests_decode_together_long_ones_alone(short, monkeypatch):
    monkeypatch.setattr(paged, "SHORT", short)
    model = tiny_model("llama", NAME)
    assert together(model, prompts(), greedy()) == one_by_one(model, prompts(), greedy())


def test_a_request_meets_its_own_keys_only(monkeypatch):
    """Neither the prompt of another request is scored, nor a mask built that would hide it."""
    seen = []

    def record(parameters, query, key, value, **options):
        places = options.get("places")
        assert (places is not None) == (query.shape[2] == 1)  # cached keys are read where they are
        seen.append((query.shape[2], key.shape[2] if places is None else places.shape[1], options["mask"] is None))
        return retrieve_with(parameters, query, key, value, **options)

    retrieve_with = attention.retrieve_with
    monkeypatch.setattr(attention, "retrieve_with", record)
    monkeypatch.setattr(paged, "SHORT", 0)
    lengths = [5, 9, 14]
    inputs = [tokens[:length] for tokens, length in zip(prompts(3, shared=20), lengths, strict=True)]
    together(tiny_model("llama", NAME), inputs, greedy(max_new_tokens=2, eos_token_id=-1), allow_block_sharing=False)
    assert {(queries, keys) for queries, keys, _ in seen} == {
        *((n, n) for n in lengths),
        *((1, n + 1) for n in lengths),
    }
    assert all(no_mask for *_, no_mask in seen)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_bfloat16(name):
    model = tiny_model(name, NAME).bfloat16()
    assert together(model, prompts(), greedy()) == one_by_one(model, prompts(), greedy())


def test_a_sampled_request_equals_generate_with_the_same_seed():
    model, sampling = tiny_model("llama", NAME), greedy(do_sample=True, temperature=0.7, top_k=20, eos_token_id=-1)
    inputs = prompts(1)
    torch.manual_seed(5)
    expected = one_by_one(model, inputs, sampling)
    assert together(model, inputs, sampling, seed=5) == expected
    assert together(model, inputs, sampling, seed=6) != expected


def test_several_samples_of_one_prompt():
    """The children of a request share its blocks."""
    model, config = tiny_model("llama", NAME), greedy(do_sample=True, top_k=1, num_return_sequences=3, eos_token_id=-1)
    tokens = together(model, prompts(2), config)
    expected = one_by_one(model, prompts(2), greedy(eos_token_id=-1))
    assert tokens == [expected[0]] * 3 + [expected[1]] * 3


def test_requests_come_and_go():
    """A request joins while others run, one is cancelled, and the model is as before."""
    model, inputs = tiny_model("mistral", NAME), prompts(4)
    long = greedy(max_new_tokens=25, eos_token_id=-1)
    expected = one_by_one(model, inputs, long)
    manager = model.init_continuous_batching(long, ContinuousBatchingConfig(**SMALL))
    manager.start()
    try:
        for i in range(3):
            manager.add_request(inputs[i], request_id=str(i), streaming=i == 2)
        while manager.get_result("2", timeout=1) is None:
            pass
        manager.cancel_request("1")
        manager.add_request(inputs[3], request_id="3")
        done = {}
        while not {"0", "2", "3"} <= done.keys():
            result = manager.get_result(timeout=10)
            assert result is not None and result.error is None
            if result.is_finished():
                done[result.request_id] = result.generated_tokens
    finally:
        manager.stop(block=True)
    assert [done[key] for key in ("0", "2", "3")] == [expected[i] for i in (0, 2, 3)]
    assert one_by_one(model, inputs, long) == expected


# ---- What is refused ----


def test_attention_that_computes_itself_is_refused():
    for name in PATCHED:
        if name in CAUSAL:
            with pytest.raises(ValueError, match="computes its attention itself and cannot read the paged cache"):
                tiny_model(name, NAME).generate_batch(prompts(1), generation_config=greedy())


def test_a_part_that_generates_with_eager_attention_is_refused():
    """transformers would set another attention for the whole model, and the sparse part would become dense."""
    parts = {"": NAME, "vision_config": NAME, "text_config": "eager"}
    model = tiny_model("llava", parts)
    with pytest.raises(ValueError, match="would exchange the attention of the whole model"):
        paged.check_paged(model)
    paged.check_paged(tiny_model("llava", {**parts, "text_config": "sdpa"}))


def test_a_module_that_drops_the_cache_is_refused():
    module = tiny_model("llama", NAME).model.layers[0].self_attn
    states = torch.randn(1, 4, 3, 8)
    with paged.continuous_batch(), pytest.raises(ValueError, match="does not pass the paged cache"):
        sparse_hopfield_attention_forward(module, states, states, states)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"block_table": torch.zeros(1)}, "`max_blocks_per_request=0`"),
        ({"position_bias": torch.zeros(1)}, "position_bias"),
        ({"output_attentions": True}, "returns no attention weights"),
    ],
)
def test_what_the_paged_cache_has_no_room_for_is_refused(change, message):
    module = tiny_model("llama", NAME).model.layers[0].self_attn
    states = torch.randn(1, 4, 3, 8)
    with pytest.raises(ValueError, match=message):
        sparse_hopfield_attention_forward(module, states, states, states, cache=SimpleNamespace(), **change)


def test_masks_are_built_again_afterwards():
    with paged.continuous_batch():
        assert sparse_hopfield_mask(1, 3, 3, allow_is_causal_skip=False) is None
    assert sparse_hopfield_mask(1, 3, 3, allow_is_causal_skip=False) is not None
