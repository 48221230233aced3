# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""The Space starts, and answers over HTTP."""

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from transformers import ByT5Tokenizer

from hf_sparse_hopfield import SparseHopfieldConfig, to_sparse_hopfield

from ..tiny_models import tiny_model


APP = Path(__file__).parents[2] / "examples" / "spaces" / "app.py"


def test_it_is_short():
    assert len(APP.read_text(encoding="utf-8").splitlines()) < 80


@pytest.mark.slow
def test_the_space_writes_and_shows_what_is_read(tmp_path):
    pytest.importorskip("gradio", reason="needs gradio: .ci/recipes installs it")
    from gradio_client import Client

    tokenizer = ByT5Tokenizer()
    model = tiny_model("llama", vocab_size=259, max_position_embeddings=512, eos_token_id=-1)
    model = to_sparse_hopfield(model, SparseHopfieldConfig(alpha=2.0, beta=2.0)).eval()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {"MODEL": str(tmp_path), "GRADIO_SERVER_PORT": str(port), "GRADIO_ANALYTICS_ENABLED": "False"}
    with open(tmp_path / "log", "w") as log:
        app = subprocess.Popen([sys.executable, APP], env={**os.environ, **settings}, stdout=log, stderr=log)
    try:
        client = connect(Client, port, app, tmp_path / "log")
        client.predict("A sparse head", 5, api_name="/write")
        shown, summary = client.predict(15, 1, 2, api_name="/read")
    finally:
        app.terminate()
        app.wait()
    prompt = tokenizer("A sparse head", return_tensors="pt", add_special_tokens=False)
    written = model.generate(**prompt, max_new_tokens=5, do_sample=False)
    with torch.no_grad():
        weights = model(written, output_attentions=True).attentions[1][0, 2, 15, :16]
    used = int((weights > 0).sum())
    assert 0 < used < 16
    assert re.match(rf"\*\*{used} of 16\*\*", summary)
    given = torch.tensor(
        [0.0 if entry["class_or_confidence"] is None else entry["class_or_confidence"] for entry in shown]
    )
    torch.testing.assert_close(given, weights, atol=1e-5, rtol=1e-4)


def connect(client, port, app, log):
    for _ in range(240):
        try:
            return client(f"http://127.0.0.1:{port}", verbose=False)
        except Exception:  # not there yet
            if app.poll() is not None:
                break
            time.sleep(0.5)
    raise AssertionError(log.read_text())
