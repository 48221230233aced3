# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Make Whisper sparse, and compare what it writes down with what the dense model does.

The weights are those of OpenAI's own checkpoint (`tiny.en.pt`), whose names are changed once into those of transformers. Calibration and
distillation hear the recordings of `--train`, cut into pieces; the words are compared on those of `--test`.

python examples/conversion/speech.py --weights tiny.en.pt --train endgame.wav --test beckett.wav two_cities.wav \
  --vocabulary gpt2.tiktoken --alpha 1.5 --output results/whisper.json
"""

import argparse
import base64
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.io import wavfile
from scipy.signal import resample_poly
from transformers import GenerationConfig, WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

from hf_sparse_hopfield import calibrate, distill
from hf_sparse_hopfield.diagnostics import sparsity_report
from hf_sparse_hopfield.files import write_json


RATE = 16_000
SECONDS = 30  # what Whisper hears at once
START, NO_TIMESTAMPS, END = 50257, 50362, 50256  # of the English models
# OpenAI's names, and those of transformers
NAMES = (
    (r"\.blocks\.", ".layers."),
    (r"\.mlp\.0\.", ".fc1."),
    (r"\.mlp\.2\.", ".fc2."),
    (r"\.mlp_ln\.", ".final_layer_norm."),
    (r"\.cross_attn_ln\.", ".encoder_attn_layer_norm."),
    (r"\.attn_ln\.", ".self_attn_layer_norm."),
    (r"\.cross_attn\.", ".encoder_attn."),
    (r"\.attn\.", ".self_attn."),
    (r"\.query\.", ".q_proj."),
    (r"\.key\.", ".k_proj."),
    (r"\.value\.", ".v_proj."),
    (r"\.out\.", ".out_proj."),
    (r"\.positional_embedding$", ".embed_positions.weight"),
    (r"\.token_embedding\.", ".embed_tokens."),
    (r"\.ln_post\.", ".layer_norm."),
    (r"^decoder\.ln\.", "decoder.layer_norm."),
)


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True, help="OpenAI's checkpoint of an English model")
    parser.add_argument("--train", type=Path, nargs="+", required=True, help="recordings (wav) to calibrate on")
    parser.add_argument("--test", type=Path, nargs="+", required=True, help="recordings (wav) to compare on")
    parser.add_argument("--vocabulary", type=Path, help="OpenAI's gpt2.tiktoken, to print words instead of numbers")
    parser.add_argument("--alpha", type=float, default=1.5)
    parser.add_argument("--distill_steps", type=int, default=0, help="steps of distillation (default: none)")
    parser.add_argument("--output", type=Path, required=True, help="JSON file for the result")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Convert, and compare the words."""
    arguments = parse_arguments(argv)
    model = load_whisper(arguments.weights)
    extractor = WhisperFeatureExtractor()
    test = {path.name: _features(extractor, _pieces(read_sound(path), SECONDS)) for path in arguments.test}
    dense = {name: _written(model, features) for name, features in test.items()}
    batches = []
    for path in arguments.train:
        # pieces of several lengths: silence fills up the rest of what the model hears
        for seconds in (SECONDS, 12, 5):
            for features in _features(extractor, _pieces(read_sound(path), seconds)).split(1):
                words = torch.tensor(_written(model, features))
                batches.append({"input_features": features, "decoder_input_ids": words[None]})
    model, report = calibrate(model, batches, alpha=arguments.alpha, progress=True)
    result: dict[str, Any] = {"batches": len(batches)}
    if arguments.distill_steps:
        model, distilled = distill(model, batches, steps=arguments.distill_steps, layer_steps=0)
        result["held_out"] = distilled.held_out
    result["keys"] = sparsity_report(model, batches[:4], rows=64).share
    words = _decoder(arguments.vocabulary)
    for name, features in test.items():
        sparse = _written(model, features)
        result[name] = {"same": sparse == dense[name], "dense": words(dense[name]), "sparse": words(sparse)}
        print(
            f"{name}: {'the same' if sparse == dense[name] else 'different'}\n  {words(dense[name])}\n  {words(sparse)}"
        )
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    write_json(arguments.output, result)


def load_whisper(path: Path) -> WhisperForConditionalGeneration:
    """Load OpenAI's checkpoint of an English model into transformers' class."""
    stored = torch.load(path, weights_only=True, map_location="cpu")
    sizes = stored["dims"]
    config = WhisperConfig(
        vocab_size=sizes["n_vocab"],
        num_mel_bins=sizes["n_mels"],
        d_model=sizes["n_audio_state"],
        encoder_layers=sizes["n_audio_layer"],
        decoder_layers=sizes["n_text_layer"],
        encoder_attention_heads=sizes["n_audio_head"],
        decoder_attention_heads=sizes["n_text_head"],
        encoder_ffn_dim=4 * sizes["n_audio_state"],
        decoder_ffn_dim=4 * sizes["n_text_state"],
        max_source_positions=sizes["n_audio_ctx"],
        max_target_positions=sizes["n_text_ctx"],
        decoder_start_token_id=START,
        bos_token_id=END,
        eos_token_id=END,
        pad_token_id=END,
    )
    model = WhisperForConditionalGeneration(config)
    weights = {f"model.{renamed(name)}": value.float() for name, value in stored["model_state_dict"].items()}
    missing, unknown = model.load_state_dict(weights, strict=False)
    if unknown or [name for name in missing if name != "proj_out.weight"]:  # tied to the embedding
        raise ValueError(f"{path} does not fit Whisper: missing {missing}, unknown {unknown}.")
    model.tie_weights()
    model.generation_config = GenerationConfig(
        decoder_start_token_id=START,
        bos_token_id=END,
        eos_token_id=END,
        pad_token_id=END,
        is_multilingual=False,
        no_timestamps_token_id=NO_TIMESTAMPS,
        max_length=200,
    )
    return model.eval()


def renamed(name: str) -> str:
    """Return transformers' name of one of OpenAI's weights."""
    for pattern, replacement in NAMES:
        name = re.sub(pattern, replacement, name)
    return name


def read_sound(path: Path) -> np.ndarray:
    """Read a wav file as one channel of 16 kHz."""
    rate, sound = wavfile.read(path)
    if np.issubdtype(sound.dtype, np.integer):
        sound = sound / np.iinfo(sound.dtype).max
    sound = sound.mean(1) if sound.ndim > 1 else sound
    return resample_poly(sound, RATE, rate).astype("float32")


def _pieces(sound: np.ndarray, seconds: int) -> list[np.ndarray]:
    size = seconds * RATE
    return [sound[i : i + size] for i in range(0, len(sound), size) if len(sound) - i > RATE]


def _features(extractor: WhisperFeatureExtractor, pieces: list[np.ndarray]) -> torch.Tensor:
    return extractor(pieces, sampling_rate=RATE, return_tensors="pt")["input_features"]


@torch.no_grad()
def _written(model: WhisperForConditionalGeneration, features: torch.Tensor) -> list[int]:
    """The tokens that the model writes down, piece after piece; greedy, without timestamps."""
    tokens: list[int] = []
    for piece in features.split(1):
        written: Any = model.generate(input_features=piece, do_sample=False)
        tokens += written[0].tolist()
    return tokens


def _decoder(path: Path | None) -> Any:
    """A function from tokens to words; to numbers, without a vocabulary."""
    if path is None:
        return lambda tokens: " ".join(map(str, tokens))
    ranks = {int(rank): base64.b64decode(token) for token, rank in map(str.split, path.read_text().splitlines())}
    return lambda tokens: b"".join(ranks.get(token, b"") for token in tokens).decode(errors="replace").strip()


if __name__ == "__main__":
    main()
