"""Measure what training learns from the tokens that it generates, recipe by recipe, everything counted.

    python benchmarks/outcome.py --out FOLDER --first-seed 5 --picture benchmarks/outcome.svg
    python benchmarks/outcome.py --out FOLDER --seeds 1 --arms tuning      # settings tried for GRPO
    python benchmarks/outcome.py --out FOLDER --arms tuned                 # the best of them, and of step credit
    python benchmarks/outcome.py --out FOLDER --tokens 30000 --seeds 1     # does it run? Its figures mean nothing

Every run trains the embedded model until it has generated --tokens, Monte-Carlo continuations included. A run that
FOLDER holds already, finished, is not made again. Pass rates are those of the sampled training problems, which are
new in every step; the last column is of held-out ones. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from pathlib import Path

from measure import figure

from apportion.train.run_folder import RunFolder

SETTING = (
    "chain_steps=8",
    "wording=0",
    "temperature=1.3",
    "held_out=512",
    "checkpoint_every=1000",
    "steps=10000",
)
WHOLE = ("prompts=8", "group=8", "learning_rate=1e-4")  # the best for GRPO of those tried, with seeds 0 to 4
STEPS = ("recipe=vineppo", "prompts=8", "group=8", "learning_rate=2e-4")  # and for `vineppo careful`
WIDE = ("recipe=vineppo", "prompts=8", "group=16", "learning_rate=3e-4")
CAREFUL = ("mc_samples=1", "mc_boundaries=refine:0.35", "mc_temperature_factor=0.3")
ADAPTIVE = ("mc_error=0.2", "mc_boundaries=refine:0.35", "mc_temperature_factor=1.0")
TRIED = (
    (8, 16, 5e-5),
    (8, 16, 1e-4),
    (8, 16, 2e-4),
    (8, 16, 3e-4),
    (8, 8, 1e-4),
    (8, 8, 2e-4),
    (16, 8, 1e-4),
    (16, 8, 1.5e-4),
    (16, 8, 2e-4),
    (32, 8, 1e-4),
    (32, 8, 2e-4),
)
BEST = ((16, 8, 2e-4), (8, 8, 1e-4), (16, 8, 1e-4), (8, 8, 1.5e-4), (16, 8, 1.5e-4), (8, 16, 2e-4))


def _grpo(prompts: int, group: int, rate: float) -> str:
    return f"grpo {prompts} × {group} {rate:g}"


def _grpo_settings(prompts: int, group: int, rate: float) -> tuple[str, ...]:
    return "recipe=grpo", f"prompts={prompts}", f"group={group}", f"learning_rate={rate}"


ARMS: dict[str, dict[str, Sequence[str]]] = {
    "first": {
        "grpo": ("recipe=grpo", *WHOLE),
        "vineppo careful": (*STEPS, *CAREFUL),
        "exact values for nothing": (*STEPS, "values=exact"),
    },
    "others": {
        "rloo": ("recipe=rloo", *WHOLE),
        "tree": ("recipe=tree", "tree_roots=4", *WHOLE),
        "vineppo adaptive": (*STEPS, *ADAPTIVE),
        "vineppo plain": (*STEPS, "mc_samples=6"),
    },
    "tuning": {_grpo(*shape): _grpo_settings(*shape) for shape in TRIED},
    "tuned": {
        **{_grpo(*shape): _grpo_settings(*shape) for shape in BEST},
        "vineppo careful 8 × 8 0.0002": (*STEPS, *CAREFUL),
        "vineppo careful 8 × 16 0.0003": (*WIDE, *CAREFUL),
    },
}
ARMS["compared"] = ARMS["first"] | ARMS["others"]
SHARES = (0.25, 0.5, 0.75, 1.0)
T95 = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}
"""Two-sided 95 % points of Student's t, by degrees of freedom."""


@dataclass(frozen=True)
class Run:
    """One finished run: (tokens generated, pass rate) of every step, and the held-out rate at the end."""

    curve: list[tuple[int, float]]
    held_out: float

    def rate_at(self, tokens: float, window: float) -> float:
        """Mean pass rate of the steps that ended within `window` tokens before."""
        near = [rate for spent, rate in self.curve if tokens - window < spent <= tokens * 1.001]
        return statistics.fmean(near or [min(self.curve, key=lambda point: abs(point[0] - tokens))[1]])

    def mean_rate(self) -> float:
        """Mean pass rate over the tokens: the area under the curve."""
        spent = [0, *(tokens for tokens, _ in self.curve)]
        widths = [after - before for before, after in pairwise(spent)]
        return sum(width * rate for width, (_, rate) in zip(widths, self.curve, strict=True)) / spent[-1]


def train(folder: Path, settings: Sequence[str], tokens: int, seed: int) -> Run:
    run = RunFolder(folder)
    if not run.model.exists():
        assignments = [f"--set={setting}" for setting in (*SETTING, *settings, f"token_budget={tokens}")]
        command = [sys.executable, "-m", "apportion", "train", "--seed", str(seed), "--out", str(folder), *assignments]
        if (folder / "config.toml").exists():
            command = [sys.executable, "-m", "apportion", "train", "--resume", str(folder)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    curve = [(row["generated_tokens"], row["pass_rate"]) for row in run.rows("metrics.jsonl")]
    return Run(curve, json.loads((folder / "evaluations.json").read_text())["after"]["rate"])


def folder_of(name: str, seed: int) -> str:
    return f"{name.replace(' ', '-').replace('×', 'x')}-seed{seed}"


def interval(numbers: Sequence[float]) -> tuple[float, float]:
    """Mean, and half the width of its 95 % interval over the seeds."""
    if len(numbers) < 2:
        return statistics.fmean(numbers), float("nan")
    return statistics.fmean(numbers), T95[len(numbers) - 1] * statistics.stdev(numbers) / sqrt(len(numbers))


def percent(numbers: Sequence[float]) -> str:
    mean, half = interval(numbers)
    return f"{100 * mean:.1f}" if half != half else f"{100 * mean:.1f} ± {100 * half:.1f}"


def table(runs: dict[str, list[Run]], tokens: int) -> str:
    first = next(iter(runs.values()))
    header = ["recipe", *(f"at {figure(share * tokens)}" for share in SHARES), "mean over the tokens"]
    header += [f"less that of {next(iter(runs))}", "held out at the end", "steps"]
    lines = [header, ["---"] * len(header)]
    for name, found in runs.items():
        at = [percent([run.rate_at(share * tokens, tokens / 10) for run in found]) for share in SHARES]
        lead = [run.mean_rate() - other.mean_rate() for run, other in zip(found, first, strict=True)]
        steps = figure(statistics.fmean(len(run.curve) for run in found))
        mean, held_out = percent([run.mean_rate() for run in found]), percent([run.held_out for run in found])
        lines.append([name, *at, mean, "" if found is first else percent(lead), held_out, steps])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each recipe")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=400_000)
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, a thread each")
    parser.add_argument("--arms", choices=ARMS, default="compared")
    parser.add_argument("--picture", type=Path, help="draw the curves here")
    options = parser.parse_args()
    arms = ARMS[options.arms]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    with ThreadPoolExecutor(options.jobs) as pool:
        waiting = {
            (name, seed): pool.submit(train, options.out / folder_of(name, seed), settings, options.tokens, seed)
            for seed in seeds
            for name, settings in arms.items()
        }
        runs = {name: [waiting[name, seed].result() for seed in seeds] for name in arms}
    print(table(runs, options.tokens))
    if options.picture:
        from outcome_picture import draw

        draw({name: [run.curve for run in found] for name, found in runs.items()}, options.tokens, options.picture)


if __name__ == "__main__":
    main()
