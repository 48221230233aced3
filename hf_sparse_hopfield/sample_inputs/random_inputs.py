# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Random inputs of the form that a model takes."""

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from transformers import PreTrainedModel

from ..model_running import main_output, on_device


def random_inputs(
    model: PreTrainedModel, *, batch_size: int = 2, length: int = 32, seed: int = 0
) -> dict[str, torch.Tensor]:
    """
    Make one batch of [`random_batches`].

    Args:
        model, batch_size, length, seed: As for [`random_batches`].
    """
    return random_batches(model, 1, batch_size=batch_size, length=length, seed=seed)[0]


def random_batches(
    model: PreTrainedModel, count: int, *, batch_size: int = 2, length: int = 32, seed: int = 0
) -> list[dict[str, torch.Tensor]]:
    """
    Make random inputs for a model: text, images, videos, sound or time series, as its `forward` and its configuration ask
    for. The model is run once to check that it takes them.

    Args:
        model ([`~transformers.PreTrainedModel`]): The model that takes the inputs.
        count (`int`): Number of batches.
        batch_size (`int`, *optional*, defaults to 2): Samples in a batch.
        length (`int`, *optional*, defaults to 32): Tokens of a text.
        seed (`int`, *optional*, defaults to 0): Seed of the first batch; the following batches have the following seeds.
    """
    reasons = []
    samplers = [_Sampler(model, batch_size, length, seed + number) for number in range(count)]
    for names in _names(model):
        for variant in range(samplers[0].variants(names)):
            try:
                made = [sampler.batch(names, variant) for sampler in samplers]
                with torch.no_grad():
                    main_output(model(**on_device(made[0], model)))
                return made
            except Exception as error:  # unsuitable inputs can fail in any way
                reasons.append(f"given {' and '.join(names)}: {' '.join(str(error).split())[:160]}")
    raise ValueError(
        f"could not make random inputs that {type(model).__name__} takes; its main input is {model.main_input_name!r}"
        f"{f' ({reasons[0]})' if reasons else ''}."
    )


def _names(model: PreTrainedModel) -> Iterator[tuple[str, ...]]:
    """Sets of input names to try, the most likely first."""
    parameters = inspect.signature(type(model).forward).parameters
    required = [
        name
        for name, p in parameters.items()
        if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD and name != "self"
    ]
    main = [model.main_input_name] if isinstance(model.main_input_name, str) else list(model.main_input_name)
    text, decoder = ["input_ids"], ["decoder_input_ids"]
    # The largest sets first, so that no part of the model is left out.
    sets = [[*text, *sort, *more] for more in (decoder, []) for sort in (["pixel_values"], ["input_features"])]
    sets += [[*main, "future_values", "future_time_features"], [*main, *decoder], main, text]
    sets += [[name, *more] for more in (decoder, []) for name in ("pixel_values", "input_values", "input_features")]
    tried = set()
    for names in sets:
        chosen = tuple(dict.fromkeys([*required, *names]))
        if chosen not in tried and all(name in parameters and hasattr(_Sampler, f"_{name}") for name in chosen):
            tried.add(chosen)
            yield chosen


class _Sampler:
    """
    Makes one batch. One method per input returns that input in all shapes to try.

    Args:
        model, batch_size, length, seed: As for [`random_batches`].
    """

    def __init__(self, model: PreTrainedModel, batch_size: int, length: int, seed: int) -> None:
        self.model, self.batch_size, self.length, self.seed = model, batch_size, length, seed
        self.generator = torch.Generator()

    def batch(self, names: tuple[str, ...], variant: int) -> dict[str, torch.Tensor]:
        """The inputs with these names, each in the shape with this number, or in its last shape."""
        self.generator.manual_seed(self.seed)
        values = {name: self.values(name, names) for name in names}
        return {name: several[min(variant, len(several) - 1)] for name, several in values.items()}

    def variants(self, names: tuple[str, ...]) -> int:
        """The number of shapes to try."""
        try:
            return max(len(self.values(name, names)) for name in names)
        except Exception:  # making the first batch reports the error
            return 1

    def values(self, name: str, names: tuple[str, ...]) -> list[torch.Tensor]:
        """One input in all its shapes."""
        if name == "input_ids" and "pixel_values" in names:
            return self._input_ids_with_images()
        return getattr(self, f"_{name}")()

    def setting(self, *names: str, default: Any = None) -> Any:
        """An entry of the configuration, or of the configuration of a part that does not take text."""
        parts = ("vision_config", "audio_config", "encoder", "backbone_config")
        for config in (self.model.config, *(getattr(self.model.config, part, None) for part in parts)):
            for name in names:
                value = getattr(config, name, None)
                if value is not None and not isinstance(value, (str, bool)):
                    return value
        return default

    def noise(self, *shape: int) -> torch.Tensor:
        noise = torch.randn(self.batch_size, *shape, generator=self.generator, dtype=torch.float32)
        return noise.to(self.model.dtype)

    def tokens(self, length: int) -> torch.Tensor:
        """Tokens without special ones, such as the placeholder of an image."""
        config = self.model.config
        try:
            text = config.get_text_config()
        except ValueError:  # the model has two text configurations
            text = config.get_text_config(decoder=True)
        limits = [getattr(text, name, None) for name in ("max_position_embeddings", "max_target_positions")]
        length = min([length, *(limit - 2 for limit in limits if isinstance(limit, int) and limit > 2)])
        size = getattr(text, "vocab_size", None) or 100
        special = {
            v for k, v in vars(config).items() if k.endswith(("token_id", "token_index")) and isinstance(v, int)
        }
        usual = torch.tensor([token for token in range(size) if token not in special])
        return usual[torch.randint(0, len(usual), (self.batch_size, length), generator=self.generator)]

    def _input_ids(self) -> list[torch.Tensor]:
        return [self.tokens(self.length)]

    _decoder_input_ids = _input_ids

    def _input_ids_with_images(self) -> list[torch.Tensor]:
        """A text after placeholder tokens: some models need one for each patch of an image."""
        marker = self.setting("image_token_id", "image_token_index")
        if not isinstance(marker, int):
            return self._input_ids()
        patches = (self._image_size()[0] // max(1, _side(self.setting("patch_size", default=16)))) ** 2
        counts = (self.setting("image_seq_length"), self.setting("mm_tokens_per_image"), patches, patches + 1)
        markers = [torch.full((self.batch_size, n), marker) for n in dict.fromkeys(counts) if isinstance(n, int)]
        text = self.tokens(self.length)
        return [torch.cat([image, text], 1) for image in markers]

    def _image_size(self) -> tuple[int, int]:
        size = self.setting("image_size", "img_size", default=64)
        return (size, size) if isinstance(size, int) else tuple(size)

    def _pixel_values(self) -> list[torch.Tensor]:
        channels = self.setting("num_channels", "in_channels", "in_chans", default=3)
        size, frames = self._image_size(), self.setting("num_frames")
        shapes = [(channels, *size), (1, channels, *size), (channels, 224, 224)]
        shapes = [(frames, channels, *size), *shapes] if isinstance(frames, int) else shapes
        return [self.noise(*shape) for shape in shapes]

    _pixel_values_videos = _pixel_values

    def _input_values(self) -> list[torch.Tensor]:
        frames, mel = self.setting("max_length"), self.setting("num_mel_bins")
        shapes = [(16000,), (1, 16000)]
        shapes = [(frames, mel), *shapes] if isinstance(frames, int) and isinstance(mel, int) else shapes
        return [self.noise(*shape) for shape in shapes]

    def _input_features(self) -> list[torch.Tensor]:
        mel = self.setting(
            "num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim", "input_dim", default=80
        )
        frames = 2 * self.setting("max_source_positions", default=50)
        return [self.noise(mel, frames), self.noise(100, mel), self.noise(100, 2 * mel)]

    def _series(self, length: int) -> torch.Tensor:
        channels = self.setting("num_input_channels", "input_size", default=1)
        return (
            self.noise(length, channels) if channels > 1 or self.setting("num_input_channels") else self.noise(length)
        )

    def _past(self) -> int:
        lags = self.setting("lags_sequence", default=[0])
        return self.setting("context_length", default=64) + max(lags)

    def _past_values(self) -> list[torch.Tensor]:
        return [self._series(self._past())]

    def _past_observed_mask(self) -> list[torch.Tensor]:
        return [torch.ones_like(self._series(self._past()))]

    def _past_time_features(self) -> list[torch.Tensor]:
        return [self.noise(self._past(), self.setting("num_time_features", default=0))]

    def _future_values(self) -> list[torch.Tensor]:
        return [self._series(self.setting("prediction_length", default=1))]

    def _future_time_features(self) -> list[torch.Tensor]:
        return [self.noise(self.setting("prediction_length", default=1), self.setting("num_time_features", default=0))]


def _side(size: Any) -> int:
    return size if isinstance(size, int) else size[0]
