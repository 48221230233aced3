# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Models that are sharded by FSDP2; `test_tensor.py` has them in two processes."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from hf_sparse_hopfield.layers import RetrievalParameters
from hf_sparse_hopfield.parallel.data import is_sharded


@pytest.fixture
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_a_sharded_part_makes_a_sharded_model(alone):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    assert not is_sharded(model)
    fully_shard(model[0], mesh=alone)
    assert is_sharded(model)


def test_without_processes_nothing_is_sharded():
    assert not is_sharded(torch.nn.Linear(2, 2))


def test_learned_values_can_be_set_while_they_are_sharded(alone):
    parameters = RetrievalParameters(4, beta=2.0, learn_beta=True)
    fully_shard(parameters, mesh=alone)
    parameters.set(beta=[1.0, 2.0, 3.0, 4.0])
    torch.testing.assert_close(parameters.log_beta.full_tensor().exp(), torch.arange(1.0, 5.0))
