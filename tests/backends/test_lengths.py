# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""beta as a function of the number of visible keys: against counting by a full mask, and through every way of calling."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from hf_sparse_hopfield import retrieve, to_sparse_hopfield
from hf_sparse_hopfield.backends import RetrievalProblem
from hf_sparse_hopfield.backends.lengths import REFERENCE_KEYS, visible_counts
from hf_sparse_hopfield.backends.masks import visible
from hf_sparse_hopfield.retrieval import canonical

from ..tiny_models import tiny_inputs, tiny_model, tiny_output


@st.composite
def problems(draw):
    batch, heads, queries = draw(st.integers(1, 2)), 2, draw(st.integers(1, 9))
    causal = draw(st.booleans())
    keys = queries + draw(st.integers(0, 5))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    tensors = [torch.randn(batch, heads, n, 4, generator=generator) for n in (queries, keys, keys)]
    options = {"is_causal": causal}
    kind = draw(st.sampled_from([None, "keys", "full", "segments", "both"]))
    if causal and draw(st.booleans()):
        options["sliding_window"] = draw(st.integers(1, 6))
    if kind in ("keys", "both"):
        options["mask"] = torch.rand(batch, 1, 1, keys, generator=generator) < 0.7
    if kind == "full":
        options["mask"] = torch.rand(batch, heads, queries, keys, generator=generator) < 0.7
    if kind in ("segments", "both"):
        options["segments"] = tuple(torch.randint(0, 3, (batch, n), generator=generator) for n in (queries, keys))
    return tensors, options


@settings(deadline=None, max_examples=150)
@given(problems())
def test_counts_are_those_of_a_full_mask(case):
    tensors, options = case
    problem = canonical(RetrievalProblem(*tensors, **options))
    batch, heads, queries, _ = problem.query.shape
    keys = problem.key.shape[2]
    allowed = visible(problem)
    expected = torch.full((batch, heads, queries, 1), keys)
    if allowed is not None:
        allowed = allowed.reshape((1,) * (4 - allowed.ndim) + allowed.shape)
        expected = allowed.expand(batch, heads, queries, keys).sum(-1, keepdim=True)
    counts = visible_counts(problem)
    torch.testing.assert_close(torch.as_tensor(counts).expand_as(expected).long(), expected)


def test_many_rows_are_counted_in_pieces(monkeypatch):
    from hf_sparse_hopfield.backends import lengths

    numbers = torch.randint(0, 3, (1, 40))
    options = {"segments": (numbers, numbers), "is_causal": True, "mask": torch.rand(1, 1, 40, 40) < 0.8}
    problem = canonical(RetrievalProblem(*torch.randn(3, 1, 2, 40, 4), **options))
    at_once = visible_counts(problem)
    monkeypatch.setattr(lengths, "_ROWS_AT_ONCE", 7)
    torch.testing.assert_close(visible_counts(problem), at_once)


@pytest.mark.parametrize("backend", ["reference", "blocked", "native"])
@pytest.mark.parametrize("causal", [False, True])
def test_every_backend_and_its_gradients(backend, causal):
    torch.manual_seed(0)
    query, key, value = (x.requires_grad_() for x in torch.randn(3, 2, 4, 12, 8).unbind())
    power = torch.tensor([-0.5, -0.1, 0.0, 0.4], requires_grad=True)
    beta = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    alpha = torch.tensor([1.3, 1.5, 1.7, 2.0])
    counts = torch.arange(1, 13).double() if causal else torch.full((12,), 12.0).double()
    leaves = (query, key, value, power, beta)
    output = retrieve(query, key, value, beta=beta, alpha=alpha, length_power=power, is_causal=causal, backend=backend)
    weight = torch.randn_like(output)
    gradients = torch.autograd.grad((output * weight).sum(), leaves)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    rows = exact[4].view(1, 4, 1, 1) * (counts.view(1, 1, -1, 1) / REFERENCE_KEYS) ** exact[3].view(1, 4, 1, 1)
    expected = retrieve(*exact[:3], beta=rows, alpha=alpha.double(), is_causal=causal, backend="reference")
    torch.testing.assert_close(output.double(), expected, atol=1e-5, rtol=1e-5)
    expected = torch.autograd.grad((expected * weight.double()).sum(), exact)
    for ours, theirs in zip(gradients, expected, strict=True):
        torch.testing.assert_close(ours.double(), theirs, atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize("power", ["-0.1", None, 5.0, torch.nan, torch.tensor([9.0, 0.0])])
def test_bad_powers_are_refused(power):
    with pytest.raises((TypeError, ValueError), match="length_power"):
        retrieve(*torch.randn(3, 1, 2, 4, 8), length_power=power)


def _sparse_llama():
    return to_sparse_hopfield(tiny_model("llama"), {"alpha": 1.5, "beta": 3.0, "length_power": -0.4}).eval()


@torch.no_grad()
def test_decoding_counts_the_keys_of_its_row():
    model, tokens = _sparse_llama(), torch.randint(0, 90, (2, 14))
    whole = model(input_ids=tokens).logits
    step = model(input_ids=tokens[:, :6], use_cache=True)
    parts = [step.logits]
    for place in range(6, 14):
        step = model(input_ids=tokens[:, place : place + 1], past_key_values=step.past_key_values)
        parts.append(step.logits)
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_padding_and_packing_do_not_count():
    model, tokens = _sparse_llama(), torch.randint(1, 90, (1, 14))
    whole = model(input_ids=tokens).logits
    mask = torch.tensor([[0] * 5 + [1] * 14])
    padded = torch.nn.functional.pad(tokens, (5, 0))
    positions = (mask.cumsum(1) - 1).clamp_min(0)
    found = model(input_ids=padded, attention_mask=mask, position_ids=positions).logits[:, 5:]
    torch.testing.assert_close(found, whole, atol=1e-5, rtol=1e-5)
    packed = torch.cat([tokens[:, :7], tokens], 1)
    positions = torch.cat([torch.arange(7), torch.arange(14)])[None]
    torch.testing.assert_close(
        model(input_ids=packed, position_ids=positions).logits[:, 7:], whole, atol=1e-5, rtol=1e-5
    )


def test_it_is_saved_and_learned(tmp_path):
    settings = {"alpha": 1.5, "length_power": -0.3, "learn_length_power": True}
    model = to_sparse_hopfield(tiny_model("llama"), settings)
    tokens = torch.randint(0, 90, (2, 12))
    model(input_ids=tokens, labels=tokens).loss.backward()
    learned = [p for name, p in model.named_parameters() if name.endswith("learned_length_power")]
    assert learned and all(p.grad is not None and p.grad.abs().max() > 0 for p in learned)
    with torch.no_grad():
        learned[0].add_(0.2)
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(again.eval()(input_ids=tokens).logits, model.eval()(input_ids=tokens).logits)


@pytest.mark.parametrize("name", ["bloom", "gptj", "mpnet", "t5"])
@torch.no_grad()
def test_patched_families_count_too(name):
    """With all rows of the same length, a power is a factor of beta; with fewer keys it is another one."""
    inputs = tiny_inputs(name)
    plain = tiny_output(to_sparse_hopfield(tiny_model(name), {"alpha": 1.5, "beta": 2.0}), inputs)
    powered = tiny_output(
        to_sparse_hopfield(tiny_model(name), {"alpha": 1.5, "beta": 2.0, "length_power": -0.5}), inputs
    )
    assert (plain - powered).abs().max() > 1e-4
