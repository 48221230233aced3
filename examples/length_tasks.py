# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
"""Tasks in which a model reads few of the tokens before it, however many there are.

A task draws sequences of a length and the answer at each position: -100 where there is nothing to answer. The last `ASKED` positions ask
in every sequence.
"""

import torch
from torch import Tensor


SYMBOLS = 64
MARK, ASK, NOISE = SYMBOLS, SYMBOLS + 1, SYMBOLS + 2
VOCABULARY = SYMBOLS + 3
ASKED = 16  # positions at the end
NOTHING = -100


def maximum(count: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Symbols are numbers; the answer at each position is the largest one so far. It occurs once, in the first half."""
    largest = torch.randint(1, SYMBOLS, (count, 1), generator=generator)
    tokens = (torch.rand(count, length, generator=generator) * largest).long()
    tokens.scatter_(1, torch.randint(length // 2, (count, 1), generator=generator), largest)
    return tokens, tokens.cummax(1).values


def marked(count: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """One symbol, in the first half, follows a mark. It is the answer wherever the sequence asks."""
    tokens = torch.randint(SYMBOLS, (count, length), generator=generator)
    place = torch.randint(max(1, length // 2 - 1), (count, 1), generator=generator)
    item = tokens.gather(1, place + 1)
    asks = _asks(count, length, generator) & (torch.arange(length) > place + 1)
    tokens.scatter_(1, place, MARK)
    return tokens.masked_fill(asks, ASK), item.expand(-1, length).masked_fill(~asks, NOTHING)


def recall(count: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Four pairs of a key and a value lie in noise, in the first half. The end repeats keys, and the answers are their values."""
    pairs, half = 4, SYMBOLS // 2
    keys = torch.rand(count, half, generator=generator).argsort(1)[:, :pairs]
    values = half + torch.randint(half, (count, pairs), generator=generator)
    slots = length // 4  # of two tokens
    places = 2 * torch.rand(count, slots, generator=generator).argsort(1)[:, :pairs]
    tokens = torch.full((count, length), NOISE)
    tokens.scatter_(1, places, keys).scatter_(1, places + 1, values)
    asked = torch.randint(pairs, (count, ASKED), generator=generator)
    answers = torch.full((count, length), NOTHING)
    tokens[:, -ASKED:], answers[:, -ASKED:] = keys.gather(1, asked), values.gather(1, asked)
    return tokens, answers


def flip_flop(count: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """
    A bit is written about four times; other bits are to be ignored. The answer wherever the sequence asks is the last one written.

    An instruction and its bit are one token: write 0 or 1, ignore 0 or 1.
    """
    bits = torch.randint(2, (count, length), generator=generator)
    writes = torch.rand(count, length, generator=generator) < 4 / length
    writes[:, 0] = True
    writes[:, -ASKED:] = False
    asks = _asks(count, length, generator) & ~writes
    last = torch.where(writes, torch.arange(length), 0).cummax(1).values
    tokens = torch.where(writes, bits, 2 + bits).masked_fill(asks, ASK)
    return tokens, bits.gather(1, last).masked_fill(~asks, NOTHING)


def copy(count: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The first half is repeated after a mark. The answer at each position of the second half is the next symbol."""
    half = length // 2
    first = torch.randint(SYMBOLS, (count, half), generator=generator)
    tokens = torch.cat([first, torch.full((count, 1), MARK), first], 1)
    answers = torch.cat([torch.full((count, half), NOTHING), first, torch.full((count, 1), NOTHING)], 1)
    return tokens[:, :-1], answers[:, :-1]


def _asks(count: int, length: int, generator: torch.Generator) -> Tensor:
    """Where the sequence asks: at its end, and at one in eight of the other positions."""
    asks = torch.rand(count, length, generator=generator) < 1 / 8
    asks[:, -ASKED:] = True
    return asks


TASKS = {"maximum": maximum, "marked": marked, "recall": recall, "flip-flop": flip_flop, "copy": copy}
