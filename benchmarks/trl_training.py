"""Measure training against TRL's GRPOTrainer: tokens trained a second, and the most memory that a process took.

    python benchmarks/trl_training.py                       # the embedded model
    python benchmarks/trl_training.py --smollm2 FOLDER      # SmolLM2-135M-Instruct, unpacked by tools/unpack_smollm2.py
    python benchmarks/trl_training.py --rounds 1 --steps 2  # does it run? Its figures mean nothing

Needs an environment with trl 1.16 and apportion[train,fast]. Same model, problems, judge, answers a prompt, longest
answer, AdamW and step size; float32, no KL, the same threads. Each round trains with one and then with the other in a
process of its own, every other round backwards; the first step is not counted. Prints Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

from apportion.tasks.chain import Chain

SHAPES: dict[str, dict[str, Any]] = {
    "embedded": {"prompts": 32, "group": 8, "length": 96, "rate": 3e-4, "micro": 128, "threads": 1},
    "smollm2": {"prompts": 2, "group": 8, "length": 64, "rate": 1e-5, "micro": 8, "threads": 2},
}
ARMS = ("apportion", "trl", "trl, as it is by default")
QUESTIONS = "What is {} plus {}, and why? Answer step by step, and give the number at the end."


def problems(model: str, count: int) -> list[tuple[str, str]]:
    """Prompts and answers."""
    rng = random.Random(0)
    if model == "embedded":
        return [(problem.prompt, problem.answer) for problem in Chain().sample(count, rng)]
    pairs = [(rng.randrange(10, 99), rng.randrange(10, 99)) for _ in range(count)]
    return [(QUESTIONS.format(a, b), str(a + b)) for a, b in pairs]


def with_apportion(model: str, path: str, steps: int) -> tuple[list[float], list[int]]:
    """Seconds and trained tokens of every step."""
    from apportion.train.config import resolve
    from apportion.train.loop import Trainer
    from apportion.train.run_folder import RunFolder

    class Nobody:
        def evaluated(self, *told: object) -> None: ...

        def stepped(self, *told: object) -> None: ...

    shape = SHAPES[model]
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {"model": "embedded"}
        if model != "embedded":
            data = Path(folder) / "data.jsonl"
            rows = [{"prompt": prompt, "answer": answer} for prompt, answer in problems(model, 64)]
            data.write_text("".join(json.dumps(row) + "\n" for row in rows))
            settings = {"model": path, "data": str(data), "checker": "exact"}
        config = resolve(
            settings
            | {"prompts": shape["prompts"], "group": shape["group"], "max_new_tokens": shape["length"]}
            | {"learning_rate": shape["rate"], "micro_batch": shape["micro"], "threads": shape["threads"]}
            | {"kl_beta": 0.0, "entropy_bonus": 0.0, "keep_reference": False, "entropy_floor": 0.0}
            | {"temperature": 1.0, "top_p": 1.0, "steps": steps, "checkpoint_every": 10_000, "ledger_every": 10_000}
            | {"held_out": 0 if model == "embedded" else 1}
        )
        run = RunFolder.new(Path(folder) / "run")
        trainer = Trainer(run, config, Nobody())
        trainer._write_down = lambda step, metrics, ledger, **more: run.append("metrics.jsonl", metrics)  # type: ignore[method-assign]
        trainer.train()
        seconds = [row["seconds"] for row in run.rows("timings.jsonl")]
        return seconds, [row["trained_tokens"] for row in run.rows("metrics.jsonl")]


def with_trl(model: str, path: str, steps: int, *, by_default: bool) -> tuple[list[float], list[int]]:
    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    shape = SHAPES[model]
    torch.set_num_threads(shape["threads"])
    known = problems(model, shape["prompts"] * steps)
    chain, answers = {problem.prompt: problem for problem in Chain().sample(32 * steps, random.Random(0))}, dict(known)

    def reward(prompts: list[str], completions: list[str], **more: Any) -> list[float]:
        if model == "embedded":
            return [Chain().score(chain[prompt], text) for prompt, text in zip(prompts, completions, strict=True)]
        return [float(text.strip() == answers[prompt]) for prompt, text in zip(prompts, completions, strict=True)]

    batch = shape["prompts"] * shape["group"]
    with tempfile.TemporaryDirectory() as folder:
        settings = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=min(shape["micro"], batch),
            gradient_accumulation_steps=max(1, batch // shape["micro"]),
            num_generations=shape["group"],
            max_completion_length=shape["length"],
            learning_rate=shape["rate"],
            lr_scheduler_type="constant",
            max_steps=steps,
            use_cpu=True,
            bf16=False,
            report_to="none",
            save_strategy="no",
            logging_steps=1000,
            disable_tqdm=True,
            beta=0.0,
            model_init_kwargs={"dtype": "float32"},
            **({} if by_default else {"gradient_checkpointing": False}),
        )
        trainer = GRPOTrainer(
            model=path,
            reward_funcs=reward,
            args=settings,
            train_dataset=Dataset.from_list([{"prompt": prompt} for prompt, _ in known]),
            processing_class=AutoTokenizer.from_pretrained(path),
        )
        tokens, stamps = [], [time.perf_counter()]
        compute, step_of = trainer._compute_loss, trainer.training_step

        def counted(module: Any, inputs: Any) -> Any:
            tokens.append(int(inputs["completion_mask"].sum()))
            return compute(module, inputs)

        def stamped(*given: Any, **more: Any) -> Any:
            found = step_of(*given, **more)
            stamps.append(time.perf_counter())
            return found

        trainer._compute_loss, trainer.training_step = counted, stamped
        trainer.train()
    every = settings.gradient_accumulation_steps
    ends = stamps[::every]  # the optimiser's own step falls to the step after it
    seconds = [after - before for before, after in pairwise(ends)]
    return seconds, [sum(tokens[n : n + every]) for n in range(0, len(tokens), every)]


def child(arm: str, model: str, path: str, steps: int) -> None:
    if arm == "apportion":
        seconds, tokens = with_apportion(model, path, steps)
    else:
        seconds, tokens = with_trl(model, path, steps, by_default="default" in arm)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"rate": sum(tokens[1:]) / sum(seconds[1:]), "peak": peak}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smollm2", type=Path, help="folder of the model")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--child", choices=ARMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    model = "smollm2" if options.smollm2 else "embedded"
    path = str(options.smollm2 or files("apportion") / "embedded")
    if options.child:
        child(options.child, model, path, options.steps)
        return
    found: dict[str, list[dict[str, float]]] = {arm: [] for arm in ARMS}
    for number in range(options.rounds):
        for arm in ARMS[:: -1 if number % 2 else 1]:
            command = [sys.executable, __file__, *sys.argv[1:], "--child", arm]
            environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(SHAPES[model]["threads"])}
            shown = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
            found[arm].append(json.loads(shown.splitlines()[-1]))
    print("| trainer | tokens trained a second | ours is faster by | peak memory, GiB | ours takes |")
    print("| --- | --- | --- | --- | --- |")
    for arm, rounds in found.items():
        ratios = [own["rate"] / other["rate"] for own, other in zip(found["apportion"], rounds, strict=True)]
        rate, peak = (statistics.median(one[what] for one in rounds) for what in ("rate", "peak"))
        share = statistics.median(one["peak"] for one in found["apportion"]) / peak
        times = f"{statistics.median(ratios):.2f} x ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"| {arm} | {rate:,.0f} | {times} | {peak:.2f} | {share:.2f} x |")


if __name__ == "__main__":
    main()
