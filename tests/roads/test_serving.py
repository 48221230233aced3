# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Continuous batching and serving."""

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, ContinuousBatchingConfig, GenerationConfig
from transformers.generation.continuous_batching import continuous_api
from transformers.utils.import_utils import is_serve_available

from hf_sparse_hopfield import to_sparse_hopfield

from ..tiny_models import tiny_model
from . import serving
from .serving import PLAIN, PROMPTS, Server
from .table import road


NAME = "sparse_hopfield"
needs_server = pytest.mark.skipif(not is_serve_available(), reason="needs pip install 'transformers[serving]'")
SMALL = ContinuousBatchingConfig(page_size=8, num_blocks=32, max_batch_tokens=64)
GREEDY = GenerationConfig(max_new_tokens=8, do_sample=False, eos_token_id=-1, pad_token_id=0)
INPUTS = [[7, 8, 9], [11] * 12, [20, 30, 40, 50, 60], [5]]


def one_by_one(model) -> list[list[int]]:
    outputs = (model.generate(torch.tensor([tokens]), generation_config=GREEDY)[0].tolist() for tokens in INPUTS)
    return [output[len(tokens) :] for output, tokens in zip(outputs, INPUTS, strict=True)]


def batched(model) -> list[list[int]]:
    results = model.generate_batch(INPUTS, generation_config=GREEDY, continuous_batching_config=SMALL)
    return [result.generated_tokens for result in results.values()]


# ---- In the process ----


@road("`model.generate_batch(...)`, and then `model.generate(...)` again", "equal")
@pytest.mark.parametrize("converted", [True, False], ids=["converted", "by name"])
def test_generate_batch(converted):
    """Requests of different lengths are batched continuously; each has the tokens of `generate`, before and after."""
    model = to_sparse_hopfield(tiny_model("llama")) if converted else tiny_model("llama", NAME)
    expected = one_by_one(model)
    assert batched(model) == expected
    assert one_by_one(model) == expected
    assert expected != one_by_one(tiny_model("llama", "sdpa"))


@road('`model.generate(..., cache_implementation="paged")`', "equal")
def test_generate_with_a_paged_cache():
    """transformers turns the call into continuous batching; the tokens are those of `generate`."""
    model = tiny_model("llama", NAME)
    options = {"cache_implementation": "paged", "continuous_batching_config": SMALL}
    output = model.generate(torch.tensor(INPUTS[2:3]), generation_config=GREEDY, **options)[0, 0].tolist()
    assert output == INPUTS[2] + one_by_one(model)[2]


@road("continuous batching on a machine with flash attention, to which transformers switches models", "equal")
@pytest.mark.parametrize("version", [2, 3])
def test_flash_attention_does_not_take_over(version, monkeypatch):
    """transformers is told that flash attention is there; a dense model is switched to it, a sparse one stays sparse."""
    for known in (2, 3):
        monkeypatch.setattr(continuous_api, f"is_flash_attn_{known}_available", lambda _v=known, **_: _v == version)
    with pytest.raises(ImportError, match=f"flash.*{version}|Flash.*{version}"):
        batched(tiny_model("llama", "sdpa"))
    model = to_sparse_hopfield(tiny_model("llama"))
    assert batched(model) == one_by_one(model)


@road("continuous batching of a family that computes its attention itself (BLOOM, GPT-J)", "refused")
def test_continuous_batching_of_patched_families():
    """Such attention cannot read paged keys: an error names the layer and `generate`."""
    with pytest.raises(ValueError, match="cannot read the paged cache of continuous batching. Use `generate`"):
        batched(tiny_model("bloom", NAME))


# ---- Over HTTP ----


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "checkpoint"
    serving.make_checkpoint(path)
    return path


@pytest.fixture(scope="module")
def expected(checkpoint):
    return serving.answers(AutoModelForCausalLM.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(checkpoint))


BATCHING = ("--continuous-batching", "--cb-num-blocks", "16", "--cb-max-batch-tokens", "256")
ROADS = {"one by one": ((), serving.WITH_PLUGIN), "continuous batching": ((*BATCHING, "--trust-remote-code"), PLAIN)}


@pytest.fixture(scope="module", params=ROADS)
def server(request, checkpoint, tmp_path_factory):
    options, launcher = ROADS[request.param]
    with serving.serving(checkpoint, tmp_path_factory.mktemp("log") / "log", *options, launcher=launcher) as running:
        yield running


def ask(server: Server, count: int, concurrency: int, cancel_every: int) -> list[tuple[str, str, bool]]:
    """Prompt, answer, and whether the request was cancelled: completions and chats, streamed or not, some cancelled."""

    def one(i: int) -> tuple[str, str, bool]:
        prompt, cancel = PROMPTS[i % len(PROMPTS)], i % cancel_every == cancel_every - 1
        return prompt, server.request(prompt, chat=i % 4 > 1, stream=i % 2 == 0, cancel=cancel), cancel

    with ThreadPoolExecutor(concurrency) as pool:
        return list(pool.map(one, range(count)))


def check(answered: list[tuple[str, str, bool]], expected: dict[str, str]) -> None:
    for prompt, text, cancelled in answered:
        assert expected[prompt].startswith(text) and text if cancelled else text == expected[prompt]


@needs_server
@road("`transformers serve <converted checkpoint>`, with and without `--continuous-batching`", "equal")
def test_serve(server, expected):
    """Completions and chats over HTTP, streamed or not, four at a time, one cancelled: the texts are those of `generate`."""
    check(ask(server, 12, 4, cancel_every=12), expected)


@needs_server
@road("`transformers chat` with a served checkpoint", "equal")
def test_chat(server, expected):
    """A message is typed into the command; it prints the text of `generate`."""
    prompt = PROMPTS[3]
    assert expected[prompt].strip() in serving.chat(server, prompt)


@needs_server
@road("`transformers serve <converted checkpoint>` without importing the plugin", "refused")
def test_serve_without_the_plugin(checkpoint):
    """The command ends with an error and no server, instead of serving a dense model."""
    command = serving.serve_command(checkpoint, launcher=PLAIN)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert done.returncode != 0 and "trust_remote_code=True" in done.stderr


@needs_server
@road("`transformers serve <dense checkpoint> --attn-implementation sparse_hopfield`", "refused")
def test_serve_by_name():
    """The model manager of `transformers serve` refuses names that are not its own; convert the checkpoint instead."""
    from transformers.cli.serving.model_manager import ModelManager

    with pytest.raises(ValueError, match=f"Unsupported attention implementation: '{NAME}'"):
        ModelManager(device="cpu", attn_implementation=NAME)


@needs_server
@road("`transformers serve <sparse checkpoint> --attn-implementation sdpa`", "refused")
def test_serve_with_another_attention(checkpoint):
    """The model manager of `transformers serve` loads the checkpoint; the error names `to_dense`."""
    from transformers.cli.serving.model_manager import ModelManager

    manager = ModelManager(device="cpu", attn_implementation="sdpa")
    with pytest.raises(ValueError, match="to_dense"):
        manager.load_model_and_processor(f"{checkpoint}@main")


@needs_server
@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads memory from /proc")
@road("a served checkpoint under load: 200 requests, 16 at a time, one in twenty cancelled", "equal")
def test_load(server, expected):
    """No request is lost, each text is that of `generate`, and after 200 requests more the memory is as before."""
    check(ask(server, 100, 16, cancel_every=20), expected)
    before, start = server.memory(), time.monotonic()
    check(ask(server, 200, 16, cancel_every=20), expected)
    seconds, after = time.monotonic() - start, server.memory()
    print(
        f"\n200 requests in {seconds:.1f} s; {before:.0f} MiB before, {after:.0f} after, {server.memory('VmHWM'):.0f} peak"
    )
    assert after - before < 20
