# Copyright 2026 The hf_sparse_hopfield authors. Licensed under the Apache License, Version 2.0.
import pytest
import torch

from hf_sparse_hopfield.diagnostics.explorer.copying import copied_shares, copying


def test_heads_that_copy():
    ids = [4, 5, 6, 4, 5, 6, 4, 5, 6, 7]
    allowed = torch.ones(10, 10, dtype=torch.bool).tril()[None]
    equal = torch.zeros(10, 10)
    for query in range(10):
        equal[query, max((key for key in range(query) if ids[key] == ids[query]), default=0)] = 1
    previous = torch.eye(10).roll(1, 0)
    previous[0] = torch.eye(10)[0]
    spread = allowed[0] / allowed[0].sum(-1, keepdim=True)
    weights = torch.stack([torch.eye(10), previous, equal, 0.85 * previous + 0.15 * spread, spread])
    shares = copied_shares(weights, allowed, True, ids, ids)
    # The first query sees one key and does not count; neither do, for equal tokens, the first of their kind.
    assert shares["itself"][0] == shares["previous"][1] == shares["equal"][2] == 1.0
    assert shares["equal"][4] == pytest.approx(sum(place // 3 / (place + 1) for place in range(3, 9)) / 6)
    assert copying(shares) == ["itself", "previous", "equal", None, None]


def test_without_enough_rows_or_a_meaning_there_is_no_share():
    weights, allowed = torch.eye(4).expand(2, 4, 4), torch.ones(1, 4, 4, dtype=torch.bool)
    shares = copied_shares(weights, allowed, True, None, None)
    assert shares == {"itself": [None, None], "previous": [None, None], "equal": [None, None]}
    weights, allowed = torch.eye(9)[None], torch.ones(1, 9, 9, dtype=torch.bool)
    assert copied_shares(weights, allowed, False, [1] * 9, [1] * 9) == {
        "itself": [None],
        "previous": [None],
        "equal": [1.0],  # in another text, the same place is not the same token
    }
