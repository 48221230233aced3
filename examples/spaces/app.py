# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""A Space: a sparse language model writes, and shows which tokens it read for each word.

`MODEL` names a checkpoint on the Hub or a folder; without it, a tiny model with random weights shows the page.
"""

import os

import gradio as gr
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, ByT5Tokenizer, LlamaConfig, LlamaForCausalLM

from hf_sparse_hopfield import SparseHopfieldConfig, to_sparse_hopfield


def load():
    if "MODEL" in os.environ:
        name = os.environ["MODEL"]
        return AutoModelForCausalLM.from_pretrained(name).eval(), AutoTokenizer.from_pretrained(name)
    size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    dense = LlamaForCausalLM(
        LlamaConfig(vocab_size=259, bos_token_id=None, eos_token_id=1, pad_token_id=0, initializer_range=0.2, **size)
    )
    return to_sparse_hopfield(dense.eval(), SparseHopfieldConfig(alpha=1.5, beta=1.0)), ByT5Tokenizer()


model, tokenizer = load()
layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads


@torch.inference_mode()
def write(prompt, length):
    """The text, as a list of tokens."""
    inputs = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
    if inputs.input_ids.shape[1] == 0:
        raise gr.Error("Write a few words first.")
    written = model.generate(**inputs, max_new_tokens=int(length), do_sample=False)[0].tolist()
    return written, gr.update(maximum=len(written) - 1, value=len(written) - 1)


@torch.inference_mode()
def read(tokens, position, layer, head):
    """The tokens up to a position, with the weight that this one gave to each."""
    if not tokens:
        return None, ""
    position = min(int(position), len(tokens) - 1)
    attentions = model(torch.tensor([tokens]), output_attentions=True, use_cache=False).attentions
    weights = attentions[int(layer)][0, int(head), position, : position + 1]
    pairs = zip(tokens[: position + 1], weights.tolist(), strict=True)
    shown = [(tokenizer.decode([token]) or "·", weight or None) for token, weight in pairs]
    used = int((weights > 0).sum())
    return shown, f"**{used} of {position + 1}** tokens are read; the others have a weight of exactly zero."


with gr.Blocks(title="A sparse language model") as demo:
    gr.Markdown("# What does a sparse language model read?\nColour is weight. A token without colour has none.")
    tokens = gr.State([])
    prompt = gr.Textbox("Once upon a time", label="Prompt")
    length = gr.Slider(1, 100, 20, step=1, label="New tokens")
    button = gr.Button("Write", variant="primary")
    position = gr.Slider(0, 1, 0, step=1, label="Token that reads")
    layer = gr.Slider(0, layers - 1, 0, step=1, label="Layer")
    head = gr.Slider(0, heads - 1, 0, step=1, label="Head")
    text, summary = gr.HighlightedText(label="Text"), gr.Markdown()
    places, outputs = [tokens, position, layer, head], [text, summary]
    button.click(write, [prompt, length], [tokens, position]).then(read, places, outputs, api_name="read")
    gr.on([position.release, layer.release, head.release], read, places, outputs, api_name=False)


if __name__ == "__main__":
    demo.launch()
