"""TRL's `GRPOTrainer` with credit by a recipe.

What TRL does stays TRL's: sampling, tools, reference model, loss, its settings and its logs. Only the advantages are
replaced, by one number for every token of every answer, [B, T], before TRL shuffles and splits the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import trl
from accelerate.utils import gather_object
from jaxtyping import Float
from torch import Tensor

from apportion.adapters.trl import answers
from apportion.adapters.trl.answers import Generated
from apportion.adapters.trl.ledgers import Credited, LedgerCallback
from apportion.adapters.trl.losses import part_of
from apportion.adapters.trl.recipes import recipe_called, refuse_conflicts, refuse_values
from apportion.adapters.trl.rewards import Lists, heard, on_sampled, outcomes, step_rewards
from apportion.adapters.trl.values import Continuations, Shared, engine_of, refuse_what_cannot_be_continued
from apportion.errors import InputError
from apportion.ledger import Ledger, Recipe, apportion
from apportion.policy.text import Speller
from apportion.rewards.mixing import Bootstrapped
from apportion.rollouts import Rollout, Rollouts, collate
from apportion.steps import splitters
from apportion.values.baselines import Value
from apportion.values.engine import Prefix

ValueFunction = Callable[..., Sequence[Sequence[float]]]
"""Called as a reward function is, with `step_texts` besides; for each answer a value before each step or token."""


@dataclass(frozen=True)
class _Sampled:
    """The answers of this process as they were generated, with the rows of the dataset that they are for."""

    examples: list[dict[str, Any]]
    rollouts: list[Rollout]
    prompts: list[Any]
    completions: list[Any]


class GRPOTrainer(trl.GRPOTrainer):  # type: ignore[misc]
    """A GRPOTrainer of TRL that takes besides:

    recipe: a name (`apportion.recipes.BY_NAME`) or a `Recipe`; `grpo` gives TRL's own numbers. None = TRL's advantages
        are left alone, and only watched (`LedgerCallback`).
    values: for a recipe that takes values as given: `Continuations(...)`, or a function that is called as a reward
        function is and returns for each answer a list of values, one before each step or one before each sampled
        token; for a recipe that bootstraps answers that were cut off (`ppo`) one more, after the last.

    Reward functions may return a number for an answer, a list with one number a step, or a list with one a sampled
    token. They, and a value function, are given `step_texts` besides: the text of every step of every answer.
    In evaluation TRL's own advantages stand.

    Raises InputError for settings that contradict each other, and LawError where a law of the recipe does not hold.
    """

    reward_funcs: list[Any]
    _calculate_rewards: Callable[..., Tensor]

    def __init__(
        self,
        *args: Any,
        recipe: str | Recipe | None = "grpo",
        values: Continuations | ValueFunction | None = None,
        **kwargs: Any,
    ) -> None:
        self.recipe, self.values = recipe_called(recipe), values
        refuse_values(self.recipe, values)
        super().__init__(*args, **kwargs)
        if self.recipe is not None:
            refuse_conflicts(self.recipe, self.args)
        if isinstance(values, Continuations):
            refuse_what_cannot_be_continued(self, values)
        self._ends = answers.ends_of(self._tokenizer, self.eos_token_ids)
        self._speller = Speller(self._tokenizer)
        self._by_step: list[Lists | None] = []
        self._rewarded, self._calculate_rewards = self._calculate_rewards, self._noted  # a subclass's own goes along

    def _generate(self, prompts: list[Any]) -> Any:
        found = super()._generate(prompts)
        prompt_ids, completion_ids, tool_mask, _, logprobs, *_ = found
        self._generated = Generated([*prompt_ids], [list(ids) for ids in completion_ids], tool_mask, logprobs)
        return found

    def _noted(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Tensor:
        """In the place of TRL's `_calculate_rewards`: the same rewards; on the way answers are kept as rollouts."""
        size = self.num_generations if self.model.training else self.num_generations_eval
        first = self.accelerator.process_index * len(prompts)
        rollouts = self._generated.rollouts(self._speller, self._ends, first, size)
        self._sampled = _Sampled(self._with_step_texts(inputs, rollouts), rollouts, prompts, completions)
        self._rewards = self._asked(self._sampled, completion_ids_list)
        return self._rewards

    def _asked(self, sampled: _Sampled, completion_ids: Sequence[Sequence[int]]) -> Float[Tensor, "N F"]:
        """What the reward functions say, gathered from all processes."""
        self._by_step = [None] * len(self.reward_funcs)
        own, self.reward_funcs = self.reward_funcs, [self._heard(i, each) for i, each in enumerate(self.reward_funcs)]
        try:
            return self._rewarded(sampled.examples, sampled.prompts, sampled.completions, completion_ids)
        finally:
            self.reward_funcs = own

    def _heard(self, i: int, function: Any) -> Any:
        """The reward function, its lists kept in `_by_step[i]`; a model gives one number and stays as it is."""
        if isinstance(function, torch.nn.Module):
            return function
        return heard(function, self.reward_func_names[i], lambda lists: self._by_step.__setitem__(i, lists))

    def _with_step_texts(self, inputs: Sequence[dict[str, Any]], rollouts: list[Rollout]) -> list[dict[str, Any]]:
        if "step_texts" in inputs[0]:
            raise InputError("the dataset has a column `step_texts`, under which reward functions are told their steps")
        batch = collate(rollouts)
        split = splitters.whole if self.recipe is None else self.recipe.split
        texts = answers.step_texts(rollouts, batch, split(batch))
        return [{**example, "step_texts": own} for example, own in zip(inputs, texts, strict=True)]

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        watching = self._watching()
        if not self.model.training or (self.recipe is None and not watching):
            return output
        rollouts, ledger = self._scored(), None
        if self.recipe is not None:
            ledger = apportion(rollouts, self._valued(self.recipe)).require_laws()
            output["advantages"] = self._advantages(ledger, output["completion_ids"].shape[1])
            self._log_credit(ledger)
        if watching:
            lengths = gather_object([len(prompt) for prompt in self._generated.prompts])
            rows = gather_object(list(output["advantages"].cpu()))
            batch = Credited(self.state.global_step, rollouts, ledger, lengths, rows, self.args)
            for callback in watching:
                callback.credited(batch, main=self.is_world_process_zero())
        return output

    def _watching(self) -> list[LedgerCallback]:
        """The callbacks that write this step down."""
        known = (callback for callback in self.callback_handler.callbacks if isinstance(callback, LedgerCallback))
        return [callback for callback in known if self.model.training and callback.wants(self.state.global_step)]

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        self._logprobs: Tensor | None = found[0] if self._watching() else None
        return found

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        loss: Tensor = super()._compute_loss(model, inputs)
        if self._logprobs is not None and loss.requires_grad:
            part = part_of(inputs, self._logprobs, loss, self.accelerator.num_processes)
            for callback in self._watching():
                callback.took_loss(part)
        self._logprobs = None
        return loss

    def _advantages(self, ledger: Ledger, width: int) -> Float[Tensor, "B T"]:
        """Those of this process, on the grid of its completions."""
        prompts = [len(prompt) for prompt in self._generated.prompts]
        here = self.accelerator.process_index * len(prompts)
        grid = answers.on_completions(ledger, slice(here, here + len(prompts)), prompts, width)
        return grid.to(self.accelerator.device)

    def _scored(self) -> Rollouts:
        """The answers of all processes, with what rewards and a value function say of them."""
        functions = [self._lists(i) for i in range(len(self.reward_funcs))]
        by_step = [
            [on_sampled(found, self._generated.mask(n), f"answer {row.id}") for found in lists]
            for n, (row, lists) in enumerate(zip(self._sampled.rollouts, zip(*functions, strict=True), strict=True))
        ]
        rows = gather_object(list(zip(self._with_values(), by_step, strict=True)))
        weights = self.reward_weights.tolist()
        outcome = outcomes(self._rewards, [lists for _, lists in rows], self.reward_weights)
        return collate(
            [
                replace(row, outcome=score, step_rewards=step_rewards(lists, weights, f"answer {row.id}"))
                for (row, lists), score in zip(rows, outcome, strict=True)
            ]
        )

    def _lists(self, i: int) -> Lists:
        found = self._by_step[i]
        return [None] * len(self._sampled.rollouts) if found is None else found

    def _with_values(self) -> list[Rollout]:
        """The rollouts of this process, with the values that a function gives them."""
        rows = self._sampled.rollouts
        if self.values is None or isinstance(self.values, Continuations):
            return rows
        assert self.recipe is not None
        sampled, batch = self._sampled, collate(rows)
        names = [name for name in sampled.examples[0] if name not in ("prompt", "completion", "completion_ids")]
        columns = {name: [example[name] for example in sampled.examples] for name in names}
        columns |= {"prompts": sampled.prompts, "completions": sampled.completions}
        given = self.values(**columns, completion_ids=list(self._generated.completions), trainer_state=self.state)
        ends = isinstance(self.recipe.reward, Bootstrapped)
        counts = list(zip(self.recipe.split(batch).counts.tolist(), batch.action_counts.tolist(), strict=True))
        return answers.with_values(rows, given, counts, ends=ends)

    def _valued(self, recipe: Recipe) -> Recipe:
        """The recipe; where values are estimated by continuing answers, with that as its value function."""
        return replace(recipe, value=self._continued()) if isinstance(self.values, Continuations) else recipe

    def _continued(self) -> Value:
        assert isinstance(self.values, Continuations)
        known = zip(self._sampled.rollouts, self._sampled.examples, self._generated.prompts, strict=True)
        groups: dict[Hashable, tuple[dict[str, Any], int]] = {}
        for group, example, length in gather_object([(row.group, told, len(ids)) for row, told, ids in known]):
            groups.setdefault(group, ({k: v for k, v in example.items() if k != "step_texts"}, length))

        def judge(continued: Sequence[tuple[Prefix, list[int]]]) -> list[float | None]:
            asked = [groups[prefix.group] for prefix, _ in continued]
            tokens = [[*prefix.tokens, *more] for prefix, more in continued]
            made = Generated(
                [ids[:length] for ids, (_, length) in zip(tokens, asked, strict=True)],
                [ids[length:] for ids, (_, length) in zip(tokens, asked, strict=True)],
                sampled=None,
                logprobs=None,
            )
            return self._judged([example for example, _ in asked], made)

        source = Shared(self, engine_of(self, self.values, self._ends), judge)
        return self.values.source(source, source.score)

    def _judged(self, examples: list[dict[str, Any]], made: Generated) -> list[float | None]:
        """The outcomes of answers that were continued, of all processes; nothing of it goes into TRL's logs."""
        rollouts = made.rollouts(self._speller, self._ends, 0, 1)
        prompts = [example["prompt"] for example in examples]
        completions = answers.completions(self.processing_class, prompts, made)
        asked = _Sampled(self._with_step_texts(examples, rollouts), rollouts, prompts, completions)
        rewards = self._asked(asked, made.completions)
        self._pending_extra_logs.clear()
        self._pending_metrics.clear()
        answers.refuse_lists(self._by_step, self.reward_func_names)
        return outcomes(rewards, [[None] * rewards.shape[1]] * len(rewards), self.reward_weights)

    def _log_credit(self, ledger: Ledger) -> None:
        """Into TRL's logs: of each answer its mean advantage, and how large credit is and how much of it there is."""
        sizes = ledger.advantage.abs()[ledger.mask]
        metrics = self._metrics["train"]
        metrics["credit/mean_abs"].append(float(sizes.mean()) if len(sizes) else 0.0)
        metrics["credit/zero_share"].append(float((sizes == 0).float().mean()) if len(sizes) else 1.0)
        metrics["credit/steps"].append(float(ledger.steps.counts.float().mean()))
        means = answers.mean_advantages(ledger)
        logged = self._logs["advantages"]
        for _ in range(min(len(means), len(logged))):
            logged.pop()
        logged.extend(means)
