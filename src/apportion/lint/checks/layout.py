"""What must hold before anything else can be looked at: the columns describe rollouts, in numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from apportion.lint import tolerance
from apportion.lint.batch import Batch
from apportion.lint.check import Case, Check, columns
from apportion.lint.finding import Finding, Place, broken, holds
from apportion.lint.runs import begins


def layout(case: Case) -> Finding:
    """Sampled tokens are tokens, and a segment id that ended in a row does not come back there."""
    batch = case.batch
    astray = batch.action_mask & batch.padding
    if bool(astray.any()):
        row, position = astray.nonzero()[0].tolist()
        return broken("a sampled token stands in padding", Place(row, position, "action_mask", 1.0, 0.0))
    back = _come_back(batch)
    if bool(back.any()):
        row, position = back.nonzero()[0].tolist()
        said = (
            f"segment {int(batch.segments[row, position])} comes back after another one: row {row}, position {position}"
        )
        return broken(said)
    size = f"{len(batch)} rollouts in {batch.valid.shape[0]} rows of {batch.valid.shape[1]}"
    tokens = f"{int(batch.sampled.sum())} sampled tokens of {int(batch.valid.sum())}"
    unscored = int((~batch.scored).sum())
    counts = [size, tokens, *([f"{unscored} rollouts not scored (NaN)"] if unscored else []), *batch.notes]
    return holds("; ".join(counts))


def finite(case: Case) -> Finding:
    """Every number that is used is one. NaN as a reward stands for a rollout that was not scored."""
    batch = case.batch
    for name, grid in batch.grids.items():
        bad = not_usable(batch, name)
        if bool(bad.any()):
            row, position = bad.nonzero()[0].tolist()
            return broken(f"row {row}, position {position}: {name} is {float(grid[row, position])}, expected a number")
    return holds(f"looked at {', '.join(batch.grids) or 'no numbers: none came'}")


def not_usable(batch: Batch, name: str) -> Tensor:
    """Places where a column is used and holds no number."""
    grid = batch.grids[name]
    small = grid.abs() <= tolerance.LARGEST
    return batch.sampled & ~small & ~grid.isnan() if name == "rewards" else batch.counted & ~small


def _come_back(batch: Batch) -> Tensor:
    """True at the first token of a run whose segment id another run of the same row had before."""
    valid = batch.valid
    owner = batch.rollout_of[valid]
    first = begins(owner)
    rows, ids = batch.row_of[valid][first], batch.segments[valid][first]
    pairs, index = torch.unique(torch.stack([rows, ids]), dim=1, return_inverse=True)
    earliest = torch.full((pairs.shape[1],), len(index)).scatter_reduce(0, index, torch.arange(len(index)), "amin")
    back = torch.arange(len(index)) > earliest[index]
    opens = torch.zeros_like(valid).masked_scatter(valid, first)
    return torch.zeros_like(valid).masked_scatter(opens, back)


LAYOUT = Check(
    "bad-layout",
    "sampled tokens stand in rollouts, and a rollout is one run",
    "Give action_mask and segments (or valid_mask) of the same batch; a rollout has one segment id, in one run.",
    columns("action_mask"),
    layout,
)
FINITE = Check(
    "not-finite",
    "every number that is used is finite",
    "Select by mask before you compute (torch.where on the input); mark a rollout without a score by NaN rewards.",
    columns("action_mask"),
    finite,
)
