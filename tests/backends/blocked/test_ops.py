# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The operators of the pure PyTorch backend, as torch sees them."""

import dataclasses
import threading

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from hf_sparse_hopfield.backends import RetrievalProblem, blocked
from hf_sparse_hopfield.backends.blocked import ops
from hf_sparse_hopfield.backends.blocked.settings import SCHEMA, Settings

from ..cases import Case


def test_the_schema_has_the_fields_of_the_settings():
    assert tuple(field.split()[1] for field in SCHEMA.split(", ")) == Settings._fields


class Largest(TorchDispatchMode):
    """Records the size of the largest tensor that any operator returns."""

    size = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        for tensor in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided:
                self.size = max(self.size, tensor.numel())
        return result


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("sharpness", [1e-3, 20.0])
def test_no_square_tensor(sharpness):
    case = Case(kv_heads=2, queries=512, keys=512, head_dim=8, value_dim=8, sharpness=sharpness, is_causal=True)
    problem, _ = case.problem(torch.float32)
    settings_ = (problem.scaling, 1.0, None, None, 2.0, None, None, None, True, 0, 0.0, 0.0, None)
    tensors = [tensor.detach() for tensor in (problem.query, problem.key, problem.value)]
    with Largest() as largest, torch.no_grad():
        output, *support = ops._forward(*tensors, *settings_, True)
        ops._backward(torch.ones_like(output), *support, [True] * 3 + [False] * 4, *tensors, *settings_)
    assert largest.size < 512 * 512 // 4


class TestTorch:
    """The requirements of torch on operators."""

    def problem(self, queries: int = 140, requires_grad: bool = True):
        case = Case(
            batch=2, kv_heads=2, groups=2, queries=queries, keys=queries, alpha="head", beta="head", sharpness=9.0
        )
        case = dataclasses.replace(case, bias="head", is_causal=True, steps=2, tolerance=0.1)
        return case.problem(torch.float32, requires_grad=requires_grad)

    def retrieve(self, query, key, value, alpha, beta, bias, dropout=0.0):
        return blocked.run(
            RetrievalProblem(
                query, key, value, 0.3, beta=beta, alpha=alpha, bias=bias, is_causal=True, steps=2, dropout=dropout
            )
        ).output

    def tensors(self, leaves):
        return [leaves[name] for name in ("query", "key", "value", "alpha", "beta", "bias")]

    def test_operator_check(self):
        problem, _ = Case(queries=5, keys=140, sharpness=9.0).problem(torch.float32)
        settings_ = (problem.scaling, 1.0, None, None, 1.5, None, None, None, True, 0, 0.0, 0.0, None)
        operator = torch.ops.hf_sparse_hopfield.blocked_forward.default
        torch.library.opcheck(operator, (problem.query, problem.key, problem.value, *settings_, True))

    # torch 2.9 needs the flag, later ones imply it by fullgraph
    @torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
    @pytest.mark.parametrize("dynamic", [False, True])
    def test_compile(self, dynamic):
        torch._dynamo.reset()
        compiled = torch.compile(self.retrieve, fullgraph=True, dynamic=dynamic, backend="aot_eager")
        for queries in (140, 150) if dynamic else (140,):
            tensors = self.tensors(self.problem(queries)[1])
            expected, actual = self.retrieve(*tensors), compiled(*tensors)
            torch.testing.assert_close(actual, expected)
            gradients = (torch.autograd.grad(x.square().sum(), tensors) for x in (expected, actual))
            for right, got in zip(*gradients, strict=True):
                torch.testing.assert_close(got, right)

    def test_export(self):
        tensors = self.tensors(self.problem()[1])
        test = self

        class Module(torch.nn.Module):
            def forward(self, *tensors):
                return test.retrieve(*tensors)

        program = torch.export.export(Module(), tuple(tensors))
        torch.testing.assert_close(program.module()(*tensors), self.retrieve(*tensors))

    def test_checkpoint(self):
        tensors = self.tensors(self.problem()[1])
        gradients = []
        for wrap in (lambda f, *x: f(*x), lambda f, *x: checkpoint(f, *x, use_reentrant=False)):
            torch.manual_seed(0)
            output = wrap(lambda *x: self.retrieve(*x, dropout=0.3), *tensors)
            gradients.append(torch.autograd.grad(output.square().sum(), tensors))
        for right, got in zip(*gradients, strict=True):
            torch.testing.assert_close(got, right, rtol=0, atol=0)

    def test_autocast_leaves_scores_alone(self):
        tensors = self.tensors(self.problem()[1])
        expected = self.retrieve(*tensors)
        with torch.autocast("cpu", torch.bfloat16):
            output = self.retrieve(*tensors)
        torch.testing.assert_close(output, expected, rtol=0, atol=0)
        gradients = (torch.autograd.grad(x.sum(), tensors) for x in (expected, output))
        for right, got in zip(*gradients, strict=True):
            torch.testing.assert_close(got, right, rtol=0, atol=0)

    def test_deterministic_and_safe_in_threads(self):
        tensors = self.tensors(self.problem(requires_grad=False)[1])
        expected = self.retrieve(*tensors)
        results = []
        threads = [threading.Thread(target=lambda: results.append(self.retrieve(*tensors))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 4
        assert all(torch.equal(result, expected) for result in results)
