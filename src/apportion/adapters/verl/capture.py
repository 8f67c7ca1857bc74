"""Every n-th batch of a run as two files: tensors for `apportion lint`, and rollouts with credit for `apportion view`.

`+apportion.capture_every=10 +apportion.capture_dir=FOLDER` on verl's command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from apportion import files, recipes
from apportion.adapters.columns import write_columns
from apportion.adapters.verl.batch import numbered, paid_by_token
from apportion.adapters.verl.handed import Handed, padded
from apportion.adapters.verl.sessions import laid_as_handed
from apportion.errors import InputError
from apportion.ledger import Ledger
from apportion.steps import splitters
from apportion.steps.spread import last_token
from apportion.values import baselines

OF_VERL = {"gae": "gae", "grpo": "grpo", "rloo": "rloo", "reinforce_plus_plus": "to_go"}
"""Estimators of verl, and what the linter calls them; it compares no other's credit."""

Columns = dict[str, Any]


@dataclass(frozen=True)
class Capture:
    """Which batches are written, and where; every = 0: none."""

    every: int = 0
    folder: Path = Path("captured")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Capture:
        """Read `apportion.capture_every` and `apportion.capture_dir` of verl's config.

        Raises InputError for a number that is none.
        """
        said = config.get("apportion") or {}
        every = said.get("capture_every", 0)
        if not isinstance(every, int) or every < 0:
            raise InputError(f"apportion.capture_every must be a whole number, 0 for none; got {every!r}")
        return cls(every, Path(str(said.get("capture_dir", "captured"))))

    def due(self, step: int) -> bool:
        return self.every > 0 and step % self.every == 0

    def take(self, handed: Handed, seen: Any, config: Any, step: int) -> tuple[Path, Path]:
        """Write `stepN.npz` for the linter and `stepN.jsonl` for the page.

        seen: the columns that verl wrote for its workers: `advantages`, `returns`, `response_mask` and, with a KL
        penalty in the reward, `token_level_rewards`.
        """
        if all(handed.padding):
            raise InputError("every row of the batch is padding of verl's: there is nothing to capture")
        tensors, rows = self.folder / f"step{step}.npz", self.folder / f"step{step}.jsonl"
        self.folder.mkdir(parents=True, exist_ok=True)
        if handed.ledger is not None:
            columns = columns_of(handed.ledger)
            files.write_rows(rows, handed.ledger.rows())
        else:
            columns = columns_of_stock(handed, seen, config)
            laid = laid_as_handed(handed.scores, handed, paid_by_token)
            assert laid is not None  # some row is no padding
            files.save(laid.rollouts, rows)
        for name in ("gamma", "lam"):
            columns[name] = float(config.get(name, 1.0))
        write_columns(tensors, columns)
        return tensors, rows


def columns_of(ledger: Ledger) -> Columns:
    """The tensors of our own credit, a rollout a row, as the linter calls them."""
    rollouts, places = ledger.rollouts, ledger.rollouts.places()

    def a_row(grid: Tensor) -> Tensor:
        return pad_sequence([grid.flatten()[place] for place in places], batch_first=True)

    columns: Columns = {
        "action_mask": a_row(rollouts.action_mask),
        "valid_mask": a_row(rollouts.valid_mask),
        "rewards": a_row(last_token(ledger.reward, ledger.steps)),
        "advantages": a_row(ledger.advantage),
        "groups": rollouts.groups,
    }
    if ledger.recipe.name in recipes.BY_NAME:
        columns["recipe"] = ledger.recipe.name
    if ledger.recipe.split is splitters.every_token and ledger.recipe.value is baselines.given:
        columns["values"] = a_row(ledger.steps.to_tokens(ledger.value))
        columns["returns"] = a_row(ledger.steps.to_tokens(ledger.credit + ledger.value))
    return columns


def columns_of_stock(handed: Handed, seen: Any, config: Any) -> Columns:
    """The tensors of an estimator of verl's own, as its actor gets them; rows that verl filled up with are left out."""
    rows = torch.tensor([n for n, padding in enumerate(handed.padding) if not padding])
    rewards = padded(seen["token_level_rewards"])[0] if "token_level_rewards" in seen else handed.scores
    columns: Columns = {
        "action_mask": padded(seen["response_mask"])[0].bool()[rows],
        "valid_mask": handed.response_tokens[rows],
        "rewards": rewards[rows],
        "advantages": padded(seen["advantages"])[0][rows],
        "groups": numbered([handed.keys[row].rsplit("_", 2)[0] for row in rows.tolist()]),
    }
    name = str(getattr(config.get("adv_estimator"), "value", config.get("adv_estimator")))
    if name == "grpo" and not config.get("norm_adv_by_std_in_grpo", True):
        columns["recipe"] = "dr_grpo"
    elif name in OF_VERL:
        columns["recipe"] = OF_VERL[name]
    if name == "gae" and handed.values is not None:
        columns["values"], columns["returns"] = handed.values[rows], padded(seen["returns"])[0][rows]
    return columns
