# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A checkpoint to serve, `transformers serve` in a process of its own, and a client that speaks HTTP over loopback."""

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from hf_sparse_hopfield import SparseHopfieldConfig, to_sparse_hopfield
from hf_sparse_hopfield.demo.text import TEXT

from ..tiny_models import tiny_model


# transformers has no plugin entry point: the process that serves imports the plugin first ...
WITH_PLUGIN = ("-c", "import hf_sparse_hopfield; from transformers.cli.transformers import main; main()")
# ... or the checkpoint does, with --trust-remote-code.
PLAIN = ("-m", "transformers.cli.transformers")

LENGTH = 24  # tokens of an answer
PROMPTS = [" ".join(line.split()[: 2 + i % 5]) for i, line in enumerate(TEXT.splitlines()[:40]) if line]


def make_checkpoint(path: Path) -> None:
    """Save a small sparse Llama, with a tokenizer trained on the demo's text."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = ["<unk>", "<s>", "</s>"]
    tokenizer.train_from_iterator(TEXT.splitlines(), trainers.BpeTrainer(vocab_size=400, special_tokens=special))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    fast.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    fast.save_pretrained(path)
    model = tiny_model("llama", vocab_size=len(fast), max_position_embeddings=512, eos_token_id=-1)
    settings = SparseHopfieldConfig(alpha=[1.3, 1.5, 1.7, 2.0], beta=[0.7, 1.0, 1.4, 2.0])
    to_sparse_hopfield(model, settings).save_pretrained(path)


def answers(model: torch.nn.Module, tokenizer: PreTrainedTokenizerFast, length: int = LENGTH) -> dict[str, str]:
    """What `generate` answers to each of `PROMPTS`."""
    texts = {}
    for prompt in PROMPTS:
        inputs = tokenizer(prompt, return_tensors="pt")
        output = model.generate(**inputs, max_new_tokens=length, do_sample=False, pad_token_id=0)
        texts[prompt] = tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return texts


@dataclass
class Server:
    """A running `transformers serve`."""

    port: int
    process: subprocess.Popen
    model: str
    log: Path

    def memory(self, name: str = "VmRSS") -> float:
        """Resident memory in MiB; `VmHWM` for its peak."""
        line = next(line for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines() if name in line)
        return int(line.split()[1]) / 1024

    def request(self, prompt: str, chat: bool = False, stream: bool = False, cancel: bool = False, **body) -> str:
        """The answer to a prompt. A cancelled request is given up after its first piece of text."""
        path = "/v1/chat/completions" if chat else "/v1/completions"
        content = {"messages": [{"role": "user", "content": prompt}]} if chat else {"prompt": prompt}
        defaults = {"model": self.model, "max_tokens": LENGTH, "temperature": 0, "stream": stream or cancel}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            body = json.dumps(defaults | content | body)
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != 200:
                raise RuntimeError(f"{response.status}: {response.read().decode()}")
            if not (stream or cancel):
                choice = json.loads(response.read())["choices"][0]
                return choice["message"]["content"] if chat else choice["text"]
            text = ""
            for piece in _pieces(response):
                text += piece
                if cancel and piece:
                    return text
            return text
        finally:
            connection.close()


def _pieces(response: http.client.HTTPResponse) -> Iterator[str]:
    for line in response:
        if not line.startswith(b"data: ") or b"[DONE]" in line:
            continue
        event = json.loads(line.removeprefix(b"data: "))
        if "error" in event:
            raise RuntimeError(event["error"])
        for choice in event["choices"]:
            yield choice.get("text") or choice.get("delta", {}).get("content") or ""


def serve_command(checkpoint: Path | str, *options: str, launcher: tuple[str, ...] = WITH_PLUGIN) -> list[str]:
    """The command that serves a checkpoint."""
    return [sys.executable, *launcher, "serve", str(checkpoint), "--device", "cpu", *options]


@contextmanager
def serving(checkpoint: Path, log: Path, *options: str, launcher: tuple[str, ...] = WITH_PLUGIN) -> Iterator[Server]:
    """
    Serve a checkpoint until the context ends.

    Args:
        checkpoint (`Path`): The checkpoint.
        log (`Path`): Where the output of the server goes.
        *options (`str`): Options of `transformers serve`.
        launcher (`tuple[str, ...]`): How Python starts the command line of transformers.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = serve_command(checkpoint, "--host", "127.0.0.1", "--port", str(port), *options, launcher=launcher)
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not _listens(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start:\n{log.read_text()}")
            time.sleep(0.1)
        yield Server(port, process, str(checkpoint), log)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:  # a request that hangs keeps the server alive
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def chat(server: Server, message: str) -> str:
    """What `transformers chat` prints after a message, with an answer of `LENGTH` tokens."""
    url = f"http://127.0.0.1:{server.port}/v1"
    flags = [f"max_new_tokens={LENGTH}", "do_sample=False"]
    command = [sys.executable, *PLAIN, "chat", server.model, url, *flags]
    environment = os.environ | {
        "TERM": "dumb",
        "COLUMNS": "1000",
        "HF_HUB_OFFLINE": "0",
    }  # offline, it refuses loopback
    typed = f"{message}\nn\n!exit\n"  # `n`: do not continue an answer that reached its length
    done = subprocess.run(command, input=typed, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout
