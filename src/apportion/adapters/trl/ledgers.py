"""A callback that writes every n-th batch down and lints it: credit as TRL takes it, whoever worked it out."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import TrainerCallback

from apportion import files, recipes
from apportion.adapters.columns import write_columns
from apportion.adapters.trl.losses import Part, loss_columns
from apportion.adapters.trl.recipes import grpo
from apportion.errors import InputError
from apportion.files import Row
from apportion.ledger import Ledger
from apportion.lint import lint
from apportion.rollouts import Rollouts


@dataclass(frozen=True)
class Credited:
    """A generated batch of all processes and the advantages that TRL trains on.

    ledger: None where TRL worked them out. prompts: length of each answer's. advantages: of each answer, one number or
    one a place of its completion.
    """

    step: int
    rollouts: Rollouts
    ledger: Ledger | None
    prompts: Sequence[int]
    advantages: Sequence[Tensor]
    args: Any

    def rows(self) -> list[Row]:
        """What `apportion view` shows."""
        if self.ledger is not None:
            return self.ledger.rows()
        pairs = zip(self.rollouts.rows(), self.advantages, strict=True)
        return [files.row_of(row) | {"advantage": float(advantage)} for row, advantage in pairs]

    def columns(self) -> dict[str, Any]:
        """What `apportion lint` checks, on the grid of completions."""
        pairs, sampled = zip(self.rollouts.places(), self.prompts, strict=True), self.rollouts.action_mask.flatten()
        masks = [sampled[place[prompt:]] for place, prompt in pairs]
        wide = [advantage.reshape(-1) for advantage in self.advantages]
        width = max(len(column) for column in (*masks, *wide))

        def grid(rows: Sequence[Tensor]) -> Tensor:
            return torch.stack([torch.nn.functional.pad(row, (0, width - len(row))) for row in rows])

        advantages = torch.cat(wide) if self.advantages[0].dim() == 0 else grid(wide)
        return {
            "action_mask": grid(masks),
            "valid_mask": grid([torch.ones_like(mask) for mask in masks]),
            "rewards": self.rollouts.outcome + _summed(self.rollouts),
            "groups": self.rollouts.groups,
            "advantages": advantages,
            **self._recipe(),
        }

    def _recipe(self) -> dict[str, str]:
        """The recipe by its name, if the linter can work it out anew: one that is exactly as its name says."""
        if self.ledger is None:
            named = {"group": "grpo", "none": "dr_grpo"}.get(self.args.scale_rewards)
            return {"recipe": named} if named and self.args.multi_objective_aggregation == "sum_then_normalize" else {}
        recipe = self.ledger.recipe
        published = recipe == grpo or (recipe.name in recipes.BY_NAME and recipe == recipes.by_name(recipe.name))
        return {"recipe": recipe.name} if published else {}


class LedgerCallback(TrainerCallback):
    """Write every `every`-th step's batch into `folder`, and lint it.

    Written are `ledgers/step-000010.jsonl`, which `apportion view` opens, and for `apportion lint`
    `batches/step-000010.npz`, what TRL's loss is given, and `losses/step-000010.npz`, what it makes of that. To
    `lint.jsonl` goes a row for each of the two with what was found. A broken rule is warned of; training goes on, as it
    does where a file cannot be written.

    With `GRPOTrainer(recipe=None)` it watches TRL's own advantages.

    Raises InputError unless `every` is at least 1.
    """

    def __init__(self, folder: str | Path, every: int = 10) -> None:
        if type(every) is not int or every < 1:
            raise InputError(f"every n-th step is written down; n must be a whole number from 1 on, got {every!r}")
        self.folder, self.every = Path(folder), every
        self._parts: list[Part] = []
        self._batches = 0  # of this step
        self._warned = False

    def wants(self, step: int) -> bool:
        """Whether the batch of a step, counted from 0, is written down."""
        return step % self.every == 0

    def credited(self, batch: Credited, *, main: bool) -> None:
        """Take a batch as it goes into the loss. main: whether this process is the one that writes."""
        more = f"-{self._batches}" if self._batches else ""  # a step may generate several times
        self._batches += 1
        if main:
            name = f"step-{batch.step:06d}{more}"
            self._told(lambda: files.write_rows(self._folder("ledgers") / f"{name}.jsonl", batch.rows()))
            self._told(lambda: self._lint("batches", name, batch.columns()))

    def took_loss(self, part: Part) -> None:
        """Take what the loss made of one micro-batch of this process."""
        self._parts.append(part)

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """The optimizer has stepped: put the micro-batches of all processes together. `state` has counted the step."""
        from accelerate.utils import gather_object

        step, parts = state.global_step - 1, self._parts
        if self.wants(step):
            everything = gather_object(parts)
            if state.is_world_process_zero and everything:
                name = f"step-{step:06d}"
                self._told(lambda: self._lint("losses", name, loss_columns(everything, args)))
            if not everything and not self._warned:
                self._warned = True
                warnings.warn("LedgerCallback sees nothing: the trainer is not apportion.adapters.trl's", stacklevel=2)
        self._parts, self._batches = [], 0

    def _lint(self, kind: str, name: str, columns: dict[str, Any]) -> None:
        write_columns(self._folder(kind) / f"{name}.npz", columns)
        findings = lint(columns)
        broken = [found for found in findings if found.verdict == "broken"]
        row = {"batch": f"{kind}/{name}", "held": sum(found.verdict == "holds" for found in findings)}
        row |= {"broken": {found.code: str(found) for found in broken}}
        self._append(row)
        for found in broken:
            warnings.warn(f"{kind}/{name}: {found}", stacklevel=2)

    def _folder(self, kind: str) -> Path:
        folder = self.folder / kind
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _append(self, row: Row) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "lint.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def _told(self, write: Callable[[], object]) -> None:
        try:
            write()
        except (InputError, OSError) as error:
            warnings.warn(f"not written down or checked, training goes on: {error}", stacklevel=3)


def _summed(rollouts: Rollouts) -> Tensor:
    totals = [sum(row.step_rewards or ()) for row in rollouts.scored_rows()]
    return torch.tensor(totals, dtype=rollouts.outcome.dtype)
