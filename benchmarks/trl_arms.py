"""TRL's GRPOTrainer on a CPU, its steps watched: what the benchmarks against it share."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from apportion.tasks.problem import Problem

Judge = Callable[[Problem, str], float]
"""Score of an answer."""


@dataclass(frozen=True)
class Shape:
    """A step of training is `prompts` × `group` answers of at most `length` tokens, `micro` of them in one pass."""

    prompts: int
    group: int
    length: int
    rate: float
    micro: int
    threads: int


EMBEDDED = Shape(prompts=32, group=8, length=96, rate=3e-4, micro=128, threads=1)
"""The default run."""


@dataclass
class Steps:
    """Of every step: its seconds, its tokens, the mean score of its answers, and seconds of a processor that it had."""

    seconds: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def train_with_apportion(folder: Path, settings: dict[str, Any], *, write_down: bool = True) -> Steps:
    """Train as `apportion train` does, into a new folder. write_down: keep ledgers and checkpoints."""
    from apportion.train.config import resolve
    from apportion.train.loop import Trainer
    from apportion.train.run_folder import RunFolder

    cpu = [time.process_time()]

    class Watch:
        def evaluated(self, when: str, *told: object) -> None:
            if when == "before":
                cpu[-1] = time.process_time()

        def stepped(self, *told: object) -> None:
            cpu.append(time.process_time())

    run = RunFolder.new(folder)
    trainer = Trainer(run, resolve(settings), Watch())
    if not write_down:
        trainer._write_down = lambda step, metrics, ledger, **more: run.append("metrics.jsonl", metrics)  # type: ignore[method-assign]
    trainer.train()
    rows = run.rows("metrics.jsonl")
    return Steps(
        [row["seconds"] for row in run.rows("timings.jsonl")],
        [row["sampled_tokens"] for row in rows],
        [row["outcome_mean"] for row in rows],
        [after - before for before, after in pairwise(cpu)],
    )


def train_with_trl(
    path: str, shape: Shape, problems: Sequence[Problem], judge: Judge, save: Path | None = None, **settings: Any
) -> Steps:
    """Train with float32 and AdamW: a step for every `shape.prompts` of the problems, in their order.

    save: folder for the model as it is at the end. settings: of GRPOConfig.
    """
    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(shape.threads)
    steps, tokenizer = Steps(), AutoTokenizer.from_pretrained(path)
    rows: list[dict[str, Any]] = [{"prompt": problem.prompt, "answer": problem.answer} for problem in problems]
    if tokenizer.chat_template:  # as apportion asks
        rows = [row | {"prompt": [{"role": "user", "content": row["prompt"]}]} for row in rows]

    def reward(prompts: list[Any], completions: list[Any], answer: list[str], **more: Any) -> list[float]:
        asked = zip(map(_text, prompts), answer, map(_text, completions), strict=True)
        scores = [judge(Problem(prompt, known), text) for prompt, known, text in asked]
        steps.scores.append(sum(scores) / len(scores))
        return scores

    batch = shape.prompts * shape.group
    with tempfile.TemporaryDirectory() as folder:
        shared: dict[str, Any] = {
            "output_dir": folder,
            "per_device_train_batch_size": min(shape.micro, batch),
            "gradient_accumulation_steps": max(1, batch // shape.micro),
            "num_generations": shape.group,
            "max_completion_length": shape.length,
            "learning_rate": shape.rate,
            "lr_scheduler_type": "constant",
            "max_steps": len(problems) // shape.prompts,
            "shuffle_dataset": False,
            "use_cpu": True,
            "bf16": False,
            "beta": 0.0,
            "model_init_kwargs": {"dtype": "float32"},
            "report_to": "none",
            "save_strategy": "no",
            "logging_steps": 1000,
            "disable_tqdm": True,
        }
        config = GRPOConfig(**shared | settings)
        trainer = GRPOTrainer(
            model=path,
            reward_funcs=reward,
            args=config,
            train_dataset=Dataset.from_list(rows),
            processing_class=tokenizer,
        )
        tokens: list[int] = []
        stamps = [(time.perf_counter(), time.process_time())]
        compute, step_of = trainer._compute_loss, trainer.training_step

        def counted(module: Any, inputs: Any) -> Any:
            tokens.append(int(inputs["completion_mask"].sum()))
            return compute(module, inputs)

        def stamped(*given: Any, **more: Any) -> Any:
            found = step_of(*given, **more)
            stamps.append((time.perf_counter(), time.process_time()))
            return found

        trainer._compute_loss, trainer.training_step = counted, stamped
        trainer.train()
        if save is not None:
            trainer.save_model(str(save))
    every = config.gradient_accumulation_steps
    ends = stamps[::every]  # the optimiser's own step falls to the step after it
    steps.seconds, steps.cpu = (
        [after - before for before, after in pairwise(clock)] for clock in zip(*ends, strict=True)
    )
    steps.tokens = [sum(tokens[n : n + every]) for n in range(0, len(tokens), every)]
    return steps


def _text(said: Any) -> str:
    """Of a prompt or an answer, plain or as messages."""
    return str(said if isinstance(said, str) else said[-1]["content"])


def again(arguments: Sequence[str], threads: int) -> str:
    """Run the calling script in a process of its own, offline and with so many threads, and give what it prints."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, sys.argv[0], *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
