# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""[`SparseHopfieldCache`]: a cache that grows in place and keeps an int8 copy of its keys, which decoding reads instead of them.

`generate` of a sparse model uses it where transformers would use a `DynamicCache` ([`use_own_cache`]). The keys that an update
returns know their layer, and so lead to the copy ([`screen_of`]): transformers does not pass the cache to the attention function.
"""

import json
import os
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedConfig
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from ..backends import KeyScreen
from ..backends.key_screen import can_screen
from ..checks import check_flag
from ..files import new_file


SCREENED_FROM = 512  # keys; shorter rows are scored as fast without a screen

FILE_FORMAT = "hf_sparse_hopfield.SparseHopfieldCache"
FILE_VERSION = "1"

_LAYER = "sparse_hopfield_cache_layer"  # on the keys that an update returns
_SCREENED = (torch.float32, torch.bfloat16, torch.float16)


class _Room:
    """A tensor `(batch, heads, places, width)` with more places than are in use. Cached states are views of it."""

    tensor: Tensor | None = None
    last: Tensor | None = None  # the states that a layer keeps, and their place
    last_place = 0

    def holds_such(self, states: Tensor) -> bool:
        """Whether states of this batch, heads, width, dtype and device belong here."""
        room = self.tensor
        if room is None or states.dtype != room.dtype or states.device != room.device:
            return False
        return states.shape[:2] == room.shape[:2] and states.shape[3] == room.shape[3]

    def place_of(self, states: Tensor) -> int | None:
        """The place of the first of some states; `None` if they are not in this room."""
        if states is self.last:
            return self.last_place
        room = self.tensor
        if room is None or not self.holds_such(states) or states.stride() != room.stride():
            return None
        place, rest = divmod(states.data_ptr() - room.data_ptr(), room.stride(2) * room.element_size())
        return place if rest == 0 and 0 <= place <= room.shape[2] - states.shape[2] else None

    def keep(self, states: Tensor, place: int) -> Tensor:
        """Remember the place of the states that a layer keeps, so that the next update need not find it."""
        self.last, self.last_place = states, place
        return states

    def append(self, states: Tensor, new: Tensor, spare: int) -> tuple[Tensor, int]:
        """
        Put new states behind those in use.

        Args:
            states (`torch.Tensor`): The states in use, here or elsewhere; without elements at first.
            new (`torch.Tensor` of shape `(batch, heads, tokens, width)`): The new ones.
            spare (`int`): Places to leave free behind them when all have to move.

        Returns:
            `tuple[torch.Tensor, int]`: All of them, and the place of the first.
        """
        tokens = new.shape[2]
        count = states.shape[2] if states.numel() else 0
        first = self.place_of(states) if count else 0 if self.holds_such(new) else None
        room = self.tensor
        if room is None or first is None or first + count + tokens > room.shape[2]:
            room = self.tensor = new.new_empty((*new.shape[:2], count + tokens + spare, new.shape[3]))
            if count:
                room[:, :, :count] = states
            first = 0
        room.narrow(2, first + count, tokens).copy_(new)
        return room.narrow(2, first, count + tokens), first

    def pick(self, states: Tensor, indices: Tensor) -> Tensor:
        """The states of some entries of the batch, with the free places behind them."""
        first = self.place_of(states)
        if self.tensor is None or first is None:
            return states.index_select(0, indices)
        self.tensor = self.tensor.index_select(0, indices)
        return self.keep(self.tensor.narrow(2, first, states.shape[2]), first)


class _GrowingLayer:
    """What the two kinds of layers have in common, before transformers' own layer in the order of base classes."""

    keys: Any
    values: Any
    get_seq_length: Any

    def __init__(self, *args: Any, screen: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.wants_screen = screen
        self._drop_rooms()

    def _drop_rooms(self) -> None:
        self._rooms = (_Room(), _Room())
        self._screen: KeyScreen | None = None
        self._screen_place = 0  # of its place 0 in the room

    def _grows(self, key: Tensor, value: Tensor) -> bool:
        """Whether new states can be written into the room: not under autograd or a tracer, which need them unchanged."""
        if torch.compiler.is_compiling() or (torch.is_grad_enabled() and (key.requires_grad or value.requires_grad)):
            return False
        for old, new in ((self.keys, key), (self.values, value)):
            if old.numel() and (old.dtype != new.dtype or old.device != new.device or old.requires_grad):
                return False
        return True

    def _append(self, key: Tensor, value: Tensor, spare: int, most: int | None = None) -> tuple[Tensor, Tensor]:
        """
        All states with the new ones. The layer keeps the last `most` of them; the keys that are returned know the layer.
        """
        key_room, value_room = self._rooms
        before = key_room.tensor
        keys, key_place = key_room.append(self.keys, key, spare)
        values, value_place = value_room.append(self.values, value, spare)
        if key_room.tensor is not before:  # places have changed
            self._screen = None
        count = keys.shape[2]
        skipped = 0 if most is None else max(0, count - most)
        # not the tensor that is returned, because a layer that keeps a tensor that knows the layer would never be freed
        self.keys = key_room.keep(keys.narrow(2, skipped, count - skipped), key_place + skipped)
        kept_values = values.narrow(2, skipped, count - skipped) if skipped else values
        self.values = value_room.keep(kept_values, value_place + skipped)
        vars(keys)[_LAYER] = self
        return keys, values

    def screen_for(self, keys: Tensor) -> KeyScreen | None:
        """
        The int8 copy of keys that an update returned, brought up to date.

        Args:
            keys (`torch.Tensor`): The keys.

        Returns:
            [`KeyScreen`] or `None`: `None` if there is to be none: switched off, too few keys, or no kernel that reads it.
        """
        count = keys.shape[2]
        if not self.wants_screen or count < SCREENED_FROM:
            return None
        if keys.dtype not in _SCREENED or not can_screen(keys.device):
            return None
        first = self._rooms[0].place_of(keys)
        if first is None:
            return None
        screen = self._screen
        if screen is not None:
            dropped = first - self._screen_place - screen.first
            if 0 <= dropped <= len(screen):
                if dropped:
                    screen.drop_first(dropped)
                known = len(screen)
                screen.extend(keys.narrow(2, known, count - known))
                return screen
        self._screen, self._screen_place = KeyScreen(keys), first
        return self._screen

    def crop(self, tokens_to_remove: int) -> None:
        super().crop(tokens_to_remove)  # type: ignore[misc]
        first = None
        if self.keys is not None and self.keys.numel():
            for room, states in zip(self._rooms, (self.keys, self.values), strict=True):
                place = room.place_of(states)
                if place is not None:
                    room.keep(states, place)
            first = self._rooms[0].place_of(self.keys)
        self._crop_screen(first)

    def _crop_screen(self, first: int | None) -> None:
        """Forget the copy of keys that the layer has no longer, with the first of its keys in this place: others may take theirs."""
        screen = self._screen
        if screen is None:
            return
        length = -1 if first is None else first + self.keys.shape[2] - self._screen_place - screen.first
        if 0 <= length:
            screen.crop(min(length, len(screen)))
        else:
            self._screen = None

    def reset(self) -> None:
        super().reset()  # type: ignore[misc]
        self._screen = None

    def _pick(self, indices: Tensor) -> None:
        if self.keys is None or not self.keys.numel():
            return
        indices = indices.to(self.keys.device)
        key_room, value_room = self._rooms
        self.keys, self.values = key_room.pick(self.keys, indices), value_room.pick(self.values, indices)
        if self._screen is not None:
            self._screen = self._screen.select(indices)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        if self.keys is not None and self.keys.numel() and beam_idx.tolist() == list(range(self.keys.shape[0])):
            return
        self._pick(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.keys is not None and self.keys.numel():
            self._pick(torch.arange(self.keys.shape[0]).repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        if self.keys is not None and self.keys.numel():
            self._pick(torch.arange(self.keys.shape[0])[indices.cpu()])

    @property
    def screen_nbytes(self) -> int:
        """Memory of the int8 copy in bytes."""
        return 0 if self._screen is None else self._screen.nbytes

    @property
    def nbytes(self) -> int:
        """Memory of keys, values and the int8 copy in bytes, including room for tokens to come."""
        states = (
            room.tensor if room.tensor is not None else held
            for room, held in zip(self._rooms, (self.keys, self.values), strict=True)
        )
        return sum(0 if tensor is None else tensor.nbytes for tensor in states) + self.screen_nbytes


class GrowingLayer(_GrowingLayer, DynamicLayer):
    """A layer of [`SparseHopfieldCache`] that keeps all tokens."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if not self._grows(key_states, value_states):
            self._drop_rooms()
            return super().update(key_states, value_states, *args, **kwargs)
        spare = 256 + (self.get_seq_length() + key_states.shape[2]) // 4
        return self._append(key_states, value_states, spare)


class GrowingSlidingWindowLayer(_GrowingLayer, DynamicSlidingWindowLayer):
    """A layer of [`SparseHopfieldCache`] that keeps the tokens of a sliding window."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        if not self._grows(key_states, value_states):
            self._drop_rooms()
            return super().update(key_states, value_states, *args, **kwargs)
        tokens, kept = key_states.shape[2], self.sliding_window - 1
        self.cumulative_length += tokens
        # a window moves through its room, and back to the front when it reaches the end
        most = None if self.record_past else kept
        keys, values = self._append(key_states, value_states, max(256, self.sliding_window), most)
        if self.record_past:  # all of them are kept until `crop`, but only those that the mask knows are shown
            shown = max(0, keys.shape[2] - kept - tokens)
            keys, values = keys[:, :, shown:], values[:, :, shown:]
            vars(keys)[_LAYER] = self
        return keys, values


class SparseHopfieldCache(DynamicCache):
    """
    A cache for sparse models, which `generate` uses by default. It grows without copying what is there for every token, and
    keeps an int8 copy of the keys ([`KeyScreen`]). Decoding reads the copy and then only the keys and values that may have
    weight; the result is exact. The copy is made on the CPU, with the compiled core, from 512 tokens on.

    Layers other than full and sliding-window attention are transformers' own.

    Args:
        config ([`~transformers.PreTrainedConfig`], *optional*):
            Configuration of the model, which says what layers it has. By default all of them keep all tokens.
        screen (`bool`, *optional*, defaults to `True`):
            Keep the int8 copy. It takes a quarter of the memory of float32 keys, half of that of bfloat16 ones.

    Example:

    ```python
    >>> import torch
    >>> from transformers import AutoModelForCausalLM, LlamaConfig
    >>> from hf_sparse_hopfield import SparseHopfieldCache

    >>> config = LlamaConfig(vocab_size=99, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
    >>> model = AutoModelForCausalLM.from_config(config, attn_implementation="sparse_hopfield").eval()
    >>> prompt = torch.randint(99, (1, 600))
    >>> cache = SparseHopfieldCache(config=config)
    >>> tokens = model.generate(prompt, past_key_values=cache, max_new_tokens=5, do_sample=False)
    >>> cache.get_seq_length(), cache.screen_nbytes > 0
    (604, True)

    ```
    """

    layers: list[Any]

    def __init__(
        self,
        ddp_cache_data: Any = None,
        config: PreTrainedConfig | None = None,
        offloading: bool = False,
        offload_only_non_sliding: bool = False,
        *,
        screen: bool = True,
    ) -> None:
        check_flag("screen", screen)
        if offloading:
            raise ValueError(
                "SparseHopfieldCache does not offload its layers. Use `DynamicCache(offloading=True)`, or "
                'cache_implementation="offloaded" in `generate`.'
            )
        super().__init__(None, config, offloading, offload_only_non_sliding)
        self._screens = screen
        self.layers = [self._own(layer) for layer in self.layers]
        # what transformers adds for a layer that it does not know yet
        if self.layer_class_to_replicate is not None:
            self.layer_class_to_replicate = GrowingLayer if screen else _UnscreenedLayer
        for index, (keys, values, *window) in enumerate(ddp_cache_data or ()):
            if len(self.layers) <= index:
                plain = (
                    DynamicLayer() if not window or window[0] is None else DynamicSlidingWindowLayer(int(window[0]))
                )
                self.layers.append(self._own(plain))
            if keys is not None and values is not None:
                self.layers[index].update(keys, values)

    def _own(self, layer: Any) -> Any:
        """The layer that grows in place instead of one of transformers'. Subclasses of these keep more than keys and values."""
        if type(layer) is DynamicLayer:
            return GrowingLayer(screen=self._screens)
        if type(layer) is DynamicSlidingWindowLayer:
            return GrowingSlidingWindowLayer(layer.sliding_window, screen=self._screens)
        return layer

    @property
    def screen_nbytes(self) -> int:
        """Memory of the int8 copies in bytes."""
        return sum(layer.screen_nbytes for layer in self.layers if isinstance(layer, _GrowingLayer))

    @property
    def nbytes(self) -> int:
        """Memory of keys, values and int8 copies in bytes, including room for tokens to come."""
        return sum(layer.nbytes for layer in self.layers if isinstance(layer, _GrowingLayer))

    def save(self, path: str | os.PathLike) -> None:
        """
        Write the cache to a safetensors file, so that a prompt need not be processed again. The int8 copies are not
        written: [`~SparseHopfieldCache.load`] leads to new ones.

        Args:
            path (`str` or `os.PathLike`): The file, replaced if it exists. It appears complete or not at all.
        """
        tensors, layers = {}, []
        for index, layer in enumerate(self.layers):
            if not isinstance(layer, _GrowingLayer):
                raise ValueError(
                    f"layer {index} of the cache is a {type(layer).__name__}, which keeps more than keys and values and "
                    "cannot be saved. Process the prompt again instead."
                )
            seen = layer.get_seq_length()
            sliding = isinstance(layer, GrowingSlidingWindowLayer)
            layers.append({"window": layer.sliding_window, "seen": seen} if sliding else {})  # type: ignore[attr-defined]
            if seen:
                tensors[f"{index}.keys"] = layer.keys.detach().cpu().contiguous()
                tensors[f"{index}.values"] = layer.values.detach().cpu().contiguous()
        metadata = {"format": FILE_FORMAT, "version": FILE_VERSION, "layers": json.dumps(layers)}
        with new_file(path) as file:
            save_file(tensors, file, metadata=metadata)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike,
        config: PreTrainedConfig | None = None,
        device: str | torch.device = "cpu",
        *,
        screen: bool = True,
    ) -> "SparseHopfieldCache":
        """
        Read a cache written by [`~SparseHopfieldCache.save`].

        Args:
            path (`str` or `os.PathLike`): The file.
            config ([`~transformers.PreTrainedConfig`], *optional*):
                Configuration of the model. If it is given, the layers have to be those of that model.
            device (`str` or `torch.device`, *optional*, defaults to `"cpu"`): Where to put keys and values.
            screen (`bool`, *optional*, defaults to `True`): As in [`SparseHopfieldCache`].

        Returns:
            `SparseHopfieldCache`: The cache.
        """
        tensors, layers = _read(path)
        cache = cls(config=config, screen=screen)
        if config is not None:
            _check_layers(path, cache, layers)
        for index, saved in enumerate(layers):
            window = saved.get("window")
            if index == len(cache.layers):
                cache.layers.append(
                    cache._own(DynamicLayer() if window is None else DynamicSlidingWindowLayer(int(window)))
                )
            if f"{index}.keys" in tensors:
                layer = cache.layers[index]
                layer.update(tensors[f"{index}.keys"].to(device), tensors[f"{index}.values"].to(device))
                if window is not None:
                    layer.cumulative_length = int(saved["seen"])
        return cache


class _UnscreenedLayer(GrowingLayer):
    """A [`GrowingLayer`] without an int8 copy, as transformers makes layers: without arguments."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(screen=False)


def screen_of(key: Tensor) -> KeyScreen | None:
    """
    The int8 copy of keys that come out of a [`SparseHopfieldCache`], if there is one.

    Args:
        key (`torch.Tensor`): The keys, as the attention function gets them.
    """
    if torch.compiler.is_compiling():
        return None
    layer = getattr(key, _LAYER, None)
    return None if layer is None else layer.screen_for(key)


def use_own_cache(inputs: dict[str, Any], config: PreTrainedConfig, records_past: bool) -> None:
    """
    Replace the empty cache that transformers has made for `generate` by our own, if it is the default one.

    Args:
        inputs (`dict[str, Any]`): Arguments of the model; the cache is among them.
        config ([`~transformers.PreTrainedConfig`]): Configuration of the part that generates.
        records_past (`bool`): Whether the cache has to be able to go back, as that of an assistant.
    """
    cache = inputs.get("past_key_values")
    if _is_default(cache):
        inputs["past_key_values"] = cache = SparseHopfieldCache(config=config)
    elif type(cache) is EncoderDecoderCache:
        for name in ("self_attention_cache", "cross_attention_cache"):
            if _is_default(getattr(cache, name)):
                setattr(cache, name, SparseHopfieldCache(config=config))
    else:
        return
    if records_past:
        cache.activate_past_recording()


def _is_default(cache: Any) -> bool:
    """Whether a cache is of the kind that `generate` makes by default."""
    return type(cache) is DynamicCache and not cache.offloading


def _read(path: str | os.PathLike) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """The tensors of a saved cache and what it says about its layers."""
    name = os.fspath(path)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"path={name!r} is not a file.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FILE_FORMAT:
                raise ValueError(
                    f"path={name!r} is not a SparseHopfieldCache: its format is {metadata.get('format')!r}."
                )
            if metadata.get("version") != FILE_VERSION:
                raise ValueError(
                    f"path={name!r} has version {metadata.get('version')!r} of the format; this package reads version "
                    f"{FILE_VERSION!r}. Upgrade hf-sparse-hopfield."
                )
            layers = json.loads(metadata["layers"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  (it is no dict)
    except (SafetensorError, json.JSONDecodeError, KeyError) as error:
        raise ValueError(f"path={name!r} is damaged or not a safetensors file: {error!r}") from error
    return tensors, layers


def _check_layers(path: str | os.PathLike, cache: SparseHopfieldCache, layers: list[dict[str, Any]]) -> None:
    own = [getattr(layer, "sliding_window", None) for layer in cache.layers]
    saved = [layer.get("window") for layer in layers]
    if own != saved:
        raise ValueError(
            f"path={os.fspath(path)!r} has {len(saved)} layers with the sliding windows {saved}, the configuration {len(own)} "
            f"with {own}: it is the cache of another model."
        )
