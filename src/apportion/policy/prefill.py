"""Reading prompts before they are continued: a token that several of them share is read once.

A prefix is continued several times, the prefixes of an answer are nested, and the answers of a group share a prompt.
So the prompts are a tree. Of prompts that begin alike the longest is read to its end, and with it all that end on its
way; those that leave it are read from there on, in the next level. Keys and values of every token that was read are
kept once, and the cache of a row is a look-up of its tokens among them. There they stand side by side, whatever levels
they were read in. So no cache is wider than the longest prompt, and all levels together run no more tokens, padding
included, than one batch with a row for every distinct prompt would.

A model that remembers something else than keys and values of every token (those of a window, a recurrent state) is
given each prompt as a row of its own; one that has a state and nothing else is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from apportion.errors import InputError

Tokens = tuple[int, ...]
Layer = tuple[Tensor, ...]
"""Keys and values of one layer."""
Item = TypeVar("Item")


@dataclass(frozen=True)
class Reading:
    """Prompts that a model has read, a row each, in the order asked for.

    logits: of the token that follows. cache: left-padded. attention: 1 where the cache holds a token of the row.
    fresh: tokens that the model was run over for each prompt; the others were read for another one.
    """

    logits: Float[Tensor, "B V"]
    cache: Any
    attention: Int[Tensor, "B W"]
    fresh: list[int]


@torch.no_grad()
def read(model: Any, prompts: Sequence[Sequence[int]]) -> Reading:
    """Run the model over the prompts.

    Raises InputError when a prompt has no tokens, or the model no attention in any layer.
    """
    asked = [tuple(prompt) for prompt in prompts]
    if () in asked:
        raise InputError(f"prompt {asked.index(())} has no tokens; a model needs at least one to go on from")
    if all(_empty_cache(model).is_linear):
        raise InputError(
            f"{type(model).__name__} has no attention, and so no mask that keeps the prompts of a batch apart from "
            "their padding while they are continued; a policy needs a model with attention layers"
        )
    return _read_tree(model, asked) if _keeps_every_token(model) else _read_rows(model, asked)


@dataclass(frozen=True)
class Branch:
    """A prompt that is read to its end, from where it leaves one of a level before.

    places: of all its tokens among those that are kept. ends: how many tokens each prompt has that ends in what is
    read here.
    """

    tokens: Tokens
    start: int
    places: list[int]
    ends: list[int]

    @property
    def fresh(self) -> Tokens:
        return self.tokens[self.start :]


def branches(prompts: Iterable[Tokens]) -> list[list[Branch]]:
    """Give the branches of the tree of prompts, level by level.

    >>> for level in branches([(5, 6), (5, 6, 7, 8), (5, 6, 9)]):
    ...     print(level)
    [Branch(tokens=(5, 6, 7, 8), start=0, places=[0, 1, 2, 3], ends=[2, 4])]
    [Branch(tokens=(5, 6, 9), start=2, places=[0, 1, 4], ends=[3])]
    """
    levels: list[list[Branch]] = []
    size = 0
    waiting: list[tuple[list[int], list[Tokens]]] = [([], alike) for _, alike in _leaving((), dict.fromkeys(prompts))]
    while waiting:
        level, left = [], []
        for past, alike in waiting:
            longest = max(alike, key=len)
            places = [*past, *range(size, size + len(longest) - len(past))]
            size += len(longest) - len(past)
            ends = [len(prompt) for prompt in alike if longest[: len(prompt)] == prompt]
            level.append(Branch(longest, len(past), places, ends))
            left += [(places[:shared], some) for shared, some in _leaving(longest, alike)]
        levels.append(level)
        waiting = left
    return levels


def _leaving(path: Tokens, prompts: Iterable[Tokens]) -> list[tuple[int, list[Tokens]]]:
    """Prompts that do not end on the path, together those that leave it behind as many tokens and by the same one."""
    leaving = defaultdict(list)
    for prompt in prompts:
        shared = _shared(path, prompt)
        if shared < len(prompt):
            leaving[shared, prompt[shared]].append(prompt)
    return [(shared, alike) for (shared, _), alike in leaving.items()]


def _shared(one: Tokens, other: Tokens) -> int:
    """How many tokens they begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def _read_tree(model: Any, asked: list[Tokens]) -> Reading:
    levels = branches(asked)
    kept: list[Layer] = []  # [tokens, heads, width] each
    logits = torch.cat([_read_level(model, kept, level) for level in levels])
    places = {branch.tokens[:end]: branch.places[:end] for level in levels for branch in level for end in branch.ends}
    number = {prompt: i for i, prompt in enumerate(places)}  # of its row in the logits
    fresh = {branch.tokens: len(branch.fresh) for level in levels for branch in level}
    grid, attention = _left_padded([places[prompt] for prompt in asked], model.device)
    return Reading(
        logits[[number[prompt] for prompt in asked]],
        _look_up(model, _taken(kept), grid),
        attention,
        [fresh.pop(prompt, 0) for prompt in asked],
    )


def _read_level(model: Any, kept: list[Layer], level: list[Branch]) -> Float[Tensor, "M V"]:
    """Read the branches, keep their tokens, and give the logits behind each of their ends."""
    places, past = _left_padded([branch.places[: branch.start] for branch in level], model.device)
    ids, fresh = _right_padded([branch.fresh for branch in level], model.device)
    attention = torch.cat([past, fresh], dim=1)
    with _head_sees(model, [(row, end - branch.start - 1) for row, branch in enumerate(level) for end in branch.ends]):
        out = model(
            input_ids=ids,
            attention_mask=attention,
            position_ids=(attention.cumsum(1) - 1)[:, past.shape[1] :],
            cache=_look_up(model, kept, places),
            use_cache=True,
        )
    _keep(kept, out.cache, fresh.bool())
    logits: Tensor = out.logits.squeeze(1)
    return logits


@contextmanager
def _head_sees(model: Any, cells: list[tuple[int, int]]) -> Iterator[None]:
    """Give the model's head these (row, column) alone, as rows of one token each: logits of all would be very many."""
    rows, columns = torch.tensor(cells, device=model.device).unbind(1)
    handle = model.get_output_embeddings().register_forward_pre_hook(
        lambda head, given: (given[0][rows, columns].unsqueeze(1),)
    )
    try:
        yield
    finally:
        handle.remove()


def _keep(kept: list[Layer], cache: Any, fresh: Bool[Tensor, "B E"]) -> None:
    """Append the keys and values of the tokens that have just been read, and let go of the cache."""
    width = fresh.shape[1]
    for number, layer in enumerate(_taken(cache.layers)):
        added = tuple(states[:, :, -width:].transpose(1, 2)[fresh] for states in (layer.keys, layer.values))
        if number == len(kept):
            kept.append(added)
        else:
            kept[number] = tuple(torch.cat(pair) for pair in zip(kept[number], added, strict=True))


def _look_up(model: Any, kept: Iterable[Layer], places: Int[Tensor, "B W"]) -> Any:
    """A cache of the kept tokens at these places."""
    cache = _empty_cache(model)
    for number, layer in enumerate(kept):
        keys, values = (states[places].transpose(1, 2) for states in layer)
        cache.update(keys, values, number)
    return cache


def _taken(items: list[Item]) -> Iterator[Item]:
    """Take the items out of the list, so that nothing holds those that were worked off."""
    while items:
        yield items.pop(0)


def _read_rows(model: Any, asked: list[Tokens]) -> Reading:
    ids, attention = _left_padded(asked, model.device)
    out = model(
        input_ids=ids,
        attention_mask=attention,
        position_ids=(attention.cumsum(1) - 1).clamp(min=0),
        use_cache=True,
        logits_to_keep=1,
    )
    return Reading(out.logits[:, -1], out.cache, attention, [len(prompt) for prompt in asked])


def _keeps_every_token(model: Any) -> bool:
    """Whether the model's memory is keys and values of every token, and its logits are made by a head."""
    from transformers.cache_utils import DynamicLayer

    layers = _empty_cache(model).layers
    return isinstance(model.get_output_embeddings(), nn.Module) and all(type(layer) is DynamicLayer for layer in layers)


def _empty_cache(model: Any) -> Any:
    from transformers.cache_utils import DynamicCache

    return DynamicCache(config=model.config)


def _left_padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """The rows as one grid, and 1 where it is theirs."""
    width = max(len(row) for row in rows)
    grid = [[0] * (width - len(row)) + list(row) for row in rows]
    own = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
    return torch.tensor(grid, dtype=torch.int64, device=device), torch.tensor(own, dtype=torch.int64, device=device)


def _right_padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    grid, own = _left_padded([row[::-1] for row in rows], device)
    return grid.flip(1), own.flip(1)
