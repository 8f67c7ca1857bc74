"""TRL trainers of the embedded model, small enough for tests."""

from __future__ import annotations

import random
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from trl import GRPOConfig

from apportion.adapters.trl import GRPOTrainer
from apportion.tasks.chain import Chain
from apportion.tasks.problem import Problem

CHAIN = Chain()
MODEL = str(files("apportion") / "embedded")
PROBLEMS = CHAIN.sample(8, random.Random(0))
DATA = Dataset.from_list([{"prompt": problem.prompt, "answer": problem.answer} for problem in PROBLEMS])
MARKS = [
    pytest.mark.host,
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # transformers of its own settings, which TRL makes
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*pin_memory.*"),
    pytest.mark.filterwarnings("ignore:.*experimental feature:UserWarning"),  # rollout_func
]


def correct(prompts: list[str], completions: list[str], answer: list[str], **more: Any) -> list[float]:
    asked = zip(prompts, answer, completions, strict=True)
    return [CHAIN.score(Problem(prompt, known), text) for prompt, known, text in asked]


def settings(folder: Path, **more: Any) -> GRPOConfig:
    """Two steps of two micro-batches of eight answers, four to a prompt, hot enough to differ in length."""
    plain: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "num_generations": 4,
        "max_completion_length": 60,
        "temperature": 1.6,
        "learning_rate": 1e-3,
        "max_steps": 2,
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "model_init_kwargs": {"dtype": "float32"},
    }
    return GRPOConfig(**plain | more)


def trainer(folder: Path, rewards: Any = correct, *, made_by: Any = GRPOTrainer, **more: Any) -> Any:
    """A trainer; what is no setting of TRL's config goes to the trainer itself."""
    names = ("recipe", "values", "callbacks", "rollout_func", "peft_config")
    own = {name: more.pop(name) for name in names if name in more}
    return made_by(model=MODEL, reward_funcs=rewards, args=settings(folder, **more), train_dataset=DATA, **own)


def said(trained: Any) -> list[dict[str, float]]:
    """What was logged of every step."""
    return [row for row in trained.state.log_history if "loss" in row]


Piece = tuple[str, bool]
"""Text of an answer, and whether the policy wrote it."""


def answering(*asked: Sequence[Piece], ended: bool = True) -> Any:
    """A `rollout_func` whose answers are these, in turn; what the policy did not write is the environment's."""

    def rollouts(prompts: list[str], host: Any) -> dict[str, Any]:
        encode = host.processing_class
        ids, masks = [], []
        for n in range(len(prompts)):
            own, mask = [], []
            for text, sampled in asked[n % len(asked)]:
                piece = encode(text, add_special_tokens=False)["input_ids"]
                own += piece
                mask += [int(sampled)] * len(piece)
            ids.append([*own, encode.eos_token_id] if ended else own)
            masks.append([*mask, 1] if ended else mask)
        return {
            "prompt_ids": [encode(prompt)["input_ids"] for prompt in prompts],
            "completion_ids": ids,
            "logprobs": [[-1.0] * len(own) for own in ids],
            "env_mask": masks,
        }

    return rollouts


def scored(host: Any, answers: int) -> dict[str, Any]:
    """What goes into the loss for so many answers of the first prompts, before TRL shuffles and splits it."""
    host.model.train()
    rows = [DATA[n // host.num_generations] for n in range(answers)]
    found: dict[str, Any] = host._generate_and_score_completions(rows)
    return found
