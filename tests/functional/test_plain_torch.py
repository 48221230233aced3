# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Retrieval in torch's own operators, as exports record it."""

import pytest
import torch

from hf_sparse_hopfield import entmax, retrieve
from hf_sparse_hopfield.functional import explain_backend, plain_torch, threshold


class Retrieval(torch.nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, query, key, value, mask=None):
        return retrieve(query, key, value, mask=mask, is_causal=True, **self.options)


def hard_rows(keys):
    """Scores that are far apart, nearly equal, and that come closer and closer to an edge of the support."""
    scale = 10 ** (torch.rand(16, 1) * 6 - 5)
    steps = torch.arange(keys) * torch.rand(16, 1) * 2
    near_an_edge = -3 * torch.rand(16, 1) * (1 - (0.01 + 0.98 * torch.rand(16, 1)) ** steps)
    return torch.cat([scale * torch.randn(16, keys), near_an_edge, -torch.log1p(torch.arange(keys) * scale)])


@pytest.mark.parametrize("alpha", [1.01, 1.5, 1.75, 2.0])
@pytest.mark.parametrize("keys", [1, 7, 600])
def test_weights_are_those_of_the_definition(alpha, keys):
    scores = hard_rows(keys)
    scores[3, keys // 2 :] = -torch.inf
    scores[4] = -torch.inf
    exact = entmax(scores.double(), alpha)
    for given in (alpha, torch.full((48, 1), alpha)):
        with plain_torch():
            weights, cut = entmax(scores, given), threshold(scores, given)
        torch.testing.assert_close(weights.double(), exact, atol=1e-6, rtol=0)
        torch.testing.assert_close(cut.double(), threshold(scores.double(), alpha), atol=1e-5, rtol=1e-5)
    assert (weights[3, keys // 2 :] == 0).all() and (weights[4] == 0).all()


@pytest.mark.parametrize(
    ("options", "strict"),
    [
        ({"alpha": 1.5, "sliding_window": 5}, False),
        pytest.param({"alpha": 2.0, "steps": 2}, True, marks=pytest.mark.slow),
        pytest.param({"alpha": torch.tensor([1.2, 2.0]).view(1, 2, 1, 1)}, True, marks=pytest.mark.slow),
    ],
)
def test_an_exported_program_has_no_operators_of_ours(options, strict):
    query, key, value = torch.randn(3, 2, 2, 20, 8)
    mask = (torch.arange(20) > torch.tensor([[0], [6]])).view(2, 1, 1, 20)
    length = torch.export.Dim("length", min=2, max=4096)
    shapes = (*({2: length},) * 3, {3: length})
    with plain_torch(), torch.no_grad():
        program = torch.export.export(
            Retrieval(**options), (query, key, value, mask), dynamic_shapes=shapes, strict=strict
        )
    assert not [node for node in program.graph.nodes if "hf_sparse_hopfield" in str(node.target)]
    shorter = query[:, :, :9], key[:, :, :9], value[:, :, :9], mask[..., :9]
    for inputs in ((query, key, value, mask), shorter):
        torch.testing.assert_close(program.module()(*inputs), Retrieval(**options)(*inputs), atol=1e-5, rtol=1e-5)


def test_the_context_ends():
    patterns = torch.randn(3, 1, 2, 8, 16)
    before = explain_backend(*patterns)
    with plain_torch():
        assert explain_backend(*patterns).startswith("reference: ")
        with pytest.raises(ValueError, match="backend='blocked' cannot serve this call: .*own operators"):
            retrieve(*patterns, backend="blocked")
        with plain_torch():
            pass
        assert explain_backend(*patterns).startswith("reference: ")
    assert explain_backend(*patterns) == before


@pytest.mark.slow  # the first export of a process takes seconds
@pytest.mark.parametrize("alpha", [1.5, 2.0, torch.tensor([1.2, 2.0]).view(1, 2, 1, 1)])
def test_onnxruntime_computes_the_same(alpha):
    pytest.importorskip("onnxscript", reason="torch.onnx.export needs it")
    onnxruntime = pytest.importorskip("onnxruntime", reason="it runs what is exported")
    query, key, value = torch.randn(3, 2, 2, 20, 8)
    mask = (torch.arange(20) > torch.tensor([[0], [6]])).view(2, 1, 1, 20)
    model = Retrieval(alpha=alpha).eval()
    program = torch.onnx.export(model, (query, key, value, mask), dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    inputs = {
        given.name: tensor.numpy()
        for given, tensor in zip(session.get_inputs(), (query, key, value, mask), strict=True)
    }
    output = torch.from_numpy(session.run(None, inputs)[0])
    torch.testing.assert_close(output, model(query, key, value, mask), atol=1e-5, rtol=1e-5)
    assert (output[1, :, :7] == 0).all()  # these rows see no key


@pytest.mark.slow
def test_the_old_exporter_is_refused():
    pytest.importorskip("onnx", reason="torch.onnx.export needs it")
    with pytest.raises(RuntimeError, match="Use dynamo=True"):
        torch.onnx.export(Retrieval().eval(), tuple(torch.randn(3, 1, 2, 5, 8)), "old.onnx", dynamo=False)
