"""The map between the token grid [B, T] and the dense step grid [N, K].

The step grid has one row a rollout, left-aligned and without holes: padding, packing and tokens that the policy did
not sample are gone. Column k is step k; K is the largest count of steps in the batch (at least 1). Entries past a
rollout's last step are 0. Every function here selects by mask before it computes, so whatever stands in padding or
on tool tokens (NaN, inf) never shows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from apportion.errors import InputError
from apportion.rollouts import Rollouts, Scores


@dataclass(frozen=True, eq=False)
class StepMap:
    """Which step each sampled token belongs to.

    cell: flat index into the step grid (rollout * K + step); -1 where the token was not sampled.
    counts: steps of each rollout.
    """

    cell: Int[Tensor, "B T"]
    counts: Int[Tensor, " N"]

    @property
    def width(self) -> int:
        """K."""
        return max(1, int(self.counts.max()))

    @property
    def mask(self) -> Bool[Tensor, "N K"]:
        """True where a step is."""
        columns = torch.arange(self.width, device=self.counts.device)
        return columns < self.counts.unsqueeze(1)

    @property
    def step_of(self) -> Int[Tensor, "B T"]:
        """The step of each token within its rollout; -1 where it was not sampled."""
        return torch.where(self.cell < 0, -1, self.cell % self.width)

    @property
    def lengths(self) -> Float[Tensor, "N K"]:
        """Tokens of each step."""
        return self.sum(torch.ones(self.cell.shape, device=self.cell.device))

    def sum(self, tokens: Float[Tensor, "B T"]) -> Float[Tensor, "N K"]:
        """Add up the sampled tokens of each step."""
        sampled = self.cell >= 0
        return self._zeros(tokens).index_add(0, self.cell[sampled], tokens[sampled]).view(-1, self.width)

    def first(self, tokens: Float[Tensor, "B T"]) -> Float[Tensor, "N K"]:
        """Take each step's first token: what stands there was seen just before the step."""
        cells = self.cell[self.cell >= 0]
        begins = torch.ones_like(cells, dtype=torch.bool)
        begins[1:] = cells[1:] != cells[:-1]
        values = tokens[self.cell >= 0][begins]
        return self._zeros(tokens).index_copy(0, cells[begins], values).view(-1, self.width)

    def to_tokens(self, steps: Float[Tensor, "N K"]) -> Float[Tensor, "B T"]:
        """Give every sampled token its step's entry; all others get 0."""
        return torch.where(self.cell >= 0, steps.flatten()[self.cell.clamp(min=0)], 0)

    def last_tokens(self) -> Bool[Tensor, "B T"]:
        """True at the last token of every step."""
        flat = self.cell.flatten()
        places = (flat >= 0).nonzero().squeeze(1)
        cells = flat[places]
        ends = torch.ones_like(cells, dtype=torch.bool)
        ends[:-1] = cells[1:] != cells[:-1]
        return torch.zeros_like(flat, dtype=torch.bool).index_fill(0, places[ends], True).view_as(self.cell)

    def place(self, scores: tuple[Scores, ...], name: str, merge: Callable[[list[float]], float]) -> Tensor:
        """Lay given scores, one a step or one a sampled token, on the step grid; a rollout without any gets 0.

        merge: how the scores of a step's tokens become the step's.
        Raises InputError where the count fits neither.
        """
        grid = torch.zeros(len(scores), self.width, dtype=torch.float64)
        lengths = self.lengths.long().tolist()
        for n, given in enumerate(scores):
            steps = int(self.counts[n])
            if given is None:
                continue
            if len(given) == steps:
                grid[n, :steps] = torch.tensor(given, dtype=torch.float64)
            elif len(given) == sum(lengths[n]):
                ends = torch.tensor(lengths[n][:steps]).cumsum(0).tolist()
                pieces = [list(given[end - size : end]) for end, size in zip(ends, lengths[n][:steps], strict=True)]
                grid[n, :steps] = torch.tensor([merge(piece) for piece in pieces], dtype=torch.float64)
            else:
                raise InputError(
                    f"rollout {n}: {len(given)} {name} came, which fits neither its {steps} steps "
                    f"nor its {sum(lengths[n])} sampled tokens"
                )
        return grid.to(self.cell.device)

    def _zeros(self, like: Tensor) -> Tensor:
        return torch.zeros(len(self.counts) * self.width, dtype=like.dtype, device=like.device)


def number_steps(rollouts: Rollouts, starts: Bool[Tensor, "B T"]) -> StepMap:
    """Make the map from the tokens at which a step starts; a rollout's first sampled token always does.

    Only sampled tokens are looked at, so a run of tool tokens neither starts a step nor takes part in one.
    """
    places = rollouts.action_mask.flatten().nonzero().squeeze(1)
    owner = rollouts.rollout_of.flatten()[places]
    opens = starts.flatten()[places].clone()
    opens[:1] = True
    opens[1:] |= owner[1:] != owner[:-1]
    counts = torch.bincount(owner[opens], minlength=len(rollouts))
    before = counts.cumsum(0) - counts
    width = max(1, int(counts.max()))
    step = opens.cumsum(0) - 1 - before[owner]
    cell = torch.full_like(rollouts.tokens, -1).flatten().index_copy(0, places, owner * width + step)
    return StepMap(cell.view_as(rollouts.tokens), counts)
