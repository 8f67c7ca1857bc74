"""The loop: sample, judge, apportion, update, write down. It does not know which recipe it runs."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from apportion.across import ALONE, Across
from apportion.files import write_rows
from apportion.ledger import Ledger
from apportion.policy.causal import SMALL, CausalPolicy
from apportion.rollouts import Rollouts
from apportion.tasks.problem import Problem
from apportion.train import values, variance
from apportion.train.collect import Collector, chance, make_task, torch_chance
from apportion.train.config import TrainConfig, with_effect
from apportion.train.credit import Crediting
from apportion.train.critic import Critic
from apportion.train.effects import ONLY, grows_trees, values_by_critic
from apportion.train.figures import PassRate, ledger_figures
from apportion.train.guards import Guards
from apportion.train.made import make_policy
from apportion.train.processes import Wrapping
from apportion.train.run_folder import RunFolder
from apportion.train.stopping import Stop
from apportion.train.tally import Figures
from apportion.train.trackers import Trackers
from apportion.train.update import Updater
from apportion.values.spot_check import Alarm


@runtime_checkable
class Watcher(Protocol):
    """Told what happens, as it happens: a live bar, say."""

    def evaluated(self, when: str, rate: PassRate) -> None: ...

    def stepped(self, metrics: dict[str, Any], timings: dict[str, Any]) -> None: ...


class Trainer:
    """One run, from wherever its folder says it stands to its last step. One of all the processes that train it."""

    def __init__(self, run: RunFolder, config: TrainConfig, watcher: Watcher, across: Across = ALONE) -> None:
        """Load all that the run needs; what is wrong with it shows here, before anything is written."""
        self.run, self.config, self.watcher, self.across = run, config, watcher, across
        self.task = make_task(config)
        self.policy = make_policy(config, across)
        small = self.policy.parameters < SMALL
        torch.set_num_threads(config.threads or (1 if small or across.size > 1 else torch.get_num_threads()))
        self.collector = Collector(self.policy, self.task, config)
        self.collector.refuse_long()
        wrap = Wrapping(across, sharded=config.sharded)
        self.updater = Updater(self.policy, config, wrap)
        self.crediting = Crediting(config, self.collector, self.updater.reference)
        self.critic = Critic(self.policy, config, wrap) if values_by_critic(config) else None
        self.guards = Guards.of(config)
        self.generated = 0  # tokens sampled for training, Monte-Carlo continuations and all
        self._trackers = Trackers(config.trackers if self._first else (), run.path)
        self._alarm = Alarm()
        self._clock = Clock()
        self._stop = Stop()

    def train(self) -> bool:
        """Run to the end: test before, train, test after, save the model. False if asked to stop before that."""
        with ExitStack() as during:
            during.enter_context(self._stop.heard())
            if self._first:
                during.enter_context(self.run.begin(self.config))
            during.enter_context(self._trackers.watching(with_effect(self.config)))
            step = self._take_up()
            if step == 0:  # later the policy is another one
                self._evaluate("before", 0)
            while not self._done(step):
                if self._step(step):
                    return False
                step += 1
            self._evaluate("after", step)
            if self._first:
                self.run.save_model(self.policy.save)
        return True

    @property
    def _first(self) -> bool:
        """Whether this is the process that writes the run down."""
        return self.across.rank == 0

    def _done(self, steps: int) -> bool:
        """Are so many steps enough?"""
        budget = self.config.token_budget
        return steps >= self.config.steps or (budget is not None and self.generated >= budget)

    def _step(self, step: int) -> bool:
        """Take a step; gives whether it is to be the last one for now, with everything saved."""
        self._clock, generated_before = Clock(), self.policy.generated
        problems = self.task.sample(self.config.prompts, chance(self.config, step, "problems"))
        with self._clock.phase("sample"):
            ask = self.collector.tree_rollouts if grows_trees(self.config) else self.collector.rollouts
            rollouts = ask(problems, step)
        with self._clock.phase("judge"):
            rollouts = self.collector.scored(rollouts, problems)
        with self._clock.phase("credit"):
            ledger, told = self._credit(rollouts, problems, step)
        with self._clock.phase("update"):
            order = torch_chance(self.config, step, "order", torch.device("cpu"))
            figures = self._learn(ledger, order, step)
        events = [*(self.guards.begun() if step == 0 else []), *self.guards.judge(self.collector.complaints)]
        events += self.guards.after(figures)
        self.collector.complaints.clear()
        tokens = self.policy.generated - generated_before
        self.generated += tokens
        metrics = {
            "step": step,
            **ledger_figures(ledger),
            **told,
            **figures,
            "kl_beta": self.guards.kl_beta,
            "sampled_tokens": int(rollouts.action_mask.sum()),
            "generated_tokens": self.generated,
            **({"events": events} if events else {}),
        }
        stop = bool(self.across.largest(torch.tensor(int(self._stop.asked))))
        with self._clock.phase("save"):
            self._write_down(step, metrics, ledger, at_end=stop or self._done(step + 1))
        timings = self._clock.timings(step, tokens)
        if self._first:
            self.run.append("timings.jsonl", timings)
            self._trackers.stepped(step, metrics, timings)
            self.watcher.stepped(metrics, timings)
        return stop and not self._done(step + 1)

    def _learn(self, ledger: Ledger, order: torch.Generator, step: int) -> Figures:
        """Move critic and policy, each where it is its turn."""
        config = self.config
        figures: Figures = {}
        if self.critic and step % config.critic_every == 0:
            figures |= self.critic.learn(ledger, torch_chance(config, step, "critic", torch.device("cpu")))
        if self.critic and step < config.critic_warmup:
            return figures | self.updater.idle()
        return figures | self.updater.update(ledger, order, self.guards.terms)

    def _credit(self, rollouts: Rollouts, problems: list[Problem], step: int) -> tuple[Ledger, Figures]:
        """Credit by the recipe, and what there is to tell about it."""
        if self.critic:
            rollouts = self.critic.valued(rollouts)
        weight = self.crediting.weight(step, self.generated)
        ledger = self.crediting.ledger(rollouts, problems, step, weight=weight, kl_beta=self.guards.kl_beta)
        told = {"step_credit_weight": weight} if ONLY["step_credit_from"].holds(self.config) else {}
        return ledger, told | self._check_values(ledger, problems, step, weight) | self._variance(ledger, step)

    def _variance(self, ledger: Ledger, step: int) -> Figures:
        """Where it is due, how far the gradient strays; the first process looks."""
        every = self.config.gradient_variance_every
        if every is None or step % every or not self._first:
            return {} if every is None else dict.fromkeys(variance.NAMES)
        order = torch_chance(self.config, step, "variance", torch.device("cpu"))
        return variance.gradient_variance(ledger, self.policy, self.config, order)

    def _check_values(self, ledger: Ledger, problems: list[Problem], step: int, weight: float) -> Figures:
        """Where it is due, how far the values are from the truth; a warning where that widens."""
        every = self.config.check_values_every
        if every is None:
            return {}
        gap = values.checked(ledger, self.collector, problems, step) if step % every == 0 and weight else None
        if gap is None:
            return {"value_gap": None, "value_bias": None}
        if before := self._alarm.widened(gap):
            warnings.warn(
                f"step {step}: the values before steps are off by {gap.rms:.2f} in the root mean square (bias "
                f"{gap.bias:+.2f}), and were by {before.rms:.2f} at best; they no longer fit the policy",
                stacklevel=2,
            )
        return {"value_gap": gap.rms, "value_bias": gap.bias}

    def _write_down(self, step: int, metrics: dict[str, Any], ledger: Ledger, *, at_end: bool) -> None:
        if self._first:
            self.run.append("metrics.jsonl", metrics)
            if at_end or step % self.config.ledger_every == 0:
                write_rows(self.run.ledgers / f"step-{step:06d}.jsonl", ledger.rows())
        if at_end or (step + 1) % self.config.checkpoint_every == 0:
            state = self._state(step + 1)  # which takes all processes
            if self._first:
                self.run.save_checkpoint(step + 1, state, self._save)

    def _state(self, steps: int) -> dict[str, Any]:
        return {
            "step": steps,
            "generated": self.generated,
            "updater": self.updater.state(),
            "crediting": self.crediting.state(),
            "guards": self.guards.state(),
            "alarm": self._alarm.state(),
            "critic": self.critic.state() if self.critic else None,
        }

    def _save(self, folder: Path) -> None:
        """The policy as a model, and an adapter as it is besides."""
        self.policy.save(folder)
        if self.policy.adapted:
            torch.save(self.policy.weights(), folder / "adapter.pt")

    def _take_up(self) -> int:
        """Go back to the newest checkpoint and give the number of the next step."""
        found = self.run.newest_checkpoint()
        if self._first:
            self.run.keep_steps_before(0 if found is None else found[1]["step"])
        self.across.gather([])  # nobody goes on while another still reads
        if found is None:
            return 0
        folder, state = found
        if self.policy.adapted:
            self.policy.take(torch.load(folder / "adapter.pt", weights_only=True))
        else:
            self.policy.model.load_state_dict(CausalPolicy.load(folder).model.state_dict())
        self.updater.load(state["updater"])
        self.crediting.load(state["crediting"])
        self.guards.load(state["guards"])
        self._alarm.load(state["alarm"])
        if self.critic:
            self.critic.load(state["critic"])
        self.generated = state["generated"]
        return int(state["step"])

    def _evaluate(self, when: str, step: int) -> None:
        """Sample one answer to each held-out problem, as in training; done once for a step and kept."""
        [known] = self.across.gather([self.run.evaluations().get(when, {})] if self._first else [])
        if known.get("step") == step:
            rate = PassRate(known["passed"], known["scored"])
        else:
            rate = self.collector.pass_rate(self.task.held_out(self.config.tests), when)
            self.collector.complaints.clear()  # what could not be judged is no part of the rate
        if self._first:
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
