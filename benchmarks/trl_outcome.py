"""Measure what training learns against TRL's GRPOTrainer: for the same tokens, and in the same time.

    python benchmarks/trl_outcome.py --out FOLDER --seeds 1 --arms tuning   # settings tried
    python benchmarks/trl_outcome.py --out FOLDER                           # the best of each
    python benchmarks/trl_outcome.py --out FOLDER --seeds 1 --steps 2       # does it run? Its figures mean nothing

Needs an environment with trl 1.16 and apportion[train,fast]. Every run is the default run of `apportion train` (the
embedded model and task, 70 steps of 32 prompts × 8 answers), one after another with a thread each. A seed has the same
problems in every arm, and one judge judges all. Held-out problems are sampled and judged by apportion, whoever trained.
Time is that of a processor in the first seed's runs, step by step, which other work on the machine disturbs least.
A run that FOLDER holds already is not made again. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from measure import figure
from outcome import folder_of
from trl_arms import EMBEDDED, Steps, again, train_with_apportion, train_with_trl

from apportion.compare.interval import estimate
from apportion.policy.causal import CausalPolicy
from apportion.tasks.chain import Chain
from apportion.train.collect import Collector, chance
from apportion.train.config import resolve

TRL: dict[str, Any] = {"gradient_checkpointing": False}
OURS: dict[str, Any] = {"checkpoint_every": 1000}
ARMS: dict[str, dict[str, dict[str, Any]]] = {
    "compared": {
        "apportion": OURS,
        "trl": TRL,
    },
    "tuning": {
        "apportion": OURS,
        "apportion 1e-4": OURS | {"learning_rate": 1e-4},
        "apportion 1e-3": OURS | {"learning_rate": 1e-3},
        "trl": TRL,
        "trl 1e-4": TRL | {"learning_rate": 1e-4},
        "trl 1e-3": TRL | {"learning_rate": 1e-3},
        "trl dr_grpo, scale_rewards none": TRL | {"loss_type": "dr_grpo", "scale_rewards": "none"},
    },
}
"""Settings beyond the default run: of `apportion train`, and of GRPOConfig."""
KNOWN = ARMS["tuning"] | ARMS["compared"]
WINDOW = 5
"""Steps that a pass rate at a point is the mean of."""
GOOD = 0.9


@dataclass(frozen=True)
class Run:
    """(what was spent, pass rate) of every step, and the held-out rate at the end."""

    curve: list[tuple[float, float]]
    held_out: float

    def mean_rate(self) -> float:
        """Mean pass rate over what was spent: the area under the curve."""
        spent = [0.0, *(place for place, _ in self.curve)]
        widths = [after - before for before, after in pairwise(spent)]
        return sum(width * rate for width, (_, rate) in zip(widths, self.curve, strict=True)) / spent[-1]


@dataclass(frozen=True)
class Outcome:
    """One finished run: its steps, and the pass rate on held-out problems at the end."""

    steps: Steps
    held_out: float

    def against(self, each: Sequence[float]) -> Run:
        """Its pass rates against what was spent, so much in each step."""
        return Run(list(zip(accumulate(each), self.steps.scores, strict=True)), self.held_out)


def child(name: str, seed: int, folder: Path, steps: int) -> None:
    """Train, and test on the held-out problems."""
    if name.startswith("trl"):
        found = with_trl(seed, folder / "model", steps, KNOWN[name])
    else:
        found = train_with_apportion(folder, {"seed": seed, "steps": steps} | KNOWN[name])
    config = resolve({"seed": seed})
    collector = Collector(CausalPolicy.load(folder / "model"), Chain(), config)
    write(folder, Outcome(found, collector.pass_rate(Chain().held_out(config.tests), "after").rate))


def with_trl(seed: int, model: Path, steps: int, settings: dict[str, Any]) -> Steps:
    """On the problems that apportion draws for the same seed."""
    drawn = [chance(resolve({"seed": seed}), step, "problems") for step in range(steps)]
    problems = [problem for rng in drawn for problem in Chain().sample(EMBEDDED.prompts, rng)]
    embedded = str(files("apportion") / "embedded")
    return train_with_trl(embedded, EMBEDDED, problems, Chain().score, model, seed=seed, **settings)


def write(folder: Path, outcome: Outcome) -> None:
    (folder / "steps.json").write_text(json.dumps(asdict(outcome)))


def read(folder: Path) -> Outcome:
    found = json.loads((folder / "steps.json").read_text())
    return Outcome(Steps(**found["steps"]), found["held_out"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each arm")
    parser.add_argument("--steps", type=int, default=70)
    parser.add_argument("--arms", choices=ARMS, default="compared")
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.seed, options.out, options.steps)
        return
    found: dict[str, list[Outcome]] = {name: [] for name in ARMS[options.arms]}
    for seed in range(options.seeds):
        for name, runs in found.items():
            folder = options.out / folder_of(name.replace(",", ""), seed)
            if not (folder / "steps.json").exists():
                arguments = ["--out", str(folder), "--seed", str(seed), "--steps", str(options.steps)]
                again([*arguments, "--child", name], EMBEDDED.threads)
            runs.append(read(folder))
            print(f"{folder.name}: held out {runs[-1].held_out:.1%}", file=sys.stderr, flush=True)
    print(tables(found))


def tables(found: dict[str, list[Outcome]]) -> str:
    """Pass rates in percent, for the same tokens and then in the same time; differences are of the same seed."""
    clock = {name: runs[0].steps.cpu for name, runs in found.items()}
    by_tokens = {name: [run.against(run.steps.tokens) for run in runs] for name, runs in found.items()}
    by_time = {name: [run.against(clock[name]) for run in runs] for name, runs in found.items()}
    held_out = compared("held out at the end", {name: [run.held_out for run in runs] for name, runs in found.items()})
    paces = [["seconds a step"], *([figure(statistics.fmean(own))] for own in clock.values())]
    return f"{table('tokens', by_tokens, held_out)}\n\n{table('s', by_time, paces)}"


def table(unit: str, spent: dict[str, list[Run]], more: list[list[str]]) -> str:
    """Pass rates after as much of a unit as all runs spent, and what else is known of every arm."""
    end = min(run.curve[-1][0] for runs in spent.values() for run in runs)
    until = {name: [Run([p for p in run.curve if p[0] <= end], 0.0) for run in runs] for name, runs in spent.items()}
    at_end = compared(f"at {end:,.0f} {unit}", {name: [last_rate(run) for run in runs] for name, runs in until.items()})
    mean = compared("mean until then", {name: [run.mean_rate() for run in runs] for name, runs in until.items()})
    good = [[f"{unit} to {GOOD:.0%}"], *([reached(runs)] for runs in spent.values())]
    names = [["trainer"], *([name] for name in spent)]
    head, *rows = (
        [cell for cells in parts for cell in cells] for parts in zip(names, mean, at_end, good, more, strict=True)
    )
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def compared(what: str, rates: dict[str, list[float]]) -> list[list[str]]:
    """A heading, and for every arm its rates and by how much they are above those of the first one."""
    first = next(iter(rates.values()))
    leads = {name: [one - other for one, other in zip(own, first, strict=True)] for name, own in rates.items()}
    return [[what, "less ours"], *([percent(own), percent(leads[name])] for name, own in rates.items())]


def percent(rates: Sequence[float]) -> str:
    found = estimate(rates)
    return f"{100 * found.mean:.1f}" + ("" if found.half is None else f" ± {100 * found.half:.1f}")


def last_rate(run: Run) -> float:
    return statistics.fmean(rate for _, rate in run.curve[-WINDOW:])


def reached(runs: Sequence[Run]) -> str:
    """What was spent on average when the mean of so many steps in a row first was `GOOD`."""
    spent = [
        next((run.curve[n - 1][0] for n in range(WINDOW, len(run.curve) + 1) if last_rate(cut(run, n)) >= GOOD), None)
        for run in runs
    ]
    there = [one for one in spent if one is not None]
    if not there:
        return "never"
    return f"{statistics.fmean(there):,.0f}" + (f" ({len(there)} of {len(runs)})" if len(there) < len(runs) else "")


def cut(run: Run, steps: int) -> Run:
    return Run(run.curve[:steps], run.held_out)


if __name__ == "__main__":
    main()
