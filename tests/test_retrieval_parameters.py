# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Learned and fixed beta and alpha."""

import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from hf_sparse_hopfield.layers import RetrievalParameters


def test_fixed_settings_are_plain_numbers():
    parameters = RetrievalParameters(3, alpha=1.5, beta=2.0)
    assert parameters() == (2.0, 1.5)
    assert (parameters.beta, parameters.alpha) == (2.0, 1.5)
    assert not parameters.state_dict()
    assert not list(parameters.buffers())


def test_fixed_settings_per_head():
    beta, alpha = RetrievalParameters(2, alpha=(1.0, 2.0), beta=torch.tensor([0.5, 4.0]))(dtype=torch.float64)
    torch.testing.assert_close(beta, torch.tensor([0.5, 4.0], dtype=torch.float64))
    torch.testing.assert_close(alpha, torch.tensor([1.0, 2.0], dtype=torch.float64))


@given(
    beta=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=4),
    alpha=st.floats(1.0, 2.0),
)
def test_learned_settings_start_where_asked(beta, alpha):
    parameters = RetrievalParameters(len(beta), alpha=alpha, beta=beta, learn_alpha=True, learn_beta=True)
    learned_beta, learned_alpha = parameters()
    torch.testing.assert_close(learned_beta, torch.tensor(beta), rtol=1e-5, atol=0)
    expected = min(max(alpha, 1.001), 1.999)
    torch.testing.assert_close(learned_alpha, torch.full((len(beta),), expected), rtol=0, atol=1e-5)


def test_learned_settings_stay_valid_and_trainable_from_both_ends():
    for start in (1.0, 2.0):
        parameters = RetrievalParameters(2, alpha=start, beta=1.0, learn_alpha=True, learn_beta=True)
        beta, alpha = parameters()
        (beta.sum() + alpha.sum()).backward()
        assert (parameters.alpha_logit.grad > 1e-4).all()
        assert (parameters.log_beta.grad > 0).all()
    with torch.no_grad():
        parameters.alpha_logit.copy_(torch.tensor([-200.0, 200.0]))
        parameters.log_beta.copy_(torch.tensor([-50.0, 50.0]))
    beta, alpha = parameters()
    assert alpha.tolist() == [1.0, 2.0]
    assert (beta > 0).all()
    assert torch.isfinite(beta).all()


def test_half_precision_modules_compute_in_float32():
    parameters = RetrievalParameters(2, alpha=1.5, beta=math.e, learn_alpha=True, learn_beta=True).half()
    assert parameters.log_beta.dtype == torch.float16
    beta, alpha = parameters()
    assert beta.dtype == alpha.dtype == torch.float32
    torch.testing.assert_close(beta, torch.full((2,), math.e))


def test_state_dict_deepcopy_and_reset():
    parameters = RetrievalParameters(3, beta=2.0, learn_beta=True)
    assert list(parameters.state_dict()) == ["log_beta"]
    assert parameters.log_beta.shape == (3,)
    with torch.no_grad():
        parameters.log_beta.add_(1.0)
    other = RetrievalParameters(3, learn_beta=True)
    other.load_state_dict(parameters.state_dict())
    torch.testing.assert_close(other.beta, parameters.beta)
    torch.testing.assert_close(copy.deepcopy(parameters).beta, parameters.beta)
    parameters.reset_parameters()
    torch.testing.assert_close(parameters.beta, torch.full((3,), 2.0))


def test_on_the_meta_device():
    with torch.device("meta"):
        parameters = RetrievalParameters(3, learn_beta=True, learn_alpha=True)
    assert parameters.log_beta.is_meta
    parameters.to_empty(device="cpu").reset_parameters()
    torch.testing.assert_close(parameters.beta, torch.ones(3))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_heads": 0}, ValueError, "num_heads"),
        ({"num_heads": 2.0}, ValueError, "num_heads"),
        ({"num_heads": 2, "alpha": 2.1}, ValueError, "alpha must lie in"),
        ({"num_heads": 2, "alpha": [1.0, 0.5]}, ValueError, "alpha must lie in"),
        ({"num_heads": 2, "alpha": [1.0]}, ValueError, "alpha has 1 values"),
        ({"num_heads": 2, "alpha": True}, TypeError, "alpha"),
        ({"num_heads": 2, "alpha": None}, TypeError, "alpha"),
        ({"num_heads": 2, "beta": 0}, ValueError, "beta must be positive"),
        ({"num_heads": 2, "beta": math.inf}, ValueError, "beta must be finite"),
        ({"num_heads": 2, "beta": "large"}, TypeError, "beta"),
        ({"num_heads": 2, "beta": [1.0, "2"]}, TypeError, "beta"),
    ],
)
def test_bad_settings_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        RetrievalParameters(**options)


def test_fixed_per_head_values_are_buffers_that_move_and_are_not_saved():
    parameters = RetrievalParameters(2, alpha=[1.1, 1.9], beta=[0.3, 4.0])
    assert sorted(dict(parameters.named_buffers())) == ["fixed_alpha", "fixed_beta"]
    assert not parameters.state_dict()
    assert parameters.to("meta").fixed_beta.is_meta
    assert parameters.to_empty(device="cpu").beta.tolist() == pytest.approx([0.3, 4.0])
    first, second = parameters(), parameters()
    assert first[0].data_ptr() == second[0].data_ptr()  # nothing is copied when they are read


def test_fixed_per_head_values_are_never_rounded_to_half_precision():
    parameters = RetrievalParameters(2, beta=[1 / 3, 4.0])
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        assert parameters.to(dtype).beta.tolist() == torch.tensor([1 / 3, 4.0]).tolist()
        assert parameters.beta.dtype == torch.float32
    assert parameters.double().beta.tolist() == [1 / 3, 4.0]


def test_set_is_the_one_way_to_change_them():
    parameters = RetrievalParameters(2, alpha=1.5, beta=2.0, learn_beta=True)
    parameters.set(alpha=[1.2, 1.4], beta=[3.0, 4.0])
    torch.testing.assert_close(parameters.beta, torch.tensor([3.0, 4.0]))
    torch.testing.assert_close(parameters.alpha, torch.tensor([1.2, 1.4]))
    assert parameters.configured("alpha") == (1.2, 1.4) and parameters.configured("beta") == (3.0, 4.0)
    parameters.set(alpha=1.3)
    assert parameters.alpha == 1.3 and not dict(parameters.named_buffers())
    parameters.set(alpha=1.3, as_tensors=["alpha"])
    tensor = parameters.fixed_alpha
    parameters.set(alpha=1.6, as_tensors=["alpha"])
    assert parameters.fixed_alpha is tensor and tensor.tolist() == pytest.approx([1.6, 1.6])
    with pytest.raises(ValueError, match="alpha must lie in"):
        parameters.set(alpha=3.0, beta=5.0)
    assert parameters.configured("beta") == (3.0, 4.0)  # all or nothing


def test_a_backward_pass_survives_a_copy_into_the_buffers():
    """DistributedDataParallel copies rank 0's buffers before each forward."""
    parameters = RetrievalParameters(2, beta=[1.0, 2.0])
    scores = torch.randn(2, requires_grad=True)
    output = (scores * parameters.beta).square().sum()
    parameters.fixed_beta.copy_(parameters.fixed_beta.clone())
    output.backward()
    assert scores.grad is not None


def test_buffers_rounded_from_outside_do_not_count():
    """FSDP casts buffers by assigning `.data`."""
    parameters = RetrievalParameters(2, beta=[1.1, 1.7])
    parameters.fixed_beta.data = parameters.fixed_beta.to(torch.bfloat16)
    torch.testing.assert_close(parameters.beta, torch.tensor([1.1, 1.7]))


def test_loading_into_a_module_built_on_the_meta_device():
    with torch.device("meta"):
        parameters = RetrievalParameters(2, alpha=[1.1, 1.7], learn_beta=True)
    saved = RetrievalParameters(2, alpha=[1.1, 1.7], beta=2.0, learn_beta=True).state_dict()
    parameters.load_state_dict(saved, assign=True)
    beta, alpha = parameters()
    torch.testing.assert_close(beta, torch.tensor([2.0, 2.0]))
    torch.testing.assert_close(alpha, torch.tensor([1.1, 1.7]))


def test_values_made_in_inference_mode_can_be_set_later():
    with torch.inference_mode():
        parameters = RetrievalParameters(2, beta=[1.0, 2.0])
    parameters.set(beta=[3.0, 4.0])
    assert parameters.beta.tolist() == [3.0, 4.0]


def test_offloaded_buffers():
    accelerate = pytest.importorskip("accelerate")
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), RetrievalParameters(2, alpha=[1.1, 1.7]))
    accelerate.cpu_offload(module, execution_device="cpu", offload_buffers=True)
    torch.testing.assert_close(module[1]()[1], torch.tensor([1.1, 1.7]))


@pytest.mark.parametrize("rounded", [False, True])
def test_copies_in_another_precision_are_made_once(rounded):
    """For queries in float64, and for buffers that FSDP has rounded. A GPU would wait for each of them."""
    parameters, dtype = RetrievalParameters(2, alpha=[1.1, 1.7], beta=[0.3, 4.0]), torch.float64
    if rounded:
        dtype = torch.float32
        for buffer in parameters.buffers():
            buffer.data = buffer.to(torch.bfloat16)
    with torch.inference_mode():
        parameters(dtype)
    first, second = parameters(dtype), parameters(dtype)
    assert first[0] is second[0] and first[1] is second[1] and not first[0].is_inference()
    assert first[0].tolist() == torch.tensor([0.3, 4.0], dtype=dtype).tolist() and not parameters.state_dict()
    parameters.set(beta=[5.0, 6.0])
    parameters(torch.float32)
    assert parameters(dtype)[0].tolist() == [5.0, 6.0] and first[0].tolist() != [5.0, 6.0]
    with FakeTensorMode(allow_non_fake_inputs=True):
        RetrievalParameters.forward(parameters, torch.float64)
    assert not any(isinstance(value, FakeTensor) for value in parameters(torch.float64))
    assert all(value.is_meta for value in parameters.to("meta")(torch.float64))
