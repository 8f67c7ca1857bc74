"""Write down what torchrl and verl compute for small batches, as witnesses for ours (`tests/test_witnesses.py`).

    python tools/peer_numbers.py torchrl        in an environment with torchrl 0.14
    python tools/peer_numbers.py verl           in an environment with verl 0.9 (it pins another tensordict)

Each writes `tests/witnesses/NAME.json`: inputs (binary fractions), settings, and the advantages that came out.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path

import torch
from torch import Tensor

FOLDER = Path(__file__).parents[1] / "tests" / "witnesses"
SETTINGS = [(1.0, 1.0), (1.0, 0.95), (0.99, 0.95), (0.9, 0.5), (0.5, 0.0)]


def numbers(rows: int, steps: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-64, 65, (rows, steps), generator=generator).double() / 64


def torchrl_advantages(rewards: Tensor, values: Tensor, ends: Tensor, gamma: float, lam: float) -> Tensor:
    """`ends` is True at the last step of every trajectory; several may share a row."""
    from torchrl.objectives.value.functional import generalized_advantage_estimate

    after = torch.cat([values[:, 1:], torch.zeros_like(values[:, :1])], dim=1)
    columns = [grid.unsqueeze(-1) for grid in (values, after, rewards, ends, ends)]
    return generalized_advantage_estimate(gamma, lam, *columns)[0].squeeze(-1)


def verl_advantages(rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float) -> Tensor:
    """verl whitens what it gives back; its returns are advantages + values, so the raw ones can be had."""
    from verl.trainer.ppo.core_algos import compute_gae_advantage_return

    _, returns = compute_gae_advantage_return(rewards, values, mask.to(rewards.dtype), gamma, lam)
    return torch.where(mask, returns - values, 0)


def main(name: str) -> None:
    cases = []
    rewards, values = numbers(4, 37, seed=1), numbers(4, 37, seed=2)
    for gamma, lam in SETTINGS:
        if name == "torchrl":
            marks = torch.rand(4, 37, generator=torch.Generator().manual_seed(3)) < 0.1
            marks[:, -1] = True
            found = torchrl_advantages(rewards, values, marks, gamma, lam)
        else:
            marks = torch.rand(4, 37, generator=torch.Generator().manual_seed(4)) < 0.7
            marks[:, 0] = True
            found = verl_advantages(torch.where(marks, rewards, 0), values, marks, gamma, lam)
        case = {"gamma": gamma, "lam": lam, "rewards": rewards, "values": values, "marks": marks, "advantages": found}
        cases.append({key: entry.tolist() if isinstance(entry, Tensor) else entry for key, entry in case.items()})
    written = {"made_by": f"{name} {importlib.metadata.version(name)}", "cases": cases}
    (FOLDER / f"{name}.json").write_text(json.dumps(written) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
