"""Wrong views of a batch: what others take for steps, for their rewards, and for the values after them.

Each takes a batch and gives the view; `faults` says what each is called and which rule it breaks.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from apportion.lint.batch import Batch
from apportion.lint.view import View, next_place, next_values, right, turn_of


def every_token_of_rollouts(batch: Batch) -> View:
    return replace(right(batch), mask=batch.valid & batch.of_tokens(batch.scored))


def every_place(batch: Batch) -> View:
    everywhere = torch.ones_like(batch.valid)
    return replace(right(batch), mask=everywhere, rollout_of=batch.row_of)


def every_place_with_its_reward(batch: Batch) -> View:
    return replace(every_place(batch), rewards=batch.grids["rewards"].nan_to_num())


def decay_through_gaps(batch: Batch) -> View:
    """A gap's token is worth what follows, discounted: its own TD error is 0, and only decay is left."""
    view = every_token_of_rollouts(batch)
    distance = (batch.next_counted - batch.places).abs()
    carried = view.gamma ** distance.double() * next_values(batch, view.values)
    return replace(view, values=torch.where(batch.counted, view.values, carried))


def gaps_worth_nothing(batch: Batch) -> View:
    view = every_token_of_rollouts(batch)
    return replace(view, values=torch.where(batch.counted, view.values, 0))


def first_gap_value(batch: Batch) -> View:
    view = right(batch)
    leak = next_place(batch, view.values) - next_values(batch, view.values)
    return _worth_more(view, batch.turn_ends, view.gamma * leak)


def nothing_after_a_turn(batch: Batch) -> View:
    view = right(batch)
    return _worth_more(view, batch.turn_ends, -view.gamma * next_values(batch, view.values))


def turns_alone(batch: Batch) -> View:
    return replace(right(batch), rollout_of=turn_of(batch))


def turns_cut(batch: Batch) -> View:
    view = turns_alone(batch)
    return _worth_more(view, batch.turn_ends, view.gamma * next_values(batch, view.values))


def padding_walked(batch: Batch) -> View:
    view, tail = right(batch), batch.tail & batch.counted.any(1, keepdim=True)
    last = torch.where(batch.counted, batch.rollout_of, 0).amax(1, keepdim=True)
    return replace(view, mask=batch.counted | tail, rollout_of=torch.where(tail, last, view.rollout_of))


def first_padding_value(batch: Batch) -> View:
    view = right(batch)
    before = next_place(batch, batch.tail.double()) > 0
    return _worth_more(view, before, view.gamma * next_place(batch, view.values))


def rows_as_one(batch: Batch) -> View:
    return replace(right(batch), rollout_of=batch.row_of)


def neighbour_value(batch: Batch) -> View:
    view = right(batch)
    return _worth_more(view, batch.neighbour_follows, view.gamma * batch.at_next(view.values))


def neighbour_credit(batch: Batch) -> View:
    view = rows_as_one(batch)
    return _worth_more(view, batch.neighbour_follows, -view.gamma * batch.at_next(view.values))


def longest_row_cut_off(batch: Batch) -> View:
    view = right(batch)
    reaches = batch.rollout_ends & (batch.rollout_of == batch.rollout_of[:, -1:])
    return _worth_more(view, reaches, view.gamma * view.values[:, -1:].expand_as(view.values))


def all_cut_off(batch: Batch) -> View:
    view = right(batch)
    return _worth_more(view, batch.rollout_ends, view.gamma * view.values)


def rewards_of_turn_ends(batch: Batch) -> View:
    return _rewards_at(batch, batch.turn_ends | batch.rollout_ends)


def rewards_of_last_tokens(batch: Batch) -> View:
    return _rewards_at(batch, batch.rollout_ends)


def no_rewards(batch: Batch) -> View:
    return _rewards_at(batch, torch.zeros_like(batch.counted))


def rewards_summed_at_the_end(batch: Batch) -> View:
    view = right(batch)
    sums = torch.zeros(len(batch), dtype=torch.float64)
    sums = sums.index_add(0, batch.rollout_of[batch.counted], view.rewards[batch.counted])
    return replace(view, rewards=torch.where(batch.rollout_ends, batch.of_tokens(sums), 0))


def rewards_moved_to_sampled_tokens(batch: Batch) -> View:
    """A reward at a token that was not sampled counts at the sampled token before it: nothing is lost."""
    view = right(batch)
    astray = torch.where(batch.sampled, 0, batch.grids["rewards"]).nan_to_num().flatten()
    counted = batch.counted.flatten().nonzero().squeeze(1)
    before = torch.searchsorted(counted, astray.nonzero().squeeze(1)) - 1
    moved = torch.zeros_like(astray).index_add(0, counted[before.clamp(min=0)], astray[astray != 0])
    return replace(view, rewards=view.rewards + moved.view(view.rewards.shape))


def values_one_late(batch: Batch) -> View:
    view = right(batch)
    return replace(view, values=next_values(batch, view.values))


def undiscounted(batch: Batch) -> View:
    return replace(right(batch), gamma=1.0, lam=1.0)


def _rewards_at(batch: Batch, places: Tensor) -> View:
    view = right(batch)
    return replace(view, rewards=torch.where(places, view.rewards, 0))


def _worth_more(view: View, places: Tensor, amount: Tensor) -> View:
    """The view with something added to the rewards of some places."""
    return replace(view, rewards=view.rewards + torch.where(places, amount, 0))
