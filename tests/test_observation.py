# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Observers see what layers retrieve and choose their settings, in threads and nested, and leave nothing behind."""

import contextvars
import threading

import pytest
import torch

from hf_sparse_hopfield import SparseHopfield, to_sparse_hopfield
from hf_sparse_hopfield.observation import Observer, OwnSettings, look_at, observed
from hf_sparse_hopfield.observed_problems import evaluate
from hf_sparse_hopfield.retrieval_parameters import RetrievalParameters

from .tiny_models import tiny_inputs, tiny_model, tiny_output


FAMILIES = ("bert", "llama", "t5", "vit", "mpnet", "bloom", "gpt_oss", "whisper", "llava")


class Recorder(Observer):
    def __init__(self):
        self.problems = {}

    def observe(self, name, problem):
        self.problems[name] = problem


class OwnRecorder(Recorder, OwnSettings):
    pass


@pytest.mark.parametrize("name", FAMILIES)
def test_observed_dense_is_the_dense_model(name):
    inputs = tiny_inputs(name)
    model = tiny_model(name)
    expected = tiny_output(model, inputs)
    model = to_sparse_hopfield(model, {"alpha": 1.5, "beta": 0.7})
    sparse = tiny_output(model, inputs)
    recorder = Recorder()
    with observed(model, recorder) as layers:
        output = tiny_output(model, inputs)
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-4)
    assert set(recorder.problems) == set(layers)
    torch.testing.assert_close(tiny_output(model, inputs), sparse)  # nothing is left behind
    assert not any("forward" in vars(module) for module in model.modules())


@pytest.mark.parametrize("name", ["mpnet", "bloom", "bert", "llama"])
def test_observed_problem_solves_to_what_the_module_computes(name):
    inputs = tiny_inputs(name)
    model = to_sparse_hopfield(tiny_model(name), {"alpha": 1.5, "beta": 0.7})
    expected = model(**inputs, output_attentions=True).attentions[0]

    recorder = OwnRecorder()
    with observed(model, recorder):
        output = tiny_output(model, inputs)
    torch.testing.assert_close(output, tiny_output(model, inputs), rtol=1e-4, atol=1e-4)
    problem = next(iter(recorder.problems.values()))
    result = evaluate(problem, 0.7, 1.5, return_weights=True)
    torch.testing.assert_close(result.weights, expected, rtol=1e-4, atol=1e-5)
    assert problem.value.shape[-1] == 8  # the values were found, also behind a plain matrix product


@pytest.mark.parametrize("name", ["bert", "mpnet"])
def test_threads_do_not_see_each_other(name):
    model = to_sparse_hopfield(tiny_model(name), {"alpha": 2.0, "beta": 3.0})
    inputs = tiny_inputs(name)
    sparse = tiny_output(model, inputs)
    with observed(model, Observer()):
        dense = tiny_output(model, inputs)
    assert not torch.allclose(sparse, dense, atol=1e-4)
    barrier, outputs, recorders = threading.Barrier(3), {}, {}

    def run(kind):
        for _ in range(5):
            barrier.wait()
            if kind == "plain":
                outputs[kind] = tiny_output(model, inputs)
                continue
            recorders[kind] = Recorder() if kind == "dense" else OwnRecorder()
            with observed(model, recorders[kind]):
                outputs[kind] = tiny_output(model, inputs)

    threads = [threading.Thread(target=run, args=(kind,)) for kind in ("plain", "dense", "own")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.testing.assert_close(outputs["plain"], sparse)
    torch.testing.assert_close(outputs["own"], sparse, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(outputs["dense"], dense)
    assert len(recorders["dense"].problems) == len(recorders["own"].problems) == 2


@pytest.mark.parametrize("name", ["llama", "bloom"])
def test_observation_nests(name):
    """All observers see a retrieval, and the innermost one chooses."""
    model = to_sparse_hopfield(tiny_model(name), {"alpha": 2.0, "beta": 3.0})
    inputs = tiny_inputs(name)
    sparse = tiny_output(model, inputs)
    outer, inner = Recorder(), OwnRecorder()
    with observed(model, outer):
        dense = tiny_output(model, inputs)
        outer.problems.clear()
        with observed(model, inner):
            torch.testing.assert_close(tiny_output(model, inputs), sparse, rtol=1e-4, atol=1e-4)
        assert outer.problems.keys() == inner.problems.keys() and len(outer.problems) == 2
        torch.testing.assert_close(tiny_output(model, inputs), dense)
    torch.testing.assert_close(tiny_output(model, inputs), sparse)


def test_an_observer_may_run_the_model_itself():
    model = to_sparse_hopfield(tiny_model("bert"), {"alpha": 2.0, "beta": 3.0})
    inputs = tiny_inputs("bert")
    sparse = tiny_output(model, inputs)
    seen = []

    class Runs(Observer):
        def observe(self, name, problem):
            seen.append(tiny_output(model, inputs))

    with observed(model, Runs()):
        tiny_output(model, inputs)
    assert len(seen) == 2
    torch.testing.assert_close(seen[0], sparse)


def test_an_error_ends_the_observation():
    model = to_sparse_hopfield(tiny_model("bert"))
    parameters = next(module for module in model.modules() if isinstance(module, RetrievalParameters))
    with pytest.raises(KeyError), observed(model, Observer()):
        assert look_at(parameters) is not None
        raise KeyError
    assert look_at(parameters) is None


def test_models_made_of_layers_are_observed():
    model = torch.nn.ModuleDict({"memory": SparseHopfield(8, num_heads=2, scaling=[0.5, 2.0], beta=[1.0, 3.0])}).eval()
    inputs = torch.randn(2, 5, 8)
    expected = model["memory"](inputs)
    recorder = OwnRecorder()
    with observed(model, recorder):
        torch.testing.assert_close(model["memory"](inputs), expected)
    assert list(recorder.problems) == ["memory"]
    # the scaling of a head belongs to the dense layer, its beta does not
    assert recorder.problems["memory"].beta.flatten().tolist() == [0.5, 2.0]


def test_a_compiled_model_is_observed():
    model = to_sparse_hopfield(tiny_model("bert"), {"alpha": 2.0, "beta": 3.0})
    inputs = tiny_inputs("bert")
    with observed(model, Observer()):
        dense = tiny_output(model, inputs)
    model.compile(backend="eager")
    sparse = tiny_output(model, inputs)
    recorder = Recorder()
    with observed(model, recorder):
        torch.testing.assert_close(tiny_output(model, inputs), dense)
    assert len(recorder.problems) == 2
    torch.testing.assert_close(tiny_output(model, inputs), sparse)


def test_a_dense_model_is_refused():
    with pytest.raises(ValueError, match="BertForMaskedLM has no layer that retrieves sparsely"):
        with observed(tiny_model("bert"), Observer()):
            pass


def test_contexts_of_generators_end_in_any_order():
    model = to_sparse_hopfield(tiny_model("bert"), {"alpha": 2.0, "beta": 3.0})
    inputs = tiny_inputs("bert")
    sparse = tiny_output(model, inputs)

    def steps(observer):
        with observed(model, observer):
            yield

    first, second = steps(Observer()), steps(Observer())
    next(first), next(second)
    first.close()
    second.close()
    torch.testing.assert_close(tiny_output(model, inputs), sparse)


def test_what_outlives_the_context_is_not_observed():
    model = to_sparse_hopfield(tiny_model("bert"), {"alpha": 2.0, "beta": 3.0})
    inputs = tiny_inputs("bert")
    sparse = tiny_output(model, inputs)
    with observed(model, Observer()):
        inherited = contextvars.copy_context()
    torch.testing.assert_close(inherited.run(tiny_output, model, inputs), sparse)


def test_observing_compiled_models_in_threads_leaves_compilation_on():
    model = to_sparse_hopfield(tiny_model("bert"))
    model.compile(backend="eager")
    inside, leave = threading.Barrier(2), threading.Event()

    def observe():
        with observed(model, Observer()):
            inside.wait()
            leave.wait()

    thread = threading.Thread(target=observe)
    with observed(model, Observer()):
        thread.start()
        inside.wait()
    leave.set()
    thread.join()
    seen = []
    function = torch.compile(lambda x: seen.append(torch.compiler.is_compiling()) or x + 1, backend="eager")
    function(torch.ones(2))
    assert seen == [True]
