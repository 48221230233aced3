# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Does a converted chat model still chat? Forty prompts, answered by the dense and the sparse models, side by side.

All answers are greedy. Two figures tell how good they are: the share of repeated 4-grams in an answer, and the loss of a model on the
answers of the dense one.

python examples/conversion/chat.py --dense path/to/SmolLM2-135M-Instruct --sparse path/to/converted path/to/distilled \
  --output docs/chat_answers
"""

import argparse
import math
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import torch
from tqdm.auto import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

import hf_sparse_hopfield  # noqa: F401  (sparse checkpoints load)
from hf_sparse_hopfield.files import write_json


# Written down before any answer was seen.
PROMPTS = (
    "What is the capital of Portugal?",
    "Write a short story about a cat who learns to swim.",
    "Explain photosynthesis to a ten-year-old.",
    "Give me three tips for a job interview.",
    "Write a poem about the sea.",
    "What is the difference between a virus and a bacterium?",
    "How do I boil an egg?",
    "Write a Python function that returns the largest number in a list.",
    "Who wrote Romeo and Juliet?",
    "Suggest a name for a bakery and say why it fits.",
    "Summarise the story of Little Red Riding Hood in two sentences.",
    "Why is the sky blue?",
    "Write an email to my landlord about a broken heater.",
    "List five animals that live in the desert.",
    "What should I pack for a weekend in the mountains?",
    "Translate 'good morning' into French and Spanish.",
    "How does a bicycle stay upright?",
    "Tell me a joke about computers.",
    "What are the benefits of reading every day?",
    "Describe a rainy afternoon in a small town.",
    "What is 12 times 8?",
    "How can I fall asleep faster?",
    "Write a dialogue between a teacher and a student who forgot the homework.",
    "What is inflation in an economy?",
    "Give me a recipe for a simple tomato soup.",
    "Explain what a database is.",
    "Write a birthday message for my grandmother.",
    "What happened in the year 1969?",
    "How do vaccines work?",
    "Rewrite this sentence more politely: Send me the file now.",
    "Which planets have rings?",
    "Write a product description for a wooden toy train.",
    "What is the meaning of the word 'serendipity'?",
    "Plan a day for a tourist in Rome.",
    "Why do leaves change colour in autumn?",
    "Give an argument for and an argument against school uniforms.",
    "How do I start learning to play the guitar?",
    "Write the opening paragraph of a detective novel.",
    "What is machine learning?",
    "How can a family save water at home?",
)


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dense", required=True, help="folder or Hub id of the dense chat model")
    parser.add_argument("--sparse", nargs="+", required=True, help="folders or Hub ids of sparse models")
    parser.add_argument("--prompts", type=int, default=len(PROMPTS), help="how many prompts (default: all 40)")
    parser.add_argument("--tokens", type=int, default=160, help="longest answer in tokens (default: 160)")
    parser.add_argument(
        "--output", type=Path, required=True, help="where to write the figures (.json) and the answers (.md)"
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Let all models answer, and print the table."""
    arguments = parse_arguments(argv)
    prompts = PROMPTS[: arguments.prompts]
    tokenizer = AutoTokenizer.from_pretrained(arguments.dense)
    paths = [arguments.dense, *arguments.sparse]
    names = ["dense", *(Path(path).name for path in arguments.sparse)]
    asked = [
        tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True)["input_ids"]
        for prompt in prompts
    ]
    figures: dict[str, dict[str, Any]] = {}
    for name, path in zip(names, paths, strict=True):
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        answers = [_answer(model, tokens, arguments.tokens) for tokens in tqdm(asked, desc=f"{name} answers")]
        wanted = figures["dense"]["answers"] if figures else answers
        figures[name] = {
            "answers": answers,
            "repeated": [repeated(answer) for answer in answers],
            "losses": [_loss(model, tokens, answer) for tokens, answer in zip(asked, wanted, strict=True)],
        }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    texts = {
        name: [tokenizer.decode(answer, skip_special_tokens=True) for answer in found["answers"]]
        for name, found in figures.items()
    }
    write_json(arguments.output.with_suffix(".json"), figures)
    table = _table(figures)
    arguments.output.with_suffix(".md").write_text(_page(prompts, texts, table))
    print(table)


@torch.no_grad()
def _answer(model: PreTrainedModel, prompt: list[int], tokens: int) -> list[int]:
    inputs = torch.tensor([prompt])
    writer: Any = model
    answer = writer.generate(
        inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=tokens, do_sample=False, pad_token_id=0
    )
    return answer[0, len(prompt) :].tolist()


def repeated(tokens: list[int], size: int = 4) -> float:
    """
    Return the share of n-grams that occurred before in the same text.

    Args:
        tokens (`list[int]`): The text.
        size (`int`, *optional*, defaults to 4): Tokens of an n-gram.
    """
    grams = [tuple(tokens[i : i + size]) for i in range(len(tokens) - size + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


@torch.no_grad()
def _loss(model: PreTrainedModel, prompt: list[int], answer: list[int]) -> float:
    tokens = torch.tensor([prompt + answer])
    logits = model(input_ids=tokens, use_cache=False).logits[0, len(prompt) - 1 : -1]
    return torch.nn.functional.cross_entropy(logits.float(), tokens[0, len(prompt) :]).item()


def _table(figures: dict[str, dict[str, Any]]) -> str:
    lines = ["| model | repeated 4-grams | loss on the dense answers | to dense |", "| --- " * 4 + "|"]
    for name, found in figures.items():
        each = [a - b for a, b in zip(found["losses"], figures["dense"]["losses"], strict=True)]
        error = stdev(each) / math.sqrt(len(each)) if len(each) > 1 else math.nan
        difference = "" if name == "dense" else f"{fmean(each):+.3f} ± {error:.3f}"
        lines.append(f"| {name} | {fmean(found['repeated']):.1%} | {fmean(found['losses']):.3f} | {difference} |")
    return "\n".join(lines)


def _page(prompts: tuple[str, ...], texts: dict[str, list[str]], table: str) -> str:
    parts = [
        "# Answers of dense and sparse models",
        "Made by `examples/conversion/chat.py`; all answers are greedy.",
        table,
    ]
    for number, prompt in enumerate(prompts):
        parts.append(f"## {prompt}")
        for name, answers in texts.items():
            quoted = "\n".join(f"> {line}".rstrip() for line in answers[number].strip().splitlines())
            parts.append(f"**{name}**\n\n{quoted}")
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
