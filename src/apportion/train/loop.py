"""The loop: sample, judge, apportion, update, write down. It does not know which recipe it runs."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import torch

from apportion.files import write_rows
from apportion.ledger import Ledger, apportion
from apportion.policy.causal import SMALL, CausalPolicy
from apportion.recipes import by_name
from apportion.tasks.problem import Problem
from apportion.train import values
from apportion.train.collect import Collector, chance, make_task, torch_chance
from apportion.train.config import TrainConfig
from apportion.train.figures import PassRate, ledger_figures
from apportion.train.run_folder import RunFolder
from apportion.train.update import Updater
from apportion.values.answers import answers_through
from apportion.values.baselines import given
from apportion.values.spot_check import Alarm


@runtime_checkable
class Watcher(Protocol):
    """Told what happens, as it happens: a live bar, say."""

    def evaluated(self, when: str, rate: PassRate) -> None: ...

    def stepped(self, metrics: dict[str, Any], timings: dict[str, Any]) -> None: ...


class Trainer:
    """One run, from wherever its folder says it stands to its last step."""

    def __init__(self, run: RunFolder, config: TrainConfig, watcher: Watcher) -> None:
        """Load all that the run needs; what is wrong with it shows here, before anything is written."""
        self.run, self.config, self.watcher = run, config, watcher
        self.task = make_task(config)
        self.recipe = by_name(config.recipe)
        self.policy = CausalPolicy.load(config.model)
        small = self.policy.parameters < SMALL
        torch.set_num_threads(config.threads or (1 if small else torch.get_num_threads()))
        self.collector = Collector(self.policy, self.task, config)
        self.collector.refuse_long()
        self.updater = Updater(self.policy, config)
        self.generated = 0  # tokens sampled for training, Monte-Carlo continuations and all
        self._alarm = Alarm()
        self._clock = Clock()

    def train(self) -> None:
        """Run to the end: test before, train, test after, save the model."""
        with self.run.begin(self.config):
            step = self._take_up()
            self._evaluate("before", 0)
            while not self._done(step):
                self._step(step)
                step += 1
            self._evaluate("after", step)
            self.run.save_model(self.policy.save)

    def _done(self, steps: int) -> bool:
        """Are so many steps enough?"""
        budget = self.config.token_budget
        return steps >= self.config.steps or (budget is not None and self.generated >= budget)

    def _step(self, step: int) -> None:
        self._clock, generated_before = Clock(), self.policy.generated
        problems = self.task.sample(self.config.prompts, chance(self.config, step, "problems"))
        with self._clock.phase("sample"):
            ask = self.collector.tree_rollouts if self.recipe.value is answers_through else self.collector.rollouts
            rollouts = ask(problems, step)
        with self._clock.phase("judge"):
            rollouts = self.collector.scored(rollouts, problems)
        with self._clock.phase("credit"):
            ledger = self._apportion(rollouts, problems, step)
            checked = self._check_values(ledger, problems, step)
        with self._clock.phase("update"):
            order = torch_chance(self.config, step, "order", torch.device("cpu"))
            figures = self.updater.update(ledger, order)
        tokens = self.policy.generated - generated_before
        self.generated += tokens
        metrics = {
            "step": step,
            **ledger_figures(ledger),
            **checked,
            **figures,
            "sampled_tokens": int(rollouts.action_mask.sum()),
            "generated_tokens": self.generated,
        }
        with self._clock.phase("save"):
            self._write_down(step, metrics, ledger)
        timings = self._clock.timings(step, tokens)
        self.run.append("timings.jsonl", timings)
        self.watcher.stepped(metrics, timings)

    def _apportion(self, rollouts: Any, problems: list[Problem], step: int) -> Ledger:
        """Credit by the recipe; where it takes its values as given, the config says who gives them."""
        recipe = self.recipe
        if recipe.value is given:
            recipe = replace(recipe, value=values.BY_NAME[self.config.values](self.collector, problems, step))
        if self.config.mc_best_share == 1:
            return apportion(rollouts, recipe).require_laws()
        with warnings.catch_warnings():  # the steps of the others have one value, and so make one step
            warnings.filterwarnings("ignore", message=".*rollouts are credited as a whole")
            return apportion(rollouts, replace(recipe, min_spread=recipe.min_spread or 0.0)).require_laws()

    def _check_values(self, ledger: Ledger, problems: list[Problem], step: int) -> dict[str, float | None]:
        """Where it is due, how far the values are from the truth; a warning where that widens."""
        every = self.config.check_values_every
        if every is None:
            return {}
        gap = values.checked(ledger, self.collector, problems, step) if step % every == 0 else None
        if gap is None:
            return {"value_gap": None, "value_bias": None}
        if before := self._alarm.widened(gap):
            warnings.warn(
                f"step {step}: the values before steps are off by {gap.rms:.2f} in the root mean square (bias "
                f"{gap.bias:+.2f}), and were by {before.rms:.2f} at best; they no longer fit the policy",
                stacklevel=2,
            )
        return {"value_gap": gap.rms, "value_bias": gap.bias}

    def _write_down(self, step: int, metrics: dict[str, Any], ledger: Ledger) -> None:
        self.run.append("metrics.jsonl", metrics)
        last = self._done(step + 1)
        if last or step % self.config.ledger_every == 0:
            write_rows(self.run.ledgers / f"step-{step:06d}.jsonl", ledger.rows())
        if last or (step + 1) % self.config.checkpoint_every == 0:
            state = {
                "step": step + 1,
                "generated": self.generated,
                "optimiser": self.updater.optimiser.state_dict(),
            }
            self.run.save_checkpoint(step + 1, state, self.policy.save)

    def _take_up(self) -> int:
        """Go back to the newest checkpoint and give the number of the next step."""
        found = self.run.newest_checkpoint()
        if found is None:
            self.run.keep_steps_before(0)
            return 0
        folder, state = found
        trained = CausalPolicy.load(folder)
        self.policy.model.load_state_dict(trained.model.state_dict())
        self.updater.load(state["optimiser"])
        self.generated = state["generated"]
        self.run.keep_steps_before(state["step"])
        return int(state["step"])

    def _evaluate(self, when: str, step: int) -> None:
        """Sample one answer to each held-out problem, as in training; done once for a step and kept."""
        known = self.run.evaluations().get(when, {})
        if known.get("step") == step:
            rate = PassRate(known["passed"], known["scored"])
        else:
            rate = self.collector.pass_rate(self.task.held_out(self.config.tests), when)
            self.run.write_evaluation(when, {"step": step, **rate.as_dict()})
        self.watcher.evaluated(when, rate)


class Clock:
    """Seconds by phase of one step."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._phases: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self._phases[name] = time.perf_counter() - begun

    def timings(self, step: int, tokens: int) -> dict[str, Any]:
        seconds = time.perf_counter() - self._begun
        return {
            "step": step,
            "seconds": seconds,
            "tokens_per_second": tokens / seconds,
            **{f"seconds_{name}": spent for name, spent in self._phases.items()},
        }
