"""How the credits of several parts of a reward become one: before normalising or after."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from apportion.errors import InputError

Rescale = Callable[[Float[Tensor, "N K"]], Float[Tensor, "N K"]]
Combine = Callable[[Float[Tensor, "N K"], Sequence[Float[Tensor, "N K"]], Rescale], Float[Tensor, "N K"]]


def sum_then_normalise(
    credit: Float[Tensor, "N K"], parts: Sequence[Float[Tensor, "N K"]], rescale: Rescale
) -> Float[Tensor, "N K"]:
    """Normalise the credit of the whole reward: a part with large numbers drowns the others."""
    return rescale(credit)


def normalise_then_sum(
    credit: Float[Tensor, "N K"], parts: Sequence[Float[Tensor, "N K"]], rescale: Rescale
) -> Float[Tensor, "N K"]:
    """Normalise the credit of each part of the reward by itself, then add up: every part weighs alike.

    Law: unchanged when a part is multiplied by a constant, if the normalisation is; so the weights of a mix of rewards
    have no say here. Identity: with one part,
    `sum_then_normalise`. Source: GDPO, arXiv:2601.05242.

    Raises InputError where the parts' credits do not add up to the credit, as with values that were given for the
    reward as a whole.
    """
    together = torch.stack(list(parts)).sum(0)
    if float((together - credit).abs().max()) > 1e-4 * float(credit.abs().max()):
        raise InputError(
            "normalise_then_sum needs values that can be worked out for each part of the reward; "
            "this recipe's are of the whole reward"
        )
    return torch.stack([rescale(part) for part in parts]).sum(0)
