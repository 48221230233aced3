# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The cache of sparse models: the states of transformers' own cache, whatever is done to it, and an int8 copy that fits them."""

import copy
import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    DynamicCache,
    EncoderDecoderCache,
    LlamaConfig,
    MistralConfig,
    PreTrainedModel,
    QuantizedCache,
    StaticCache,
    T5Config,
)
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from hf_sparse_hopfield import SparseHopfieldCache
from hf_sparse_hopfield.backends import KeyScreen
from hf_sparse_hopfield.backends.native import library
from hf_sparse_hopfield.integration import cache as cache_module
from hf_sparse_hopfield.integration.cache import (
    SCREENED_FROM,
    GrowingLayer,
    GrowingSlidingWindowLayer,
    screen_of,
)

from ..tiny_models import sharpened


needs_core = pytest.mark.skipif(library.missing is not None, reason=f"no compiled core: {library.missing}")

SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "eos_token_id": None,
    "pad_token_id": 0,
}


def llama(**options) -> PreTrainedModel:
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(
        LlamaConfig(**SIZES | options), attn_implementation="sparse_hopfield"
    ).eval()


def mistral(window: int = 300) -> PreTrainedModel:
    torch.manual_seed(0)
    config = MistralConfig(**SIZES, sliding_window=window, head_dim=8)
    return AutoModelForCausalLM.from_config(config, attn_implementation="sparse_hopfield").eval()


def prompt(*shape: int) -> torch.Tensor:
    return torch.randint(1, 99, shape, generator=torch.Generator().manual_seed(1))


def generate(model: PreTrainedModel, tokens: torch.Tensor, **options):
    options = {"max_new_tokens": 12, "do_sample": False, "return_dict_in_generate": True} | options
    options.setdefault("attention_mask", torch.ones_like(tokens))
    return model.generate(tokens, **options)


def assert_same_generation(model: PreTrainedModel, tokens: torch.Tensor, **options) -> SparseHopfieldCache:
    """Our cache, which is the default, and transformers' own lead to the same tokens and scores."""
    options = {"output_logits": True} | options
    own = generate(model, tokens, **options)
    other = generate(model, tokens, **options, past_key_values=DynamicCache(config=model.config))
    assert torch.equal(own.sequences, other.sequences)
    for a, b in zip(own.logits or (), other.logits or (), strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-4)
    assert type(own.past_key_values) is SparseHopfieldCache
    return own.past_key_values


# ---- Layers against transformers' own ----

OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("update"), st.sampled_from([1, 1, 1, 2, 7, 40, 300])),
        st.tuples(st.just("crop"), st.integers(0, 5)),
        st.tuples(st.just("reorder"), st.integers(0, 100)),
        st.tuples(st.just("repeat"), st.just(2)),
        st.tuples(st.just("select"), st.integers(0, 100)),
        st.tuples(st.just("reset"), st.just(0)),
        st.tuples(st.just("copy"), st.just(0)),
    ),
    min_size=1,
    max_size=25,
)


def apply(layer, operation: str, number: int, new: tuple[torch.Tensor, torch.Tensor] | None):
    batch = layer.keys.shape[0] if layer.is_initialized and layer.keys.numel() else 0
    generator = torch.Generator().manual_seed(number)
    if operation == "update":
        return layer.update(*new)
    if operation == "crop":
        layer.crop(-number)
    elif operation == "reorder" and batch:
        layer.reorder_cache(torch.randint(batch, (batch,), generator=generator))
    elif operation == "repeat" and 0 < batch < 4:
        layer.batch_repeat_interleave(number)
    elif operation == "select" and batch:
        layer.batch_select_indices(torch.randint(batch, (max(1, batch - 1),), generator=generator))
    elif operation == "reset":
        layer.reset()
    return None


@pytest.mark.parametrize("kind", ["full", "window", "window that records"])
@given(operations=OPERATIONS)
@settings(max_examples=80)
def test_any_history(kind, operations):
    """After any operations the states are those of transformers' layer, and the copy is that of the keys."""
    if kind == "full":
        own, other = GrowingLayer(), DynamicLayer()
    else:
        own, other = GrowingSlidingWindowLayer(60), DynamicSlidingWindowLayer(60)
        if kind == "window that records":
            own.activate_past_recording()
            other.activate_past_recording()
    generator = torch.Generator().manual_seed(0)
    before, cache_module.SCREENED_FROM = cache_module.SCREENED_FROM, 8
    try:
        for operation, number in operations:
            if operation == "copy":
                own = copy.deepcopy(own)
                continue
            length = other.get_seq_length() if other.is_initialized else 0
            unable = operation == "crop" and (number > length or (kind == "window" and length >= 60) or not length)
            if unable:
                continue
            batch = other.keys.shape[0] if other.is_initialized and other.keys.numel() else 2
            shape = (batch, 2, number, 8)
            new = [torch.randn(shape, generator=generator) for _ in range(2)] if operation == "update" else None
            ours, theirs = (apply(layer, operation, number, new) for layer in (own, other))
            assert own.get_seq_length() == other.get_seq_length()
            assert own.is_initialized == other.is_initialized
            if other.is_initialized and other.keys.numel():
                assert torch.equal(own.keys, other.keys) and torch.equal(own.values, other.values)
                assert own.get_mask_sizes(3) == other.get_mask_sizes(3)
            if theirs is None:
                continue
            assert torch.equal(ours[0], theirs[0]) and torch.equal(ours[1], theirs[1])
            screen = screen_of(ours[0])
            if library.missing is None and ours[0].shape[2] >= 8:
                assert screen.shape == ours[0].shape
                for a, b in zip(screen._keys()[:2], KeyScreen(ours[0])._keys()[:2], strict=True):
                    assert torch.equal(a, b)
    finally:
        cache_module.SCREENED_FROM = before


@pytest.mark.parametrize("layer", [GrowingLayer(), GrowingSlidingWindowLayer(500)], ids=["full", "window"])
def test_growth_copies_seldom(layer):
    moves, place = 0, None
    for _ in range(3000):
        layer.update(torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 1, 4))
        room = layer._rooms[0].tensor.data_ptr()
        moves += room != place
        place = room
    assert moves < 16
    assert layer.nbytes < 2 * 4 * 4 * (1.4 * 3000 + 600)


@needs_core
def test_only_new_keys_are_quantized(monkeypatch):
    layer, quantized = GrowingLayer(), []
    original = library.call_screen
    monkeypatch.setattr(
        library, "call_screen", lambda key, *rest: (quantized.append(key.shape[2]), original(key, *rest))
    )
    for tokens in (SCREENED_FROM, 1, 1, 5):
        screen_of(layer.update(*torch.randn(2, 1, 1, tokens, 8))[0])
    assert quantized == [SCREENED_FROM, 1, 1, 5]


def test_gradients_and_other_dtypes_take_the_way_of_transformers():
    layer = GrowingLayer()
    first = torch.randn(1, 1, 3, 4, requires_grad=True)
    keys, _ = layer.update(first, first)
    more, _ = layer.update(torch.ones(1, 1, 2, 4), torch.ones(1, 1, 2, 4))
    more.sum().backward()
    assert torch.equal(first.grad, torch.ones_like(first)) and keys.shape[2] == 3 and screen_of(more) is None
    layer = GrowingLayer()
    layer.update(*torch.zeros(2, 1, 1, 3, 4))
    assert layer.update(*torch.zeros(2, 1, 1, 3, 4).double())[0].dtype == torch.float64


# ---- generate ----


def test_default_of_generate():
    cache = assert_same_generation(llama(), prompt(1, 700))
    assert cache.get_seq_length() == 711
    if library.missing is None:
        assert 0 < cache.screen_nbytes < 0.4 * cache.nbytes
    dense = AutoModelForCausalLM.from_config(LlamaConfig(**SIZES))
    assert type(generate(dense, prompt(1, 5)).past_key_values) is DynamicCache


@needs_core
def test_decoding_reads_the_copy():
    model, tokens = sharpened(llama(), 40.0), prompt(1, 700)
    cache = generate(model, tokens[:, :-1], max_new_tokens=1).past_key_values
    with library.counted_reads() as counts:
        generate(model, tokens, max_new_tokens=3, past_key_values=cache)
    # 3 steps, 2 layers, 2 heads of keys
    assert counts[3] == 0
    assert counts[0] == sum(2 * 2 * (700 + step) for step in range(3))


@pytest.mark.parametrize("alpha", [1.5, 2.0, 1.0])
def test_left_padding(alpha):
    tokens = prompt(3, 600)
    mask = torch.ones_like(tokens)
    mask[0, :100] = 0
    mask[2, :513] = 0
    model = llama(sparse_hopfield={"alpha": alpha})
    assert_same_generation(model, tokens, attention_mask=mask)


def test_beam_search():
    assert_same_generation(llama(), prompt(2, 600), num_beams=3, num_return_sequences=2, output_logits=False)


@pytest.mark.parametrize("window", [40, 600])
def test_sliding_windows(window):
    cache = assert_same_generation(mistral(window), prompt(1, 650), max_new_tokens=60)
    assert [type(layer) for layer in cache.layers] == [GrowingSlidingWindowLayer] * 2
    assert cache.layers[0].keys.shape[2] == window - 1


@pytest.mark.parametrize("family", [llama, mistral])
def test_assisted_decoding(family):
    """The candidates of another model are checked together, and the wrong ones taken back."""
    model, assistant = family(), llama(num_hidden_layers=1)
    plain = generate(model, prompt(1, 600), max_new_tokens=20)
    assisted = generate(model, prompt(1, 600), max_new_tokens=20, assistant_model=assistant)
    assert torch.equal(plain.sequences, assisted.sequences)
    looked_up = generate(model, prompt(1, 30).repeat(1, 20), max_new_tokens=20, prompt_lookup_num_tokens=3)
    assert torch.equal(generate(model, prompt(1, 30).repeat(1, 20), max_new_tokens=20).sequences, looked_up.sequences)


def test_half_precision():
    model = llama().to(torch.bfloat16)
    own = generate(model, prompt(1, 700))
    other = generate(model, prompt(1, 700), past_key_values=DynamicCache(config=model.config))
    assert torch.equal(own.sequences, other.sequences)
    assert own.past_key_values.layers[0].keys.dtype == torch.bfloat16


def test_encoder_and_decoder():
    sizes = {"vocab_size": 99, "d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 4}
    config = T5Config(**sizes, decoder_start_token_id=0, eos_token_id=None, pad_token_id=0)
    torch.manual_seed(0)
    model = AutoModelForSeq2SeqLM.from_config(config, attn_implementation="sparse_hopfield").eval()
    own = generate(model, prompt(1, 600), num_beams=2)
    caches = EncoderDecoderCache(DynamicCache(config=config), DynamicCache(config=config))
    other = generate(model, prompt(1, 600), num_beams=2, past_key_values=caches)
    assert torch.equal(own.sequences, other.sequences)
    pair = own.past_key_values
    assert type(pair.self_attention_cache) is type(pair.cross_attention_cache) is SparseHopfieldCache


def test_other_caches_still_work():
    model, tokens = llama(), prompt(1, 600)
    expected = generate(model, tokens).sequences
    assert torch.equal(generate(model, tokens, cache_implementation="static").sequences, expected)
    static = StaticCache(config=model.config, max_cache_len=700)
    assert torch.equal(generate(model, tokens, past_key_values=static).sequences, expected)
    assert torch.equal(generate(model, tokens, use_cache=False).sequences, expected)
    dynamic = generate(model, tokens, past_key_values=DynamicCache(config=model.config))
    assert type(dynamic.past_key_values) is DynamicCache and torch.equal(dynamic.sequences, expected)
    quantized = QuantizedCache("fp8", config=model.config)
    assert generate(model, tokens, past_key_values=quantized).sequences.shape == expected.shape


def test_without_the_copy():
    model, tokens = llama(), prompt(1, 600)
    cache = SparseHopfieldCache(config=model.config, screen=False)
    generate(model, tokens[:, :-1], max_new_tokens=1, past_key_values=cache)
    with library.counted_reads() as counts:
        result = generate(model, tokens, past_key_values=cache)
    assert torch.equal(result.sequences, generate(model, tokens).sequences)
    assert counts[0] == 0 and cache.screen_nbytes == 0
    lazily = SparseHopfieldCache(screen=False)
    model(tokens, past_key_values=lazily)
    assert lazily.screen_nbytes == 0 and lazily.get_seq_length() == 600


def test_a_prompt_is_used_again():
    """As transformers' guide does it: a copy of the cache of a common prompt for each continuation."""
    model, common = llama(), prompt(1, 600)
    cache = SparseHopfieldCache(config=model.config)
    with torch.no_grad():
        model(common, past_key_values=cache)
    for seed in range(2):
        more = torch.randint(1, 99, (1, 9), generator=torch.Generator().manual_seed(seed))
        tokens = torch.cat([common, more], 1)
        again = generate(model, tokens, past_key_values=copy.deepcopy(cache))
        assert torch.equal(again.sequences, generate(model, tokens).sequences)
    assert cache.get_seq_length() == 600


def test_reset():
    model, cache = llama(), SparseHopfieldCache(config=LlamaConfig(**SIZES))
    first = generate(model, prompt(1, 600), past_key_values=cache).sequences
    cache.reset()
    assert cache.get_seq_length() == 0 and cache.screen_nbytes == 0
    assert torch.equal(generate(model, prompt(1, 600), past_key_values=cache).sequences, first)


def test_offloading_is_refused():
    with pytest.raises(ValueError, match='does not offload.*cache_implementation="offloaded"'):
        SparseHopfieldCache(offloading=True)
    with pytest.raises(TypeError, match="screen must be"):
        SparseHopfieldCache(screen="no")


def test_as_transformers_makes_one_from_data():
    keys, values = torch.randn(2, 2, 3, 5, 8)
    cache = SparseHopfieldCache([(keys, values, None), (keys, values, torch.tensor(4)), (None, None, None)])
    assert [type(layer) for layer in cache.layers] == [GrowingLayer, GrowingSlidingWindowLayer, GrowingLayer]
    assert torch.equal(cache.layers[0].keys, keys) and cache.layers[1].keys.shape[2] == 3


# ---- Files ----


@pytest.mark.parametrize("family", [llama, mistral])
@pytest.mark.parametrize("with_config", [True, False])
def test_save_and_load(family, with_config, tmp_path):
    model, common = family(), prompt(1, 640)
    cache = SparseHopfieldCache(config=model.config)
    with torch.no_grad():
        model(common, past_key_values=cache)
    cache.save(tmp_path / "prompt.safetensors")
    loaded = SparseHopfieldCache.load(tmp_path / "prompt.safetensors", model.config if with_config else None)
    tokens = torch.cat([common, prompt(1, 3)], 1)
    again = generate(model, tokens, past_key_values=loaded)
    assert torch.equal(again.sequences, generate(model, tokens).sequences)
    assert [path.name for path in tmp_path.iterdir()] == ["prompt.safetensors"]


def test_bad_files(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a file"):
        SparseHopfieldCache.load(tmp_path / "nothing")
    path = tmp_path / "file.safetensors"
    path.write_bytes(b"no safetensors")
    with pytest.raises(ValueError, match="damaged"):
        SparseHopfieldCache.load(path)
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="its format is None"):
        SparseHopfieldCache.load(path)
    save_file({}, path, metadata={"format": cache_module.FILE_FORMAT, "version": "9", "layers": json.dumps([])})
    with pytest.raises(ValueError, match="version '9'"):
        SparseHopfieldCache.load(path)
    cache = SparseHopfieldCache(config=mistral().config)
    cache.save(path)
    with pytest.raises(ValueError, match=r"sliding windows \[300, 300\].*another model"):
        SparseHopfieldCache.load(path, llama().config)
    cache.layers.append(DynamicLayer())
    with pytest.raises(ValueError, match="layer 2 of the cache is a DynamicLayer"):
        cache.save(path)
