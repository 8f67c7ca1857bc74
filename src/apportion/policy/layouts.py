"""How rollouts are laid out for one pass of a model over them: a row each, several to a row, or prompts once.

A layout is given rollouts, one a row, and the `cells` whose outputs are wanted; it gives these, row by row [S, X]. The
numbers are the same whichever it is, up to rounding; what differs is how much is computed for nothing.

`run(**inputs)` runs the model and gives one vector a token: what its head is given, or the logits. An output at cell t
is that after the model has read token t: it foretells token t + 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion.errors import InputError

Tokens = Int[Tensor, "B T"]
Cells = Bool[Tensor, "B T"]
Outputs = Float[Tensor, "S X"]
Run = Callable[..., Tensor]
Layout = Callable[[Run, Any, Tokens, Cells, Cells], Outputs]
"""(run, model, tokens, tokens that are no padding, wanted cells) -> outputs there.

Rows are padded on the right, and each has a wanted cell.
"""


def padded(run: Run, model: Any, tokens: Tokens, valid: Cells, cells: Cells) -> Outputs:
    """A rollout a row, padded to the longest."""
    return run(input_ids=tokens, attention_mask=valid.long(), use_cache=False)[cells]


def packed(run: Run, model: Any, tokens: Tokens, valid: Cells, cells: Cells) -> Outputs:
    """Several rollouts a row, each blind to the others: next to nothing is padded.

    Every rollout counts its positions from 0, and by that models tell apart what stands in one row.
    Raises InputError for a model that remembers anything but tokens that it attends to.
    """
    if any(_memory(model).is_linear):
        raise InputError(
            f"{type(model).__name__} keeps a state from token to token, and so not rollouts apart in a row"
        )
    lengths = valid.sum(1)
    bins, starts = _bins(lengths.tolist(), int(lengths.max()))
    columns = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    rows = torch.tensor(bins, device=tokens.device).unsqueeze(1).expand_as(tokens)
    places = torch.tensor(starts, device=tokens.device).unsqueeze(1) + columns
    # where nothing is filled in, every token is alone at position 0
    ids, positions = tokens.new_zeros(2, max(bins) + 1, int(lengths.max()))
    ids[rows[valid], places[valid]] = tokens[valid]
    positions[rows[valid], places[valid]] = columns[valid]
    return run(input_ids=ids, position_ids=positions, use_cache=False)[rows[cells], places[cells]]


def prompts_once(run: Run, model: Any, tokens: Tokens, valid: Cells, cells: Cells) -> Outputs:
    """What rollouts begin alike with is read once: their prompts, up to the first cell that is wanted.

    The rest of every rollout is a row that goes on from the keys and values of its prompt. A model that does not keep
    those of every token is given a rollout a row.
    """
    from transformers.cache_utils import DynamicLayer

    # the last token of a prompt, which foretells the first of the answer, is the first of the rest
    lengths = cells.long().argmax(1).tolist()
    heads = [tuple(row[:length]) for row, length in zip(tokens.tolist(), lengths, strict=True)]
    distinct = {prompt: i for i, prompt in enumerate(dict.fromkeys(heads))}
    cache = _memory(model)
    every_token = all(type(layer) is DynamicLayer for layer in cache.layers)
    if () in distinct or len(distinct) == len(heads) or not every_token:
        return padded(run, model, tokens, valid, cells)
    prompts, own = _right_padded(list(distinct), tokens.device)
    run(input_ids=prompts, attention_mask=own, cache=cache, use_cache=True)
    own_prompt: Any = torch.tensor([distinct[prompt] for prompt in heads], device=tokens.device)
    cache.reorder_cache(own_prompt)

    length = torch.tensor(lengths, device=tokens.device).unsqueeze(1)
    width = int((valid.sum(1, keepdim=True) - length).max())
    columns = length + torch.arange(width, device=tokens.device)
    inside = columns < tokens.shape[1]
    columns = torch.where(inside, columns, 0)
    rest, rest_valid, wanted = tokens.gather(1, columns), valid.gather(1, columns) & inside, cells.gather(1, columns)
    before = torch.arange(prompts.shape[1], device=tokens.device) < length
    return run(
        input_ids=rest,
        attention_mask=torch.cat([before, rest_valid], dim=1).long(),
        position_ids=length + torch.arange(width, device=tokens.device),
        cache=cache,
        use_cache=True,
    )[wanted & inside]


BY_NAME: dict[str, Layout] = {"prompts_once": prompts_once, "packed": packed, "padded": padded}


def _memory(model: Any) -> Any:
    """An empty cache, by which one sees what the model remembers."""
    from transformers.cache_utils import DynamicCache

    return DynamicCache(config=model.config)


def _bins(lengths: list[int], size: int) -> tuple[list[int], list[int]]:
    """For every item its bin and where it starts in it: the longest first, each into the first bin with room.

    >>> _bins([2, 5, 3], 5)
    ([1, 0, 1], [3, 0, 0])
    """
    room: list[int] = []
    bins, starts = [0] * len(lengths), [0] * len(lengths)
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        chosen = next((number for number, left in enumerate(room) if left >= lengths[i]), len(room))
        if chosen == len(room):
            room.append(size)
        bins[i], starts[i] = chosen, size - room[chosen]
        room[chosen] -= lengths[i]
    return bins, starts


def _right_padded(rows: list[tuple[int, ...]], device: torch.device) -> tuple[Tensor, Tensor]:
    width = max(map(len, rows))
    grid = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=device)
    own = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=device)
    return grid, own
