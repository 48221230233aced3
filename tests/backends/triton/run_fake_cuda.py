# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""What runs on fake CUDA tensors, in a process of its own: `run_fake_cuda.py LIBRARY`. Prints a JSON object.

Fake tensors have a device and a shape but no numbers: mixing devices raises, and so does a shape that depends on numbers. What is
left is to count: operators that launch kernels, copies from the host, and looks at a number, which wait for the GPU.
"""

import ctypes
import importlib.util
import json
import sys
from pathlib import Path


# before torch asks whether there is CUDA
_TORCH = Path(importlib.util.find_spec("torch").submodule_search_locations[0]) / "lib"
for _name in ("libc10.so", "libtorch_cpu.so"):
    ctypes.CDLL(str(_TORCH / _name), mode=ctypes.RTLD_GLOBAL)
ctypes.CDLL(sys.argv[1])

import torch  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from hf_sparse_hopfield import SparseHopfieldCache, retrieve  # noqa: E402
from hf_sparse_hopfield.functional import explain_backend  # noqa: E402
from hf_sparse_hopfield.layers import (  # noqa: E402
    HopfieldMemory,
    PolynomialMemory,
    SparseHopfield,
    SparseHopfieldLayer,
    SparseHopfieldPooling,
)
from tests.tiny_models import tiny_inputs, tiny_model  # noqa: E402


ALLOCATES = {
    "device",
    "empty",
    "empty_like",
    "new_empty",
    "empty_strided",
    "new_empty_strided",
    "detach",
    "lift_fresh",
    "alias",
}


class Counts(TorchDispatchMode):
    """Counts the operators that launch kernels, by name, copies from the host, and looks at a number: a look sees True or 3."""

    def __enter__(self):
        self.launches, self.copies, self.waits = {}, 0, 0
        return super().__enter__()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name.split("::")[1]
        if name == "_local_scalar_dense":
            self.waits += args[0].device.type == "cuda"
            return True if args[0].dtype == torch.bool else 3
        result = function(*args, **(kwargs or {}))
        self.waits += name == "entmax_forward"  # it looks after each Newton step, which its fake does not show
        given, made = tree_leaves((args, kwargs)), tree_leaves(result)
        on_gpu = any(isinstance(x, torch.Tensor) and x.device.type == "cuda" for x in (*given, *made))
        if on_gpu and not function.is_view and name not in ALLOCATES:
            self.launches[name] = self.launches.get(name, 0) + 1
            if name in ("_to_copy", "copy_"):
                sources = [x for x in given if isinstance(x, torch.Tensor)]
                self.copies += sources[-1].device.type != "cuda" and sources[-1].numel() > 0
        return result


def tensors(queries=128, keys=128, heads=4, kv_heads=2, width=64, dtype=torch.bfloat16, requires_grad=False):
    shapes = ((heads, queries), (kv_heads, keys), (kv_heads, keys))
    return [torch.randn(2, *shape, width, device="cuda", dtype=dtype, requires_grad=requires_grad) for shape in shapes]


def cases():
    """Every case that the kernels serve, by name: sizes and options of `retrieve`."""

    def cuda(*shape, grad=False, kind=torch.float32):
        return torch.rand(shape, device="cuda").to(kind).requires_grad_(grad)

    mask = cuda(2, 1, 1, 128) > 0.5
    numbers = torch.ones(2, 128, device="cuda", dtype=torch.int32)
    return {
        "sparsemax": ({}, {"alpha": 2.0}),
        "entmax15, causal": ({}, {"alpha": 1.5, "is_causal": True}),
        "any alpha": ({}, {"alpha": 1.3}),
        "alpha and beta of heads, learned": ({}, {"alpha": cuda(4, grad=True) + 1, "beta": cuda(4, grad=True) + 1}),
        "alpha and beta of rows": ({}, {"alpha": cuda(2, 4, 128, 1) + 1, "beta": cuda(2, 4, 128, 1) + 1}),
        "window": ({}, {"alpha": 1.5, "is_causal": True, "sliding_window": 16}),
        "padding": ({}, {"alpha": 1.5, "is_causal": True, "mask": mask}),
        "packed": ({}, {"alpha": 1.5, "is_causal": True, "segments": (numbers, numbers)}),
        "mask": ({}, {"alpha": 1.5, "mask": cuda(2, 4, 128, 128) > 0.5}),
        "bias": ({}, {"alpha": 1.5, "bias": cuda(1, 4, 128, 128, grad=True)}),
        "softcap": ({}, {"alpha": 1.5, "softcap": 30.0}),
        "sinks": ({}, {"alpha": 1.5, "sinks": cuda(4, grad=True)}),
        "dropout": ({}, {"alpha": 1.5, "dropout": 0.1}),
        "cross-attention": ({"queries": 64, "keys": 128}, {"alpha": 1.5}),
        "wide heads": ({"width": 256}, {"alpha": 1.5}),
        "odd heads": ({"width": 80}, {"alpha": 1.5}),
        "float32": ({"dtype": torch.float32}, {"alpha": 1.5}),
        "float16": ({"dtype": torch.float16}, {"alpha": 1.5}),
        "several steps": ({}, {"alpha": 1.5, "steps": 3}),
        "decode": ({"queries": 1}, {"alpha": 1.5, "is_causal": True}),
        "softmax with a softcap": ({}, {"alpha": 1.0, "softcap": 30.0}),
    }


def counted(action, *arguments, **options):
    with Counts() as counts:
        result = action(*arguments, **options)
    return result, {"launches": counts.launches, "copies": counts.copies, "waits": counts.waits}


def retrieval():
    found = {}
    for name, (sizes, options) in cases().items():
        inputs = tensors(**sizes, requires_grad=name != "decode")
        record = {"backend": explain_backend(*inputs, **options).partition(":")[0]}
        output, record["forward"] = counted(retrieve, *inputs, **options)
        assert output.device.type == "cuda"
        if output.requires_grad:
            _, record["backward"] = counted(output.sum().backward)
        found[name] = record
    return found


def layers():
    found = {}
    with torch.device("cuda"):
        kinds = (
            SparseHopfield(32, num_heads=4),
            SparseHopfieldPooling(32, num_heads=4),
            SparseHopfieldLayer(32, quantity=30),
        )
        inputs = torch.randn(2, 20, 32)
    for layer in kinds:
        output, record = counted(layer, inputs)
        output = output[0] if isinstance(output, tuple) else output
        _, back = counted(output.sum().backward)
        found[type(layer).__name__] = {"forward": record, "backward": back}
    return found


def memories():
    """What is done with a memory, by name."""
    found = {}

    def record(name, action, *arguments, **options):
        result, found[name] = counted(action, *arguments, **options)
        return result

    patterns, queries = (torch.randn(n, 64, device="cuda", dtype=torch.bfloat16) for n in (1000, 500))
    memory = record("make", HopfieldMemory, patterns, alpha=1.5)
    record("add", memory.add, patterns)
    record("retrieve", memory, queries)
    record("retrieve a few", memory, queries[:2])
    record("retrieve in steps", memory.retrieve, queries, steps=3, tolerance=0.1)
    record("trace", memory.retrieve, queries, steps=2, return_trace=True)
    record("energy", memory.energy, queries)
    matches = record("search", memory.search, queries)
    assert matches.rows.shape == (500, 3) and {x.device.type for x in vars(matches).values()} == {"cuda"}
    memory._segments[0].remove(torch.tensor([3, 5]))  # `memory.remove` has to look at these numbers, on the CPU
    record("retrieve after a removal", memory, queries)
    memory = record("make with cosines", HopfieldMemory, patterns.float(), normalize=True)
    record("retrieve by cosines", memory, queries.float())
    memory = record("make with softmax", HopfieldMemory, patterns, alpha=1.0)
    record("retrieve by softmax", memory, queries)
    memory, later = (record("make on the CPU", HopfieldMemory, torch.randn(n, 64)) for n in (30, 20))
    memory._segments += later._segments  # as a folder that was saved to twice has them
    memory = record("move segments", memory.to, "cuda")
    assert len(memory) == 50 and memory.rows.device.type == "cuda"
    record("retrieve from segments", memory, queries.float())
    memory = record("make polynomial", PolynomialMemory, patterns)
    record("retrieve by powers", memory, queries)
    return found


def models():
    found = {}
    for name in ("llama", "bert", "t5", "whisper"):
        with torch.device("cuda"):
            model = tiny_model(name, "sparse_hopfield").train()
        inputs = {key: value.cuda() for key, value in tiny_inputs(name).items()}
        output, forward = counted(model, **inputs)
        _, backward = counted(output.logits.float().sum().backward)
        found[name] = {"forward": forward, "backward": backward}
    with torch.device("cuda"):
        model = tiny_model("llama", "sparse_hopfield").eval()
    with torch.no_grad():
        cache = SparseHopfieldCache(config=model.config)
        model(torch.ones(2, 20, dtype=torch.long, device="cuda"), past_key_values=cache)
        _, step = counted(model, torch.ones(2, 1, dtype=torch.long, device="cuda"), past_key_values=cache)
    found["llama, a step of generate"] = {"forward": step}
    with torch.no_grad():
        cache = SparseHopfieldCache(config=model.config)
        model(torch.ones(2, 1500, dtype=torch.long, device="cuda"), past_key_values=cache)
        _, step = counted(model, torch.ones(2, 1, dtype=torch.long, device="cuda"), past_key_values=cache)
    found["llama, a step of generate with many keys"] = {"forward": step}
    return found


if __name__ == "__main__":
    torch.cuda._lazy_init = lambda: None
    with FakeTensorMode(allow_non_fake_inputs=True):
        print(json.dumps({"retrieve": retrieval(), "layers": layers(), "memories": memories(), "models": models()}))
